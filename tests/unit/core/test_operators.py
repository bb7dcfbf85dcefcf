"""Retry: where a settled run goes on, with what; and when neither it nor a redrive does."""

from datetime import timedelta

import msgspec
import pytest

from tests.support.builders import BEGIN, a_choice, a_pass, a_sleep, a_task, a_wait
from tests.support.scenario import Story, given
from towpath_engine.core.effects import Announce, CancelAttempt, RevokeToken, Verdict
from towpath_engine.core.limits import CoreLimits
from towpath_protocol.reports import Again


def failed_at_second() -> Story:
    """A run whose first step is completed and whose second has failed."""
    story = given(a_task("first"), a_task("second"), a_task("third"))
    story.completes("first", {"id": 1})
    story.fails("second")
    return story


def refusal(story: Story) -> str | None:
    """The code with which the last event was refused."""
    return story.last.refusal if story.last.verdict is Verdict.REFUSED else None


# Retry


def test_a_retry_begins_the_failed_step_again_and_keeps_the_others() -> None:
    story = failed_at_second()
    story.is_retried()
    assert story.status() == "running"
    assert story.status("first") == "completed"
    assert story.status("second") == "dispatched"
    assert story.status("third") == "pending"
    assert story.run.error is None
    assert story.run.settled_at is None
    story.completes("second")
    story.completes("third", "done")
    assert story.output() == "done"
    assert story.whats().count("run-retried") == 1


def test_a_retry_has_the_whole_budget_of_attempts_again() -> None:
    retry = {"max_attempts": 2, "backoff": {"initial": "1ms", "jitter": 0}}
    story = given(a_task("work", retry=retry))
    for expected in (1, 2):
        assert story.message().attempt == expected
        story.fails("work")
        if story.status() == "waiting":
            story.time_passes_until_due("work")
    assert story.status() == "failed"
    story.is_retried()
    assert story.message().attempt == 1
    story.fails("work")
    assert story.status() == "waiting"


def test_the_first_attempt_of_a_retry_is_told_the_last_error_and_progress() -> None:
    story = given(a_task("work"))
    story.beats("work", progress={"at": 7})
    story.fails("work", "Down")
    story.is_retried()
    message = story.message()
    assert message.last_error is not None
    assert message.last_error.type == "Down"
    assert message.last_progress == msgspec.Raw(b'{"at":7}')


def test_a_retried_attempt_has_the_same_idempotency_key_and_another_token() -> None:
    story = failed_at_second()
    old = story.message()
    story.is_retried()
    assert story.message().idempotency_key == old.idempotency_key
    assert story.message().token != old.token


def test_the_retried_input_is_the_one_that_was_sent_not_a_new_one() -> None:
    story = given(a_task("work", input={"at": "${ now }"}))
    sent = story.message().input
    story.fails("work")
    story.after(hours=1).is_retried()
    assert story.message().input == sent


def test_an_input_that_could_not_be_made_is_made_again_or_edited() -> None:
    story = given(a_task("work", input="${ input.nothing }"))
    assert story.error().type == "ExpressionError"
    story.is_retried()
    assert story.error().type == "ExpressionError"
    story.is_retried(edited={"sku": 1})
    assert story.message().input == msgspec.Raw(b'{"sku":1}')


def test_an_edited_null_is_an_input() -> None:
    story = given(a_task("work"), run_input={"n": 1})
    story.fails("work")
    story.is_retried(edited=None)
    assert story.message().input == msgspec.Raw(b"null")


def test_an_edited_input_counts_for_its_iteration_only() -> None:
    story = given(a_task("work", input={"i": "${ iteration }"}, repeat={"limit": 5}))
    story.fails("work")
    story.is_retried(edited={"i": "mine"})
    story.completes("work", 1, again=Again(after_ms=0))
    assert story.message().input == msgspec.Raw(b'{"i":1}')


def test_a_retry_goes_on_in_the_iteration_that_failed() -> None:
    story = given(a_task("work", input={"last": "${ last }"}, repeat={"limit": 5}))
    story.completes("work", "first", again=Again(after_ms=0))
    old = story.message()
    story.fails("work")
    story.is_retried()
    assert story.message().iteration == 1
    assert story.message().idempotency_key == old.idempotency_key
    assert story.message().input == msgspec.Raw(b'{"last":"first"}')


def test_a_step_out_of_iterations_begins_them_anew_under_another_key() -> None:
    story = given(a_task("work", repeat={"limit": 2}))
    first = story.message()
    for _ in range(2):
        story.completes("work", again=Again(after_ms=0))
    assert story.error().type == "RepeatLimit"
    story.is_retried()
    assert story.message().iteration == 0
    assert story.message().idempotency_key != first.idempotency_key
    story.completes("work", again=Again(after_ms=0))
    assert story.message().iteration == 1


