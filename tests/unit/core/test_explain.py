"""`explain` in words: what each state of a run says about itself, and when it wakes."""

import re
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from tests.support.builders import (
    BEGIN,
    Json,
    a_cause,
    a_choice,
    a_definition,
    a_pass,
    a_run,
    a_sleep,
    a_task,
    a_wait,
)
from tests.support.scenario import Story, given
from towpath_engine.core.events import PauseRequested, TimerDue
from towpath_engine.core.explain import ReasonKind, reasons_of, wake_at_of
from towpath_engine.core.gate import Gate
from towpath_engine.core.model import Failure
from towpath_engine.core.sentences import (
    NO_FACTS,
    STUCK,
    Outbox,
    PauseFacts,
    ReasonFacts,
    sentence,
    summary,
)
from towpath_engine.core.states import RunStatus, StepKind, WaitReason
from towpath_protocol.reports import ReleaseReason

RETRY = {"max_attempts": 3, "backoff": {"initial": "1s", "factor": 2, "max": "30s", "jitter": 0}}


def later(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


TEN = BEGIN + timedelta(minutes=10)


def says(story: Story, facts: ReasonFacts = NO_FACTS) -> str:
    (reason,) = reasons_of(story.run)
    return sentence(reason, facts)


def failed_once() -> Story:
    story = given(a_task("work", retry=RETRY))
    story.fails("work", "HttpError", message="503\nlong story")
    return story


def released() -> Story:
    story = given(a_task("work"))
    story.is_released("work", ReleaseReason.UNKNOWN_TASK)
    return story


def started(**fields: object) -> Story:
    story = given(a_task("work", **fields))
    story.is_started("work", "w-7")
    return story


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (a_wait("ask", "yes"), "ask waits for signal 'yes', without a limit"),
        (
            a_wait("ask", "yes", timeout="1h"),
            "ask waits for signal 'yes', at the latest until 2030-01-01T01:00:00Z",
        ),
        (a_sleep("rest"), "rest sleeps until 2030-01-01T01:00:00Z"),
        (a_task("work", delay="5s"), "work waits for its delay until 2030-01-01T00:00:05Z"),
        (a_task("work"), "work is queued in queue 'default' (attempt 1 of 1)"),
    ],
)
def test_an_open_step_says_what_it_waits_for(step: Json, text: str) -> None:
    assert says(given(step)) == text


def test_a_queued_step_says_how_many_come_first_and_that_nobody_pulls() -> None:
    facts = ReasonFacts(ahead=12, workers=0, nobody_pulls_since=BEGIN)
    assert says(given(a_task("work")), facts) == (
        "work is queued behind 12 in queue 'default' (attempt 1 of 1), "
        "from which nobody pulls since 2030-01-01T00:00:00Z"
    )


@pytest.mark.parametrize(
    ("facts", "end"),
    [
        (ReasonFacts(workers=1, pulls=4), ", from which 1 worker pulls"),
        (ReasonFacts(workers=3, workers_able=1), ", from which 3 workers pull"),
        (ReasonFacts(pulls=2), ", from which somebody pulls"),
        (ReasonFacts(pulls=0, workers=0), ", from which nobody pulls now"),
        (ReasonFacts(ahead=0), "is queued first in queue 'default' (attempt 1 of 1)"),
        (
            ReasonFacts(workers=1, pulls=0, last_heartbeat_at=BEGIN, asked_at=later(8)),
            ", whose 1 worker does not pull now (busy, or gone, last heartbeat 8 s ago)",
        ),
        (
            ReasonFacts(workers=2, workers_able=0, pulls=4),
            ", but none of the 2 workers of queue 'default' has task 'work': start one that has "
            "it, or deploy the workflow with the right name and restart the run",
        ),
    ],
)
def test_a_queued_step_says_who_pulls(facts: ReasonFacts, end: str) -> None:
    assert says(given(a_task("work")), facts).endswith(end)


def test_a_bound_is_not_given_as_a_count() -> None:
    facts = ReasonFacts(ahead=10_000, ahead_is_bound=True)
    assert "behind 10000 or more in queue" in says(given(a_task("work")), facts)


