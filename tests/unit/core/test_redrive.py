"""Redrive: which steps are done again, under which keys, and what they see."""

import msgspec

from tests.support.builders import a_choice, a_pass, a_task, a_wait
from tests.support.scenario import Story, given
from towpath_engine.core.limits import CoreLimits


def failed_at_second() -> Story:
    """A run whose first step is completed and whose second has failed."""
    story = given(a_task("first"), a_task("second"), a_task("third"))
    story.completes("first", {"id": 1})
    story.fails("second")
    return story


def test_a_redrive_does_the_step_and_all_after_it_again() -> None:
    story = failed_at_second()
    story.is_redriven("first")
    assert story.status("first") == "dispatched"
    assert story.status("second") == "pending"
    story.completes("first", {"id": 2})
    story.completes("second")
    story.completes("third")
    assert story.status() == "completed"
    assert story.output_of("first") == {"id": 2}


def test_every_redriven_step_gets_a_new_idempotency_key() -> None:
    story = failed_at_second()
    story.is_redriven("first")
    story.completes("first")
    story.completes("second")
    story.completes("third")
    keys = [story.message(n).idempotency_key for n in range(len(story.dispatches))]
    assert len(keys) == 5
    assert len(set(keys)) == 5


def test_later_outputs_are_forgotten_and_earlier_ones_kept() -> None:
    story = given(
        a_task("first"),
        a_task("second", input={"later": "${ metadata }", "first": "${ steps.first.output }"}),
        a_task("third", input={"second": "${ steps.second.output }"}),
        a_task("fourth"),
    )
    story.completes("first", 1)
    story.completes("second", 2)
    story.completes("third", 3)
    story.fails("fourth")
    story.is_redriven("second")
    assert story.message().input == msgspec.Raw(b'{"later":{},"first":1}')
    assert story.run.steps["third"].output is None
    assert story.run.steps["third"].last_output is None
    assert story.status("third") == "pending"


def test_a_redriven_step_comes_from_where_it_came_from_before() -> None:
    story = given(
        a_task("first"),
        a_choice("route", ("true", "right"), default="left"),
        a_task("left", next="join"),
        a_task("right"),
        a_task("join", input="${ prev }"),
        a_task("last"),
    )
    story.completes("first", 1)
    story.completes("right", "from right")
    story.completes("join")
    story.fails("last")
    story.is_redriven("join")
    assert story.message().input == msgspec.Raw(b'"from right"')


def test_in_a_loop_a_redrive_still_sees_the_last_outputs_of_the_steps_around_it() -> None:
    story = given(
        a_task("ask", limit=3),
        a_task("check", input={"asked": "${ steps.ask.output }"}),
        a_choice("more", ("prev.again", "ask"), default="last"),
        a_task("last"),
    )
    story.completes("ask", 1)
    story.completes("check", {"again": True})
    story.completes("ask", 2)
    story.completes("check", {"again": False})
    story.fails("last")
    story.is_redriven("check")
    assert story.message().input == msgspec.Raw(b'{"asked":2}')
    assert story.status("ask") == "pending"


def test_a_redriven_loop_has_all_its_visits_again() -> None:
    story = given(
        a_task("work", limit=2),
        a_choice("more", ("prev.again", "work"), default="last"),
        a_task("last"),
    )
    for again in (True, False):
        story.completes("work", {"again": again})
    story.fails("last")
    story.is_redriven("work")
    for again in (True, False):
        assert story.status("work") == "dispatched"
        story.completes("work", {"again": again})
    story.completes("last")
    assert story.status() == "completed"


def test_a_redrive_may_go_another_way() -> None:
    story = given(
        a_task("first"),
        a_choice("route", ("prev == 1", "left"), default="right"),
        a_task("left", end=True),
        a_task("right"),
    )
    story.completes("first", 1)
    story.fails("left")
    story.is_redriven("first")
    story.completes("first", 2)
    story.completes("right")
    assert story.status() == "completed"
    assert story.status("left") == "skipped"


def test_a_skipped_step_can_be_redriven() -> None:
    story = given(a_task("first"), a_task("extra", when="prev == 1"), a_task("last"))
    story.completes("first", 2)
    story.fails("last")
    story.is_redriven("extra")
    assert story.whats("extra")[-2:] == ["step-reset", "step-skipped"]
    assert story.status("last") == "dispatched"


def test_an_edited_input_waits_for_the_delay_of_its_step() -> None:
    story = given(a_task("work", delay="1h", input={"n": "${ input.n }"}), run_input={"n": 1})
    story.time_passes_until_due("work")
    story.fails("work")
    story.is_redriven("work", edited={"n": 2})
    assert story.status("work") == "waiting"
    story.time_passes_until_due("work")
    assert story.message().input == msgspec.Raw(b'{"n":2}')


def test_consumed_signals_stay_consumed() -> None:
    story = given(a_wait("ask"), a_task("work"))
    story.is_signalled("go", 1)
    story.fails("work")
    story.is_redriven("ask")
    assert story.status("ask") == "waiting"
    story.is_signalled("go", 2)
    assert story.status("work") == "dispatched"


def test_a_run_may_be_retried_and_redriven_many_times() -> None:
    story = failed_at_second()
    keys: list[str] = []
    for _ in range(5):
        story.is_redriven("first")
        keys.append(story.message().idempotency_key)
        story.completes("first")
        story.fails("second")
        story.is_retried()
        story.fails("second")
    assert len(set(keys)) == 5
    assert story.run.revival_count == 10
    assert story.status("third") == "skipped"


def test_a_list_that_was_cut_off_after_a_skipped_step_goes_on_behind_it() -> None:
    inner = [a_pass("never", when="false", limit=1), a_task("work")]
    story = given(
        a_wait("other"),
        {"name": "whole", "parallel": {"branches": {"a": inner}}},
        a_pass("last", after=["other", "whole"]),
        timeout="10s",
        limits=CoreLimits(transitions_per_decision_max=5),
    )
    assert story.whats("whole/a/never") == ["step-skipped"], "and there the decision was split"
    assert story.run.cursor is not None
    story.time_passes_until_due(None)
    story.continues()
    story.loads_all()
    story.is_redriven("other")
    story.goes_on()
    assert story.status("whole/a/work") == "dispatched"
    assert story.whats("whole/a/never") == ["step-skipped"]
