"""`decide`: what an event does to a run. The one entry point of the core.

A function of its arguments alone: no I/O, no clock, no chance but the event's seed. Every other
module of this package is a part of it; the shell around it loads a run, calls it, and writes what
it returns in one transaction.
"""

from datetime import datetime
from typing import assert_never

from msgspec.structs import replace

from towpath_engine.core import agenda, children, failures, outcomes, waits
from towpath_engine.core.admission import apply_admission
from towpath_engine.core.attempts import fail_attempt, start_clock
from towpath_engine.core.changes import Changes
from towpath_engine.core.dispatching import attempt_end, redispatch
from towpath_engine.core.effects import Decision, Verdict, refused
from towpath_engine.core.events import (
    AttemptLost,
    CancelRequested,
    ChildSettled,
    DecisionContinued,
    DispatchDelivered,
    DispatchVanished,
    DispatchWithdrawn,
    Event,
    PauseRequested,
    RedriveRequested,
    ReportReceived,
    ResumeRequested,
    RetryRequested,
    RunBegun,
    SignalReceived,
    StepAdmitted,
    TimerDue,
)
from towpath_engine.core.instants import earliest
from towpath_engine.core.model import Failure, Run, Step
from towpath_engine.core.operators import revive
from towpath_engine.core.payloads import remember_cancel
from towpath_engine.core.reports import apply_report
from towpath_engine.core.settling import end_run, fail_run
from towpath_engine.core.states import BEGUN_RUN, SETTLED_RUN, RunStatus, StepStatus
from towpath_engine.core.stepmap import StepMap
from towpath_engine.core.timers import begin_run, continue_run, run_due, step_due
from towpath_engine.core.transitions import RunChange
from towpath_engine.core.working import work_off
from towpath_protocol.errors import ErrorCode
from towpath_protocol.times import format_instant


def decide(run: Run, event: Event, now: datetime) -> Decision:
    """The outcome of `event` at the instant `now` (aware, UTC).

    With any verdict but APPLIED the decision holds the very run that was passed in, and nothing
    else. `version` grows by one with every decision that changes the run. Raises StepsNeeded when
    rows are needed that are not loaded, and IllegalTransition for a bug, never for anything that a
    message may say.
    """
    if run.status in SETTLED_RUN:
        ended = _after_the_end(run, event)
        if ended is not None:
            return ended
    changes = Changes(run, seed=event.seed, cause=event.cause, now=now, gate=event.gate)
    changes.agenda += agenda.parse(run.cursor)
    rest = len(changes.agenda)
    outcome = _apply(changes, event)
    if isinstance(outcome, Decision):
        return outcome
    if outcome is not Verdict.APPLIED:
        return Decision(run=run, verdict=outcome)
    ends = changes.run.ending is not run.ending
    work_off(changes, below=0 if ends or _takes_up_rest(event) else rest)
    _check_size(changes)
    _settle_waiting(changes)
    agenda.store(changes)
    return changes.decision()


def _takes_up_rest(event: Event) -> bool:
    """Whether the event goes on with what a split decision has left. Others leave that alone: as
    many as come in one batch would do as many slices in one transaction."""
    match event:
        case DecisionContinued() | RunBegun() | RetryRequested() | RedriveRequested():
            return True
        case TimerDue(path=path):
            return path is None
        case _:
            return False


def step_of_token(run: Run, token: str) -> Step | None:
    """The open step whose live attempt has this token; None when there is none (any more)."""
    return StepMap.of(run.steps).of_token(token)


def _after_the_end(run: Run, event: Event) -> Decision | None:
    """Settled is settled: nothing changes it and nothing grows, but for an operator's will."""
    match event:
        case ReportReceived() | DispatchDelivered() | AttemptLost() | DispatchVanished():
            return Decision(run=run, verdict=Verdict.STALE)
        case ChildSettled() | DispatchWithdrawn():
            return Decision(run=run, verdict=Verdict.STALE)
        case RunBegun() | TimerDue() | DecisionContinued() | StepAdmitted():
            return Decision(run=run, verdict=Verdict.IGNORED)
        case CancelRequested() if run.status is RunStatus.CANCELLED:
            return Decision(run=run, verdict=Verdict.IGNORED)
        case CancelRequested() | SignalReceived() | PauseRequested() | ResumeRequested():
            return refused(run, ErrorCode.RUN_SETTLED, f"run {run.id} is {run.status.value}")
        case RetryRequested() | RedriveRequested():
            return None
        case _:
            assert_never(event)


def _apply(changes: Changes, event: Event) -> Verdict | Decision:  # noqa: PLR0911 - one per event
    match event:
        case RunBegun():
            return _begin(changes)
        case ReportReceived():
            return apply_report(changes, event)
        case SignalReceived():
            return waits.receive(changes, event)
        case TimerDue() | DecisionContinued():
            return _wake(changes, event)
        case CancelRequested():
            return _cancel(changes, event)
        case PauseRequested() | ResumeRequested() | StepAdmitted():
            return apply_admission(changes, event)
        case RetryRequested() | RedriveRequested():
            return revive(changes, event)
        case ChildSettled():
            return children.settled(changes, event)
        case DispatchDelivered() | AttemptLost() | DispatchVanished() | DispatchWithdrawn():
            return _observe(changes, event)
        case _:
            assert_never(event)


