"""Attempts: tokens, clocks, retries, timeouts; and what comes too late changes nothing."""

from datetime import timedelta

import msgspec
import pytest

from tests.support.builders import BEGIN, a_cause, a_pass, a_task, raw
from tests.support.scenario import Story, given
from towpath_engine.core.definition import TaskSpec
from towpath_engine.core.effects import (
    AppendLogs,
    CancelAttempt,
    DispatchStep,
    RevokeToken,
    Verdict,
)
from towpath_engine.core.events import DispatchDelivered
from towpath_engine.core.limits import CoreLimits
from towpath_protocol.reports import Again, CustomEvent, LogLine, ReleaseReason, StepCompleted

RETRY = {"max_attempts": 3, "backoff": {"initial": "1s", "factor": 2, "max": "30s", "jitter": 0}}


def test_a_minimal_report_with_the_token_completes_a_step() -> None:
    story = given(a_task("work"))
    story.completes("work", {"ok": True})
    assert story.status() == "completed"
    assert story.output() == {"ok": True}
    assert story.whats("work") == ["step-dispatched", "step-completed"]


def test_a_report_with_an_old_token_changes_nothing() -> None:
    story = given(a_task("work", retry=RETRY))
    old = story.token("work")
    story.fails("work")
    story.time_passes_until_due("work")
    before = story.run
    for _ in range(100):
        assert story.completes("work", 1, token=old).verdict is Verdict.STALE
        assert story.fails("work", token=old).verdict is Verdict.STALE
        assert story.is_started("work", token=old).verdict is Verdict.STALE
    assert story.run is before


@pytest.mark.parametrize("end", ["completes", "is_cancelled"])
def test_a_report_after_the_end_of_the_run_changes_nothing(end: str) -> None:
    story = given(a_task("work"))
    token = story.token("work")
    if end == "completes":
        story.completes("work", 1)
    else:
        story.is_cancelled()
    before = story.run
    assert story.completes("work", 2, token=token).verdict is Verdict.STALE
    assert story.run is before


def test_a_report_on_another_queue_than_the_steps_is_stale() -> None:
    story = given(a_task("work", queue="lane"))
    # The story's workers report on the queue "default".
    assert story.completes("work", 1).verdict is Verdict.STALE
    assert story.status("work") == "dispatched"


def test_the_id_of_a_child_run_is_no_token() -> None:
    story = given({"name": "sent", "run": {"workflow": "invoice"}})
    child = story.steps["sent"].child_run_id
    assert child is not None
    seen = DispatchDelivered(seed=story.seed(), cause=a_cause("delivered"), token=child)
    assert story.happens(seen).verdict is Verdict.STALE
    assert story.status("sent") == "waiting"


def test_a_failure_waits_its_backoff_and_is_dispatched_with_a_new_token() -> None:
    story = given(a_task("work", retry=RETRY))
    first = story.token("work")
    story.fails("work", "Boom", message="no luck")
    assert story.status("work") == "waiting"
    assert story.status() == "waiting"
    assert story.run.steps["work"].wake_at == BEGIN + timedelta(seconds=1)
    story.time_passes_until_due("work")
    assert story.status("work") == "dispatched"
    assert story.token("work") != first
    message = story.message()
    assert (message.attempt, message.max_attempts) == (2, 3)
    assert message.last_error is not None
    assert message.last_error.message == "no luck"


def test_max_attempts_counts_the_first() -> None:
    story = given(a_task("work", retry=RETRY))
    for _ in range(2):
        story.fails("work")
        story.time_passes_until_due("work")
    story.fails("work", "Boom", details={"code": 7})
    assert story.status() == "failed"
    assert len(story.dispatches) == 3
    error = story.error()
    assert (error.type, error.step, error.attempt, error.details) == (
        "Boom", "work", 3, b'{"code":7}',
    )  # fmt: skip


def test_a_task_without_a_retry_policy_has_one_attempt() -> None:
    story = given(a_task("work"))
    story.fails("work")
    assert story.status() == "failed"


def test_the_worker_may_say_that_a_failure_is_final() -> None:
    story = given(a_task("work", retry=RETRY))
    story.fails("work", retryable=False)
    assert story.status() == "failed"


