"""Waits for one, for all and for so many signals; what they want in a payload; several at once."""

from typing import Any

import pytest

from tests.support.builders import (
    Json,
    a_definition,
    a_pass,
    a_run,
    a_task,
)
from tests.support.replays import check_replays
from tests.support.scenario import Story, given, given_yaml
from towpath_engine.core.effects import ConsumeSignal, KeepSignal, RefuseSignal, Verdict
from towpath_engine.core.explain import reasons_of
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.sentences import sentence

pytestmark = pytest.mark.usefixtures("loading")

NUMBERS: Json = {"type": "integer"}


def a_wait_for(name: str = "approval", fields: Json | None = None, **wait: object) -> Json:
    """A step of kind wait with these fields of `wait`."""
    return {"name": name, "wait": wait, **(fields or {})}


def payloads(story: Story, step: str = "approval") -> list[object]:
    """The payloads of the list that a wait has as output."""
    output: Any = story.output_of(step)
    return [signal["payload"] for signal in output]


def refused(story: Story) -> list[RefuseSignal]:
    """The signals that the last decision refused."""
    return [effect for effect in story.last.effects if isinstance(effect, RefuseSignal)]


def kept(story: Story) -> list[int]:
    """The numbers of the kept signals."""
    return [signal.number for signal in story.run.kept]


# Any


def test_any_takes_the_first_of_its_names_that_comes() -> None:
    story = given(a_wait_for(any=["yes", "no"]))
    story.is_signalled("maybe")
    assert story.status("approval") == "waiting"
    story.is_signalled("no", 7)
    assert story.output() == {
        "name": "no",
        "payload": 7,
        "sent_by": "tester",
        "received_at": "2030-01-01T00:00:00.000000Z",
    }


def test_any_takes_the_earliest_kept_one_whatever_the_order_of_its_names() -> None:
    story = given(a_task("work"), a_wait_for(any=["yes", "no"]), a_wait_for("more", any=["yes"]))
    story.is_signalled("no", 1)
    story.is_signalled("yes", 2)
    story.completes("work")
    output: Any = story.output_of("approval")
    assert (output["name"], output["payload"]) == ("no", 1)
    assert story.status("more") == "completed", "what was not needed stayed for the next wait"


# All


def test_all_takes_one_of_each_name_in_order_of_arrival() -> None:
    story = given(a_wait_for(all=["a", "b", "c"]))
    for name in ("c", "a"):
        assert story.is_signalled(name, name).verdict is Verdict.APPLIED
        assert story.status("approval") == "waiting"
    story.is_signalled("b", "b")
    assert payloads(story) == ["c", "a", "b"]
    assert story.status() == "completed"
    assert not story.run.kept


def test_all_of_a_single_name_gives_a_list_too() -> None:
    story = given(a_wait_for(all=["a"]))
    story.is_signalled("a", 1)
    assert payloads(story) == [1]


def test_all_takes_nothing_before_all_are_there_and_then_each_once() -> None:
    story = given(a_wait_for(all=["a", "b"]))
    story.is_signalled("a", 1)
    assert kept(story) == [1]
    assert [type(effect) for effect in story.last.effects] == [KeepSignal]
    story.is_signalled("b", 2)
    taken = [one for one in story.last.effects if isinstance(one, KeepSignal | ConsumeSignal)]
    assert [type(one) for one in taken] == [KeepSignal, ConsumeSignal]
    assert taken[0].consumed_by == "approval"
    assert taken[1] == ConsumeSignal(number=1, consumed_by="approval")


def test_a_second_signal_of_a_name_that_all_already_has_stays_for_a_later_wait() -> None:
    story = given(a_wait_for(all=["a", "b"]), a_wait_for("later", signal="a"))
    for name, payload in (("a", 1), ("a", 2), ("b", 3)):
        story.is_signalled(name, payload)
    assert payloads(story) == [1, 3]
    output: Any = story.output_of("later")
    assert output["payload"] == 2


def test_all_counts_what_came_before_it_was_entered() -> None:
    story = given(a_task("work"), a_wait_for(all=["a", "b"]))
    story.is_signalled("b", 1)
    story.is_signalled("a", 2)
    story.completes("work")
    assert payloads(story) == [1, 2]
    assert story.status() == "completed"


# Count


