"""The attempts of an undo, how the run ends by it, and what operators do about it."""

import pytest

from tests.support.builders import a_cause
from tests.support.sagas import TWO, failed, in_a_flow, undo_all, undone
from tests.support.scenario import Story, given_yaml
from towpath_engine.core.effects import Announce, TellParent, Verdict
from towpath_engine.core.events import PauseRequested, ResumeRequested, StepAdmitted
from towpath_engine.core.gate import OPEN, Gate
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Cause
from towpath_protocol.reports import Again, ReleaseReason

pytestmark = pytest.mark.usefixtures("loading")

# Attempts of an undo

RETRIED = """
- name: a
  task: a
  retry: {max_attempts: 1}
  compensate:
    task: undo
    retry: {max_attempts: 3, backoff: {initial: 10s, jitter: 0}, never: [Never]}
    timeouts: {attempt: 20s, heartbeat: 5s, step: 2m}
- {name: b, task: b}
"""


def undoing(text: str = RETRIED) -> Story:
    """A run whose only undo is dispatched."""
    story = given_yaml(text)
    story.completes("a", "A")
    story.fails("b")
    assert story.status("a") == "compensating"
    return story


def test_an_undo_has_retries_of_its_own() -> None:
    story = undoing()
    story.fails("a", "Busy")
    assert story.steps["a"].stage == "waiting"
    story.time_passes_until_due("a")
    message = story.message()
    assert message.attempt == 2
    assert message.last_error is not None
    assert message.last_error.type == "Busy"
    assert message.idempotency_key.endswith("/a/1/undo"), "the same for every attempt"
    story.completes("a")
    assert story.status() == "compensated"


def test_an_undo_that_is_out_of_attempts_ends_the_run_and_leaves_the_rest_completed() -> None:
    story = failed()
    story.fails("b", "Stuck")
    assert story.status("b") == "compensation_failed"
    assert story.status("a") == "completed"
    assert story.status() == "compensation_failed"
    assert story.run.compensation == "compensation_failed"
    assert story.error().type == "Boom"
    assert story.announced()[-2:] == ["run-compensating", "run-compensation-failed"]


def test_what_an_undo_is_never_to_be_retried_for_ends_it_at_once() -> None:
    story = undoing()
    story.fails("a", "Never")
    assert story.status() == "compensation_failed"


def test_timeouts_of_an_undo_spend_its_attempts() -> None:
    story = undoing()
    story.is_started("a")
    story.time_passes_until_due("a")  # its heartbeat
    assert story.steps["a"].stage == "waiting"
    story.time_passes_until_due("a")
    story.is_delivered("a")
    story.beats("a")
    story.after(seconds=4)
    story.beats("a", progress={"half": True})
    story.after(seconds=4)
    story.is_lost("a")
    story.time_passes_until_due("a")
    assert story.message().attempt == 3
    assert story.message().last_progress is not None
    story.after(minutes=3)
    story.timer_fires("a")
    error = story.steps["a"].error
    assert error is not None
    assert error.message == "the step timeout of 120000 ms has passed"
    assert story.status() == "compensation_failed"


def test_an_undo_that_was_given_back_is_dispatched_again() -> None:
    story = undoing()
    story.is_started("a")
    story.is_released("a", ReleaseReason.DRAIN, after_ms=0)
    assert story.message().attempt == 1
    assert story.message(-2).token != story.message().token
    story.completes("a")
    assert story.status() == "compensated"


def test_an_undo_may_ask_for_another_iteration() -> None:
    story = undoing()
    story.completes("a", again=Again(after_ms=1_000))
    story.time_passes_until_due("a")
    assert story.message().idempotency_key.endswith("/a/1/undo/1")
    assert story.sent() == "A"
    story.completes("a")
    assert story.status() == "compensated"
    assert story.output_of("a") == "A"


