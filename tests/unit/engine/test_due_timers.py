"""What is armed in memory after a commit is what the sweep would find in the rows."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from tests.support.builders import a_definition, a_run, a_wait
from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import RunStatus, StepKind, StepStatus, WaitReason
from towpath_engine.services.timer_service import due_rows

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOON = NOW + timedelta(seconds=5)
LATER = NOW + timedelta(seconds=50)


def a_running_run() -> Run:
    run = a_run(a_definition(a_wait("w")))
    return replace(run, status=RunStatus.RUNNING, last_at=NOW, deadline_at=LATER)


def a_waiting_step(reason: WaitReason, **fields: object) -> Step:
    step = Step(path="w", kind=StepKind.WAIT, status=StepStatus.WAITING, waiting_for=reason)
    return replace(step, **fields)


def is_preemptible(run: Run, *steps: Step) -> list[bool]:
    return [row.preemptible for row in due_rows(run, steps)]


def test_a_deadline_waits_for_the_messages_before_it() -> None:
    assert is_preemptible(a_running_run()) == [True]


def test_a_delayed_start_waits_for_nothing() -> None:
    assert is_preemptible(replace(a_running_run(), start_at=SOON)) == [False]


def test_the_rest_of_a_split_decision_waits_for_nothing() -> None:
    run = replace(a_running_run(), cursor="w")
    (row,) = due_rows(run, [])
    assert (row.due_at, row.preemptible) == (NOW, False)


def test_a_pure_wait_is_over_at_its_instant_and_a_signal_may_come_before_a_timeout() -> None:
    run = replace(a_running_run(), deadline_at=None)
    assert is_preemptible(run, a_waiting_step(WaitReason.SLEEP, wake_at=SOON)) == [False]
    assert is_preemptible(run, a_waiting_step(WaitReason.SIGNAL, wake_at=SOON)) == [True]
    ends_first = a_waiting_step(WaitReason.BACKOFF, wake_at=LATER, step_deadline_at=SOON)
    assert is_preemptible(run, ends_first) == [True]


def test_what_has_settled_waits_for_nothing_any_more() -> None:
    step = a_waiting_step(WaitReason.SLEEP, wake_at=SOON)
    ended = replace(a_running_run(), status=RunStatus.CANCELLED, settled_at=NOW)
    assert due_rows(ended, [step]) == []