def test_a_retried_step_skips_the_conditions_that_are_behind_it() -> None:
    story = given(a_task("work", when="input.n == 1", delay="1h"), run_input={"n": 1})
    story.time_passes_until_due("work")
    story.fails("work")
    story.is_retried()
    assert story.status("work") == "dispatched"


def test_a_retried_step_passes_the_conditions_that_failed_it() -> None:
    story = given(a_pass("made", "x"), a_task("work", when="input.nothing"))
    assert story.error().type == "ExpressionError"
    story.is_retried()
    assert story.error().type == "ExpressionError"
    assert story.whats("work").count("step-revived") == 1


@pytest.mark.parametrize("cut_off_by", ["the run's deadline", "the step timeout"])
def test_a_retry_of_a_step_that_waited_for_its_next_iteration_begins_that_one(
    cut_off_by: str,
) -> None:
    by_step = cut_off_by == "the step timeout"
    poll = a_task("poll", repeat={"limit": 3, "delay": "1h"})
    story = given({**poll, "timeouts": {"step": "10m"}}) if by_step else given(poll, timeout="10m")
    first = story.message().idempotency_key
    story.completes("poll", 1, again=Again())
    story.after(minutes=10).timer_fires("poll" if by_step else None)
    assert story.status() == ("failed" if by_step else "timed_out")
    story.is_retried()
    assert story.message().iteration == 1
    assert story.message().idempotency_key != first


def test_a_retry_after_too_many_visits_allows_one_more() -> None:
    story = given(
        a_task("work", limit=2),
        a_choice("again", ("prev == null", "work"), default="last"),
        a_task("last"),
    )
    for _ in range(2):
        story.completes("work")
    assert story.error().type == "VisitLimit"
    story.is_retried()
    assert story.status("work") == "dispatched"
    story.completes("work")
    assert story.error().type == "VisitLimit"


def test_prev_of_a_retried_step_is_still_the_step_before_it() -> None:
    story = given(a_task("first"), a_task("second", input="${ prev }", when="prev == 7"))
    story.completes("first", 7)
    story.fails("second")
    story.is_redriven("second")
    assert story.message().input == msgspec.Raw(b"7")
    story.fails("second")
    story.is_retried()
    assert story.run.last_step == "first"


def test_a_wait_that_timed_out_waits_again_for_its_whole_time() -> None:
    story = given(a_wait("ask", timeout="1h"))
    story.time_passes_until_due("ask")
    assert story.status() == "failed"
    story.after(hours=5).is_retried()
    assert story.status("ask") == "waiting"
    assert story.run.steps["ask"].wake_at == story.now + timedelta(hours=1)
    story.is_signalled("go", "yes")
    assert story.status() == "completed"


def test_a_failure_that_the_run_went_on_from_is_not_retried() -> None:
    story = given(
        a_wait("ask", timeout="1h", next_on_timeout="work"),
        a_task("work"),
    )
    story.time_passes_until_due("ask")
    story.fails("work")
    story.is_retried("ask")
    assert refusal(story) == "not_retryable"
    story.is_retried()
    assert story.status("ask") == "failed"
    assert story.status("work") == "dispatched"


def test_a_deadline_counts_from_the_retry() -> None:
    story = given(a_task("work"), timeout="1h")
    story.time_passes_until_due(None)
    assert story.status() == "timed_out"
    assert story.status("work") == "cancelled"
    story.after(days=1).is_retried()
    assert story.run.deadline_at == story.now + timedelta(hours=1)
    assert story.status("work") == "dispatched"
    story.time_passes_until_due(None)
    assert story.status() == "timed_out"


def test_a_sleep_that_a_deadline_cut_off_begins_again() -> None:
    story = given(a_sleep("nap", "50m"), timeout="30m")
    story.time_passes_until_due(None)
    story.after(hours=1).is_retried()
    assert story.run.steps["nap"].wake_at == story.now + timedelta(minutes=50)


def test_an_output_that_could_not_be_made_is_made_again() -> None:
    story = given(a_task("work"), output="${ metadata.answer }")
    story.completes("work", 1)
    assert story.error().type == "ExpressionError"
    story.is_retried()
    assert story.error().type == "ExpressionError"
    assert story.whats().count("run-failed") == 2
    assert story.whats().count("step-dispatched") == 1
    story.is_redriven("work")
    story.completes("work", 1, metadata={"answer": 42})
    assert story.output() == 42