def test_retry_after_overrides_the_backoff() -> None:
    story = given(a_task("work", retry=RETRY))
    story.fails("work", retry_after_ms=90_000)
    assert story.run.steps["work"].wake_at == BEGIN + timedelta(seconds=90)


def test_retry_after_zero_dispatches_at_once() -> None:
    story = given(a_task("work", retry=RETRY))
    story.fails("work", retry_after_ms=0)
    assert story.status("work") == "dispatched"
    assert story.whats("work")[-2:] == ["step-retrying", "step-dispatched"]


@pytest.mark.parametrize(
    ("policy", "error_type", "retried"),
    [
        ({"only": ["A"]}, "A", True),
        ({"only": ["A"]}, "B", False),
        ({"never": ["A"]}, "A", False),
        ({"never": ["A"]}, "B", True),
        ({"when": "error.type == 'A'"}, "A", True),
        ({"when": "error.type == 'A'"}, "B", False),
        ({"when": "error.attempt < 2"}, "A", True),
    ],
)
def test_the_policy_says_which_failures_are_retried(
    policy: dict[str, object], error_type: str, retried: bool
) -> None:
    story = given(a_task("work", retry={**RETRY, **policy}))
    story.fails("work", error_type)
    assert story.status("work") == ("waiting" if retried else "failed")


def test_an_error_in_retry_when_fails_the_step_with_its_own_error_and_attaches_the_other() -> None:
    story = given(a_task("work", retry={**RETRY, "when": "error.details.code == 1"}))
    story.fails("work", "Boom")
    error = story.error()
    assert error.type == "Boom"
    assert error.attached is not None
    assert error.attached.startswith("ExpressionError: steps.work.retry.when")


def test_the_workflows_retry_is_the_default_and_a_step_overrides_it_field_by_field() -> None:
    story = given(
        a_task("one"), a_task("two", retry={"max_attempts": 1}), retry={**RETRY, "never": ["X"]}
    )
    assert story.message().max_attempts == 3
    story.completes("one")
    assert story.message().max_attempts == 1
    spec = story.run.definition.steps["two"].spec
    assert isinstance(spec, TaskSpec)
    assert spec.retry.never == {"X"}


def test_a_lost_worker_spends_an_attempt_and_is_retried() -> None:
    story = given(a_task("work", retry=RETRY))
    story.is_started("work")
    story.is_lost("work")
    assert story.status("work") == "waiting"
    last_error = story.run.steps["work"].last_error
    assert last_error is not None
    assert last_error.type == "WorkerLost"


def test_an_attempt_that_does_not_end_is_timed_out_and_its_worker_told() -> None:
    story = given(a_task("work", timeouts={"attempt": "30s"}, retry=RETRY))
    token = story.token("work")
    assert story.run.steps["work"].due_at is None, "its clock starts with its start"
    story.after(hours=1).is_started("work")
    story.after(seconds=29).timer_fires("work")
    assert story.status("work") == "running"
    story.after(seconds=1).timer_fires("work")
    assert story.status("work") == "waiting"
    assert RevokeToken(queue="default", level=2, token=token) in story.last.effects
    assert any(isinstance(effect, CancelAttempt) for effect in story.last.effects)
    assert story.completes("work", 1, token=token).verdict is Verdict.STALE


def test_the_clock_starts_when_the_dispatch_was_seen_to_be_delivered() -> None:
    story = given(a_task("work", timeouts={"attempt": "30s"}))
    story.is_delivered("work")
    assert story.status("work") == "running"
    assert story.is_delivered("work").verdict is Verdict.IGNORED
    story.after(seconds=10).is_started("work")
    assert story.run.steps["work"].attempt_deadline_at == BEGIN + timedelta(seconds=30)
    assert story.run.steps["work"].worker_id == "w1"


def test_a_timeout_says_which() -> None:
    story = given(a_task("work", timeouts={"attempt": "30s"}))
    story.is_started("work")
    story.time_passes_until_due("work")
    error = story.error()
    assert error.type == "Timeout"
    assert error.details is not None
    assert msgspec.json.decode(error.details) == {"timeout": "attempt", "after_ms": 30_000}


