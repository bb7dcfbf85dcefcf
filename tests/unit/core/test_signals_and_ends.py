"""Signals, cancel, the deadline, delayed starts; and that settled is settled."""

from datetime import timedelta

import pytest

from tests.support.builders import BEGIN, a_pass, a_sleep, a_task, a_wait
from tests.support.scenario import Story, given
from towpath_engine.core.effects import (
    Announce,
    CancelAttempt,
    ConsumeSignal,
    KeepSignal,
    RevokeToken,
    Verdict,
)
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.states import SETTLED_RUN, RunStatus


def test_a_signal_ends_the_wait_for_it() -> None:
    story = given(a_wait("approval", "approved"))
    assert story.status() == "waiting"
    story.is_signalled("approved", {"by": "boss"})
    assert story.status() == "completed"
    assert story.output() == {
        "name": "approved",
        "payload": {"by": "boss"},
        "sent_by": "tester",
        "received_at": "2030-01-01T00:00:00.000000Z",
    }


def test_a_signal_that_comes_before_its_wait_is_kept_and_taken_in_the_decision_that_enters_it() -> (
    None
):
    story = given(a_task("work"), a_wait("approval"), a_pass("end", "${ prev.payload }"))
    story.is_signalled("go", 1)
    assert story.status("approval") == "pending"
    assert [type(effect) for effect in story.last.effects] == [KeepSignal]
    story.completes("work")
    assert story.output() == 1
    assert ConsumeSignal(number=1, consumed_by="approval") in story.last.effects


def test_kept_signals_are_taken_in_order_each_once_by_name() -> None:
    story = given(
        a_task("work"),
        a_wait("one", "go"),
        a_wait("two", "go"),
        a_wait("three", "stop"),
        a_wait("four", "go"),
    )
    for name, payload in (("go", "a"), ("stop", "b"), ("go", "c")):
        story.is_signalled(name, payload)
    story.completes("work")
    assert story.status("four") == "waiting"
    outputs = [story.output_of(step) for step in ("one", "two", "three")]
    assert [output["payload"] for output in outputs if isinstance(output, dict)] == ["a", "c", "b"]
    assert not story.run.kept


def test_a_signal_of_another_name_leaves_the_wait_alone() -> None:
    story = given(a_wait("approval", "go"))
    story.is_signalled("stop")
    assert story.status("approval") == "waiting"
    assert [signal.number for signal in story.run.kept] == [1]


def test_a_wait_in_its_delay_does_not_take_a_signal_but_finds_it_afterwards() -> None:
    story = given(a_wait("approval", delay="10s"))
    story.is_signalled()
    assert story.status("approval") == "waiting"
    story.time_passes_until_due("approval")
    assert story.status() == "completed"


def test_the_history_shows_every_accepted_signal() -> None:
    story = given(a_wait("approval"))
    story.is_signalled("other", "payloads are not in it")
    fact = story.history[-1]
    assert fact.what == "run-signalled"
    assert fact.data is not None
    assert (fact.data["signal"], fact.data["number"], fact.data["taken_by"]) == ("other", 1, None)
    assert "payload" not in fact.data


def test_more_signals_than_a_run_keeps_are_refused() -> None:
    story = given(a_task("work"), limits=CoreLimits(signals_kept_max=3))
    for _ in range(3):
        assert story.is_signalled().verdict is Verdict.APPLIED
    refused = story.is_signalled()
    assert (refused.verdict, refused.refusal) == (Verdict.REFUSED, "signals_full")


def test_more_bytes_of_signals_than_a_run_keeps_are_refused() -> None:
    story = given(a_wait("approval"), limits=CoreLimits(signals_kept_bytes_max=20))
    assert story.is_signalled("other", "12345678").verdict is Verdict.APPLIED  # 10 bytes as JSON
    assert story.is_signalled("other", "12345678").verdict is Verdict.APPLIED
    refused = story.is_signalled("other", 1)
    assert (refused.verdict, refused.refusal) == (Verdict.REFUSED, "signals_full")
    # One that a wait takes at once is not kept, so it does not count.
    assert story.is_signalled("go", "x" * 30).verdict is Verdict.APPLIED
    assert story.status("approval") == "completed"