def test_a_dispatch_that_is_not_in_the_stream_says_so() -> None:
    assert says(given(a_task("work")), ReasonFacts(outbox=Outbox.FRESH, workers=1)) == (
        "work is on its way into queue 'default' (attempt 1 of 1), from which 1 worker pulls"
    )
    assert says(given(a_task("work")), ReasonFacts(outbox=Outbox.LATE)) == (
        "work waits since 2030-01-01T00:00:00Z to be put into queue 'default' (attempt 1 of 1): "
        "NATS is away, or its stream is full"
    )


def test_a_running_attempt_says_where_since_when_and_until_when() -> None:
    facts = ReasonFacts(last_heartbeat_at=later(3), asked_at=later(5))
    assert says(started(), facts) == (
        "work runs on w-7 since 2030-01-01T00:00:00Z (attempt 1 of 1), last heartbeat 2 s ago, "
        "at the latest until 2030-01-01T00:05:00Z"
    )


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_199, "119 min"), (9e3, "2 h")],
)
def test_a_worker_that_is_silent_for_long_may_be_gone(seconds: float, age: str) -> None:
    facts = ReasonFacts(last_heartbeat_at=BEGIN, asked_at=later(seconds), silent=True)
    said = f"00:05:00Z, last heartbeat {age} ago: if it is gone, NATS delivers the attempt again"
    assert says(started(), facts).endswith(said)


def test_a_running_attempt_says_that_its_worker_is_about_to_stop() -> None:
    facts = ReasonFacts(last_heartbeat_at=later(3), asked_at=later(5), draining=True)
    assert says(started(), facts).endswith(
        "at the latest until 2030-01-01T00:05:00Z, last heartbeat 2 s ago; the worker drains: what "
        "it does not end in time it gives back, to run elsewhere"
    )
    # Of one that is heard of no more nobody knows what it does.
    assert "drains" not in says(started(), replace(facts, silent=True))


def test_a_backoff_says_until_when_and_after_what() -> None:
    assert says(failed_once()) == (
        "work backs off until 2030-01-01T00:00:01Z after HttpError: 503 (attempt 1 of 3 failed)"
    )


def test_a_retried_attempt_says_what_it_comes_after() -> None:
    story = failed_once()
    story.time_passes_until_due("work")
    assert says(story) == "work is queued in queue 'default' (attempt 2 of 3), after HttpError: 503"


def test_an_attempt_that_was_given_back_says_when_it_is_dispatched_again() -> None:
    assert says(released()) == (
        "work was given back by its worker and is dispatched again at 2030-01-01T00:00:01Z"
    )


def test_an_attempt_that_no_worker_knows_says_so_and_what_to_do() -> None:
    story = released()
    story.time_passes_until_due("work")
    story.is_released("work", ReleaseReason.UNKNOWN_TASK)
    assert says(story, ReasonFacts(workers=1, workers_able=0)) == (
        "work was given back by its worker 2 times in a row and is dispatched again at "
        "2030-01-01T00:00:03Z; the only worker of queue 'default' does not have task 'work': start "
        "one that has it, or deploy the workflow with the right name and restart the run"
    )
    assert "does not have" not in says(story, ReasonFacts(workers=1, workers_able=1))


@pytest.mark.parametrize(
    ("strays", "text"),
    [
        ((("yess", 1),), "'yess'"),
        ((("a", 2), ("b", 1), ("c", 1), ("d", 1)), "'a' (2 times), 'b', 'c' and others"),
    ],
)
def test_a_wait_says_what_came_that_nobody_waits_for(
    strays: tuple[tuple[str, int], ...], text: str
) -> None:
    assert says(given(a_wait("ask", "yes")), ReasonFacts(stray_signals=strays)) == (
        f"ask waits for signal 'yes', without a limit; what came is {text}, for which no step of "
        "the workflow waits"
    )


def test_a_delayed_start_says_when_the_run_begins() -> None:
    story = Story(a_run(a_definition(a_task("work")), start_at=TEN))
    story.begins()
    assert says(story) == "the run begins at 2030-01-01T00:10:00Z"
    assert wake_at_of(story.run, reasons_of(story.run)) == TEN


def test_a_pause_says_who_since_when_and_why() -> None:
    story = given(a_wait("ask", "yes"))
    cause = replace(a_cause("pause", reason="audit"), by="ada")
    story.happens(PauseRequested(seed=story.seed(), cause=cause))
    pause, wait = reasons_of(story.run)
    assert pause.kind is ReasonKind.PAUSE
    assert wait.kind is ReasonKind.SIGNAL
    assert sentence(pause) == (
        "the run is paused by ada since 2030-01-01T00:00:00Z (audit); resume it to go on"
    )
    assert summary(story.run, [sentence(pause), sentence(wait)]).endswith("(and 1 more)")


