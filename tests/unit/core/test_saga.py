"""Undoing: in which order, with what, and how often."""

import pytest
from msgspec.structs import replace

from tests.support.builders import a_cause
from tests.support.sagas import TWO, failed, in_a_flow, undo_all, undone
from tests.support.scenario import Story, decide_checked, given_yaml
from towpath_engine.core.changes import StepsNeeded
from towpath_engine.core.decide import decide
from towpath_engine.core.effects import Verdict
from towpath_engine.core.events import ReportReceived
from towpath_engine.core.limits import CoreLimits
from towpath_protocol.codec import loads
from towpath_protocol.reports import StepCompleted

pytestmark = pytest.mark.usefixtures("loading")

# Order


def test_completed_steps_are_undone_one_at_a_time_the_last_first() -> None:
    story = failed()
    assert story.status() == "compensating"
    assert story.status("b") == "compensating"
    assert story.status("a") == "completed"
    story.completes("b")
    assert story.status("b") == "compensated"
    assert story.status("a") == "compensating"
    assert story.status() == "compensating"
    story.completes("a")
    assert story.status("a") == "compensated"
    assert story.status() == "compensated"
    assert undone(story) == [("b", 1), ("a", 1)]


def test_the_order_of_completion_counts_across_branches_and_items() -> None:
    story = given_yaml("""
- name: both
  parallel:
    branches:
      x: [{name: one, task: one, compensate: {task: undo}}]
      y:
        - name: lines
          map:
            items: [1, 2]
            steps: [{name: pick, task: pick, compensate: {task: undo}}]
- {name: last, task: last}
""")
    story.completes("both/y/lines[1]/pick")
    story.completes("both/x/one")
    story.completes("both/y/lines[0]/pick")
    story.fails("last")
    undo_all(story)
    assert [path for path, _ in undone(story)] == [
        "both/y/lines[0]/pick", "both/x/one", "both/y/lines[1]/pick"
    ]  # fmt: skip
    assert story.status() == "compensated"


def test_each_completed_visit_of_a_loop_is_undone_with_its_own_output_and_key() -> None:
    story = given_yaml("""
- {name: a, task: a, limit: 5, compensate: {task: undo}}
- {name: again, choice: [{when: "prev.n < 3", next: a}], default: end}
- {name: end, task: end}
""")
    for n in (1, 2, 3):
        story.completes("a", {"n": n})
    story.fails("end")
    keys: list[str] = []
    outputs: list[object] = []
    while story.status() == "compensating":
        message = story.message()
        keys.append(message.idempotency_key.split("/", 1)[1])
        assert message.compensation is not None
        assert message.step == message.compensation.step == "a"
        outputs.append(loads(bytes(message.compensation.output)))
        (path,) = story.open_paths()
        story.completes(path)
    assert outputs == [{"n": 3}, {"n": 2}, {"n": 1}]
    assert keys == ["a/3/undo", "a/2/undo", "a/1/undo"]
    assert story.status() == "compensated"


def test_what_lies_below_each_visit_of_a_whole_is_undone() -> None:
    story = given_yaml("""
- name: lines
  limit: 5
  map:
    items: [7]
    as: n
    steps: [{name: pick, task: pick, compensate: {task: undo, input: "${ n }"}}]
- {name: more, task: more, limit: 5}
- {name: again, choice: [{when: "steps.more.output == true", next: lines}], default: end}
- {name: end, task: end}
""")
    story.completes("lines[0]/pick", "first")
    story.completes("more", output=True)
    story.completes("lines~2[0]/pick", "second")
    story.completes("more", output=False)
    story.fails("end")
    undo_all(story)
    assert [path for path, _ in undone(story)] == ["lines~2[0]/pick", "lines[0]/pick"]
    assert story.sent() == 7


def test_completed_steps_of_a_failed_and_tolerated_item_are_undone_all_the_same() -> None:
    story = given_yaml("""
- name: lines
  map:
    items: [1, 2]
    tolerate: {count: 1}
    steps: [{name: pick, task: pick, compensate: {task: undo}}, {name: pack, task: pack}]
- {name: end, task: end}
""")
    story.completes("lines[0]/pick")
    story.completes("lines[1]/pick")
    story.fails("lines[0]/pack")
    story.completes("lines[1]/pack")
    assert story.status() == "running"
    story.fails("end")
    undo_all(story)
    assert [path for path, _ in undone(story)] == ["lines[1]/pick", "lines[0]/pick"]


