"""Child runs as the core sees them: asked for, awaited, and what their end means."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.builders import BEGIN, a_cause, a_run, raw
from tests.support.scenario import Story, given_yaml
from towpath_engine.core.children import DEPTH_MAX
from towpath_engine.core.effects import CancelChild, Decision, StartChild, TellParent, Verdict
from towpath_engine.core.events import ChildSettled
from towpath_engine.core.model import Failure
from towpath_engine.core.parse import parse_definition
from towpath_engine.core.states import RunStatus
from towpath_protocol import codec
from towpath_protocol.ids import check_run_id

pytestmark = pytest.mark.usefixtures("loading")

AWAITED = """
- name: sent
  run: {workflow: invoice, input: {total: "${ input }"}, key: "order-${ input }"}
- {name: last, pass: "${ steps.sent.output }"}
"""
PARENT = "0190a0a0-0000-7000-8000-000000000009"
DETACHED = "- {name: sent, run: {workflow: invoice, detached: true}}"


def child_of(story: Story, path: str = "sent") -> str:
    found = story.steps[path].child_run_id
    assert found is not None, f"{path} has no child"
    return found


def settles(
    story: Story,
    status: RunStatus,
    *,
    output: object = None,
    failure: Failure | None = None,
    path: str = "sent",
    child: str | None = None,
) -> Decision:
    return story.happens(
        ChildSettled(
            seed=story.seed(),
            cause=a_cause("child"),
            child_run_id=child or child_of(story, path),
            status=status,
            output=bytes(raw(output)) if status is RunStatus.COMPLETED else None,
            failure=failure,
        )
    )


def started(story: Story) -> list[StartChild]:
    return [effect for effect in story.effects if isinstance(effect, StartChild)]


def cancelled(story: Story) -> list[CancelChild]:
    return [effect for effect in story.effects if isinstance(effect, CancelChild)]


def test_a_run_step_asks_for_its_child_and_waits_without_a_worker() -> None:
    story = given_yaml(AWAITED, run_input=7)
    assert (story.status(), story.status("sent")) == ("waiting", "waiting")
    step = story.steps["sent"]
    assert (step.input, step.child_key) == (b'{"total":7}', "order-7")
    assert check_run_id(child_of(story)) == child_of(story)
    assert started(story) == [StartChild(path="sent", child_run_id=child_of(story))]


def test_the_output_of_the_child_is_that_of_the_step() -> None:
    story = given_yaml(AWAITED, run_input=7)
    assert settles(story, RunStatus.COMPLETED, output={"paid": True}).verdict is Verdict.APPLIED
    assert story.output() == {"paid": True}
    assert story.status() == "completed"


def test_a_child_without_an_output_gives_null() -> None:
    story = given_yaml(AWAITED, run_input=7)
    story.happens(
        ChildSettled(
            seed=story.seed(),
            cause=a_cause("child"),
            child_run_id=child_of(story),
            status=RunStatus.COMPLETED,
        )
    )
    assert story.output() is None


@pytest.mark.parametrize(
    ("status", "error_type"),
    [
        (RunStatus.FAILED, "ChildFailed"),
        (RunStatus.COMPENSATED, "ChildFailed"),
        (RunStatus.COMPENSATION_FAILED, "ChildFailed"),
        (RunStatus.CANCELLED, "ChildCancelled"),
        (RunStatus.TIMED_OUT, "ChildTimedOut"),
    ],
)
def test_a_child_that_ends_badly_fails_the_step_with_its_error_inside(
    status: RunStatus, error_type: str
) -> None:
    story = given_yaml(AWAITED, run_input=7)
    child = child_of(story)
    error = Failure(type="Broke", message="no money", details=b'{"cents":3}', step="pay", attempt=2)
    settles(story, status, failure=error)
    assert (story.status(), story.error().type, story.error().step) == (
        "failed",
        error_type,
        "sent",
    )
    assert codec.loads(story.error().details or b"null") == {
        "run_id": child,
        "status": status.value,
        "error": {
            "type": "Broke", "message": "no money", "retryable": True, "details": {"cents": 3},
            "step": "pay", "attempt": 2,
        },
    }  # fmt: skip
    assert "Broke: no money" in story.error().message


def test_a_cancelled_child_has_no_error_of_its_own() -> None:
    story = given_yaml(AWAITED, run_input=7)
    settles(story, RunStatus.CANCELLED)
    details = codec.loads(story.error().details or b"null")
    assert isinstance(details, dict)
    assert details["error"] is None


def test_a_failed_child_is_caught_by_its_type() -> None:
    story = given_yaml("""
        - name: sent
          run: {workflow: invoice}
          catch: [{errors: [ChildFailed], when: "error.details.error.type == 'Broke'", next: sorry}]
        - {name: rest, pass: 1, end: true}
        - {name: sorry, pass: "${ steps.sent.error.details.run_id }"}
        """)
    child = child_of(story)
    settles(story, RunStatus.FAILED, failure=Failure(type="Broke", message=""))
    assert (story.status(), story.output()) == ("completed", child)


def test_a_child_that_can_not_be_started_fails_the_step_with_the_reason() -> None:
    story = given_yaml(AWAITED, run_input=7)
    refusal = Failure(type="ChildNotStarted", message="not deployed", retryable=False)
    settles(story, RunStatus.PENDING, failure=refusal)
    assert (story.error().type, story.error().message) == ("ChildNotStarted", "not deployed")


def test_that_the_child_is_there_is_not_its_end() -> None:
    story = given_yaml(AWAITED, run_input=7)
    assert settles(story, RunStatus.PENDING).verdict is Verdict.IGNORED
    assert story.status("sent") == "waiting"


@pytest.mark.parametrize(
    "status", [RunStatus.PENDING, RunStatus.RUNNING, RunStatus.COMPLETED, RunStatus.FAILED]
)
def test_a_detached_child_is_all_there_is_to_wait_for(status: RunStatus) -> None:
    story = given_yaml(DETACHED)
    child = child_of(story)
    assert len(started(story)) == 1
    failure = Failure(type="Boom", message="") if status is RunStatus.FAILED else None
    settles(story, status, output=1, failure=failure)
    assert (story.status(), story.output()) == ("completed", {"run_id": child})


def test_a_detached_child_that_can_not_be_started_fails_its_step() -> None:
    story = given_yaml(DETACHED)
    settles(story, RunStatus.PENDING, failure=Failure(type="ChildNotStarted", message=""))
    assert story.error().type == "ChildNotStarted"


def test_news_of_a_child_that_no_step_waits_for_are_stale() -> None:
    story = given_yaml(AWAITED + "- {name: more, wait: {signal: s}}", run_input=7)
    child = child_of(story)
    assert settles(story, RunStatus.COMPLETED, child="other").verdict is Verdict.STALE
    settles(story, RunStatus.COMPLETED, output=1)
    assert settles(story, RunStatus.FAILED, child=child).verdict is Verdict.STALE
    story.is_cancelled()
    assert settles(story, RunStatus.FAILED, child=child).verdict is Verdict.STALE


@pytest.mark.parametrize("value", ["3", "[1]", "''", "' x '"])
def test_a_key_that_is_none_fails_the_step(value: str) -> None:
    story = given_yaml(f'- {{name: sent, run: {{workflow: w, key: "${{ {value} }}"}}}}')
    assert (story.status(), story.error().type) == ("failed", "ExpressionError")
    assert started(story) == []


def test_a_key_that_is_null_is_no_key() -> None:
    story = given_yaml("- {name: sent, run: {workflow: w, key: '${ null }'}}")
    assert story.steps["sent"].child_key is None
    assert story.status("sent") == "waiting"


def test_without_an_input_the_child_is_to_get_that_of_the_run() -> None:
    story = given_yaml("- {name: sent, run: {workflow: w}}", run_input={"a": 1})
    assert story.steps["sent"].input is None


def test_every_visit_and_every_retry_has_a_child_of_its_own() -> None:
    story = given_yaml("""
        - {name: sent, limit: 3, run: {workflow: w}}
        - {name: route, choice: [{when: "steps.sent.output == 1", next: sent}], default: done}
        - {name: done, pass: 1}
        """)
    first = child_of(story)
    settles(story, RunStatus.COMPLETED, output=1)
    second = child_of(story)
    settles(story, RunStatus.FAILED)
    story.is_retried()
    third = child_of(story)
    assert len({first, second, third}) == 3
    assert [effect.child_run_id for effect in started(story)] == [first, second, third]
    settles(story, RunStatus.COMPLETED, output=2)
    assert story.status() == "completed"


@pytest.mark.parametrize("compensate", [True, False])
def test_a_cancel_takes_the_awaited_child_along(compensate: bool) -> None:
    story = given_yaml(AWAITED, run_input=7)
    child = child_of(story)
    story.is_cancelled(compensate=compensate)
    assert story.status("sent") == "cancelled"
    assert [(e.path, e.child_run_id, e.compensate) for e in cancelled(story)] == [
        ("sent", child, compensate)
    ]


def test_a_sibling_that_fails_takes_the_awaited_child_along_as_its_workflow_says() -> None:
    story = given_yaml("""
        - name: both
          parallel:
            branches:
              a: [{name: sent, run: {workflow: w}}]
              b: [{name: work, task: t}]
        """)
    child = child_of(story, "both/a/sent")
    story.fails("both/b/work")
    assert [(e.child_run_id, e.compensate) for e in cancelled(story)] == [(child, None)]


def test_a_detached_child_that_is_there_is_not_cancelled() -> None:
    story = given_yaml(DETACHED + "\n- {name: more, wait: {signal: s}}")
    settles(story, RunStatus.RUNNING)
    story.is_cancelled()
    assert story.status() == "cancelled"
    assert cancelled(story) == []


def test_a_run_tells_the_parent_that_waits_for_it_and_nobody_else() -> None:
    for step, told in (("sent", [TellParent(parent_run_id=PARENT)]), (None, [])):
        story = given_yaml("- {name: work, task: t}")
        story.run = replace(story.run, parent_run_id=PARENT, parent_step=step)
        story.completes("work")
        assert [e for e in story.effects if isinstance(e, TellParent)] == told


def test_a_chain_of_awaited_runs_has_an_end() -> None:
    story = given_yaml("- {name: nap, wait: {signal: s}}\n- {name: sent, run: {workflow: w}}")
    story.run = replace(story.run, depth=DEPTH_MAX - 1)
    story.is_signalled("s")
    assert (story.status(), story.error().type) == ("failed", "ChildNotStarted")
    assert started(story) == []


def test_a_child_is_over_at_the_deadline_of_its_parent_and_says_so() -> None:
    for timeout, over_after, message in (
        ("1h", 60, "the deadline of the parent run has passed"),
        ("10s", 10, "the run timeout of 10000 ms has passed"),
    ):
        document: dict[str, Any] = {
            "workflow": "order",
            "timeout": timeout,
            "steps": [{"name": "nap", "wait": {"signal": "s"}}],
        }
        deadline = BEGIN + timedelta(minutes=1)
        story = Story(replace(a_run(parse_definition(document)), deadline_at=deadline))
        story.begins()
        story.after(seconds=over_after - 1)
        assert story.timer_fires(None).verdict is Verdict.IGNORED
        story.after(seconds=1)
        story.timer_fires(None)
        assert (story.status(), story.error().message) == ("timed_out", message)


def test_a_child_that_has_not_begun_has_no_instant() -> None:
    run = a_run(parse_definition({"workflow": "w", "steps": [{"name": "a", "pass": 1}]}))
    assert replace(run, deadline_at=BEGIN).due_at is None
    assert replace(run, deadline_at=BEGIN, start_at=BEGIN).due_at == BEGIN


def test_a_completed_child_is_undone_like_any_step() -> None:
    story = given_yaml("""
        - {name: sent, run: {workflow: w}, compensate: {task: undo}}
        - {name: work, task: t}
        """)
    settles(story, RunStatus.COMPLETED, output={"id": 5})
    story.fails("work")
    assert (story.status(), story.message().task) == ("compensating", "undo")
    assert story.sent() == {"id": 5}