def test_a_dispatch_of_an_undo_that_vanished_is_published_again() -> None:
    story = undoing()
    story.vanishes("a")
    first, second = story.message(-2), story.message()
    assert first.token == second.token
    assert second.compensation is not None
    story.completes("a")
    assert story.status() == "compensated"


# Ends


def test_a_failed_run_with_nothing_to_undo_is_failed() -> None:
    story = given_yaml(TWO)
    story.fails("a")
    assert story.status() == "failed"
    assert story.run.compensation is None
    assert "run-compensating" not in story.whats()


def test_with_on_failure_fail_nothing_is_undone() -> None:
    story = failed("{on_failure: fail, steps: [" + in_a_flow(TWO) + "]}")
    assert story.status() == "failed"
    assert story.run.compensation is None
    assert story.status("b") == "completed"


def test_a_cancel_with_compensation_ends_cancelled_and_keeps_both_facts() -> None:
    story = given_yaml(TWO)
    story.completes("a", "A")
    story.is_cancelled(compensate=True)
    assert story.status() == "compensating"
    assert story.status("b") == "cancelling"
    story.fails("b")
    compensation = story.message().compensation
    assert compensation is not None
    assert compensation.error is not None
    assert bytes(compensation.error) == b"null", "nothing has failed"
    story.completes("a")
    assert story.status() == "cancelled"
    assert story.run.compensation == "compensated"
    assert (story.run.cancelled_by, story.run.cancel_reason) == ("me", "why")
    assert story.announced()[-1] == "run-cancelled"


def test_a_cancel_without_compensation_undoes_nothing() -> None:
    story = given_yaml(TWO)
    story.completes("a", "A")
    story.is_cancelled(compensate=False)
    assert story.status() == "cancelled"
    assert story.run.compensation is None
    assert story.status("a") == "completed"
    assert story.status("b") == "cancelled"


def test_a_cancel_with_nothing_to_undo_is_cancelled_and_no_more() -> None:
    story = given_yaml("[{name: c, task: c}]")
    story.is_cancelled(compensate=True)
    assert story.status() == "cancelled"
    assert story.run.compensation is None


def test_a_cancelled_run_whose_undo_failed_says_both() -> None:
    story = given_yaml(TWO)
    story.completes("a")
    story.completes("b")
    story.is_cancelled(compensate=True)
    story.fails("b")
    assert story.status() == "cancelled"
    assert story.run.compensation == "compensation_failed"


def test_a_run_that_timed_out_is_undone_and_keeps_both_facts() -> None:
    story = given_yaml("{timeout: 1h, steps: [" + in_a_flow(TWO) + "]}")
    story.completes("a")
    story.completes("b")
    story.time_passes_until_due(None)
    assert story.status("c") == "cancelled"
    undo_all(story)
    assert story.status() == "timed_out"
    assert story.run.compensation == "compensated"
    assert story.error().type == "Timeout"
    assert story.announced()[-1] == "run-timed-out"


def test_a_run_that_is_undoing_is_not_settled_and_its_parent_is_told_at_the_end() -> None:
    story = failed()
    assert story.run.settled_at is None
    assert story.run.compensation == "compensating"
    assert story.is_signalled("late").verdict is Verdict.APPLIED
    assert not any(isinstance(effect, TellParent) for effect in story.effects)
    undo_all(story)
    assert story.run.settled_at == story.now


def test_a_compensating_run_can_not_be_cancelled_and_a_settled_one_goes_on_nowhere() -> None:
    story = failed()
    refused = story.is_cancelled(compensate=True)
    assert refused.refusal == "compensating"
    undo_all(story)
    assert story.is_cancelled().refusal == "run_settled"
    assert story.is_retried().refusal == "already_compensated"
    assert story.is_redriven("a").refusal == "already_compensated"