def test_a_failure_that_was_caught_undoes_nothing() -> None:
    story = given_yaml("""
- {name: a, task: a, compensate: {task: undo}}
- {name: b, task: b, catch: [{next: sorry}]}
- {name: c, pass: 1, end: true}
- {name: sorry, pass: 2}
""")
    story.completes("a")
    story.fails("b")
    assert story.status() == "completed"
    assert story.status("a") == "completed"


def test_steps_that_did_not_complete_are_not_undone() -> None:
    story = given_yaml("""
- {name: a, task: a, when: "false || input == 1", compensate: {task: undo}}
- {name: b, task: b, compensate: {task: undo}}
- {name: c, task: c, compensate: {task: undo}}
""")
    story.completes("b")
    story.fails("c")
    undo_all(story)
    assert undone(story) == [("b", 1)]
    assert story.status("a") == "skipped"
    assert story.status("c") == "failed"


def test_any_kind_of_step_that_completes_can_be_undone() -> None:
    story = given_yaml("""
- {name: made, pass: {p: 1}, compensate: {task: undo}}
- name: both
  parallel: {branches: {x: [{name: one, task: one}]}}
  compensate: {task: undo}
- {name: asked, wait: {signal: go}, compensate: {task: undo, input: "${ output.payload }"}}
- {name: end, task: end}
""")
    story.completes("both/x/one", 5)
    story.is_signalled("go", "yes")
    story.fails("end")
    assert story.sent() == "yes"
    story.completes("asked")
    assert story.sent() == {"x": 5}
    story.completes("both")
    assert story.sent() == {"p": 1}
    story.completes("made")
    assert story.status() == "compensated"


# What an undo is given


def test_an_undo_gets_the_output_of_its_step_and_is_told_what_it_undoes_and_why() -> None:
    story = failed()
    message = story.message()
    assert message.task == "undo_b"
    assert message.step == "b"
    assert (message.attempt, message.max_attempts, message.iteration) == (1, 1, 0)
    assert loads(bytes(message.input)) == "B"
    assert message.compensation is not None
    assert loads(bytes(message.compensation.output)) == "B"
    assert message.compensation.error is not None
    error = loads(bytes(message.compensation.error))
    assert error == {
        "type": "Boom", "message": "no luck", "retryable": True, "details": None,
        "step": "c", "attempt": 1,
    }  # fmt: skip
    assert message.idempotency_key.endswith("/b/1/undo")
    assert story.output_of("b") == "B", "the row keeps what its step has said"


def test_the_input_of_an_undo_may_name_its_output_the_error_and_what_came_before() -> None:
    story = given_yaml(
        """
- {name: first, task: first}
- name: lines
  map:
    items: [x, y]
    as: line
    steps:
      - name: pick
        task: pick
        compensate:
          task: undo
          input:
            - "${ output.id }"
            - "${ error.type }"
            - "${ line }"
            - "${ index }"
            - "${ steps.first.output }"
            - "${ input }"
- {name: end, task: end}
""",
        run_input="given",
    )
    story.completes("first", "F")
    story.completes("lines[0]/pick", {"id": 1})
    story.completes("lines[1]/pick", {"id": 2})
    story.fails("end", "Late")
    assert story.sent() == [2, "Late", "y", 1, "F", "given"]
    story.completes("lines[1]/pick")
    assert story.sent() == [1, "Late", "x", 0, "F", "given"]


def test_an_undo_is_bound_by_no_deadline_of_the_run() -> None:
    story = failed("{timeout: 1h, steps: [" + in_a_flow(TWO) + "]}")
    assert story.message().deadline is None
    assert story.run.due_at is None
    story.after(hours=2)
    assert story.timer_fires(None).verdict is Verdict.IGNORED
    assert undo_all(story).status() == "compensated"


def test_an_expression_that_fails_fails_the_undo_and_nothing_is_stuck() -> None:
    story = given_yaml("""
- {name: a, task: a, compensate: {task: undo, input: "${ output.nothing }"}}
- {name: b, task: b}
""")
    story.completes("a", {})
    story.fails("b")
    assert story.status("a") == "compensation_failed"
    assert story.status() == "compensation_failed"
    error = story.steps["a"].error
    assert error is not None
    assert error.type == "ExpressionError"
    assert story.error().type == "Boom", "the run keeps the error that ended it"