def test_a_payload_over_the_limit_is_refused_and_the_wait_goes_on() -> None:
    story = given(a_wait("approval"), limits=CoreLimits(payload_bytes_max=10))
    refused = story.is_signalled("go", "x" * 20)
    assert (refused.verdict, refused.refusal) == (Verdict.REFUSED, "too_large")
    assert story.status("approval") == "waiting"


def test_a_wait_that_times_out_fails_its_step_and_the_run() -> None:
    story = given(a_wait("approval", timeout="24h"))
    assert story.after(hours=23).timer_fires("approval").verdict is Verdict.IGNORED
    story.after(hours=1).timer_fires("approval")
    assert story.status() == "failed"
    assert story.error().type == "Timeout"
    assert story.error().details == b'{"timeout":"wait","after_ms":86400000}'


def test_a_wait_with_on_timeout_fails_and_the_run_goes_on_from_there() -> None:
    story = given(
        a_wait("approval", timeout="1h", next_on_timeout="sorry"),
        a_pass("ship", "shipped", end=True),
        a_pass("sorry", "${ steps.approval.error.type }"),
    )
    story.time_passes_until_due("approval")
    assert story.status() == "completed"
    assert story.output() == "Timeout"
    assert story.status("approval") == "failed"
    assert story.status("ship") == "skipped"


def test_of_signal_and_timeout_the_first_to_commit_wins() -> None:
    late_timer = given(a_wait("approval", timeout="1h"), a_sleep("nap"))
    late_timer.after(hours=2).is_signalled()
    assert late_timer.timer_fires("approval").verdict is Verdict.IGNORED
    assert late_timer.status("approval") == "completed"
    late_signal = given(a_wait("approval", timeout="1h"))
    late_signal.after(hours=1).timer_fires("approval")
    assert late_signal.is_signalled().refusal == "run_settled"
    assert late_signal.status("approval") == "failed"


def test_a_wait_without_a_timeout_waits_for_ever() -> None:
    story = given(a_wait("approval"))
    assert story.run.steps["approval"].due_at is None
    assert story.after(days=10_000).timer_fires("approval").verdict is Verdict.IGNORED


def test_cancel_ends_the_open_step_tells_its_worker_and_skips_the_rest() -> None:
    story = given(a_pass("zero"), a_task("one"), a_task("two"))
    story.is_started("one")
    token = story.token("one")
    story.is_cancelled(by="ops", reason="no stock")
    assert story.status() == "cancelled"
    assert [story.status(s) for s in ("zero", "one", "two")] == [
        "completed",
        "cancelled",
        "skipped",
    ]
    assert (story.run.cancelled_by, story.run.cancel_reason) == ("ops", "no stock")
    assert RevokeToken(queue="default", level=2, token=token) in story.last.effects
    assert any(
        isinstance(effect, CancelAttempt) and effect.token == token for effect in story.last.effects
    )
    assert story.announced()[-1] == "run-cancelled"


def test_cancelling_a_cancelled_run_is_a_quiet_success() -> None:
    story = given(a_task("one"))
    story.is_cancelled()
    assert story.is_cancelled(by="other").verdict is Verdict.IGNORED
    assert story.run.cancelled_by == "me"


def test_cancelling_a_settled_run_names_its_state() -> None:
    story = given(a_pass("one"))
    refused = story.is_cancelled()
    assert (refused.verdict, refused.refusal) == (Verdict.REFUSED, "run_settled")
    assert refused.message is not None
    assert "completed" in refused.message


@pytest.mark.parametrize("step", [a_wait("s"), a_sleep("s"), a_task("s"), a_task("s", delay="1h")])
def test_a_run_can_be_cancelled_whatever_it_waits_for(step: dict[str, object]) -> None:
    story = given(step)
    story.is_cancelled()
    assert story.status() == "cancelled"
    assert story.status("s") == "cancelled"
    assert story.after(days=1).timer_fires("s").verdict is Verdict.IGNORED


def test_a_retry_that_waits_is_not_dispatched_after_a_cancel() -> None:
    story = given(a_task("one", retry={"max_attempts": 3}))
    story.fails("one")
    story.is_cancelled()
    assert story.after(hours=1).timer_fires("one").verdict is Verdict.IGNORED
    assert len(story.dispatches) == 1


