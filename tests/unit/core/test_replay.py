"""Every history replays: what it keeps of its events is enough to decide all of them again."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given as drawn
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
from tests.support.drawn_definitions import definitions
from tests.support.histories import World
from tests.support.replays import check_replays, exported, payload_of, replayed
from tests.support.scenario import Story
from tests.support.tallies import Tally
from tests.unit.core.test_core_properties import LIMITS, NUMBERS, examples
from towpath_engine.core.events import PauseRequested, ResumeRequested
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run
from towpath_engine.core.parse import parse_definition
from towpath_protocol.reports import Again, CustomEvent, ReleaseReason

Events = tuple[CustomEvent, ...]
TIMED = {"attempt": "10s", "heartbeat": "4s"}
RETRIED = {"max_attempts": 3, "backoff": {"initial": "1s", "jitter": 0.5}}


def begun(*steps: Json, limits: CoreLimits | None = None, **fields: Any) -> tuple[Run, Story]:
    """A run as its start made it, and the story that goes on from there."""
    run = a_run(a_definition(*steps, **fields), run_input={"n": 5}, limits=limits)
    story = Story(run)
    story.begins()
    return run, story


def check_histories(count: int) -> None:
    @examples(count)
    @drawn(definitions(), NUMBERS)
    def histories(document: dict[str, object], numbers: list[int]) -> None:
        start_at = BEGIN + timedelta(seconds=30) if numbers and numbers[0] % 3 == 0 else None
        definition = parse_definition(document)
        given = {"n": len(numbers) % 7, "items": list(range(len(numbers) % 5))}
        run = a_run(definition, run_input=given, start_at=start_at, limits=LIMITS)
        world = World(run, Tally())
        world.begins()
        for number in numbers:
            world.act(number)
        # A history that is not over yet replays, too.
        check_replays(run, world)
        world.calm()
        check_replays(run, world)

    histories()


def test_every_random_history_replays_the_same() -> None:
    check_histories(500)


@pytest.mark.slow
def test_every_one_of_many_random_histories_replays_the_same() -> None:
    check_histories(20_000)


def test_a_plain_completion_keeps_nothing_for_a_replay() -> None:
    run, story = begun(a_task("a"), a_task("b"), a_pass("c", "${ prev }"))
    story.is_started("a")
    story.beats("a")
    story.completes("a", {"big": "x" * 1_000})
    story.completes("b", None, events=(CustomEvent(name="seen"),))
    assert story.status() == "completed"
    assert [row.what for row in story.history if row.payload is not None] == []
    check_replays(run, story)


def _again(story: Story) -> None:
    story.completes("a", {"i": 0}, again=Again(after_ms=0))
    story.completes("a", {"i": 1}, again=Again(after_ms=1_500), metadata={"m": 1})
    story.time_passes_until_due("a")
    story.completes("a", {"i": 2})


def _failures(story: Story) -> None:
    story.fails("a", "Boom", message="plain")
    story.time_passes_until_due("a")
    story.fails("a", "Boom", message="x" * 900, details={"code": 7}, retry_after_ms=10)
    story.time_passes_until_due("a")
    story.fails("a", "Never", retryable=False)


def _heartbeats(story: Story) -> None:
    """Without the renewals, the heartbeat timeout would be the first to pass."""
    story.is_started("a", "w1")
    for _ in range(4):
        story.after(seconds=2.4).beats("a", worker="w2", progress={"at": 1})
    story.after(seconds=1).timer_fires("a")
    story.time_passes_until_due("a")
    story.completes("a", 1)


def _releases(story: Story) -> None:
    story.is_started("a", "w1")
    story.beats("a", worker="w2")
    story.is_released("a", ReleaseReason.DRAIN, worker="w2", progress=[1])
    story.is_released("a", ReleaseReason.UNKNOWN_TASK, after_ms=1)
    story.time_passes_until_due("a")
    story.is_released("a", ReleaseReason.INTERRUPTED, after_ms=60_000)
    story.time_passes_until_due("a")
    story.completes("a", 1)


def _refused(story: Story) -> None:
    story.completes("a", "x" * 300)
    assert story.status() == "failed"


def _refused_metadata(story: Story) -> None:
    story.completes("a", 1, metadata=["no object"])
    story.time_passes_until_due("a")
    story.completes("a", 1, metadata={"m": "x" * 200})
    assert story.error().type == "TooLarge"


def _too_many_events(story: Story) -> None:
    events = tuple(CustomEvent(name=f"e{number}") for number in range(4))
    story.completes("a", 1, events=events)
    assert story.error().type == "InvalidOutput"


def _too_many_failures_with_events(story: Story) -> None:
    story.is_lost("a")
    story.time_passes_until_due("a")
    story.is_delivered("a")
    story.vanishes("a")
    story.completes("a", 1, events=(CustomEvent(name="e"),))


CASES: dict[str, tuple[Callable[[Story], None], set[str]]] = {
    "again": (_again, {"output", "again", "metadata"}),
    "failures": (_failures, {"error"}),
    "heartbeats": (_heartbeats, {"heartbeat_deadline_at", "progress"}),
    "releases": (_releases, {"progress"}),
    "too large": (_refused, {"output_bytes"}),
    "refused metadata": (_refused_metadata, {"metadata"}),
    "too many events": (_too_many_events, {"event_count"}),
    "what was seen of dispatches": (_too_many_failures_with_events, set()),
}


@pytest.mark.parametrize("case", list(CASES))
def test_what_no_row_keeps_of_an_event_stands_in_the_payload(case: str) -> None:
    happen, names = CASES[case]
    limits = CoreLimits(payload_bytes_max=256, metadata_bytes_max=100, events_per_report_max=3)
    run, story = begun(
        a_task("a", retry=RETRIED, timeouts=TIMED, repeat={"limit": 5, "delay": "2s"}),
        a_pass("end", "${ steps.a.output }"),
        limits=limits,
    )
    happen(story)
    assert {name for row in story.history for name in payload_of(row)} == names
    check_replays(run, story)


def test_an_output_that_a_later_visit_replaces_moves_into_the_history() -> None:
    run, story = begun(
        a_task("a", limit=3),
        a_choice("c", ("steps.a.output < 3", "a"), default="end"),
        a_pass("end"),
    )
    for number in (1, 2, 3):
        story.completes("a", number)
    kept = [payload_of(row) for row in story.history if row.what == "step-revisited"]
    assert [payload for payload in kept if payload] == [
        {"replaced_output": 1}, {"replaced_output": 2},
    ]  # fmt: skip
    check_replays(run, story)


def test_signals_sleeps_and_cancels_replay() -> None:
    run, story = begun(a_sleep("s"), a_wait("w", "go"), a_wait("v", "stop", timeout="5s"))
    story.is_signalled("go", {"early": True})
    story.time_passes_until_due("s")
    story.after(seconds=1).is_signalled("other", None)
    story.is_cancelled("me", "enough")
    turns = check_replays(run, story)
    assert turns[-1].after.cancelled_by == "me"


def test_a_history_that_was_changed_shows_the_first_difference() -> None:
    run, story = begun(a_task("a"), a_task("b"))
    story.completes("a", {"id": 1})
    story.completes("b")
    history = exported(story)
    edited = [
        replace(row, token="another") if row.what == "step-dispatched" and row.step == "b" else row
        for row in history
    ]
    last = replayed(run, edited)[-1]
    assert last.difference is not None
    assert last.difference.fields == ("token",)
    assert last.difference.recorded is not None
    assert last.difference.replayed is not None
    assert last.difference.seq == last.difference.recorded.seq == last.difference.replayed.seq


def test_another_definition_shows_where_it_would_have_gone_another_way() -> None:
    run, story = begun(a_task("a"), a_task("b"))
    story.completes("a")
    story.completes("b")
    other = replace(run, definition=a_definition(a_task("a"), a_task("c")))
    difference = replayed(other, exported(story))[-1].difference
    assert difference is not None
    assert difference.replayed is not None
    assert (difference.replayed.what, difference.replayed.step) == ("step-dispatched", "c")


def test_a_history_without_the_values_of_its_rows_says_what_it_lacks() -> None:
    run, story = begun(a_task("a"))
    story.completes("a", 1)
    difference = replayed(run, story.history)[-1].difference
    assert difference is not None
    assert "the output of step a" in difference.reason


def test_a_history_that_no_engine_could_have_written_is_a_difference_not_an_error() -> None:
    run, story = begun(a_task("a"), a_task("b"))
    story.completes("a", 1)
    history = exported(story)
    torn = [row for row in history if row.what != "step-dispatched"]
    difference = replayed(run, torn)[-1].difference
    assert difference is not None
    unknown = [replace(history[0], cause=replace(history[0].cause, type="magic")), *history[1:]]
    difference = replayed(run, unknown)[-1].difference
    assert difference is not None
    assert "magic" in difference.reason
    broken = [replace(row, payload=b'{"again": 3}') for row in history]
    difference = replayed(run, broken)[-1].difference
    assert difference is not None
    assert "payload" in difference.reason


UNDONE = {
    "compensate": {"task": "undo", "retry": {"max_attempts": 2}, "timeouts": {"attempt": "9s"}}
}


def test_an_undo_replays_with_its_retries_timeouts_and_what_an_operator_had_go_on() -> None:
    run, story = begun(a_task("a", **UNDONE), a_task("b", **UNDONE), a_task("c"))
    story.completes("a", 1)
    story.completes("b", 2)
    story.fails("c")
    story.is_started("b")
    story.completes("b", "undone", metadata={"freed": True})
    story.is_started("a")
    story.time_passes_until_due("a")
    story.time_passes_until_due("a")
    story.fails("a", "Gone", retryable=False)
    assert story.status() == "compensation_failed"
    story.is_retried()
    story.completes("a")
    assert story.status() == "compensated"
    check_replays(run, story)


@pytest.mark.parametrize("compensate", [True, False, None])
def test_a_cancel_replays_however_long_the_run_takes_to_end(compensate: bool | None) -> None:
    run, story = begun(a_task("a", **UNDONE), a_task("b", **UNDONE))
    story.completes("a", 1)
    story.is_started("b")
    story.is_cancelled(by="ada", reason="wrong", compensate=compensate)
    if compensate is not False:
        assert story.status("b") == "cancelling"
        story.fails("b", "TooLate", details={"n": 1})
        story.completes("a")
    assert story.status() == "cancelled"
    check_replays(run, story)


def test_the_end_of_a_cancelled_attempt_replays_by_report_timeout_and_withdrawal() -> None:
    for end in ("completes", "fails", "times_out", "is_lost", "is_released", "vanishes"):
        run, story = begun(a_task("a", **UNDONE, timeouts=TIMED), a_task("b"))
        if end != "vanishes":
            story.is_started("a")
            story.beats("a", progress=[1])
        story.is_cancelled(compensate=True)
        match end:
            case "completes":
                story.completes("a", 1)
                story.completes("a")
            case "fails":
                story.fails("a", "Boom", message="too late")
            case "times_out":
                story.time_passes_until_due("a")
            case "is_lost":
                story.is_lost("a")
            case "vanishes":
                # Nobody knows whether a worker has it: it has until its end.
                story.vanishes("a")
                story.time_passes_until_due("a")
            case _:
                story.is_released("a")
        assert story.status() == "cancelled", end
        check_replays(run, story)


def test_parts_replay_with_rows_that_their_join_asks_for() -> None:
    steps = [a_task("pick"), a_pass("double", "${ item * 2 }")]
    run, story = begun({"name": "lines", "map": {"items": "${ [1, 2, 3] }", "steps": steps}})
    for n in (2, 0, 1):
        story.completes(f"lines[{n}]/pick")
    assert story.output() == [2, 4, 6]
    check_replays(run, story)


def test_a_late_sweep_that_cancels_an_attempt_whose_time_is_over_replays() -> None:
    slow = a_task("slow", compensate={"task": "undo"}, timeouts={"attempt": "10s"})
    run, story = begun(
        {"name": "both", "parallel": {"branches": {"a": [slow], "b": [a_task("bad")]}}},
        on_failure="fail",
        limits=CoreLimits(transitions_per_decision_max=1),
    )
    story.goes_on()
    story.is_started("both/a/slow")
    story.after(seconds=20)
    story.fails("both/b/bad")
    while story.status() == "running":
        story.timer_fires(None)
    assert story.status() == "failed"
    assert story.whats("both/a/slow")[-2:] == ["step-cancelling", "step-cancelled"]
    check_replays(run, story)


@pytest.mark.parametrize("first", ["report", "rest"])
def test_the_rest_of_a_split_decision_that_changes_nothing_replays_wherever_it_comes(
    first: str,
) -> None:
    branches = {"a": [a_pass("done")], "b": [a_task("work")]}
    run, story = begun(
        {"name": "both", "parallel": {"branches": branches}},
        limits=CoreLimits(transitions_per_decision_max=7),
    )
    assert story.whats()[-1] == "step-dispatched"
    assert story.run.cursor is not None
    if first == "rest":
        story.continues()
    story.completes("both/b/work")
    story.goes_on()
    assert story.status() == "completed"
    check_replays(run, story)


def test_a_late_sweep_that_lets_a_step_go_whose_time_is_over_replays_as_that() -> None:
    run, story = begun(
        a_task("first"),
        a_task("held", timeouts={"step": "10s"}),
        limits=CoreLimits(transitions_per_decision_max=1),
    )
    story.goes_on()
    story.happens(PauseRequested(seed=story.seed(), cause=a_cause("pause")))
    story.completes("first")
    story.goes_on()
    assert story.status("held") == "ready"
    story.after(seconds=20)
    story.happens(ResumeRequested(seed=story.seed(), cause=a_cause("resume")))
    story.timer_fires(None)
    assert story.status("held") == "dispatched"
    check_replays(run, story)