def test_a_joined_output_that_no_message_can_carry_is_null_and_its_parts_can_still_be_named() -> (
    None
):
    story = given_yaml(
        """
- name: lines
  map: {items: [1, 2, 3], steps: [{name: pick, task: pick}]}
  compensate: {task: undo, input: "${ size(output) }"}
- {name: end, task: end}
""",
        limits=CoreLimits(payload_bytes_max=100),
    )
    for index in range(3):
        story.completes(f"lines[{index}]/pick", "x" * 60)
    story.fails("end")
    assert story.sent() == 3
    compensation = story.message().compensation
    assert compensation is not None
    assert bytes(compensation.output) == b"null"


def test_a_default_input_over_the_limit_fails_the_undo_in_sight() -> None:
    story = given_yaml(
        """
- name: lines
  map: {items: [1, 2, 3], steps: [{name: pick, task: pick}]}
  compensate: {task: undo}
- {name: end, task: end}
""",
        limits=CoreLimits(payload_bytes_max=100),
    )
    for index in range(3):
        story.completes(f"lines[{index}]/pick", "x" * 60)
    story.fails("end")
    assert story.status() == "compensation_failed"
    error = story.steps["lines"].error
    assert error is not None
    assert error.type == "TooLarge"


# Repetition


def test_no_event_that_comes_twice_undoes_anything_twice() -> None:
    story = failed()
    for path in ("b", "a"):
        token = story.token(path)
        assert story.completes(path).verdict is Verdict.APPLIED
        history = len(story.history)
        assert story.completes(path, token=token).verdict is Verdict.STALE
        assert story.fails(path, token=token).verdict is Verdict.STALE
        assert len(story.history) == history
    assert undone(story) == [("b", 1), ("a", 1)]


def test_a_decision_that_was_lost_is_made_again_just_so() -> None:
    story = failed()
    before, rows = story.run, dict(story.steps)
    token = story.token("b")
    event = ReportReceived(
        seed=story.seed(),
        cause=a_cause("report", token=token),
        token=token,
        queue="default",
        report=StepCompleted(),
    )
    lost = decide_checked(before, event, story.now, rows)
    again = decide_checked(before, event, story.now, rows)
    assert lost == again


# Size


def test_an_undo_costs_the_same_among_many_and_asks_for_its_row_once() -> None:
    count = 300
    story = given_yaml(
        """
- name: lines
  map:
    items: "${ input }"
    max_concurrency: 10
    steps: [{name: pick, task: pick, compensate: {task: undo, input: "${ item }"}}]
- {name: end, task: end}
""",
        run_input=list(range(count)),
    )
    for index in range(count):
        story.completes(f"lines[{index}]/pick", index)
    story.fails("end")
    costs: set[tuple[int, int]] = set()
    for index in reversed(range(1, count)):
        path = f"lines[{index}]/pick"
        assert story.sent() == index
        token = story.token(path)
        changed, asked = asked_for(story, token)
        assert asked <= 1
        costs.add((len(changed), asked))
        assert len(changed) == 2, "the one that was undone and the next"
        story.completes(path)
    assert len(costs) == 1
    story.completes("lines[0]/pick")
    assert story.status() == "compensated"


def asked_for(story: Story, token: str) -> tuple[list[str], int]:
    """The rows that the completion of an undo writes, and how often it asks for rows."""
    event = ReportReceived(
        seed="1" * 32,
        cause=a_cause("report", token=token),
        token=token,
        queue="default",
        report=StepCompleted(),
    )
    run, asked = story.run, 0
    while True:
        try:
            return [step.path for step in decide(run, event, story.now).changed], asked
        except StepsNeeded as needed:
            asked += 1
            found = {path: story.steps[path] for path in needed.paths if path in story.steps}
            run = replace(run, steps={**run.steps, **found})


def test_a_run_with_many_open_steps_turns_to_undoing_in_as_many_decisions_as_it_takes() -> None:
    story = given_yaml(
        """
- {name: a, task: a, compensate: {task: undo}}
- name: both
  parallel:
    branches:
      lines:
        - name: lines
          map: {items: "${ input }", steps: [{name: pick, task: pick}]}
      bad: [{name: bad, task: bad}]
""",
        run_input=list(range(40)),
        limits=CoreLimits(transitions_per_decision_max=10),
    )
    story.completes("a")
    story.goes_on()
    story.fails("both/bad/bad")
    assert story.run.cursor is not None
    story.goes_on()
    assert story.status() == "compensating"
    assert story.open_paths() == ["a"]
    assert undo_all(story).status() == "compensated"