def test_the_dispatch_timeout_spends_an_attempt_and_counts_anew_after_it() -> None:
    story = given(a_task("work", timeouts={"dispatch": "1m"}, retry=RETRY))
    story.time_passes_until_due("work")
    assert story.status("work") == "waiting"
    story.time_passes_until_due("work")
    step = story.run.steps["work"]
    assert step.attempt == 2
    assert step.dispatch_deadline_at == story.now + timedelta(minutes=1)


def test_the_dispatch_timeout_ends_with_the_start() -> None:
    story = given(a_task("work", timeouts={"dispatch": "1m"}))
    story.is_started("work")
    assert story.after(minutes=2).timer_fires("work").verdict is Verdict.IGNORED


def test_the_step_timeout_covers_all_attempts_and_waits_and_is_not_retried() -> None:
    retry = {**RETRY, "max_attempts": 100}
    story = given(a_task("work", timeouts={"attempt": "5s", "step": "20s"}, retry=retry))
    for _ in range(3):
        story.fails("work", retry_after_ms=5_000)
        story.time_passes_until_due("work")
    story.after(seconds=6).timer_fires("work")
    assert story.status() == "failed"
    assert story.error().details == b'{"timeout":"step","after_ms":20000}'


def test_an_engine_that_was_away_does_not_dispatch_what_the_step_timeout_has_ended() -> None:
    story = given(a_task("work", timeouts={"attempt": "5s", "step": "20s"}, retry=RETRY))
    story.fails("work", retry_after_ms=5_000)
    story.after(hours=1).timer_fires("work")
    assert story.status() == "failed"
    assert not [effect for effect in story.last.effects if isinstance(effect, DispatchStep)]


def test_only_heartbeats_renew_the_heartbeat_timeout() -> None:
    story = given(a_task("work", timeouts={"heartbeat": "10s"}))
    story.is_started("work")
    story.after(seconds=8).is_started("work")
    assert story.run.steps["work"].heartbeat_deadline_at == BEGIN + timedelta(seconds=10)
    story.beats("work", progress=1)
    assert story.run.steps["work"].heartbeat_deadline_at == BEGIN + timedelta(seconds=18)
    story.after(seconds=10).timer_fires("work")
    assert story.error().details == b'{"timeout":"heartbeat","after_ms":10000}'


def test_a_heartbeat_writes_no_history() -> None:
    story = given(a_task("work", timeouts={"heartbeat": "10s"}))
    story.is_started("work")
    for _ in range(50):
        assert not story.after(seconds=1).beats("work").transitions
    assert story.run.seq == 3


def test_the_last_progress_is_handed_to_the_next_attempt() -> None:
    story = given(a_task("work", retry=RETRY))
    story.beats("work", progress={"done": 41})
    story.beats("work", progress={"done": 42})
    story.fails("work", retry_after_ms=0)
    assert story.message().last_progress == raw({"done": 42})


def test_progress_over_the_limit_is_left_out() -> None:
    story = given(a_task("work"), limits=CoreLimits(progress_bytes_max=10))
    story.beats("work", progress="small")
    story.beats("work", progress="x" * 50)
    assert story.run.steps["work"].progress == b'"small"'


def test_the_idempotency_key_is_the_same_for_every_attempt_of_an_iteration() -> None:
    story = given(a_task("work", retry=RETRY))
    story.fails("work", retry_after_ms=0)
    story.completes("work", 1, again=Again(after_ms=0))
    keys = [story.message(index).idempotency_key for index in range(3)]
    assert keys[0] == keys[1] == f"{story.run.id}/work/1/0"
    assert keys[2] == f"{story.run.id}/work/1/1"


def test_again_repeats_the_step_with_a_fresh_budget() -> None:
    story = given(
        a_task("work", input={"i": "${ iteration }", "last": "${ last }"}, retry=RETRY,
               repeat={"delay": "10s", "limit": 5}),
        a_pass("seen", "${ steps.work.output }"),
    )  # fmt: skip
    story.fails("work", retry_after_ms=0)
    story.completes("work", "interim", again=Again())
    assert story.run.steps["work"].wake_at == BEGIN + timedelta(seconds=10)
    story.time_passes_until_due("work")
    message = story.message()
    assert (message.attempt, message.iteration) == (1, 1)
    assert message.input == raw({"i": 1, "last": "interim"})
    assert message.last_error is None
    story.completes("work", "final")
    assert story.output() == "final"