def test_the_deadline_cancels_what_runs_and_the_run_is_timed_out() -> None:
    story = given(a_task("one"), a_pass("two"), timeout="2h")
    assert story.run.deadline_at == BEGIN + timedelta(hours=2)
    story.is_started("one")
    assert story.after(hours=1).timer_fires(None).verdict is Verdict.IGNORED
    story.after(hours=1).timer_fires(None)
    assert story.status() == "timed_out"
    assert (story.status("one"), story.status("two")) == ("cancelled", "skipped")
    assert story.error().details == b'{"timeout":"run","after_ms":7200000}'
    assert story.announced()[-1] == "run-timed-out"


def test_nothing_begins_after_the_deadline_even_if_its_own_timer_fires_first() -> None:
    story = given(a_sleep("nap", "1h"), a_task("work"), timeout="2h")
    story.after(hours=3).timer_fires("nap")
    assert story.status() == "timed_out"
    assert not story.dispatches


def test_a_delayed_start_begins_at_its_instant_and_its_deadline_counts_from_there() -> None:
    at = BEGIN + timedelta(days=30)
    story = given(a_task("one"), timeout="1h", start_at=at)
    assert story.status() == "pending"
    assert story.run.due_at == at
    assert story.whats() == ["run-delayed"]
    assert story.timer_fires(None).verdict is Verdict.IGNORED
    story.time_passes_until_due(None)
    assert story.status() == "running"
    assert story.run.started_at == at
    assert story.run.deadline_at == at + timedelta(hours=1)


def test_a_delayed_start_keeps_signals_and_can_be_cancelled() -> None:
    story = given(a_task("one"), start_at=BEGIN + timedelta(days=1))
    story.is_signalled()
    assert len(story.run.kept) == 1
    story.is_cancelled()
    assert story.status() == "cancelled"
    assert story.after(days=2).timer_fires(None).verdict is Verdict.IGNORED
    assert story.status("one") == "skipped"


def test_a_start_in_the_past_begins_at_once() -> None:
    assert given(a_task("one"), start_at=BEGIN - timedelta(days=1)).status() == "running"


def test_a_run_begins_once() -> None:
    story = given(a_task("one"))
    assert story.begins().verdict is Verdict.IGNORED
    assert len(story.dispatches) == 1


def test_a_run_waits_exactly_while_its_open_step_waits() -> None:
    story = given(a_task("one", retry={"max_attempts": 2}), a_sleep("nap", "1h"), a_task("two"))
    seen = [story.status()]
    story.fails("one")
    seen.append(story.status())
    story.time_passes_until_due("one")
    seen.append(story.status())
    story.completes("one")
    seen.append(story.status())
    story.time_passes_until_due("nap")
    seen.append(story.status())
    story.completes("two")
    seen.append(story.status())
    assert seen == ["running", "waiting", "running", "waiting", "running", "completed"]


def _settled_stories() -> dict[str, Story]:
    completed = given(a_task("one"))
    completed.completes("one")
    failed = given(a_task("one"))
    failed.fails("one")
    cancelled = given(a_task("one"))
    cancelled.is_cancelled()
    timed_out = given(a_task("one"), timeout="1h")
    timed_out.time_passes_until_due(None)
    stories = (completed, failed, cancelled, timed_out)
    return {story.status(): story for story in stories}


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "timed_out"])
def test_no_event_changes_a_settled_run(status: str) -> None:
    story = _settled_stories()[status]
    assert RunStatus(status) in SETTLED_RUN
    before = story.run
    token = story.dispatches[0].token
    story.after(days=1)
    story.begins()
    story.completes("one", 1, token=token)
    story.fails("one", token=token)
    story.is_started("one", token=token)
    story.is_signalled()
    story.timer_fires(None)
    story.timer_fires("one")
    story.continues()
    story.is_cancelled()
    assert story.run is before


def test_time_in_a_run_never_goes_back() -> None:
    story = given(a_task("one"), a_task("two"))
    story.after(hours=1).completes("one")
    story.after(hours=-2).completes("two")
    instants = [transition.at for transition in story.history]
    assert instants == sorted(instants)


def test_what_ended_is_announced_with_its_error() -> None:
    story = given(a_task("one", retry={"max_attempts": 2}))
    story.fails("one", retry_after_ms=0)
    story.fails("one", "Boom", message="no luck")
    assert story.announced() == ["run-started", "step-retrying", "step-failed", "run-failed"]
    told = story.last.effects[-1]
    assert isinstance(told, Announce)
    assert told.data == {"error": {"type": "Boom", "message": "no luck"}}
