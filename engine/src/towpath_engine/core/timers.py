"""What happens when a stored instant has come. Too early is no error: nothing is due then."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from towpath_engine.core import agenda, failures
from towpath_engine.core.attempts import fail_at_step_timeout, fail_attempt
from towpath_engine.core.changes import Changes
from towpath_engine.core.definition import Timeouts
from towpath_engine.core.dispatching import task_spec
from towpath_engine.core.effects import Verdict
from towpath_engine.core.entering import wake
from towpath_engine.core.gate import HELD_BY_FACT, holder_of_run
from towpath_engine.core.instants import earliest, plus_ms
from towpath_engine.core.model import Step
from towpath_engine.core.paths import ROOT
from towpath_engine.core.settling import end_run
from towpath_engine.core.states import OPEN_STEP, RunStatus
from towpath_engine.core.transitions import RunChange
from towpath_protocol.times import format_instant

DEADLINE_FACT: Final = "parent_deadline_at"
"""What the history of a child says of the deadline that it was given."""
# One firing clears its instant and sets only later ones, so two or three are the most there are.
FIRINGS_MAX: Final = 16


def begin_run(changes: Changes) -> None:
    """The run begins: its deadline counts from here, and its first step is entered.

    While a pause holds it, it stays pending instead.
    """
    held_by = holder_of_run(changes.run, changes.gate)
    if held_by is not None:
        changes.run = replace(changes.run, start_at=None, held_by=held_by)
        changes.move_run(RunChange.HELD, {HELD_BY_FACT: held_by})
        return
    timeout_ms = changes.run.definition.timeout_ms
    own = None if timeout_ms is None else plus_ms(changes.now, timeout_ms)
    # A child has that of its parent already.
    given = changes.run.deadline_at
    changes.run = replace(
        changes.run,
        start_at=None,
        held_by=None,
        started_at=changes.now,
        deadline_at=earliest(own, given),
    )
    facts = None if given is None else {DEADLINE_FACT: format_instant(given)}
    changes.move_run(RunChange.STARTED, facts)
    agenda.begin_list(changes, ROOT)


def continue_run(changes: Changes) -> Verdict:
    """Go on where the last decision was split: what is left is on the agenda."""
    return Verdict.IGNORED if changes.run.cursor is None else Verdict.APPLIED


def run_due(changes: Changes) -> Verdict:
    """The run's own instant: its delayed start, its deadline, or the rest of a decision."""
    run = changes.run
    if run.status is RunStatus.PENDING:
        if run.start_at is None or run.start_at > changes.now:
            return Verdict.IGNORED
        begin_run(changes)
        return Verdict.APPLIED
    if _run_is_over(changes):
        time_out_run(changes)
        return Verdict.APPLIED
    return continue_run(changes)


def _run_is_over(changes: Changes) -> bool:
    if changes.run.ending is not None:
        return False
    deadline = changes.run.deadline_at
    return deadline is not None and deadline <= changes.now


def time_out_run(changes: Changes) -> None:
    """The run's deadline has passed: whatever runs is cancelled."""
    run = changes.run
    timeout_ms = run.definition.timeout_ms
    failure = failures.timed_out("run", timeout_ms)
    assert run.started_at is not None, "only a run that has begun comes to its deadline"
    own = None if timeout_ms is None else plus_ms(run.started_at, timeout_ms)
    if own is None or (run.deadline_at is not None and run.deadline_at < own):
        failure = replace(
            failures.timed_out("run", None), message="the deadline of the parent run has passed"
        )
    end_run(changes, RunStatus.TIMED_OUT, failure)


def step_due(changes: Changes, path: str) -> Verdict:
    """Everything of the step that is due now, the earliest first. The run's deadline goes before
    all of them: nothing begins after it."""
    step = changes.step(path)
    if step is None or not changes.is_live(step):
        return Verdict.IGNORED
    if _run_is_over(changes):
        time_out_run(changes)
        return Verdict.APPLIED
    verdict = Verdict.IGNORED
    for _ in range(FIRINGS_MAX):
        fire = None if step is None else _earliest_due(step, changes.now)
        if step is None or fire is None:
            break
        fire(changes, step)
        verdict = Verdict.APPLIED
        step = changes.step(path)
    return verdict


Fire = Callable[[Changes, Step], None]


def _earliest_due(step: Step, now: datetime) -> Fire | None:
    """What to do about the earliest instant that has come; None when none has, or the step is
    not open any more. The step timeout goes first: what it ends must not begin anything."""
    if step.status not in OPEN_STEP:
        return None
    if step.step_deadline_at is not None and step.step_deadline_at <= now:
        return _step_timeout
    instants: tuple[tuple[datetime | None, Fire], ...] = (
        (step.attempt_deadline_at, _attempt_timeout),
        (step.heartbeat_deadline_at, _heartbeat_timeout),
        (step.dispatch_deadline_at, _dispatch_timeout),
        (step.wake_at, wake),
    )
    due = [(at, fire) for at, fire in instants if at is not None and at <= now]
    return min(due, key=lambda pair: pair[0])[1] if due else None


def _timeouts(changes: Changes, step: Step) -> Timeouts:
    return task_spec(changes.run, step).timeouts


def _step_timeout(changes: Changes, step: Step) -> None:
    fail_at_step_timeout(changes, step, _timeouts(changes, step).step_ms)


def _attempt_timeout(changes: Changes, step: Step) -> None:
    failure = failures.timed_out("attempt", _timeouts(changes, step).attempt_ms)
    fail_attempt(changes, step, failure, stop_reason="attempt timeout")


def _heartbeat_timeout(changes: Changes, step: Step) -> None:
    failure = failures.timed_out("heartbeat", _timeouts(changes, step).heartbeat_ms)
    fail_attempt(changes, step, failure, stop_reason="heartbeat timeout")


def _dispatch_timeout(changes: Changes, step: Step) -> None:
    failure = failures.timed_out("dispatch", _timeouts(changes, step).dispatch_ms)
    fail_attempt(changes, step, failure, stop_reason="dispatch timeout")