def test_a_decision_that_was_cut_off_goes_on_where_it_was_split() -> None:
    limits = CoreLimits(transitions_per_decision_max=3)
    story = given(*[a_pass(f"p{n}", n) for n in range(6)], timeout="1h", limits=limits)
    assert story.run.cursor is not None
    assert story.run.cursor == "enter p2"
    story.after(hours=2).timer_fires(None)
    assert story.status() == "timed_out"
    story.is_retried()
    for _ in range(10):
        if story.status() == "completed":
            break
        story.continues()
    assert story.output() == 5
    assert story.whats("p2").count("step-completed") == 1
    assert story.whats("p0").count("step-completed") == 1


def test_signals_that_nobody_took_are_there_after_a_retry() -> None:
    story = given(a_task("work"), a_wait("ask"))
    story.is_signalled("go", "early")
    story.fails("work")
    story.is_retried()
    story.completes("work")
    assert story.status() == "completed"
    assert story.output_of("ask") == {
        "name": "go", "payload": "early", "sent_by": "tester",
        "received_at": "2030-01-01T00:00:00.000000Z",
    }  # fmt: skip


def test_a_retry_announces_nothing_of_its_own() -> None:
    story = failed_at_second()
    story.is_retried()
    assert not [effect for effect in story.last.effects if isinstance(effect, Announce)]


def test_the_history_says_who_why_and_what() -> None:
    story = failed_at_second()
    story.is_retried("second", edited={"n": 2})
    retried = next(row for row in story.history if row.what == "run-retried")
    assert retried.cause.reason == "mended"
    assert retried.cause.seed is not None
    assert retried.data == {"steps": ["second"], "step": "second", "input_edited": True}
    assert retried.payload == b'{"input":{"n":2}}'


# Refused


@pytest.mark.parametrize("end", ["completed", "cancelled", "running"])
def test_a_run_that_did_not_fail_does_not_go_on(end: str) -> None:
    story = given(a_task("work"))
    if end == "completed":
        story.completes("work")
    elif end == "cancelled":
        story.is_cancelled()
    assert story.status() == end
    code = "run_not_settled" if end == "running" else "not_retryable"
    for decision in (story.is_retried(), story.is_redriven("work")):
        assert decision.refusal == code
        assert decision.message is not None
        assert end in decision.message


@pytest.mark.parametrize(
    ("step", "code"),
    [("nowhere", "step_not_found"), ("third", "not_retryable"), ("first", "not_retryable")],
)
def test_a_retry_names_a_step_that_failed_or_is_refused(step: str, code: str) -> None:
    story = failed_at_second()
    story.is_retried(step)
    assert refusal(story) == code


def test_a_redrive_names_a_step_that_was_reached_or_is_refused() -> None:
    story = failed_at_second()
    story.is_redriven("third")
    assert refusal(story) == "step_not_reached"
    story.is_redriven("nowhere")
    assert refusal(story) == "step_not_found"


def test_only_a_task_has_an_input_to_edit() -> None:
    story = given(a_wait("ask", timeout="1h"))
    story.time_passes_until_due("ask")
    story.is_retried(edited=1)
    assert refusal(story) == "not_retryable"
    story.is_redriven("ask", edited=1)
    assert refusal(story) == "not_retryable"


def test_an_edited_input_has_the_limit_of_every_input() -> None:
    limits = CoreLimits(payload_bytes_max=100)
    story = given(a_task("work"), limits=limits)
    story.fails("work")
    story.is_retried(edited="x" * 99)
    assert refusal(story) == "too_large"
    story.is_retried(edited="x" * 98)
    assert story.status("work") == "dispatched"


def test_a_run_that_grew_too_big_goes_on_only_under_a_higher_limit() -> None:
    story = given(a_task("work"), limits=CoreLimits(transitions_per_run_max=3))
    story.completes("work", again=Again(after_ms=0))
    assert story.error().type == "RunTooBig"
    story.is_retried()
    assert refusal(story) == "not_retryable"
    story.run = msgspec.structs.replace(story.run, limits=CoreLimits())
    story.is_retried()
    assert story.status("work") == "dispatched"


def test_old_tokens_stay_dead_after_a_retry() -> None:
    story = given(a_task("work"), timeout="1h")
    old = story.token("work")
    story.time_passes_until_due(None)
    assert [effect for effect in story.effects if isinstance(effect, RevokeToken | CancelAttempt)]
    story.is_retried()
    assert story.completes("work", token=old).verdict is Verdict.STALE
    assert story.run.started_at == BEGIN
