"""Map: one list for each item, so many at a time, in the order of the items."""

import pytest

from tests.support.scenario import Story, given_yaml
from towpath_engine.core.limits import CoreLimits

pytestmark = pytest.mark.usefixtures("loading")

LINES = """
- name: lines
  map:
    items: "${ input }"
    as: line
    max_concurrency: 2
    steps:
    - {name: reserve, task: reserve, input: {line: "${ line }", at: "${ index }"}}
- {name: last, pass: "${ steps.lines.output }"}
"""


def tolerating(text: str) -> str:
    return LINES.replace("max_concurrency: 2", f"max_concurrency: 2\n    tolerate: {text}")


def test_items_are_done_in_order_so_many_at_a_time_and_joined_in_order() -> None:
    story = given_yaml(LINES, run_input=["a", "b", "c"])
    assert story.open_paths() == [
        "lines", "lines[0]", "lines[0]/reserve", "lines[1]", "lines[1]/reserve"
    ]  # fmt: skip
    assert story.message(0).step == "lines[0]/reserve"
    assert story.sent(1) == {"line": "b", "at": 1}
    story.completes("lines[1]/reserve", "B")
    assert story.status("lines[1]") == "completed"
    assert story.message().step == "lines[2]/reserve"
    story.completes("lines[2]/reserve", "C")
    assert story.status("lines") == "running"
    story.completes("lines[0]/reserve", "A")
    assert story.output() == ["A", "B", "C"]


def test_no_items_are_an_empty_list() -> None:
    assert given_yaml(LINES, run_input=[]).output() == []


@pytest.mark.parametrize("items", [None, {}, "ab", 3])
def test_items_that_are_no_list_fail_the_step(items: object) -> None:
    story = given_yaml(LINES, run_input=items)
    assert story.status() == "failed"
    assert story.error().type == "ExpressionError"
    assert story.error().step == "lines"
    assert "steps.lines" in story.error().message


def test_any_json_value_is_an_item_and_comes_out_unchanged() -> None:
    values = [None, False, 0, "", 2**60, {"a": [1]}, "ü", 1.5]
    story = given_yaml(
        """
        - name: each
          map: {items: "${ input }", steps: [{name: same, pass: "${ item }"}]}
        """,
        run_input=values,
    )
    assert story.output() == values


def test_more_failures_than_are_tolerated_cancel_the_rest_at_once() -> None:
    story = given_yaml(LINES, run_input=[1, 2, 3])
    story.fails("lines[1]/reserve")
    assert story.status() == "failed"
    assert story.status("lines[0]/reserve") == "cancelled"
    assert story.status("lines[0]") == "cancelled"
    assert "lines[2]" not in story.steps
    errors = story.errors_of("lines")
    assert list(errors) == ["1"]
    assert errors["1"]["step"] == "lines[1]/reserve"


@pytest.mark.parametrize("tolerated", ["{count: 1}", "{percent: 34}"])
def test_a_tolerated_item_is_null_and_its_error_stands_under_its_index(tolerated: str) -> None:
    story = given_yaml(
        tolerating(tolerated).replace(
            "steps.lines.output }", "[steps.lines.output, steps.lines.errors] }"
        ),
        run_input=[1, 2, 3],
    )
    story.fails("lines[0]/reserve", "Sold")
    story.completes("lines[1]/reserve", "b")
    story.completes("lines[2]/reserve", "c")
    assert story.status() == "completed"
    output = story.output()
    assert isinstance(output, list)
    assert output[0] == [None, "b", "c"]
    assert output[1]["0"]["type"] == "Sold"
    assert story.steps["lines"].error is None


def test_one_failure_more_fails_the_map_with_the_first() -> None:
    story = given_yaml(tolerating("{count: 1}"), run_input=[1, 2, 3, 4])
    story.fails("lines[1]/reserve", "First")
    story.completes("lines[0]/reserve")
    story.fails("lines[2]/reserve", "Second")
    assert story.error().type == "First"
    errors = story.errors_of("lines")
    assert sorted(errors) == ["1", "2"]
    assert story.status("lines[3]") == "cancelled"


def test_a_map_in_a_map_sees_both_items() -> None:
    story = given_yaml(
        """
        - name: rows
          map:
            items: "${ input }"
            as: row
            steps:
            - {name: sum, pass: "${ size(row) }"}
            - name: cells
              map:
                items: "${ row }"
                as: cell
                steps: [{name: one, pass: "${ [cell, size(row), index, steps.sum.output] }"}]
        """,
        run_input=[["a", "b"], ["c"]],
    )
    assert story.output() == [[["a", 2, 0, 2], ["b", 2, 1, 2]], [["c", 1, 0, 1]]]


def test_steps_of_an_item_see_their_own_item_and_the_lists_around() -> None:
    story = given_yaml(
        """
        - {name: before, task: before}
        - name: each
          map:
            items: "${ input }"
            steps:
            - {name: first, task: first}
            - name: second
              task: second
              input: ["${ steps.first.output }", "${ steps.before.output }", "${ prev }"]
        """,
        run_input=[1, 2],
    )
    story.completes("before", "outside")
    story.completes("each[1]/first", "one")
    assert story.sent() == ["one", "outside", "one"]
    story.completes("each[0]/first", "zero")
    assert story.sent() == ["zero", "outside", "zero"]
    story.completes("each[0]/second", 1)
    story.completes("each[1]/second", 2)
    assert story.output() == [1, 2]


