"""Where expressions get their variables from: the run as the decision has it at that moment.

A name of a step is looked up in the list of the place, then in the lists around it; `prev` is of
the list of the place, `item` and `index` of the nearest map around it.
"""

from collections.abc import Callable
from typing import Final

from towpath_engine.core import failures
from towpath_engine.core.changes import Changes, StepsNeeded
from towpath_engine.core.definition import MapSpec
from towpath_engine.core.model import Failure, Run, Step
from towpath_engine.core.paths import ROOT, index_of_item, live_path, place_of, upper_of, within
from towpath_engine.core.states import COMPLETED_ONCE, SETTLED_STEP, StepKind, StepStatus


class Scope:
    """Implements `expressions.interface.Values` for one place of the definition.

    `step` is the step that the expression belongs to (None: the run's own output); `error` is
    given at the sites that see one, `output` at those that see the step's own.
    """

    def __init__(
        self,
        changes: Changes,
        step: Step | None = None,
        *,
        error: Failure | None = None,
        output: bytes | None = None,
    ) -> None:
        self._changes = changes
        self._step = step
        self._error = error
        self._output = output

    def lookup(self, name: str) -> object:
        """The decoded value of a qualified name. Raises LookupError for one that is nowhere
        visible: the compiler has refused it, so this is a bug."""
        if name.startswith("steps."):
            step, _, field = name.removeprefix("steps.").rpartition(".")
            return self._of_step(self._path_of(step), field)
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
                previous = changes.owner_came_from(self._owner)
                return None if previous is None else self._output_of(previous)
            case "output":
                output = self._output
                return None if output is None else self._changes.decode("output", output)
            case "error":
                return None if self._error is None else failures.to_value(self._error)
            case "iteration":
                return 0 if self._step is None else self._step.iteration
            case "last":
                return self._last()
            case "index":
                return index_of_item(self._item(None).path)
            case _:
                item = self._item(name)
                assert item.input is not None, f"item {item.path} has no value"
                return changes.decode(f"item {item.path}", item.input)

    @property
    def _owner(self) -> str:
        """The owner of the list of the place."""
        return ROOT if self._step is None else upper_of(live_path(self._step.path))

    def _item(self, name: str | None) -> Step:
        """The nearest item around the place, or the nearest that is called `name`."""
        owner = self._owner
        while owner != ROOT:
            row = self._changes.need(owner)
            if row.kind is StepKind.ITEM and name in (None, self._item_name(owner)):
                return row
            owner = upper_of(upper_of(owner))
        raise LookupError(f"no variable {name!r} here")

    def _item_name(self, owner: str) -> str:
        spec = self._changes.definition_of(owner).spec
        assert isinstance(spec, MapSpec), f"{owner} is no item"
        return spec.as_name

    def _path_of(self, name: str) -> str:
        """The path of the step that a place calls by this name."""
        owner = self._owner
        while within(place_of(owner), name) not in self._changes.run.definition.steps:
            if owner == ROOT:
                raise LookupError(f"no step {name!r} here")
            owner = upper_of(upper_of(owner))
        return within(owner, name)

    def _last(self) -> object:
        """Output of the previous iteration; null in the first."""
        step = self._step
        if step is None or step.iteration == 0 or step.last_output is None:
            return None
        return self._changes.decode("last", step.last_output)

    def _of_step(self, path: str, field: str) -> object:
        step = self._row(path)
        match field:
            case "output":
                return self._output_of(path)
            case "errors":
                if step is None or step.errors is None or step.status not in SETTLED_STEP:
                    return {}
                return self._changes.decode(f"steps.{path}.errors", step.errors)
            case "status":
                return StepStatus.PENDING.value if step is None else step.status.value
            case "error":
                return None if step is None or step.error is None else failures.to_value(step.error)
            case "attempts":
                return 0 if step is None else step.attempt
            case _:
                raise LookupError(f"no variable 'steps.{path}.{field}'")

    def _row(self, path: str) -> Step | None:
        """The row of a step; None when the run has not come to it. Raises StepsNeeded."""
        row = self._changes.step(path)
        # A step that is just being entered for the first time has no row yet.
        if row is None and (self._step is None or path != self._step.path):
            owner = upper_of(path)
            if self._changes.reached(owner, self._changes.definition_of(path).index):
                entered = None if self._step is None else self._step.path
                raise StepsNeeded(paths={path, *missing(self._changes, owner)} - {entered})
        return row

    def _output_of(self, path: str) -> object:
        """The output of a completed step; one that a loop came to again shows its last completed
        output until it has a new one; null for any other."""
        step = self._row(path)
        if step is None:
            return None
        # During a repeat `last_output` is the previous iteration's, which nobody else may see.
        earlier = step.last_output if step.iteration == 0 else None
        output = step.output if step.status in COMPLETED_ONCE else earlier
        return None if output is None else self._changes.decode(f"steps.{path}.output", output)


def missing(changes: Changes, owner: str) -> list[str]:
    """The steps of the owner's list that something names, have a row and are not loaded: whoever
    needs one of them asks for all."""
    definition = changes.run.definition
    place = place_of(owner)
    return [
        within(owner, name)
        for name in definition.lists[place].steps
        if within(place, name) in definition.referenced
        and changes.reached(owner, definition.steps[within(place, name)].index)
        and changes.step(within(owner, name)) is None
    ]


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