def test_again_at_the_limit_of_iterations_fails_with_repeat_limit() -> None:
    story = given(a_task("work", repeat={"limit": 3}))
    for _ in range(2):
        story.completes("work", 1, again=Again())
    assert story.message().iteration == 2
    story.completes("work", 1, again=Again())
    assert story.error().type == "RepeatLimit"


def test_a_released_attempt_is_dispatched_again_and_spends_nothing() -> None:
    story = given(a_task("work"))
    old = story.token("work")
    story.is_started("work")
    story.is_released("work", progress=5)
    assert story.status("work") == "dispatched"
    message = story.message()
    assert (message.attempt, message.max_attempts) == (1, 1)
    assert message.token != old
    assert message.last_progress == raw(5)


def test_a_release_from_another_worker_than_the_running_one_is_ignored() -> None:
    story = given(a_task("work"))
    story.is_started("work", "w1")
    story.is_started("work", "w2")
    assert story.is_released("work", worker="w1").verdict is Verdict.IGNORED
    assert story.status("work") == "running"
    assert story.is_released("work", worker="w2").verdict is Verdict.APPLIED


def test_an_unknown_task_backs_off_from_one_second_to_a_minute() -> None:
    story = given(a_task("work"))
    waits: list[float] = []
    for _ in range(9):
        story.is_released("work", ReleaseReason.UNKNOWN_TASK)
        wake_at = story.run.steps["work"].wake_at
        assert wake_at is not None
        waits.append((wake_at - story.now).total_seconds())
        story.time_passes_until_due("work")
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_hundredth_release_in_a_row_fails_the_attempt_with_not_run() -> None:
    story = given(a_task("work", retry=RETRY))
    for _ in range(99):
        story.is_released("work")
    assert story.run.steps["work"].attempt == 1
    story.is_released("work")
    step = story.run.steps["work"]
    assert step.last_error is not None
    assert step.last_error.type == "NotRun"
    assert story.status("work") == "waiting"
    assert step.release_count == 0


def test_a_vanished_dispatch_is_published_again_under_its_own_token() -> None:
    story = given(a_task("work"))
    first = story.message()
    story.vanishes("work")
    again = story.dispatches[-1]
    assert again.token == first.token
    assert again.dispatch_no == 2
    assert story.message() == first
    story.is_started("work")
    assert story.vanishes("work").verdict is Verdict.IGNORED, "a worker has said that it has it"


def test_a_dispatch_is_not_published_again_past_its_own_end() -> None:
    story = given(a_task("work", timeouts={"dispatch": "1m"}))
    assert story.after(minutes=1).vanishes("work").verdict is Verdict.IGNORED


def test_a_dispatch_lives_in_the_stream_until_its_end_and_a_minute() -> None:
    timeouts = {"dispatch": "30s", "step": "1h", "attempt": "1m"}
    assert given(a_task("work", timeouts=timeouts)).dispatches[0].ttl_seconds == 90
    assert given(a_task("work"), timeout="2h").dispatches[0].ttl_seconds == 7260
    assert given(a_task("work")).dispatches[0].ttl_seconds is None


def test_a_dispatch_that_is_too_large_fails_the_step_before_anything_is_published() -> None:
    story = given(a_task("work"), run_input="x" * 2000, limits=CoreLimits(dispatch_bytes_max=1000))
    assert story.error().type == "TooLarge"
    assert not story.dispatches


def test_an_output_that_is_too_large_fails_the_attempt_and_is_not_retried() -> None:
    story = given(a_task("work", retry=RETRY), limits=CoreLimits(payload_bytes_max=100))
    story.completes("work", "x" * 200)
    assert story.error().type == "TooLarge"