@pytest.mark.parametrize(
    ("gate", "text"),
    [
        (
            Gate(paused=frozenset({"queue:default"})),
            "work is held back: queue 'default' is paused by ada since 2030-01-01T00:00:00Z",
        ),
        (
            Gate(paused=frozenset({"task:work"})),
            "work is held back: task 'work' is paused by ada since 2030-01-01T00:00:00Z",
        ),
        (
            Gate(full={"default": 0}),
            "work is held back behind 4: queue 'default' has as many dispatches as it may",
        ),
    ],
)
def test_a_step_that_is_held_back_says_by_what(gate: Gate, text: str) -> None:
    story = given(a_sleep("rest", "1s"), a_task("work"))
    story.after(seconds=1)
    story.happens(TimerDue(seed=story.seed(), cause=a_cause("timer"), path="rest", gate=gate))
    assert says(story, ReasonFacts(ahead=4, pause=PauseFacts(at=BEGIN, by="ada"))) == text


def test_a_report_that_could_not_be_applied_is_named() -> None:
    text = says(started(), ReasonFacts(dead_letter_id="L1"))
    assert text.endswith("; a report of it could not be applied: dead letter L1")


def test_a_settled_run_has_no_reasons_and_says_how_it_ended() -> None:
    story = given(a_task("work"))
    story.completes("work")
    assert reasons_of(story.run) == []
    assert wake_at_of(story.run, []) is None
    assert summary(story.run, []) == "the run has settled: completed"


def test_a_failed_run_says_where_and_why_and_what_continues_it() -> None:
    story = given(a_task("work", retry=RETRY))
    story.fails("work", "HttpError", message="503\nlong story", retryable=False)
    assert summary(story.run, []) == (
        "the run has settled: failed at step 'work' (attempt 1 of 3), HttpError: 503; when the "
        f"cause is mended, `towpath retry {story.run.id}` goes on from there"
    )
    too_big = replace(story.run, error=Failure(type="RunTooBig", message="10 steps"))
    assert summary(too_big, []) == (
        "the run has settled: failed, RunTooBig: 10 steps; "
        f"`towpath restart {story.run.id}` starts it anew"
    )


@pytest.mark.parametrize(
    ("step", "given_input", "helps"),
    [
        (a_pass("a", "${ 1 / 0 * size(input) }"), [], ["redrive", "restart"]),
        (a_choice("a", ("input > 1", "b")), 0, ["redrive", "restart"]),
        (a_task("a", input="${ input.missing }"), {}, ["retry --input", "redrive", "restart"]),
        (a_task("a", when="input.missing == 1"), {}, ["redrive", "restart"]),
    ],
)
def test_what_the_definition_makes_fail_again_is_not_retried(
    step: Json, given_input: Json, helps: list[str]
) -> None:
    story = given(step, a_pass("b"), run_input=given_input)
    run = story.run
    assert run.status is RunStatus.FAILED
    text = summary(run, [])
    assert "a retry alone meets the same again" in text
    found = re.findall(rf"`towpath (retry|redrive|restart) {run.id}( --input)?", text)
    assert ["".join(one) for one in found] == helps


def test_a_run_that_turned_in_circles_goes_on_with_its_visits_counted_anew() -> None:
    story = given(
        a_pass("a", 1, limit=2),
        a_choice("on", ("input == null", "a"), default="end"),
        a_pass("end"),
    )
    assert summary(story.run, []).endswith(
        f"`towpath redrive {story.run.id} STEP` goes back to a step and counts its visits anew"
    )


@pytest.mark.parametrize("kind", ["ExpressionError", "NoChoice", "VisitLimit", "TooLarge"])
def test_a_worker_may_use_the_engines_words_for_its_own_failures(kind: str) -> None:
    story = given(a_task("work"))
    story.fails("work", kind, message="its own")
    assert f"when the cause is mended, `towpath retry {story.run.id}`" in summary(story.run, [])


