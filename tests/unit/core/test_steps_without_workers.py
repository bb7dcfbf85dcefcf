"""pass, choice, when, next, end, limit, delay and sleep: decided on the spot, or at an instant."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.builders import BEGIN, a_choice, a_pass, a_sleep, a_task
from tests.support.scenario import given
from towpath_engine.core.effects import ContinueLater, Verdict
from towpath_engine.core.limits import CoreLimits


def test_a_list_of_passes_is_done_in_one_decision() -> None:
    story = given(*(a_pass(f"s{n}", {"n": n}) for n in range(300)))
    assert story.status() == "completed"
    assert story.output() == {"n": 299}
    assert story.run.version == 1
    assert story.whats() == ["run-started", *["step-completed"] * 300, "run-completed"]


def test_a_pass_renders_what_it_sees() -> None:
    story = given(
        a_pass("first", "${ input.a }"),
        a_pass("second", {"prev": "${ prev }", "text": "a ${ input.a } b", "key": "$${ x }"}),
        run_input={"a": 7},
    )
    assert story.output() == {"prev": 7, "text": "a 7 b", "key": "${ x }"}


@pytest.mark.parametrize(
    "value", [None, False, 0, "", [], {}, 1.0, 2**70, -(2**63), "héllo🎉", {"a": [None]}]
)
def test_any_json_value_comes_out_as_it_went_in(value: object) -> None:
    story = given(a_pass("one", "${ input }"), run_input=value)
    assert story.run.output == msgspec.json.encode(value)


def test_a_null_output_is_a_result() -> None:
    story = given(a_pass("one", None), a_pass("two", "${ steps.one.status }"))
    assert story.output_of("one") is None
    assert story.output() == "completed"


def test_the_output_of_the_run_is_its_template_when_it_has_one() -> None:
    story = given(
        a_pass("one", 1),
        a_pass("two", 2),
        output={"one": "${ steps.one.output }", "id": "${ run.id }"},
    )
    assert story.output() == {"one": 1, "id": story.run.id}


def test_an_output_template_that_fails_fails_the_run() -> None:
    story = given(a_pass("one", 1), output="${ input.nothing }", run_input={})
    assert story.status() == "failed"
    assert story.error().type == "ExpressionError"
    assert story.error().step is None
    assert story.run.output is None


def test_a_choice_goes_to_the_first_row_that_holds() -> None:
    story = given(
        a_choice("route", ("input.n > 100", "big"), ("input.n > 10", "middle"), default="small"),
        a_pass("big", "big", end=True),
        a_pass("middle", "middle", end=True),
        a_pass("small", "small"),
        run_input={"n": 50},
    )
    assert story.output() == "middle"
    assert story.output_of("route") == {"chosen": "middle"}
    assert story.status("big") == "skipped"
    assert story.status("small") == "skipped"


def test_what_follows_a_choice_decides_the_end_of_the_run() -> None:
    """The choice is no bracket around what it leads to: nothing completes twice."""
    story = given(a_choice("route", ("true", "work")), a_task("work"))
    assert story.status() == "running"
    story.fails("work")
    assert story.status() == "failed"
    assert story.whats("route") == ["step-completed"]
    assert story.announced().count("step-completed") == 1


def test_a_choice_without_a_row_that_holds_takes_its_default() -> None:
    story = given(a_choice("route", ("false", "a"), default="b"), a_pass("a"), a_pass("b", "b"))
    assert story.output() == "b"


def test_a_choice_without_a_match_and_default_fails_with_no_choice() -> None:
    story = given(a_choice("route", ("false", "a")), a_pass("a"))
    assert story.status() == "failed"
    assert story.error().type == "NoChoice"
    assert story.status("route") == "failed"


def test_a_condition_that_fails_is_never_taken_as_false() -> None:
    story = given(
        a_choice("route", ("input.nothing == 1", "a"), default="a"), a_pass("a"), run_input={}
    )
    error = story.error()
    assert error.type == "ExpressionError"
    assert error.step == "route"
    assert not error.retryable
    assert error.details is not None
    details = msgspec.json.decode(error.details)
    assert details["field"] == "steps.route.choice[0].when"
    assert details["expression"] == "input.nothing == 1"
    assert isinstance(details["position"], int)
    assert details["reason"]


def test_a_step_whose_when_is_false_is_skipped_and_the_run_goes_on() -> None:
    story = given(a_task("one", when="input.n > 3"), a_pass("two", "two"), run_input={"n": 1})
    assert story.status() == "completed"
    assert story.whats("one") == ["step-skipped"]
    assert story.announced().count("step-skipped") == 1


def test_a_skipped_step_takes_its_own_next_and_end() -> None:
    story = given(
        a_choice("route", ("true", "a"), default="b"),
        a_pass("a", "a", when="false", end=True),
        a_pass("b", "b"),
    )
    assert story.status() == "completed"
    assert story.status("b") == "skipped"


def test_a_skipped_choice_falls_to_the_following_step() -> None:
    story = given(
        a_choice("route", ("true", "far"), when="false"),
        a_pass("near", "near", end=True),
        a_pass("far", "far"),
    )
    assert story.output() == "near"


def test_a_skipped_step_has_no_output_and_prev_passes_through_it() -> None:
    story = given(
        a_pass("a", "a"),
        a_pass("b", "b", when="false"),
        a_pass("c", {"prev": "${ prev }", "b": "${ steps.b.output }", "s": "${ steps.b.status }"}),
    )
    assert story.output() == {"prev": "a", "b": None, "s": "skipped"}


def test_steps_never_reached_end_skipped_when_the_run_settles_and_nobody_is_told_of_each() -> None:
    story = given(a_pass("a"), a_task("b"), a_pass("c"), a_sleep("d"))
    story.fails("b")
    assert [story.status(name) for name in "abcd"] == ["completed", "failed", "skipped", "skipped"]
    assert story.history[-1].what == "run-failed"
    assert "step-skipped" not in story.announced()


def test_when_that_fails_fails_the_step_and_is_not_retried() -> None:
    story = given(a_task("a", when="input.x", retry={"max_attempts": 5}), run_input={})
    assert story.status() == "failed"
    assert story.status("a") == "failed"
    assert story.error().type == "ExpressionError"


def test_a_delay_comes_after_when_and_before_the_step() -> None:
    story = given(a_pass("a", "${ now }", delay="10s", when="true"))
    assert story.status("a") == "waiting"
    assert story.status() == "waiting"
    assert story.after(seconds=9).timer_fires("a").verdict is Verdict.IGNORED
    story.after(seconds=1).timer_fires("a")
    assert story.status() == "completed"
    assert story.output() == "2030-01-01T00:00:10Z"


def test_a_sleep_ends_at_its_instant_and_not_before() -> None:
    story = given(a_sleep("nap", "30d"))
    assert story.run.steps["nap"].wake_at == BEGIN + timedelta(days=30)
    assert story.timer_fires("nap").verdict is Verdict.IGNORED
    story.after(days=30).timer_fires("nap")
    assert story.status() == "completed"
    assert story.run.output == b"null"


def test_a_sleep_until_an_instant_in_the_past_is_over_at_once() -> None:
    story = given(
        {"name": "nap", "until": "${ input.at }"}, run_input={"at": "2020-01-01T00:00:00Z"}
    )
    assert story.status() == "completed"


def test_a_sleep_until_an_instant_with_an_offset_wakes_in_utc() -> None:
    story = given({"name": "nap", "sleep": {"until": "2030-01-01T03:00:00+02:00"}})
    assert story.run.steps["nap"].wake_at == BEGIN + timedelta(hours=1)


@pytest.mark.parametrize("value", ["tomorrow", 12, None, "2030-01-01T00:00:00", {}])
def test_a_sleep_until_no_instant_fails_its_step(value: object) -> None:
    story = given({"name": "nap", "until": "${ input.at }"}, run_input={"at": value})
    assert story.status() == "failed"
    assert story.error().type == "ExpressionError"
    assert "RFC 3339" in story.error().message


def test_a_loop_sees_the_last_completed_output_and_ends_by_its_condition() -> None:
    story = given(
        a_pass("count", "${ steps.count.output == null ? 1 : steps.count.output + 1 }"),
        a_choice("more", ("steps.count.output < 5", "count"), default="done", limit=100),
        a_pass("done", "${ steps.count.output }"),
    )
    assert story.output() == 5
    assert story.steps["count"].visit == 5
    assert story.whats("count").count("step-revisited") == 4


def test_exactly_limit_visits_are_allowed() -> None:
    steps = (
        a_pass("count", "${ steps.count.output == null ? 1 : steps.count.output + 1 }", limit=5),
        a_choice("more", ("steps.count.output < input.n", "count"), default="done"),
        a_pass("done", "${ steps.count.output }"),
    )
    assert given(*steps, run_input={"n": 5}).output() == 5
    one_too_many = given(*steps, run_input={"n": 6})
    assert one_too_many.error().type == "VisitLimit"
    assert one_too_many.error().step == "count"


def test_a_decision_that_is_too_long_goes_on_in_the_next() -> None:
    limits = CoreLimits(transitions_per_decision_max=10)
    story = given(*(a_pass(f"s{n}", n) for n in range(25)), limits=limits)
    assert story.status() == "running"
    assert story.run.cursor == "enter s9"
    assert isinstance(story.last.effects[-1], ContinueLater)
    assert story.run.due_at == story.now, "a crash before the next decision leaves an instant"
    story.continues()
    story.timer_fires(None)
    assert story.status() == "completed"
    assert story.output() == 24
    assert story.continues().verdict is Verdict.IGNORED


def test_a_split_decision_keeps_signals_and_can_be_cancelled() -> None:
    limits = CoreLimits(transitions_per_decision_max=5)
    story = given(*(a_pass(f"s{n}", n) for n in range(25)), limits=limits)
    story.is_signalled("go")
    assert len(story.run.kept) == 1
    story.is_cancelled()
    assert story.status() == "cancelled"
    assert story.continues().verdict is Verdict.IGNORED


def test_a_run_with_too_many_open_steps_fails_with_run_too_big() -> None:
    story = given(
        a_task("a"), a_task("b"), a_task("c"), limits=CoreLimits(open_steps_per_run_max=2)
    )
    first = story.run.steps["a"]
    others = {name: replace(first, path=name, token=f"token-{name}") for name in ("b", "c")}
    story.run = replace(story.run, steps={"a": first, "b": others["b"]})
    story.is_started("a")
    assert story.status() == "running", "the bound itself is allowed"
    story.run = replace(story.run, steps={**story.run.steps, **others})
    story.is_started("b")
    assert (story.status(), story.error().type) == ("failed", "RunTooBig")
    assert "3 open steps, the limit is 2" in story.error().message


def test_a_run_that_loops_for_ever_fails_with_run_too_big() -> None:
    limits = CoreLimits(transitions_per_decision_max=50, transitions_per_run_max=200)
    story = given(
        a_pass("again", 1, limit=1_000_000),
        a_choice("more", ("true", "again"), default="done"),
        a_pass("done"),
        limits=limits,
    )
    for _ in range(10):
        story.continues()
    assert story.status() == "failed"
    assert story.error().type == "RunTooBig"


def test_an_output_over_the_limit_fails_the_step_with_too_large() -> None:
    limits = CoreLimits(payload_bytes_max=100)
    story = given(a_pass("a", ["${ input }", "${ input }"]), run_input="x" * 60, limits=limits)
    assert story.error().type == "TooLarge"
    assert story.error().step == "a"
