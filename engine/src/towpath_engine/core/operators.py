"""How a settled run goes on because an operator wants it: retry and redrive.

A retry begins the step that failed (or those that a deadline cut off) again, in the same visit: the
idempotency key stays, since effects of the failed attempts may have happened. A redrive goes back
to any step that was reached: that step and all that can be reached from it are taken back, as if
the run had not come to them, and are visited under new numbers, so that their keys are new.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Raw, Struct
from msgspec.structs import replace

from towpath_engine.core import failures
from towpath_engine.core.changes import NOT_REACHED, Changes, Facts, StepNotLoaded
from towpath_engine.core.definition import ChoiceSpec, Repeat, StepDef, WaitSpec
from towpath_engine.core.dispatching import task_spec
from towpath_engine.core.effects import Decision, Verdict, refused
from towpath_engine.core.entering import advance, enter_step, last_output_of, resume_step
from towpath_engine.core.events import RedriveRequested, RetryRequested
from towpath_engine.core.instants import plus_ms
from towpath_engine.core.model import Run, Step
from towpath_engine.core.operations import Operation, refusal_of
from towpath_engine.core.payloads import remember_replaced
from towpath_engine.core.states import SETTLED_RUN, StepKind, StepStatus
from towpath_engine.core.transitions import RunChange, StepChange
from towpath_protocol.errors import ErrorCode

STEPS_NAMED_MAX: Final = 100
"""Steps that the transition of a retry or redrive names; each has a transition of its own, too."""


class Refusal(Struct, frozen=True):
    """Why a run does not go on."""

    code: ErrorCode
    message: str


def revive(changes: Changes, event: RetryRequested | RedriveRequested) -> Verdict | Decision:
    """Have the settled run go on. All steps of the run must be loaded, since any may be done again.

    Refused: RUN_NOT_SETTLED, NOT_RETRYABLE, ALREADY_COMPENSATED, STEP_NOT_FOUND, STEP_NOT_REACHED,
    TOO_LARGE.
    """
    match event:
        case RetryRequested():
            refusal = _refuse_status(changes.run, Operation.RETRY) or _retry(changes, event)
        case RedriveRequested():
            refusal = _refuse_status(changes.run, Operation.REDRIVE) or _redrive(changes, event)
    if refusal is None:
        return Verdict.APPLIED
    return refused(changes.run, refusal.code, refusal.message)


def done_again(decision: Decision) -> tuple[str, ...]:
    """The steps that an applied retry or redrive does again, in order of path."""
    paths = {
        row.step
        for row in decision.transitions
        if row.what == StepChange.REVIVED or (row.what == StepChange.RESET and row.data is None)
    }
    return tuple(sorted(path for path in paths if path is not None))


def _refuse_status(run: Run, operation: Operation) -> Refusal | None:
    verb = operation.value.partition(".")[2]
    code = refusal_of(operation, run.status)
    if code is not None:
        hint = (
            "restart it to have the same done once more"
            if run.status in SETTLED_RUN
            else "it has not settled"
        )
        message = f"run {run.id} is {run.status.value}, so there is nothing to {verb}: {hint}"
        return Refusal(code, message)
    count_max = run.limits.transitions_per_run_max
    if run.seq >= count_max:
        message = (
            f"run {run.id} has {run.seq} transitions, the limit is {count_max}: restart it, or "
            "raise the limit first"
        )
        return Refusal(ErrorCode.NOT_RETRYABLE, message)
    return None


# Retry


def _retry(changes: Changes, event: RetryRequested) -> Refusal | None:
    run = changes.run
    steps = _ended_steps(changes)
    refusal = _refuse_retry(changes, event, steps)
    if refusal is not None:
        return refusal
    paths = [step.path for step in steps]
    facts = {"steps": paths[:STEPS_NAMED_MAX], "step": event.step}
    last_step = run.last_step
    if run.error is not None and run.error.step is not None:
        # What failed was the last to settle; it goes on as having come from where it came.
        last_step = _row(changes, run.error.step).came_from
    _begin_again(changes, RunChange.RETRIED, event, facts, last_step=last_step)
    _reset_unreached(changes)
    for step in steps:
        edited = event.input if event.step in (None, step.path) else None
        advance(changes, resume_step(changes, _revived(changes, step, edited)))
        if changes.settled:
            return None
    if not steps:
        # A decision that was split, or the end of the list, which is evaluated again.
        cursor = run.cursor
        advance(changes, cursor)
    return None


def _ended_steps(changes: Changes) -> list[Step]:
    """The steps at which the run ended: the one that failed it, and those that were open then.

    A step whose failure the run went on from (a wait with `on_timeout`) is none of them.
    """
    run = changes.run
    failed = None if run.error is None else run.error.step
    rows = [_row(changes, path) for path in run.definition.steps]
    return [
        row
        for row in rows
        if row.status is StepStatus.CANCELLED
        or (row.path == failed and row.status is StepStatus.FAILED)
    ]


def _refuse_retry(changes: Changes, event: RetryRequested, steps: Sequence[Step]) -> Refusal | None:
    run = changes.run
    if event.step is not None and event.step not in run.definition.steps:
        return _no_step(run, event.step)
    paths = [step.path for step in steps]
    if event.step is not None and event.step not in paths:
        at = f"it ended at {', '.join(paths)}" if paths else "no step has failed"
        message = (
            f"run {run.id} did not end at step {event.step!r}: {at}; "
            "redrive goes on from any step that was reached"
        )
        return Refusal(ErrorCode.NOT_RETRYABLE, message)
    if event.input is None:
        return None
    if event.step is None and len(steps) != 1:
        which = "say which of them gets the input" if steps else "so there is none to edit"
        message = f"run {run.id} ended at {len(steps)} steps: {which}"
        return Refusal(ErrorCode.NOT_RETRYABLE, message)
    return _refuse_input(changes, event.step or paths[0], event.input)


def _revived(changes: Changes, step: Step, edited: bytes | None) -> Step:
    """The step in the same visit and iteration, with nothing left of the budget that it spent.

    The next attempt gets the input, the last error and the last progress of the one before.
    """
    fresh = replace(
        step,
        revival_count=changes.run.revival_count,
        attempt=0,
        release_count=0,
        input=step.input if edited is None else edited,
        output=None,
        error=None,
        last_error=step.error or step.last_error,
        worker_id=None,
        signal=None,
        dispatched_at=None,
        started_at=None,
        settled_at=None,
    )
    if _is_out_of_iterations(changes, step):
        # The last iteration was done and asked for another one: that is no attempt to repeat.
        fresh = replace(
            fresh,
            visit=step.visit + 1,
            iteration=0,
            input=edited,
            last_output=None,
            last_error=None,
            progress=None,
        )
    return changes.move(fresh, StepChange.REVIVED)


def _is_out_of_iterations(changes: Changes, step: Step) -> bool:
    if step.error is None or step.error.type != failures.REPEAT_LIMIT:
        return False
    limit = (task_spec(changes.run, step.path).repeat or Repeat()).limit
    return step.kind is StepKind.TASK and step.iteration + 1 >= limit


# Redrive


def _redrive(changes: Changes, event: RedriveRequested) -> Refusal | None:
    run = changes.run
    step_def = run.definition.steps.get(event.step)
    if step_def is None:
        return _no_step(run, event.step)
    if not changes.reached(step_def.index):
        message = f"run {run.id} never came to step {event.step!r}"
        return Refusal(ErrorCode.STEP_NOT_REACHED, message)
    if event.input is not None:
        refusal = _refuse_input(changes, event.step, event.input)
        if refusal is not None:
            return refusal
    steps = run.definition.steps
    after = reachable_from(steps, event.step)
    came_from = _row(changes, event.step).came_from
    again = [
        _row(changes, path)
        for path, one in steps.items()
        if (path in after or path == event.step) and changes.reached(one.index)
    ]
    changes.run = replace(run, visit_base=max(run.visit_base, *(step.visit for step in again)))
    facts = {"step": event.step, "step_count": len(again)}
    _begin_again(changes, RunChange.REDRIVEN, event, facts, last_step=came_from)
    _reset_unreached(changes)
    # What comes both before and after the step in a loop still shows its last output (as ever, in
    # a loop); what only comes after it shows none.
    around = after & leading_to(steps, event.step)
    for step in again:
        _take_back(changes, step, keeps_output=step.path in around)
    advance(changes, enter_step(changes, event.step, given=event.input))
    return None


def _take_back(changes: Changes, step: Step, *, keeps_output: bool) -> None:
    """The step is pending again, and what it did is forgotten but for its number of visits."""
    changes.unreach(changes.definition_of(step.path).index)
    reset = Step(
        path=step.path,
        kind=step.kind,
        status=step.status,
        visit=step.visit,
        revival_count=changes.run.revival_count,
        last_output=last_output_of(step) if keeps_output else None,
    )
    changes.move(reset, StepChange.RESET)
    remember_replaced(changes, step)


def reachable_from(steps: Mapping[str, StepDef], path: str) -> frozenset[str]:
    """The steps of a list to which a run can come after this one; itself when it is on a cycle."""
    return _walk({name: tuple(_ways_on(step_def)) for name, step_def in steps.items()}, path)


def leading_to(steps: Mapping[str, StepDef], path: str) -> frozenset[str]:
    """The steps of a list from which a run can come to this one; itself when it is on a cycle."""
    back: dict[str, list[str]] = {name: [] for name in steps}
    for name, step_def in steps.items():
        for target in _ways_on(step_def):
            back[target].append(name)
    return _walk(back, path)


def _walk(edges: Mapping[str, Sequence[str]], path: str) -> frozenset[str]:
    found: set[str] = set()
    rest = [path]
    while rest:
        fresh = set(edges[rest.pop()]) - found
        found |= fresh
        rest.extend(fresh)
    return frozenset(found)


def _ways_on(step_def: StepDef) -> Iterator[str]:
    """Where the run may go from the step. A choice is followed like any step if it is skipped."""
    spec = step_def.spec
    if isinstance(spec, ChoiceSpec):
        yield from (branch.next for branch in spec.branches)
        if spec.default is not None:
            yield spec.default
    if isinstance(spec, WaitSpec) and spec.on_timeout_next is not None:
        yield spec.on_timeout_next
    is_followed = not isinstance(spec, ChoiceSpec) or step_def.when is not None
    if is_followed and step_def.successor is not None:
        yield step_def.successor


# Both


def _begin_again(
    changes: Changes,
    change: RunChange,
    event: RetryRequested | RedriveRequested,
    facts: Facts,
    *,
    last_step: str | None,
) -> None:
    """The run is running again, as having come from `last_step`, with a deadline that counts from
    now. What it was given, its metadata and the signals that nobody took are still there."""
    run = changes.run
    timeout_ms = run.definition.timeout_ms
    changes.run = replace(
        run,
        revival_count=run.revival_count + 1,
        error=None,
        settled_at=None,
        cursor=None,
        last_step=last_step,
        deadline_at=None if timeout_ms is None else plus_ms(changes.now, timeout_ms),
    )
    if event.input is not None:
        changes.remember(input=Raw(event.input))
    changes.move_run(change, {**facts, "input_edited": event.input is not None})


def _reset_unreached(changes: Changes) -> None:
    """The steps that the run had not come to were skipped when it settled; now it may."""
    for path, step_def in changes.run.definition.steps.items():
        if not changes.reached(step_def.index):
            unreached = replace(changes.unreached(step_def), status=_row(changes, path).status)
            changes.move(unreached, StepChange.RESET, {"reason": NOT_REACHED})


def _row(changes: Changes, path: str) -> Step:
    """The step's row. A settled run has one of every step."""
    step = changes.step(path)
    if step is None:
        raise StepNotLoaded(f"run {changes.run.id} was loaded without step {path}")
    return step


def _no_step(run: Run, path: str) -> Refusal:
    message = f"workflow {run.workflow!r} has no step {path!r} in version {run.workflow_version}"
    return Refusal(ErrorCode.STEP_NOT_FOUND, message)


def _refuse_input(changes: Changes, path: str, value: bytes) -> Refusal | None:
    """Only a task has an input, and it has a limit."""
    kind = changes.definition_of(path).kind
    if kind is not StepKind.TASK:
        message = f"step {path!r} is a {kind.value}: only a task has an input to edit"
        return Refusal(ErrorCode.NOT_RETRYABLE, message)
    size_max = changes.run.limits.payload_bytes_max
    if len(value) > size_max:
        message = f"input: the edited input has {len(value)} bytes, the limit is {size_max}"
        return Refusal(ErrorCode.TOO_LARGE, message)
    return None