def test_count_takes_so_many_of_its_names_whichever() -> None:
    story = given(a_wait_for(any=["yea", "nay"], count=3))
    for number, name in enumerate(("nay", "yea"), start=1):
        story.is_signalled(name, number)
        assert story.status("approval") == "waiting"
    story.is_signalled("yea", 3)
    assert payloads(story) == [1, 2, 3]


def test_count_of_one_gives_a_list() -> None:
    story = given(a_wait_for(signal="go", count=1))
    story.is_signalled("go", 1)
    assert payloads(story) == [1]


def test_count_takes_the_earliest_and_leaves_the_rest() -> None:
    story = given(a_task("work"), a_wait_for(signal="go", count=2), a_task("after"))
    for number in range(1, 4):
        story.is_signalled("go", number)
    story.completes("work")
    assert payloads(story) == [1, 2]
    assert kept(story) == [3]


def test_what_came_before_and_after_the_wait_began_counts_together() -> None:
    story = given(a_task("work"), a_wait_for(signal="go", count=2))
    story.is_signalled("go", 1)
    story.completes("work")
    assert story.status("approval") == "waiting"
    story.is_signalled("go", 2)
    assert payloads(story) == [1, 2]


def test_a_wait_that_times_out_leaves_what_it_had_for_others() -> None:
    story = given(
        a_wait_for(signal="go", count=2, timeout="1h", on_timeout={"next": "single"}),
        a_wait_for("single", signal="go"),
    )
    story.is_signalled("go", "early")
    story.time_passes_until_due("approval")
    assert story.status("approval") == "failed"
    output: Any = story.output_of("single")
    assert output["payload"] == "early"
    assert story.status() == "completed"


def test_a_wait_for_several_without_on_timeout_fails_the_run_which_keeps_the_signals() -> None:
    story = given(a_wait_for(signal="go", count=2, timeout="1h"))
    story.is_signalled("go", 1)
    story.time_passes_until_due("approval")
    assert (story.status(), story.error().type) == ("failed", "Timeout")
    assert kept(story) == [1]
    story.is_retried()
    assert story.status("approval") == "waiting"
    story.is_signalled("go", 2)
    assert payloads(story) == [1, 2]


def test_a_list_of_signals_over_the_limit_of_joined_outputs_fails_the_step() -> None:
    limits = CoreLimits(joined_output_bytes_max=300)
    story = given(a_wait_for(signal="go", count=2), limits=limits)
    story.is_signalled("go", "x" * 100)
    story.is_signalled("go", "x" * 100)
    assert (story.status(), story.error().type) == ("failed", "TooLarge")
    assert not story.run.kept


def test_the_last_signal_of_a_count_needs_no_room() -> None:
    story = given(a_wait_for(signal="go", count=3), limits=CoreLimits(signals_kept_max=2))
    for _ in range(3):
        assert story.is_signalled("go").verdict is Verdict.APPLIED
    assert story.status() == "completed"


# What a wait wants


def test_a_payload_that_no_open_wait_wants_is_refused_and_the_wait_goes_on() -> None:
    story = given(a_wait_for(signal="go", schema={"type": "object", "required": ["by"]}))
    before = len(story.history)
    decision = story.is_signalled("go", {"from": "me"})
    assert (decision.verdict, decision.refusal) == (Verdict.REFUSED, "schema_failed")
    assert decision.message is not None
    assert "'approval'" in decision.message
    assert '"by" is a required property' in decision.message
    assert (story.status("approval"), len(story.history)) == ("waiting", before)
    story.is_signalled("go", {"by": "me"})
    assert story.status() == "completed"


@pytest.mark.parametrize("several", [{"signal": "go", "count": 2}, {"all": ["go", "on"]}])
def test_a_wait_for_several_refuses_what_it_does_not_want(several: dict[str, Any]) -> None:
    story = given(a_wait_for(schema=NUMBERS, **several))
    story.is_signalled("go", 1)
    assert story.is_signalled("go", "x").refusal == "schema_failed"
    story.is_signalled("go" if "count" in several else "on", 2)
    assert payloads(story) == [1, 2]


def test_a_kept_signal_that_its_wait_does_not_want_is_refused_when_the_wait_begins() -> None:
    story = given(a_task("work"), a_wait_for(signal="go", schema=NUMBERS))
    story.is_signalled("go", "x")
    assert story.last.verdict is Verdict.APPLIED, "no wait is open that could say no"
    story.completes("work")
    (refusal,) = refused(story)
    assert (refusal.signal.number, refusal.path) == (1, "approval")
    assert "the payload is not what step 'approval' waits for" in refusal.reason
    assert story.status("approval") == "waiting"
    assert not story.run.kept
    fact = story.history[-2]
    assert (fact.what, fact.data and fact.data["refused"]) == ("step-waiting", 1)


