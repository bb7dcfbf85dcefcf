"""How a settled run goes on because an operator wants it: retry and redrive.

A retry begins the step that failed (or those that a deadline cut off) again, in the same visit: the
idempotency key stays, since effects of the failed attempts may have happened. What is around it (a
whole, a branch, an item) is running again before it. A redrive goes back to any step of the
workflow's own list that was reached: that step and all that can be reached from it are taken back,
as if the run had not come to them, and are visited under new numbers, so that their keys are new.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Raw, Struct
from msgspec.structs import replace

from towpath_engine.core import agenda, undo_stack, undoing
from towpath_engine.core.agenda import Verb
from towpath_engine.core.changes import NOT_REACHED, Changes, Facts
from towpath_engine.core.definition import ChoiceSpec, StepDef, WaitSpec
from towpath_engine.core.effects import Decision, Verdict, refused
from towpath_engine.core.ended import ended_leaves, ended_steps, has_ended_at
from towpath_engine.core.entering import enter_step, last_output_of
from towpath_engine.core.events import RedriveRequested, RetryRequested
from towpath_engine.core.instants import plus_ms
from towpath_engine.core.model import Run, Step
from towpath_engine.core.operations import Operation, refusal_of
from towpath_engine.core.paths import ROOT, place_of
from towpath_engine.core.payloads import remember_replaced
from towpath_engine.core.revivals import edit_input, resume_list
from towpath_engine.core.states import SETTLED_RUN, RunStatus, StepKind, StepStatus
from towpath_engine.core.transitions import RunChange, StepChange
from towpath_protocol.errors import ErrorCode

STEPS_NAMED_MAX: Final = 100
"""Steps that the transition of a retry or redrive names; each has a transition of its own, too."""


class Refusal(Struct, frozen=True):
    """Why a run does not go on."""

    code: ErrorCode
    message: str


def revive(changes: Changes, event: RetryRequested | RedriveRequested) -> Verdict | Decision:
    """Have the settled run go on; what it has to do then is on the agenda.

    Refused: RUN_NOT_SETTLED, NOT_RETRYABLE, ALREADY_COMPENSATED, STEP_NOT_FOUND, STEP_NOT_REACHED,
    TOO_LARGE.
    """
    run = changes.run
    match event:
        case RetryRequested():
            refusal = _refuse_status(changes.run, Operation.RETRY) or _retry(changes, event)
        case RedriveRequested():
            refusal = _refuse_status(changes.run, Operation.REDRIVE) or _redrive(changes, event)
    if refusal is None:
        return Verdict.APPLIED
    return refused(run, refusal.code, refusal.message)


def done_again(decision: Decision) -> tuple[str, ...]:
    """The steps that an applied retry or redrive does again, in order of path: those of its first
    decision, should it be so large that it is split."""
    paths = {
        row.step
        for row in decision.transitions
        if row.what in (StepChange.REVIVED, StepChange.RESET) and row.data is None
    }
    paths |= {
        row.step
        for row in decision.transitions
        if row.what == StepChange.COMPENSATING and row.step is not None
    }
    return tuple(sorted(path for path in paths if path is not None))


def _refuse_status(run: Run, operation: Operation) -> Refusal | None:
    verb = operation.value.partition(".")[2]
    code = refusal_of(operation, run.status, run.compensation)
    if code is not None:
        hint = (
            "restart it to have the same done once more"
            if run.status in SETTLED_RUN
            else "it has not settled"
        )
        undone = " and steps of it were undone" if code is ErrorCode.ALREADY_COMPENSATED else ""
        message = (
            f"run {run.id} is {run.status.value}{undone}, so there is nothing to {verb}: {hint}"
        )
        return Refusal(code, message)
    count_max = run.limits.transitions_per_run_max
    # Undoing is bounded by what there is to undo.
    is_undone = run.compensation is RunStatus.COMPENSATION_FAILED
    if run.seq >= count_max and not is_undone:
        message = (
            f"run {run.id} has {run.seq} transitions, the limit is {count_max}: restart it, or "
            "raise the limit first"
        )
        return Refusal(ErrorCode.NOT_RETRYABLE, message)
    return None


# Retry


def _retry(changes: Changes, event: RetryRequested) -> Refusal | None:
    run = changes.run
    if run.compensation is RunStatus.COMPENSATION_FAILED:
        return _retry_undo(changes, event)
    changes.run = replace(run, revival_count=run.revival_count + 1)
    steps = ended_leaves(changes, enough=STEPS_NAMED_MAX + 1)
    refusal = _refuse_retry(changes, event, steps)
    if refusal is not None:
        return refusal
    first = ended_steps(changes, ROOT)
    # What failed was the last to settle; it goes on as having come from where it came.
    failed = [step for step in first if step.status is StepStatus.FAILED]
    last_step = failed[0].came_from if failed else run.last_step
    paths = [step.path for step in steps[:STEPS_NAMED_MAX]]
    if event.input is not None:
        edit_input(changes, event.step or paths[0], event.input)
    facts = {"steps": paths, "step": event.step}
    _begin_again(changes, RunChange.RETRIED, event, facts, last_step=last_step)
    _reset_unreached(changes)
    # What a split decision had left is done after what is revived. With nothing of either, the end
    # of the list is evaluated again.
    agenda.take_up(changes)
    resume_list(changes, ROOT, has_ended_steps=bool(first))
    for step in reversed(first):
        agenda.push(changes, Verb.REVIVE, step.path)
    return None


def _retry_undo(changes: Changes, event: RetryRequested) -> Refusal | None:
    """Go on undoing: the undo that failed gets a fresh budget, its input is what it was."""
    if event.input is not None or event.step is not None:
        message = (
            f"run {changes.run.id} is {changes.run.status.value} and goes on with the undo that "
            "failed: there is no step to name and no input to edit"
        )
        return Refusal(ErrorCode.NOT_RETRYABLE, message)
    undoing.resume(changes)
    return None


def _refuse_retry(changes: Changes, event: RetryRequested, steps: Sequence[Step]) -> Refusal | None:
    run = changes.run
    if event.step is not None and place_of(event.step) not in run.definition.steps:
        return _no_step(run, event.step)
    if event.step is not None and not has_ended_at(changes, event.step):
        paths = [step.path for step in steps[:STEPS_NAMED_MAX]]
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
        count = f"{STEPS_NAMED_MAX} or more" if len(steps) > STEPS_NAMED_MAX else len(steps)
        message = f"run {run.id} ended at {count} steps: {which}"
        return Refusal(ErrorCode.NOT_RETRYABLE, message)
    return _refuse_input(changes, event.step or steps[0].path, event.input)


# Redrive


def _redrive(changes: Changes, event: RedriveRequested) -> Refusal | None:
    run = changes.run
    refusal = _refuse_redrive(changes, event)
    if refusal is not None:
        return refusal
    steps = {name: run.definition.steps[name] for name in run.definition.root.steps}
    after = _reachable_from(steps, event.step)
    reached = [name for name, one in steps.items() if changes.reached(ROOT, one.index)]
    again = changes.need_all(name for name in reached if name in after or name == event.step)
    came_from = changes.need(event.step).came_from
    changes.run = replace(
        run,
        revival_count=run.revival_count + 1,
        visit_base=max(run.visit_base, *(step.visit for step in again)),
    )
    taken_back = {step.path for step in again}
    # In a DAG steps stand beside the one that is redriven: they go on as in a retry.
    beside = [one for one in ended_steps(changes, ROOT) if one.path not in taken_back]
    facts = {"step": event.step, "step_count": len(again)}
    _begin_again(changes, RunChange.REDRIVEN, event, facts, last_step=came_from)
    _reset_unreached(changes)
    # What comes both before and after the step in a loop still shows its last output (as ever, in
    # a loop); what only comes after it shows none.
    around = after & _leading_to(steps, event.step)
    for step in again:
        _take_back(changes, step, keeps_output=step.path in around)
    agenda.forget(changes)
    enter_step(changes, event.step, given=event.input)
    if run.definition.root.is_dag:
        resume_list(changes, ROOT, has_ended_steps=True)
        for step in reversed(beside):
            agenda.push(changes, Verb.REVIVE, step.path)
    return None


def _refuse_redrive(changes: Changes, event: RedriveRequested) -> Refusal | None:
    run = changes.run
    step_def = run.definition.steps.get(event.step)
    if step_def is None or place_of(event.step) not in run.definition.root.steps:
        if place_of(event.step) not in run.definition.steps:
            return _no_step(run, event.step)
        whole = place_of(event.step).partition("/")[0]
        message = (
            f"step {event.step!r} is inside of {whole!r}: a redrive goes on from a step of the "
            f"workflow's own list, as {whole!r}; retry goes on inside of it"
        )
        return Refusal(ErrorCode.NOT_RETRYABLE, message)
    if not changes.reached(ROOT, step_def.index):
        message = f"run {run.id} never came to step {event.step!r}"
        return Refusal(ErrorCode.STEP_NOT_REACHED, message)
    return None if event.input is None else _refuse_input(changes, event.step, event.input)


def _take_back(changes: Changes, step: Step, *, keeps_output: bool) -> None:
    """The step is pending again, and what it did is forgotten but for its number of visits, and
    for what there is to undo of it."""
    undo_stack.archive(changes, step)
    changes.unreach(ROOT, changes.definition_of(step.path).index)
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


def _reachable_from(steps: Mapping[str, StepDef], path: str) -> frozenset[str]:
    """The steps of a list to which a run can come after this one; itself when it is on a cycle."""
    return _walk({name: tuple(_ways_on(step_def)) for name, step_def in steps.items()}, path)


def _leading_to(steps: Mapping[str, StepDef], path: str) -> frozenset[str]:
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
    yield from (row.next for row in step_def.catch)
    yield from step_def.followers
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
        error=None,
        ending=None,
        settled_at=None,
        last_step=last_step,
        deadline_at=None if timeout_ms is None else plus_ms(changes.now, timeout_ms),
    )
    if event.input is not None:
        changes.remember(input=Raw(event.input))
    changes.move_run(change, {**facts, "input_edited": event.input is not None})


def _reset_unreached(changes: Changes) -> None:
    """The steps that the run had not come to were skipped when it settled; now it may."""
    definition = changes.run.definition
    names = [
        name
        for name in definition.root.steps
        if not changes.reached(ROOT, definition.steps[name].index)
    ]
    # A settled run has a row of every step of its own list.
    for row in changes.need_all(names):
        if row.status is StepStatus.SKIPPED:
            pending = replace(changes.unreached(definition.steps[row.path]), status=row.status)
            changes.move(pending, StepChange.RESET, {"reason": NOT_REACHED})


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
