"""Lists in which steps say `after`: each begins as soon as all that it names are done."""

import pytest

from tests.support.scenario import given_yaml
from towpath_engine.core.limits import CoreLimits

pytestmark = pytest.mark.usefixtures("loading")

DIAMOND = """
- {name: fetch, task: fetch}
- {name: left, task: left, after: [fetch]}
- {name: right, task: right, after: [fetch]}
- name: both
  task: both
  after: [left, right]
  input: ["${ steps.left.output }", "${ steps.right.output }"]
- {name: alone, task: alone}
"""


def test_every_step_begins_when_all_it_names_are_done_and_the_list_ends_with_the_last() -> None:
    story = given_yaml(DIAMOND)
    assert story.open_paths() == ["alone", "fetch"]
    story.completes("fetch")
    assert story.open_paths() == ["alone", "left", "right"]
    story.completes("right", "r")
    assert story.status("both") == "pending"
    story.completes("left", "l")
    assert story.sent() == ["l", "r"]
    story.completes("both", "b")
    assert story.status() == "running"
    story.completes("alone", "a")
    assert story.status() == "completed"
    assert story.output() == "a", "the output of the step that settled last"


def test_a_skipped_step_counts_as_done() -> None:
    story = given_yaml(DIAMOND.replace("after: [fetch]}", "after: [fetch], when: 'false'}"))
    story.completes("alone")
    story.completes("fetch")
    assert story.open_paths() == ["both"]
    assert story.sent() == [None, None]
    story.completes("both")
    assert story.status() == "completed"


def test_a_failed_step_fails_the_list_and_cancels_what_is_open() -> None:
    story = given_yaml(DIAMOND)
    story.completes("fetch")
    story.fails("left")
    assert story.status() == "failed"
    assert story.status("right") == "cancelled"
    assert story.status("alone") == "cancelled"
    assert story.status("both") == "skipped"


def test_steps_that_end_at_once_follow_each_other_however_small_a_decision_is() -> None:
    text = DIAMOND
    for name in ("fetch", "left", "right", "both", "alone"):
        text = text.replace(f"task: {name}", "pass: 1")
    text = text.replace('  input: ["${ steps.left.output }", "${ steps.right.output }"]', "")
    story = given_yaml(text, limits=CoreLimits(transitions_per_decision_max=1)).goes_on()
    assert story.status() == "completed"
    assert sorted(story.whats()).count("step-completed") == 5


def test_a_dag_in_an_item_goes_its_own_way() -> None:
    story = given_yaml(
        """
        - name: each
          map:
            items: "${ input }"
            steps:
            - {name: one, task: one}
            - {name: two, task: two}
            - name: join
              pass: "${ [item, steps.one.output, steps.two.output] }"
              after: [one, two]
        """,
        run_input=["a", "b"],
    )
    story.completes("each[1]/two", 2)
    story.completes("each[0]/one", 1)
    story.completes("each[1]/one", 3)
    assert story.status("each[1]") == "completed"
    story.completes("each[0]/two", 4)
    assert story.output() == [["a", 1, 4], ["b", 3, 2]]


def test_a_failure_in_the_dag_of_a_tolerated_item_cancels_the_rest_of_this_item_alone() -> None:
    story = given_yaml(
        """
        - name: each
          map:
            items: "${ input }"
            tolerate: {count: 1}
            steps:
            - {name: one, task: one}
            - {name: two, task: two}
            - {name: join, pass: done, after: [one, two]}
        """,
        run_input=["a", "b"],
    )
    story.fails("each[0]/one")
    assert story.status("each[0]/two") == "cancelled"
    assert story.status("each[1]/one") == "dispatched"
    story.completes("each[1]/one")
    story.completes("each[1]/two")
    assert story.output() == [None, "done"]


def test_a_failure_that_is_not_worked_off_yet_is_not_overtaken_by_the_last_step() -> None:
    story = given_yaml(
        """
        - {name: one, task: one}
        - {name: two, task: two}
        - {name: join, pass: done, after: [two]}
        """,
        limits=CoreLimits(transitions_per_decision_max=1),
    ).goes_on()
    story.fails("one")
    assert story.run.cursor is not None, "the decision was split"
    story.completes("two")
    story.goes_on()
    assert story.status() == "failed"
    assert story.error().step == "one"


def test_a_redrive_goes_on_at_a_failed_step_that_a_retry_had_not_come_to() -> None:
    story = given_yaml(
        """
        - {name: one, task: one}
        - {name: two, task: two}
        - {name: last, pass: done, after: [one, two]}
        """,
        limits=CoreLimits(transitions_per_decision_max=1),
    ).goes_on()
    story.fails("two")
    story.goes_on()
    story.loads_all()
    story.is_retried()
    while story.status("one") != "dispatched":
        story.continues()
    assert story.status("two") == "failed", "the retry has not come to it yet"
    story.fails("one")
    story.goes_on()
    assert story.error().step == "one"
    story.loads_all()
    story.is_redriven("one")
    story.goes_on()
    story.completes("one")
    story.goes_on()
    story.completes("two")
    story.goes_on()
    assert story.status() == "completed"


def test_a_step_that_a_retry_still_has_to_come_to_is_not_overtaken_by_the_last_one() -> None:
    story = given_yaml(
        """
        - {name: first, pass: 1}
        - {name: one, task: one}
        - {name: two, task: two, after: [first]}
        """,
        limits=CoreLimits(transitions_per_decision_max=1),
    ).goes_on()
    story.fails("two")
    story.goes_on()
    story.loads_all()
    story.is_retried()
    while story.status("one") != "dispatched":
        story.continues()
    story.completes("one")
    story.goes_on()
    assert story.status() == "running", "two goes on, too"
    story.completes("two")
    story.goes_on()
    assert story.status() == "completed"