def test_what_is_wrong_before_the_one_that_fits_is_refused_and_what_comes_behind_stays() -> None:
    story = given(a_task("work"), a_wait_for(signal="go", schema=NUMBERS), a_task("after"))
    for payload in ("x", 1, "y"):
        story.is_signalled("go", payload)
    story.completes("work")
    assert [one.signal.number for one in refused(story)] == [1]
    assert ConsumeSignal(number=2, consumed_by="approval") in story.last.effects
    assert kept(story) == [3]


def test_a_signal_of_another_name_is_not_asked_for_the_schema() -> None:
    story = given(a_wait_for(signal="go", schema=NUMBERS))
    assert story.is_signalled("on", "x").verdict is Verdict.APPLIED
    assert kept(story) == [1]


def test_a_wait_that_is_not_open_yet_refuses_nothing() -> None:
    story = given(a_wait_for(signal="go", schema=NUMBERS, fields={"delay": "10s"}))
    assert story.is_signalled("go", "x").verdict is Verdict.APPLIED
    story.time_passes_until_due("approval")
    assert [one.signal.number for one in refused(story)] == [1]


# Several waits at once

TWO_WAITS = """
- name: both
  parallel:
    on_error: wait_all
    branches:
      a: [{name: first, wait: {FIRST}}]
      b: [{name: nap, sleep: 1m}, {name: second, wait: {SECOND}}]
"""


def two_waits(first: str, second: str) -> Story:
    """A story of two open waits; `second` began a minute after `first`."""
    story = given_yaml(TWO_WAITS.replace("FIRST", first).replace("SECOND", second))
    story.time_passes_until_due("both/b/nap")
    assert story.status("both/b/second") == "waiting"
    return story


def test_the_wait_that_has_been_open_longest_takes_the_signal() -> None:
    story = two_waits("signal: go", "signal: go")
    story.is_signalled("go", 1)
    assert (story.status("both/a/first"), story.status("both/b/second")) == (
        "completed", "waiting"
    )  # fmt: skip
    story.is_signalled("go", 2)
    assert story.status() == "completed"


def test_the_order_of_opening_counts_and_not_that_of_the_paths() -> None:
    swapped = TWO_WAITS.replace(" a: ", " z: ").replace("FIRST", "signal: go")
    story = given_yaml(swapped.replace("SECOND", "signal: go"))
    story.time_passes_until_due("both/b/nap")
    story.is_signalled("go", 1)
    assert (story.status("both/z/first"), story.status("both/b/second")) == (
        "completed", "waiting"
    )  # fmt: skip


def test_a_later_wait_takes_what_an_earlier_one_does_not_want() -> None:
    story = two_waits("signal: go, schema: {type: integer}", "signal: go, schema: {type: string}")
    assert story.is_signalled("go", "text").verdict is Verdict.APPLIED
    assert story.status("both/b/second") == "completed"
    assert story.is_signalled("go", "text").refusal == "schema_failed"
    story.is_signalled("go", 1)
    assert story.status() == "completed"


def test_of_two_that_count_the_earlier_has_all_it_needs_first() -> None:
    story = two_waits("signal: go, count: 2", "signal: go, count: 2")
    for number in range(1, 5):
        story.is_signalled("go", number)
    assert payloads(story, "both/a/first") == [1, 2]
    assert payloads(story, "both/b/second") == [3, 4]


def test_a_later_wait_that_needs_one_does_not_wait_for_an_earlier_that_needs_many() -> None:
    story = two_waits("signal: go, count: 3", "signal: go")
    story.is_signalled("go", 1)
    assert (story.status("both/a/first"), story.status("both/b/second")) == (
        "waiting", "completed"
    )  # fmt: skip


def test_a_wait_that_begins_does_not_refuse_what_another_open_wait_wants() -> None:
    text = TWO_WAITS.replace("FIRST", "signal: go, count: 2, schema: {type: integer}")
    story = given_yaml(text.replace("SECOND", "signal: go, schema: {type: string}"))
    story.is_signalled("go", 1)
    story.time_passes_until_due("both/b/nap")
    assert not refused(story)
    assert kept(story) == [1]
    story.is_signalled("go", 2)
    assert payloads(story, "both/a/first") == [1, 2]