def _begin(changes: Changes) -> Verdict:
    """A run begins once; a delayed one only says so, and waits for its instant."""
    run = changes.run
    if run.status is not RunStatus.PENDING or run.seq > 0:
        return Verdict.IGNORED
    if run.start_at is not None and run.start_at > changes.now:
        changes.move_run(RunChange.DELAYED, {"start_at": format_instant(run.start_at)})
    else:
        begin_run(changes)
    return Verdict.APPLIED


def _wake(changes: Changes, event: TimerDue | DecisionContinued) -> Verdict:
    if isinstance(event, DecisionContinued):
        return continue_run(changes)
    return run_due(changes) if event.path is None else step_due(changes, event.path)


def _cancel(changes: Changes, event: CancelRequested) -> Verdict | Decision:
    """The first end that a run comes to is its end; a second cancel is a quiet success."""
    run = changes.run
    if run.ending is RunStatus.CANCELLED and run.status is not RunStatus.COMPENSATING:
        return Verdict.IGNORED
    if run.ending is not None:
        message = f"run {run.id} is {run.status.value} and is ending as {run.ending.value}"
        return refused(run, ErrorCode.COMPENSATING, message)
    remember_cancel(changes, event)
    wanted = event.compensate
    undo = changes.run.definition.undo_on_failure if wanted is None else wanted
    changes.run = replace(
        run,
        cancelled_by=event.by,
        cancel_reason=event.reason,
        compensation=RunStatus.COMPENSATING if undo else None,
    )
    end_run(changes, RunStatus.CANCELLED)
    return Verdict.APPLIED


def _observe(
    changes: Changes,
    event: DispatchDelivered | AttemptLost | DispatchVanished | DispatchWithdrawn,
) -> Verdict:
    """What the engine saw of a dispatch in the stream."""
    step = changes.step_of_token(event.token)
    if step is None:
        return Verdict.STALE
    match event:
        case DispatchDelivered():
            if step.stage is StepStatus.RUNNING:
                return Verdict.IGNORED
            start_clock(changes, step, None)
        case AttemptLost():
            failure = Failure(
                type=failures.WORKER_LOST,
                message=f"the broker gave the attempt up: {event.reason}",
            )
            fail_attempt(changes, step, failure, stop_reason="worker lost")
        case DispatchVanished():
            return _publish_again(changes, step)
        case DispatchWithdrawn():
            return _take_back(changes, step)
        case _:
            assert_never(event)
    return Verdict.APPLIED


def _take_back(changes: Changes, step: Step) -> Verdict:
    """The dispatch was taken out of the stream before anybody had it: the attempt, which is being
    cancelled, is over.

    Not one that was published again: somebody may have got it the first time.
    """
    if step.status is not StepStatus.CANCELLING or step.worker_id is not None:
        return Verdict.IGNORED
    if step.dispatch_no > 1:
        return _publish_again(changes, step)
    outcomes.withdraw(changes, step)
    return Verdict.APPLIED


def _publish_again(changes: Changes, step: Step) -> Verdict:
    """The dispatch is gone and nobody said to have it: publish it again.

    Not for an attempt that is being cancelled. Somebody may have got it before it was gone, so its
    clock runs: what it still completes is undone, and it has an end.
    """
    if step.worker_id is not None or _is_over(changes, step):
        return Verdict.IGNORED
    if step.status is not StepStatus.CANCELLING:
        redispatch(changes, step)
    elif step.stage is StepStatus.DISPATCHED:
        start_clock(changes, step, None)
    else:
        return Verdict.IGNORED
    return Verdict.APPLIED


def _is_over(changes: Changes, step: Step) -> bool:
    """Whether the dispatch's own end has passed, so that its timer ends it."""
    end = earliest(
        step.dispatch_deadline_at, step.attempt_deadline_at, attempt_end(changes.run, step)
    )
    return end is not None and end <= changes.now


def _check_size(changes: Changes) -> None:
    """A run that loops for ever, or opens ever more steps, ends here. One that has not begun does
    neither."""
    if changes.run.status not in BEGUN_RUN or changes.run.ending is not None:
        return
    limits = changes.run.limits
    seq, opened = changes.run.seq, changes.counts.open
    if seq >= limits.transitions_per_run_max:
        fail_run(changes, _too_big(seq, "transitions", limits.transitions_per_run_max))
    elif opened > limits.open_steps_per_run_max:
        fail_run(changes, _too_big(opened, "open steps", limits.open_steps_per_run_max))
    else:
        return
    work_off(changes, below=0)


def _too_big(count: int, what: str, count_max: int) -> Failure:
    message = f"the run has {count} {what}, the limit is {count_max}"
    return Failure(type=failures.RUN_TOO_BIG, message=message, retryable=False)


def _settle_waiting(changes: Changes) -> None:
    """A run is waiting exactly while it has open steps and every one of them waits; those that are
    open because of others do not count."""
    if changes.run.status not in BEGUN_RUN:
        return
    counts = changes.counts
    idle = 0 < counts.leaves == counts.waiting
    if idle and changes.run.status is RunStatus.RUNNING:
        changes.move_run(RunChange.WAITING)
    elif not idle and changes.run.status is RunStatus.WAITING:
        changes.move_run(RunChange.WOKEN)
