"""A retry goes on inside of branches and items: each test on a run with all its rows in memory, and
on one that is loaded for each event."""

import msgspec
import pytest

from tests.support.builders import a_cause, a_run, json_of
from tests.support.replays import check_replays
from tests.support.scenario import Story, as_loaded, given_yaml
from towpath_engine.core.effects import Decision
from towpath_engine.core.events import RedriveRequested, RetryRequested
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.operators import done_again
from towpath_engine.core.states import StepStatus

PARALLEL = """
- name: notify
  parallel:
    on_error: wait_all
    branches:
      app: [{name: push, task: push}, {name: log, task: log}]
      mail: [{name: send, task: send}]
- {name: charge, task: charge}
"""
MAP = """
- name: lines
  map:
    items: "${ input }"
    max_concurrency: 3
    tolerate: {count: 1}
    steps:
      - {name: pick, task: pick, input: "${ item }"}
      - {name: pack, task: pack}
- {name: ship, task: ship}
"""


@pytest.fixture(params=["kept", "loaded"], autouse=True)
def loading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Story, "reloads", request.param == "loaded")
    return str(request.param)


WIDE = """
timeout: 1h
steps:
  - name: lines
    map:
      items: "${ input }"
      max_concurrency: 100
      steps: [{name: pick, task: pick}]
"""


def retried(story: Story, step: str | None = None, *, edited: object = msgspec.UNSET) -> Decision:
    """A retry of a run that was loaded as for any event."""
    if story.reloads:
        story.run = as_loaded(story.run, story.steps)
    given = None if edited is msgspec.UNSET else json_of(edited)
    event = RetryRequested(seed=story.seed(), cause=a_cause("retry"), step=step, input=given)
    decision = story.happens(event)
    story.goes_on()
    return decision


def redriven(story: Story, step: str) -> Decision:
    if story.reloads:
        story.run = as_loaded(story.run, story.steps)
    event = RedriveRequested(seed=story.seed(), cause=a_cause("redrive"), step=step)
    decision = story.happens(event)
    story.goes_on()
    return decision


def check_counters(story: Story, whole: str) -> None:
    """The counters of a whole are those of its parts."""
    parts = story.steps[whole].parts
    assert parts is not None
    rows = [
        row
        for path, row in story.steps.items()
        if path.startswith((f"{whole}[", f"{whole}/")) and row.kind in {"item", "branch"}
        if "/" not in path[len(whole) + 1 :]
    ]
    assert parts.started == len(rows)
    assert parts.open == sum(row.status is StepStatus.RUNNING for row in rows)
    assert parts.failed == sum(row.status is StepStatus.FAILED for row in rows)


def test_a_failed_branch_goes_on_where_it_failed_and_the_others_are_kept() -> None:
    story = given_yaml(PARALLEL)
    story.completes("notify/mail/send", "sent")
    story.completes("notify/app/push", "pushed")
    key = story.message(-1).idempotency_key
    story.fails("notify/app/log")
    assert story.status() == "failed"
    assert done_again(retried(story)) == ("notify/app/log",)
    assert story.status("notify") == story.status("notify/app") == "running"
    assert story.status("notify/mail") == "completed"
    check_counters(story, "notify")
    assert story.message(-1).idempotency_key == key, "its effect may have happened"
    story.completes("notify/app/log", "logged")
    assert story.output_of("notify") == {"app": "logged", "mail": "sent"}
    assert story.steps["notify"].errors is None
    story.completes("charge", "charged")
    assert story.output() == "charged"
    assert story.whats("notify/mail/send").count("step-dispatched") == 1


def test_two_failed_branches_both_go_on() -> None:
    story = given_yaml(PARALLEL)
    story.fails("notify/app/push")
    story.fails("notify/mail/send")
    assert done_again(retried(story)) == ("notify/app/push", "notify/mail/send")
    check_counters(story, "notify")
    story.completes("notify/app/push")
    story.completes("notify/app/log", 1)
    story.completes("notify/mail/send", 2)
    assert story.output_of("notify") == {"app": 1, "mail": 2}


def test_more_failed_items_than_tolerated_go_on_with_those_that_were_cut_off() -> None:
    story = given_yaml(MAP, run_input=["a", "b", "c", "d", "e"])
    story.completes("lines[0]/pick")
    story.completes("lines[0]/pack", "A")
    story.fails("lines[1]/pick")
    story.completes("lines[2]/pick")
    story.fails("lines[2]/pack")
    assert story.status() == "failed"
    assert story.status("lines[3]") == story.status("lines[4]") == "cancelled"
    again = done_again(retried(story))
    assert again == ("lines[1]/pick", "lines[2]/pack", "lines[3]/pick", "lines[4]/pick")
    check_counters(story, "lines")
    for path in ("lines[1]/pick", "lines[3]/pick", "lines[4]/pick"):
        story.completes(path)
    for n in (1, 2, 3, 4):
        story.completes(f"lines[{n}]/pack", n)
    assert story.output_of("lines") == ["A", 1, 2, 3, 4]
    story.completes("ship")
    assert story.status() == "completed"