def test_two_waits_that_begin_in_one_decision_know_of_each_other() -> None:
    story = given_yaml("""
    - {name: work, task: work}
    - name: both
      parallel:
        branches:
          a: [{name: first, wait: {signal: go, count: 2, schema: {type: integer}}}]
          b: [{name: second, wait: {signal: go, count: 2, schema: {type: string}}}]
    """)
    for payload in (1, "x", True):
        story.is_signalled("go", payload)
    story.completes("work")
    # The first wait to begin stands alone, so that it refuses what only the second would want.
    assert [one.signal.number for one in refused(story)] == [2, 3]
    assert kept(story) == [1], "the second leaves what the first wants"


def test_of_waits_with_counts_of_different_payloads_each_counts_its_own() -> None:
    story = two_waits(
        "signal: go, count: 2, schema: {type: integer}",
        "signal: go, count: 2, schema: {type: string}",
    )
    for payload in (1, "a", "b", 2):
        story.is_signalled("go", payload)
    assert payloads(story, "both/b/second") == ["a", "b"]
    assert payloads(story, "both/a/first") == [1, 2]
    assert story.status() == "completed"


def test_a_dropped_branch_leaves_its_signals_to_who_comes_after() -> None:
    story = given_yaml("""
    - name: both
      parallel:
        branches:
          a: [{name: votes, wait: {signal: go, count: 2}}]
          b: [{name: work, task: work}]
      catch: [{next: late}]
    - {name: late, wait: {signal: go}}
    """)
    story.is_signalled("go", 1)
    story.fails("both/b/work")
    assert story.status("both/a/votes") == "cancelled"
    output: Any = story.output_of("late")
    assert output["payload"] == 1


def test_items_take_signals_in_the_order_in_which_they_began_to_wait() -> None:
    story = given_yaml("""
    - name: each
      map:
        items: [1, 2, 3]
        steps: [{name: answer, wait: {signal: go}}]
    """)
    for number in (1, 2, 3):
        story.is_signalled("go", number)
        assert story.status(f"each[{number - 1}]/answer") == "completed"
    assert story.status() == "completed"


# Reading it


def lacks(story: Story) -> str:
    """What the only reason of the run says."""
    (reason,) = reasons_of(story.run)
    return sentence(reason)


def test_explain_says_which_of_all_a_wait_lacks() -> None:
    story = given(a_wait_for(all=["a", "b", "c"]))
    assert lacks(story) == (
        "approval waits for all of signals 'a', 'b', 'c', lacks 'a', 'b', 'c', without a limit"
    )
    story.is_signalled("b")
    story.is_signalled("b")
    assert lacks(story) == (
        "approval waits for all of signals 'a', 'b', 'c', lacks 'a', 'c', without a limit"
    )


def test_explain_says_how_many_a_wait_has() -> None:
    story = given(a_wait_for(any=["yea", "nay"], count=3, schema=NUMBERS, timeout="1h"))
    story.is_signalled("other", "x")
    story.is_signalled("yea", 1)
    assert lacks(story) == (
        "approval waits for 3 of signals 'yea', 'nay', has 1, "
        "at the latest until 2030-01-01T01:00:00Z"
    )


def test_explain_of_a_wait_for_any_names_them() -> None:
    assert lacks(given(a_wait_for(any=["a", "b"]))) == (
        "approval waits for signals 'a', 'b', without a limit"
    )


def test_a_history_of_refused_and_taken_signals_replays() -> None:
    definition = a_definition(
        a_task("work"),
        a_wait_for(any=["a", "b"], count=2, schema=NUMBERS),
        a_wait_for("both", all=["a", "b"], timeout="1h", on_timeout={"next": "end"}),
        a_pass("end", "${ steps.both.error.type }"),
    )
    begin = a_run(definition)
    story = Story(begin)
    story.begins()
    story.is_signalled("a", "x")
    story.is_signalled("b", 1)
    story.completes("work")
    assert [one.signal.number for one in refused(story)] == [1]
    story.is_signalled("a", "y")
    story.is_signalled("a", 2)
    assert payloads(story) == [1, 2]
    story.is_signalled("b", 3)
    story.time_passes_until_due("both")
    assert story.output() == "Timeout"
    check_replays(begin, story)
