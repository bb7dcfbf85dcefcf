"""Where expressions get their variables from: the run as the decision has it at that moment."""

from collections.abc import Callable
from typing import Final

from towpath_engine.core import failures
from towpath_engine.core.changes import Changes
from towpath_engine.core.model import Failure, Run, Step
from towpath_engine.core.states import StepStatus


class Scope:
    """Implements `expressions.interface.Values` for one place of the definition.

    `step` is the step that the expression belongs to (None: the run's own output); `error` is
    given at the sites that see one.
    """

    def __init__(
        self, changes: Changes, step: Step | None = None, *, error: Failure | None = None
    ) -> None:
        self._changes = changes
        self._step = step
        self._error = error

    def lookup(self, name: str) -> object:
        """The decoded value of a qualified name. Raises LookupError for one that is nowhere
        visible: the compiler has refused it, so this is a bug."""
        if name.startswith("steps."):
            path, _, field = name.removeprefix("steps.").rpartition(".")
            return self._of_step(path, field)
        if name.startswith("run."):
            return _RUN_FIELDS[name](self._changes.run, self._changes)
        return self._of_site(name)

    def _of_site(self, name: str) -> object:  # noqa: PLR0911 - one per variable
        changes = self._changes
        match name:
            case "input":
                return changes.decode("input", changes.run.input)
            case "metadata":
                return changes.decode("metadata", changes.run.metadata)
            case "now":
                return changes.now
            case "prev":
                previous = changes.run.last_step
                return None if previous is None else self._output_of(previous)
            case "error":
                return None if self._error is None else failures.to_value(self._error)
            case "iteration":
                return 0 if self._step is None else self._step.iteration
            case "last":
                return self._last()
            case _:
                raise LookupError(f"no variable {name!r} here")

    def _last(self) -> object:
        """Output of the previous iteration; null in the first."""
        step = self._step
        if step is None or step.iteration == 0 or step.last_output is None:
            return None
        return self._changes.decode("last", step.last_output)

    def _of_step(self, path: str, field: str) -> object:
        step = self._changes.step(path)
        match field:
            case "output":
                return self._output_of(path)
            case "status":
                return StepStatus.PENDING.value if step is None else step.status.value
            case "error":
                return None if step is None or step.error is None else failures.to_value(step.error)
            case "attempts":
                return 0 if step is None else step.attempt
            case _:
                raise LookupError(f"no variable 'steps.{path}.{field}'")

    def _output_of(self, path: str) -> object:
        """The output of a completed step; one that a loop came to again shows its last completed
        output until it has a new one; null for any other."""
        step = self._changes.step(path)
        if step is None:
            return None
        # During a repeat `last_output` is the previous iteration's, which nobody else may see.
        earlier = step.last_output if step.iteration == 0 else None
        output = step.output if step.status is StepStatus.COMPLETED else earlier
        return None if output is None else self._changes.decode(f"steps.{path}.output", output)


_RUN_FIELDS: Final[dict[str, Callable[[Run, Changes], object]]] = {
    "run.id": lambda run, _: run.id,
    "run.workflow": lambda run, _: run.workflow,
    "run.version": lambda run, _: run.workflow_version,
    "run.key": lambda run, _: run.key,
    "run.tags": lambda run, _: list(run.tags),
    "run.context": lambda run, changes: changes.decode("run.context", run.context),
    "run.started_at": lambda run, _: run.started_at,
    "run.parent_id": lambda run, _: run.parent_run_id,
}