def test_an_error_that_is_too_large_is_cut_and_still_a_failure() -> None:
    story = given(a_task("work"), limits=CoreLimits(error_bytes_max=300))
    story.fails("work", "Boom", message="m" * 5000, details="d" * 5000)
    error = story.error()
    assert error.type == "Boom"
    assert error.details is None
    assert len(error.message.encode()) <= 300
    assert error.message.startswith("mmm")


def test_logs_are_kept_with_the_attempt_they_belong_to() -> None:
    story = given(a_task("work", retry=RETRY))
    story.fails("work", retry_after_ms=0)
    token = story.token("work")
    story.completes("work", 1, logs=(LogLine(message="hello"),))
    logs = [effect for effect in story.effects if isinstance(effect, AppendLogs)]
    assert [(log.path, log.attempt, log.token) for log in logs] == [("work", 2, token)]
    assert msgspec.json.decode(logs[0].lines)[0]["message"] == "hello"


def test_a_workers_own_events_are_announced_each_with_a_seq_of_its_own() -> None:
    story = given(a_task("work"))
    events = tuple(CustomEvent(name=f"e{n}", data=raw(n)) for n in range(3))
    story.completes("work", 1, events=events)
    assert story.announced()[-5:] == [
        "custom",
        "custom",
        "custom",
        "step-completed",
        "run-completed",
    ]
    assert story.whats("work").count("step-announced") == 3


def test_too_many_events_fail_the_attempt() -> None:
    story = given(a_task("work"), limits=CoreLimits(events_per_report_max=2))
    story.completes("work", 1, events=tuple(CustomEvent(name="e") for _ in range(3)))
    assert story.error().type == "InvalidOutput"
    assert "custom" not in story.announced()


def test_metadata_patches_are_merged_from_accepted_completions_alone() -> None:
    story = given(a_task("one", retry=RETRY), a_task("two"), a_pass("end", "${ metadata }"))
    old = story.token("one")
    story.fails("one", retry_after_ms=0)
    story.reports("one", StepCompleted(metadata=raw({"bad": 1})), token=old)
    story.completes("one", 1, metadata={"a": 1, "b": {"x": 1}})
    story.completes("two", 2, metadata={"a": None, "b": {"y": 2}})
    assert story.output() == {"b": {"x": 1, "y": 2}}


@pytest.mark.parametrize("patch", [1, [], "x", False])
def test_a_metadata_patch_that_is_no_object_fails_the_attempt(patch: object) -> None:
    story = given(a_task("work"))
    story.completes("work", 1, metadata=patch)
    assert story.error().type == "InvalidOutput"
    assert story.run.metadata == b"{}"


def test_metadata_over_the_limit_fails_the_attempt() -> None:
    story = given(a_task("work"), limits=CoreLimits(metadata_bytes_max=50))
    story.completes("work", 1, metadata={"a": "x" * 100})
    assert story.error().type == "TooLarge"


def test_the_input_of_a_task_is_the_runs_own_when_it_has_no_template() -> None:
    story = given(a_task("work"), run_input={"b": 1, "a": [1.0, 2**70]})
    assert story.message().input == raw({"b": 1, "a": [1.0, 2**70]})


def test_an_input_template_that_fails_fails_the_step_without_an_attempt() -> None:
    story = given(a_task("work", input="${ input.nothing }", retry=RETRY), run_input={})
    assert story.error().type == "ExpressionError"
    assert not story.dispatches
    assert story.steps["work"].attempt == 0


def test_the_input_is_rendered_once_for_all_attempts() -> None:
    story = given(a_task("work", input="${ now }", retry=RETRY))
    story.after(minutes=5).fails("work", retry_after_ms=0)
    assert story.message(0).input == story.message(1).input


def _tokens(story: Story) -> set[str]:
    return {dispatch.token for dispatch in story.dispatches}


def test_no_token_is_ever_made_twice() -> None:
    story = given(a_task("work", retry={"max_attempts": 50}, repeat={"limit": 50}))
    for _ in range(20):
        story.fails("work", retry_after_ms=0)
        story.is_released("work")
        story.completes("work", 1, again=Again(after_ms=0))
    assert len(_tokens(story)) == len(story.dispatches) == 61