def test_items_that_had_not_been_started_are_when_there_is_room_again() -> None:
    story = given_yaml(MAP, run_input=list(range(6)))
    story.fails("lines[0]/pick")
    story.fails("lines[1]/pick")
    assert story.status() == "failed"
    retried(story)
    check_counters(story, "lines")
    assert "lines[5]" not in story.steps
    for _ in range(40):
        opened = [p for p in story.open_paths() if story.steps[p].token is not None]
        if not opened or story.status("ship") == "dispatched":
            break
        story.completes(opened[0], opened[0])
    assert story.output_of("lines") == [f"lines[{n}]/pack" for n in range(6)]


def test_a_tolerated_failure_stays_when_something_else_fails_the_run() -> None:
    story = given_yaml(MAP, run_input=["a", "b"])
    story.fails("lines[0]/pick")
    story.completes("lines[1]/pick")
    story.completes("lines[1]/pack", 1)
    story.fails("ship")
    assert done_again(retried(story)) == ("ship",)
    assert story.status("lines") == "completed"
    assert story.status("lines[0]") == "failed"
    assert story.output_of("lines") == [None, 1]


def test_after_a_deadline_all_that_was_open_goes_on_at_every_depth() -> None:
    story = given_yaml(
        """
        timeout: 1h
        steps:
          - name: outer
            map:
              items: "${ input }"
              steps:
                - name: both
                  parallel:
                    branches:
                      x: [{name: a, task: a}, {name: b, sleep: 5m}]
                      y: [{name: c, wait: {signal: go}}]
        """,
        run_input=[1, 2],
    )
    story.completes("outer[0]/both/x/a")
    story.after(hours=2).timer_fires(None)
    assert story.status() == "timed_out"
    assert story.open_paths() == []
    assert done_again(retried(story)) == (
        "outer[0]/both/x/b", "outer[0]/both/y/c", "outer[1]/both/x/a", "outer[1]/both/y/c",
    )  # fmt: skip
    assert story.status("outer[0]/both/x/a") == "completed"
    assert story.status("outer[0]/both/y/c") == "waiting"
    for whole in ("outer", "outer[0]/both", "outer[1]/both"):
        check_counters(story, whole)


def test_the_input_of_a_step_in_an_item_can_be_edited() -> None:
    story = given_yaml(MAP, run_input=["a", "b", "c"])
    story.fails("lines[0]/pick")
    story.fails("lines[2]/pick")
    retried(story, "lines[2]/pick", edited="mended")
    messages = {story.message(n).step: story.message(n).input for n in range(len(story.dispatches))}
    assert msgspec.json.decode(messages["lines[2]/pick"]) == "mended"
    assert msgspec.json.decode(messages["lines[0]/pick"]) == "a"


@pytest.mark.parametrize(
    ("step", "edited", "refusal"),
    [
        (None, "x", "not_retryable"),
        ("lines[1]/pack", "x", "not_retryable"),
        ("lines[9]/pick", "x", "not_retryable"),
        ("lines/pick", "x", "not_retryable"),
        ("lines[0]/nothing", "x", "step_not_found"),
        ("lines", "x", "not_retryable"),
    ],
)
def test_an_edited_input_names_a_task_at_which_the_run_ended(
    step: str | None, edited: object, refusal: str
) -> None:
    story = given_yaml(MAP, run_input=["a", "b", "c"])
    story.completes("lines[1]/pick")
    story.completes("lines[1]/pack")
    story.fails("lines[0]/pick")
    story.fails("lines[2]/pick")
    assert retried(story, step, edited=edited).refusal == refusal
    assert story.status() == "failed"


def test_a_failure_that_was_caught_in_its_item_is_not_done_again() -> None:
    story = given_yaml(
        """
        - name: lines
          map:
            items: "${ input }"
            steps:
              - {name: pick, task: pick, catch: [{next: other}]}
              - {name: rest, task: rest, end: true}
              - {name: other, task: other}
        """,
        run_input=[1],
    )
    story.fails("lines[0]/pick")
    story.fails("lines[0]/other")
    assert done_again(retried(story)) == ("lines[0]/other",)
    assert story.status("lines[0]/pick") == "failed"
    story.completes("lines[0]/other", "done")
    assert story.output() == ["done"]


def test_a_map_whose_items_can_not_be_made_is_evaluated_again() -> None:
    story = given_yaml(
        """
        - name: lines
          map: {items: "${ metadata.rows }", steps: [{name: pick, task: pick}]}
        """
    )
    assert story.error().type == "ExpressionError"
    retried(story)
    assert (story.status(), story.error().type) == ("failed", "ExpressionError")