def test_an_item_loops_by_itself() -> None:
    story = given_yaml(
        """
        - name: each
          map:
            items: "${ input }"
            steps:
            - {name: try_it, task: try_it, limit: 3}
            - name: more
              choice: [{when: "steps.try_it.output < item", next: try_it}]
              default: done
            - {name: done, pass: "${ steps.try_it.output }"}
        """,
        run_input=[2, 9],
    )
    story.completes("each[0]/try_it", 1)
    assert story.steps["each[0]/try_it"].visit == 2
    story.completes("each[0]/try_it", 2)
    assert story.status("each[0]") == "completed"
    for number in (1, 2, 3):
        story.completes("each[1]/try_it", number)
    assert story.error().type == "VisitLimit"
    assert story.error().step == "each[1]/try_it"


def test_thousands_of_items_that_end_at_once_are_split_and_joined() -> None:
    story = given_yaml(
        """
        - name: each
          map: {items: "${ input }", steps: [{name: same, pass: "${ item }"}]}
        """,
        run_input=list(range(5_000)),
        limits=CoreLimits(payload_bytes_max=1 << 20),
    )
    assert story.status() == "running"
    assert len(story.last.transitions) <= 1_003
    assert story.run.cursor is not None
    assert len(story.run.cursor) < 100, "parts that end at once cost no stack"
    story.goes_on()
    assert story.output() == list(range(5_000))


def test_dropping_many_items_is_split_too_and_no_report_comes_between() -> None:
    story = many_open()
    token = story.token("each[7]/work")
    story.fails("each[3]/work")
    assert story.status("each") == "failed"
    assert story.status() == "running"
    assert len(story.last.transitions) <= 1_012
    assert story.completes("each[7]/work", token=token).verdict == "stale"
    story.goes_on()
    assert story.status() == "failed"
    assert story.open_paths() == []
    assert {s.status.value for p, s in story.steps.items() if p.startswith("each[")} == {
        "cancelled",
        "failed",
    }


def test_a_cancel_of_many_items_is_split_and_the_run_is_cancelled_in_the_end() -> None:
    story = many_open()
    story.is_cancelled()
    assert story.status() == "running"
    assert story.is_signalled("go").verdict == "applied", "it is kept"
    assert story.is_cancelled().verdict == "ignored"
    story.goes_on()
    assert story.status() == "cancelled"
    assert story.run.cancelled_by == "me"
    assert story.open_paths() == []


def many_open() -> Story:
    story = given_yaml(
        """
        - name: each
          map: {items: "${ input }", max_concurrency: 1500, steps: [{name: work, task: work}]}
        """,
        run_input=list(range(1_500)),
    )
    return story.goes_on()


def test_joined_outputs_over_the_limit_fail_the_map() -> None:
    story = given_yaml(LINES, run_input=[1, 2, 3], limits=CoreLimits(joined_output_bytes_max=60))
    story.completes("lines[0]/reserve", "x" * 40)
    story.completes("lines[1]/reserve", "x" * 40)
    assert story.status("lines") == "failed"
    assert story.error().type == "TooLarge"
    assert story.status("lines[2]") == "cancelled"


def test_errors_of_tolerated_items_are_cut_to_what_the_outputs_leave() -> None:
    story = given_yaml(
        tolerating("{count: 3}"),
        run_input=[1, 2, 3],
        limits=CoreLimits(joined_output_bytes_max=2_000),
    )
    for index in range(3):
        story.fails(f"lines[{index}]/reserve", "Boom", message="m" * 5_000)
    assert story.output() == [None, None, None]
    errors = story.steps["lines"].errors
    assert errors is not None
    assert len(errors) <= 2_000
    assert errors.count(b'"Boom"') == 3


def test_a_large_map_keeps_no_settled_rows_in_memory_and_loads_them_once_to_join() -> None:
    story = given_yaml(LINES, run_input=list(range(100)))
    for index in range(99):
        story.completes(f"lines[{index}]/reserve", index)
        assert len(story.run.steps) <= 6
    story.completes("lines[99]/reserve", 99)
    assert story.output() == list(range(100))


def test_a_run_with_too_many_open_steps_fails() -> None:
    story = given_yaml(
        LINES.replace("max_concurrency: 2", "max_concurrency: 50"),
        run_input=list(range(50)),
        limits=CoreLimits(open_steps_per_run_max=40),
    )
    assert story.error().type == "RunTooBig"
    assert story.status() == "failed"


def test_a_completed_run_has_nothing_left_of_a_map_that_failed_while_it_began() -> None:
    story = given_yaml(
        """
        - name: each
          map: {items: "${ [1, 2, 3, 4] }", steps: [{name: work, task: work}]}
          catch: [{next: after}]
        - {name: after, pass: done}
        """,
        limits=CoreLimits(transitions_per_decision_max=5),
    )
    assert story.run.cursor is not None, "the third item has not begun"
    story.fails("each[0]/work")
    story.goes_on()
    assert story.status() == "completed"
    assert story.run.cursor is None
    assert story.run.due_at is None
