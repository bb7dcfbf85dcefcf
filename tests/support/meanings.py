"""What the constructs of the language promise of the rows of a run, checked after each decision."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tests.support.invariants import part_paths
from towpath_engine.core.definition import (
    ChoiceSpec,
    Definition,
    MapSpec,
    ParallelSpec,
    WaitMode,
    WaitSpec,
)
from towpath_engine.core.effects import Decision
from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.core.paths import place_of, upper_of, within
from towpath_engine.core.states import PART, WHOLE, StepStatus
from towpath_engine.core.transitions import StepChange

Rows = Mapping[str, Step]
_ROOM_FOR_ALL: Final = 1_000_000
_DONE: Final = frozenset({
    StepStatus.COMPLETED, StepStatus.SKIPPED, StepStatus.COMPENSATING, StepStatus.COMPENSATED,
    StepStatus.COMPENSATION_FAILED,
})  # fmt: skip
"""Also when its undoing begins, and even ends, in the very decision."""
_ENTERED: Final = frozenset({
    StepChange.DISPATCHED, StepChange.READIED, StepChange.WAITING, StepChange.STARTED,
    StepChange.COMPLETED,
})  # fmt: skip


def check_meaning(definition: Definition, decision: Decision, rows: Rows) -> None:
    """Outputs are those of the parts, limits are kept, a DAG is worked off in its order."""
    completed = {t.step for t in decision.transitions if t.what == StepChange.COMPLETED}
    for step in decision.changed:
        if step.path in completed and step.status is StepStatus.COMPLETED:
            _check_output(decision.run, step, rows)
        if step.kind in WHOLE and step.status is StepStatus.RUNNING:
            _check_limits(definition, step, decision.run.revival_count)
    for transition in decision.transitions:
        if transition.step is not None and transition.before == StepStatus.PENDING:
            _check_order(definition, transition, rows)


def _check_output(run: Run, step: Step, rows: Rows) -> None:
    assert step.output is not None, f"{step.path} is completed without an output"
    if step.kind in PART:
        last = None if step.last_step is None else rows[step.last_step]
        if last is not None and last.status is StepStatus.SKIPPED:
            last = None if last.came_from is None else rows[last.came_from]
        has_output = last is not None and last.status in _DONE
        expected = last.output if last is not None and has_output else b"null"
        assert step.output == expected, f"the output of {step.path} is not that of its last step"
        return
    spec = run.definition.steps[place_of(step.path)].spec
    match spec:
        case MapSpec() | ParallelSpec():
            parts = [rows[path] for path in part_paths(run.definition, step)]
            _check_joined(spec, step, parts, bytes_max=run.limits.joined_output_bytes_max)
        case WaitSpec():
            _check_signals(spec, msgspec.json.decode(step.output))
        case ChoiceSpec():
            chosen = msgspec.json.decode(step.output)["chosen"]
            assert chosen in {spec.default, *(row.next for row in spec.branches)}
        case _:
            pass


def _check_joined(
    spec: MapSpec | ParallelSpec, step: Step, parts: Sequence[Step], *, bytes_max: int
) -> None:
    assert step.parts is not None
    assert len(parts) == step.parts.total, f"{step.path} is joined before all parts were started"
    assert all(part.status in (StepStatus.COMPLETED, StepStatus.FAILED) for part in parts)
    outputs: list[Any] = [msgspec.json.decode(part.output or b"null") for part in parts]
    found = msgspec.json.decode(step.output or b"null")
    if isinstance(spec, ParallelSpec):
        assert found == dict(zip(spec.branches, outputs, strict=True))
    else:
        assert found == outputs
    failed = [str(i) for i, part in enumerate(parts) if part.status is StepStatus.FAILED]
    errors: dict[str, Any] = {} if step.errors is None else msgspec.json.decode(step.errors)
    size = len(step.output or b"") + len(step.errors or b"")
    assert size <= bytes_max, f"{step.path} has {size} bytes of outputs and errors"
    if bytes_max >= _ROOM_FOR_ALL:
        assert sorted(errors) == sorted(failed)
    else:
        assert set(errors) <= set(failed), "what there is no room for is left out"


def _check_signals(spec: WaitSpec, output: Any) -> None:
    if spec.mode is WaitMode.ANY:
        assert output["name"] in spec.signals
        return
    names = [one["name"] for one in output]
    if spec.mode is WaitMode.ALL:
        assert sorted(names) == sorted(spec.signals), "one of each"
    else:
        assert len(names) == spec.count
        assert set(names) <= set(spec.signals)


def _check_limits(definition: Definition, step: Step, revival_count: int) -> None:
    """No more parts at once, and no more failures, than the definition allows. What a retry has
    go on, it has go on at once."""
    spec, parts = definition.steps[place_of(step.path)].spec, step.parts
    assert parts is not None
    if not isinstance(spec, MapSpec):
        return
    assert parts.open <= spec.max_concurrency or revival_count, f"{step.path}: {parts}"
    tolerated = spec.tolerate_count
    if spec.tolerate_percent is not None:
        tolerated = parts.total * spec.tolerate_percent / 100
    assert parts.failed <= tolerated, f"{step.path}: {parts}"


def _check_order(definition: Definition, transition: Transition, rows: Rows) -> None:
    """A step of a DAG begins when all that it names are done."""
    path = transition.step or ""
    step_def = None if path.endswith("]") else definition.steps.get(place_of(path))
    if step_def is None or transition.what not in _ENTERED:
        return
    owner = upper_of(path)
    for name in step_def.after:
        before = rows.get(within(owner, name))
        assert before is not None, f"{path} begins before {name} was reached"
        assert before.status in _DONE, f"{path} begins, but {name} is {before.status}"