def test_a_run_that_timed_out_or_was_cancelled_says_when_or_by_whom() -> None:
    story = given(a_wait("ask", "yes"), timeout="3h")
    run = replace(story.run, status=RunStatus.TIMED_OUT)
    assert summary(run, []).startswith(
        "the run has settled: timed_out, its deadline was 2030-01-01T03:00:00Z; when"
    )
    run = replace(
        story.run, status=RunStatus.CANCELLED, cancelled_by="ada", cancel_reason="a mistake"
    )
    assert summary(run, []) == "the run has settled: cancelled by ada (a mistake)"


def test_a_run_that_nothing_moves_does_not_pretend_to_wait() -> None:
    story = given(a_task("work"))
    assert summary(story.run, []) == STUCK


def test_a_run_wakes_at_the_earliest_of_its_instants_and_its_deadline() -> None:
    story = given(a_wait("ask", "yes", timeout="2h"), timeout="3h")
    assert wake_at_of(story.run, reasons_of(story.run)) == BEGIN + timedelta(hours=2)
    story = given(a_wait("ask", "yes"), timeout="3h")
    assert wake_at_of(story.run, reasons_of(story.run)) == BEGIN + timedelta(hours=3)


# Branches and items, children, undoing

UNDO = {"compensate": {"task": "undo", "retry": {"max_attempts": 4}}}


def test_a_whole_says_what_its_innermost_steps_say() -> None:
    branches = {"mail": [a_task("send")], "app": [a_sleep("nap")]}
    story = given({"name": "notify", "parallel": {"branches": branches}})
    told = [sentence(reason) for reason in reasons_of(story.run)]
    assert [text.partition(" ")[0] for text in told] == ["notify/app/nap", "notify/mail/send"]
    assert [reason.kind for reason in reasons_of(story.run)] == [
        ReasonKind.INSTANT, ReasonKind.DISPATCH,
    ]  # fmt: skip


def test_a_wait_for_several_signals_names_them() -> None:
    story = given({"name": "ask", "wait": {"any": ["yes", "no"]}})
    assert says(story).startswith("ask waits for signals 'yes', 'no'")


def test_an_undo_says_so_and_the_summary_says_why() -> None:
    story = given(a_task("reserve", **UNDO), a_task("charge"))
    story.completes("reserve")
    story.fails("charge", "Declined", message="no money")
    assert says(story).startswith("reserve (being undone) is queued")
    assert "attempt 1 of 4" in says(story)
    story.is_started("reserve")
    assert says(story).startswith("reserve (being undone) runs on w1")
    told = summary(story.run, [says(story)])
    assert told.startswith("failed (Declined: no money), its steps are being undone: reserve (be")


def test_an_attempt_that_is_being_cancelled_says_so() -> None:
    story = given(a_task("reserve", **UNDO))
    story.is_started("reserve")
    story.is_cancelled(by="ada", reason="wrong order", compensate=True)
    assert says(story).startswith("reserve (being cancelled) runs on w1")


def test_how_a_run_ended_tells_what_became_of_its_undoing_and_what_helps() -> None:
    story = given(a_task("reserve", **UNDO), a_task("charge"))
    story.completes("reserve")
    story.is_cancelled(by="ada", reason="wrong order", compensate=True)
    assert summary(story.run, [says(story)]).startswith(
        "cancelled by ada (wrong order), its steps are being undone: "
    )
    story.fails("reserve", "Gone", retryable=False)
    told = summary(story.run, [])
    assert told.startswith(
        "the run has settled: cancelled by ada (wrong order), "
        "and then the undo of step 'reserve' failed, Gone: "
    )
    assert "and then an undo failed; " in summary(replace(story.run, steps={}), [])
    assert told.endswith(f"`towpath retry {story.run.id}` goes on undoing")
    story.is_retried()
    story.completes("reserve")
    assert summary(story.run, []) == (
        "the run has settled: cancelled by ada (wrong order), and its steps were undone"
    )


def test_a_step_that_waits_for_its_child_names_it_and_where_it_stands() -> None:
    story = given(a_wait("invoice"))
    step = replace(
        story.run.steps["invoice"],
        kind=StepKind.RUN,
        waiting_for=WaitReason.CHILD,
        child_run_id="child-1",
        signal=None,
    )
    run = replace(story.run, steps={"invoice": step})
    (reason,) = reasons_of(run)
    assert (reason.kind, reason.child_run_id) == (ReasonKind.CHILD, "child-1")
    assert sentence(reason) == (
        "invoice waits for its child run child-1, which has not been started yet"
    )
    assert sentence(reason, ReasonFacts(child_status="waiting")).endswith("which is waiting")