def test_what_becomes_of_undoing_is_announced() -> None:
    story = undo_all(failed())
    told = [effect.event for effect in story.effects if isinstance(effect, Announce)]
    assert told[-2:] == ["run-compensating", "run-compensated"]
    data = [effect.data for effect in story.effects if isinstance(effect, Announce)]
    assert data[-2] == {"ending": "failed", "error": {"type": "Boom", "message": "no luck"}}
    assert data[-1]["compensation"] == "compensated"


# Retry


def test_a_retry_goes_on_with_the_undo_that_failed_under_the_same_key_and_a_fresh_budget() -> None:
    story = failed()
    key = story.message().idempotency_key
    story.fails("b", "Stuck")
    decision = story.is_retried()
    assert decision.verdict is Verdict.APPLIED
    assert story.status() == "compensating"
    message = story.message()
    assert (message.step, message.attempt, message.idempotency_key) == ("b", 1, key)
    assert message.last_error is not None
    assert message.last_error.type == "Stuck"
    story.completes("b")
    story.completes("a")
    assert story.status() == "compensated"
    assert undone(story) == [("b", 1), ("a", 1)]
    assert story.steps["b"].error is None


def test_a_cancelled_run_goes_on_undoing_and_stays_cancelled() -> None:
    story = given_yaml(TWO)
    story.completes("a")
    story.completes("b")
    story.is_cancelled(compensate=True)
    story.fails("b")
    story.is_retried()
    undo_all(story)
    assert story.status() == "cancelled"
    assert story.run.compensation == "compensated"


def test_a_run_with_more_transitions_than_it_may_have_goes_on_undoing() -> None:
    story = given_yaml(TWO, limits=CoreLimits(transitions_per_run_max=8))
    story.completes("a", "A")
    story.completes("b", "B")
    story.fails("c", "Boom")
    story.fails("b", "Gone", retryable=False)
    assert story.status() == "compensation_failed"
    assert story.run.seq >= 8
    assert story.is_retried().verdict is Verdict.APPLIED
    undo_all(story)
    assert story.status() == "compensated"


def test_an_undo_may_fail_and_go_on_as_often_as_it_takes() -> None:
    story = failed()
    for _ in range(3):
        story.fails("b")
        assert story.status() == "compensation_failed"
        story.is_retried()
    undo_all(story)
    assert story.status() == "compensated"


# Pauses


def test_the_pause_of_a_run_holds_its_undo_and_a_resume_lets_it_go_on() -> None:
    story = given_yaml(TWO)
    story.completes("a")
    story.completes("b")
    cause = Cause(type="pause", by="ada")
    story.happens(PauseRequested(seed=story.seed(), cause=cause))
    story.fails("c")
    assert story.status() == "compensating"
    assert story.steps["b"].stage == "ready"
    assert story.steps["b"].held_by == "run"
    story.happens(ResumeRequested(seed=story.seed(), cause=cause))
    assert story.steps["b"].stage == "dispatched"
    assert undo_all(story).status() == "compensated"


@pytest.mark.parametrize("held_by", ["task:undo_b", "queue:default", "window:default"])
def test_the_pause_of_a_task_or_queue_and_a_full_queue_hold_an_undo(held_by: str) -> None:
    story = given_yaml(TWO)
    story.completes("a")
    story.completes("b")
    is_window = held_by.startswith("window")
    closed = Gate(full={"default": 0}) if is_window else Gate(paused=frozenset({held_by}))
    story.gate = closed
    story.fails("c")
    assert story.steps["b"].held_by == held_by
    story.gate = OPEN
    admitted = StepAdmitted(seed=story.seed(), cause=a_cause("admitted"), path="b")
    story.happens(admitted)
    assert story.steps["b"].stage == "dispatched"


@pytest.mark.parametrize("held_by", ["workflow:order", "version:order@1"])
def test_the_pause_of_a_workflow_does_not_stop_undoing(held_by: str) -> None:
    story = given_yaml(TWO)
    story.completes("a")
    story.completes("b")
    story.gate = Gate(paused=frozenset({held_by}))
    story.fails("c")
    assert undo_all(story).status() == "compensated"