def test_what_may_begin_in_a_dag_does_and_what_has_failed_goes_on() -> None:
    story = given_yaml(
        """
        - {name: a, task: a}
        - {name: b, task: b}
        - {name: c, task: c, after: [a]}
        - {name: d, task: d, after: [b, c]}
        """
    )
    story.completes("a")
    story.fails("c")
    assert (story.status(), story.status("b")) == ("failed", "cancelled")
    assert done_again(retried(story)) == ("b", "c")
    story.completes("b")
    story.completes("c")
    story.completes("d", "end")
    assert story.output() == "end"
    assert story.whats("a").count("step-dispatched") == 1


def test_a_redrive_in_a_dag_takes_back_what_follows_and_has_the_rest_go_on() -> None:
    story = given_yaml(
        """
        - {name: a, task: a}
        - {name: b, task: b}
        - {name: c, task: c, after: [a]}
        - {name: d, task: d, after: [b, c]}
        """
    )
    story.completes("a", 1)
    story.fails("c")
    redriven(story, "a")
    assert (story.status("a"), story.status("b")) == ("dispatched", "dispatched")
    assert story.status("c") == "pending"
    story.completes("b")
    story.completes("a", 2)
    story.completes("c")
    story.completes("d", "end")
    assert story.output() == "end"


def test_a_redrive_of_a_whole_begins_all_its_parts_anew_under_new_keys() -> None:
    story = given_yaml(MAP, run_input=["a", "b"])
    keys = {story.message(n).idempotency_key for n in range(2)}
    for n in (0, 1):
        story.completes(f"lines[{n}]/pick")
        story.completes(f"lines[{n}]/pack", n)
    story.fails("ship")
    redriven(story, "lines")
    again = [story.message(n) for n in (-2, -1)]
    assert [message.step for message in again] == ["lines[0]/pick", "lines[1]/pick"]
    assert not keys & {message.idempotency_key for message in again}
    for message in again:
        story.completes("", token=message.token)
    tokens = [story.message(n).token for n in (-2, -1)]
    for token in tokens:
        story.completes("", "new", token=token)
    assert story.output_of("lines") == ["new", "new"]
    assert story.status("ship") == "dispatched"


@pytest.mark.parametrize("step", ["lines[0]/pick", "lines/pick"])
def test_a_redrive_from_inside_of_a_whole_is_refused_and_names_it(step: str) -> None:
    story = given_yaml(MAP, run_input=["a"])
    story.completes("lines[0]/pick")
    story.completes("lines[0]/pack")
    story.fails("ship")
    decision = redriven(story, step)
    assert decision.refusal == "not_retryable"
    assert decision.message is not None
    assert "'lines'" in decision.message


def test_a_large_retry_is_split_and_comes_to_every_item() -> None:
    limits = CoreLimits(transitions_per_decision_max=10)
    story = given_yaml(
        WIDE,
        run_input=list(range(40)),
        limits=limits,
    ).goes_on()
    story.after(hours=2).timer_fires(None)
    story.goes_on()
    assert story.status() == "timed_out"
    first = retried(story)
    assert len(first.transitions) < 20
    check_counters(story, "lines")
    opened = [path for path in story.open_paths() if path.endswith("/pick")]
    assert len(opened) == 40
    for path in opened:
        story.completes(path, path)
        story.goes_on()
    assert story.output() == [f"lines[{n}]/pick" for n in range(40)]


def test_an_item_that_fails_again_in_the_middle_of_a_retry_ends_it_once() -> None:
    limits = CoreLimits(transitions_per_decision_max=10)
    story = given_yaml(
        WIDE,
        run_input=list(range(20)),
        limits=limits,
    ).goes_on()
    story.after(hours=2).timer_fires(None)
    story.goes_on()
    story.is_retried()
    assert story.run.cursor is not None
    story.fails("lines[0]/pick")
    story.goes_on()
    assert story.status() == "failed"
    assert story.open_paths() == []
    retried(story)
    assert len([path for path in story.open_paths() if path.endswith("/pick")]) == 20
    check_counters(story, "lines")


def test_a_retry_inside_replays() -> None:
    story = given_yaml(MAP, run_input=["a", "b", "c"])
    begin = a_run(story.run.definition, run_input=["a", "b", "c"])
    story.fails("lines[0]/pick")
    story.fails("lines[2]/pick")
    retried(story)
    for n in (0, 1, 2):
        story.completes(f"lines[{n}]/pick")
        story.completes(f"lines[{n}]/pack", n)
    story.fails("ship")
    redriven(story, "lines")
    check_replays(begin, story)
