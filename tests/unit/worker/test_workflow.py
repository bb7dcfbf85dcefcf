"""The builder and the document it produces."""

from datetime import timedelta
from typing import Final

import pytest

from towpath_engine.core.document import read_document
from towpath_engine.core.parse import parse_definition
from towpath_worker import InvalidValueError
from towpath_worker.workflow import (
    catch,
    choice,
    compensate,
    map_,
    parallel,
    pass_,
    repeat,
    retry,
    run,
    sleep,
    task,
    timeouts,
    wait,
    workflow,
)


def test_a_task_step_has_a_place_for_every_option() -> None:
    step = task(
        "reserve",
        task="inventory.reserve",
        queue="inventory",
        input={"sku": "${ input.sku }", "n": 2**60},
        retry=retry(
            max_attempts=5, initial="1s", factor=2, max=timedelta(seconds=30), jitter=0.2,
            only=["Timeout"], never=["OutOfStock"], when="error.details.code != 402",
        ),
        timeouts=timeouts(attempt="30s", dispatch="5m", step="10m", heartbeat="10s"),
        repeat=repeat(delay="10s", limit=100),
        delay=timedelta(milliseconds=90_061_001),
        limit=3,
    )  # fmt: skip
    assert step == {
        "name": "reserve",
        "task": "inventory.reserve",
        "queue": "inventory",
        "input": {"sku": "${ input.sku }", "n": 2**60},
        "retry": {
            "max_attempts": 5,
            "backoff": {"initial": "1s", "factor": 2, "max": "30s", "jitter": 0.2},
            "only": ["Timeout"],
            "never": ["OutOfStock"],
            "when": "error.details.code != 402",
        },
        "timeouts": {"attempt": "30s", "dispatch": "5m", "step": "10m", "heartbeat": "10s"},
        "repeat": {"delay": "10s", "limit": 100},
        "delay": "1d1h1m1s1ms",
        "limit": 3,
    }


def test_every_other_kind_has_its_place_in_a_list_of_steps() -> None:
    steps = [
        wait("approval", signal="approved", timeout="24h", on_timeout="ship", when="input.big"),
        choice("route", [("input.fr", "ship")], default="totals"),
        sleep("cool_off", timedelta(hours=24)),
        sleep("until", until="${ input.ship_at }"),
        pass_("totals", {"gross": 1.0}, next="ship"),
        pass_("nothing", None, end=True),
    ]
    assert steps == [
        {
            "name": "approval",
            "wait": {"signal": "approved", "timeout": "24h", "on_timeout": {"next": "ship"}},
            "when": "input.big",
        },
        {
            "name": "route",
            "choice": [{"when": "input.fr", "next": "ship"}],
            "default": "totals",
        },
        {"name": "cool_off", "sleep": "1d"},
        {"name": "until", "sleep": {"until": "${ input.ship_at }"}},
        {"name": "totals", "pass": {"gross": 1.0}, "next": "ship"},
        {"name": "nothing", "pass": None, "end": True},
    ]


WHOLE: Final = b"""
expressions: cel/1
workflow: order
on_failure: fail
steps:
  - name: reserve
    task: inventory.reserve
    compensate:
      task: inventory.release
      queue: undo
      input: {id: "${ output.id }"}
      retry: {max_attempts: 10}
      timeouts: {attempt: 30s}
    catch:
      - {errors: [OutOfStock], when: error.retryable, next: route}
      - {next: route}
  - name: poll
    task: carrier.check
    repeat: {delay: 10s, limit: 100, while: output.ready == false}
  - {name: one, wait: {any: [approved, refused], timeout: 1d, schema: {type: object}}}
  - {name: each, wait: {all: [a, b], schema: true}}
  - {name: many, wait: {signal: vote, count: 3}}
  - name: route
    choice: [{when: "true", next: notify}]
    limit: 3
    catch: [{errors: [NoChoice], next: notify}]
  - name: notify
    parallel:
      on_error: wait_all
      branches:
        email: [{name: send, task: send}]
        tree:
          - {name: left, pass: 1}
          - {name: right, pass: 2}
          - {name: root, pass: 3, after: [left, right]}
  - name: lines
    map:
      items: ${ input.lines }
      as: line
      max_concurrency: 20
      tolerate: {count: 1}
      steps: [{name: pick, task: pick, input: "${ line }"}]
  - name: again
    map: {items: [1, 2], tolerate: {percent: 12.5}, steps: [{name: one_of, pass: "${ item }"}]}
    compensate: {task: undo}
  - name: invoice
    run: {workflow: invoice, version: 2, input: {a: 1}, key: "${ run.id }", detached: true}
  - {name: child, run: {workflow: invoice}, when: input.too}
"""


def test_the_builder_writes_the_whole_language_as_a_file_does() -> None:
    document = workflow(
        "order",
        on_failure="fail",
        steps=[
            task(
                "reserve",
                task="inventory.reserve",
                compensate=compensate(
                    "inventory.release",
                    queue="undo",
                    input={"id": "${ output.id }"},
                    retry=retry(max_attempts=10),
                    timeouts=timeouts(attempt="30s"),
                ),
                catch=[
                    catch("route", errors=["OutOfStock"], when="error.retryable"),
                    catch("route"),
                ],
            ),
            task(
                "poll",
                task="carrier.check",
                repeat=repeat(delay="10s", limit=100, while_="output.ready == false"),
            ),
            wait("one", any=["approved", "refused"], timeout="1d", schema={"type": "object"}),
            wait("each", all=("a", "b"), schema=True),
            wait("many", signal="vote", count=3),
            choice(
                "route",
                [("true", "notify")],
                limit=3,
                catch=[catch("notify", errors=["NoChoice"])],
            ),
            parallel(
                "notify",
                {
                    "email": [task("send", task="send")],
                    "tree": [
                        pass_("left", 1),
                        pass_("right", 2),
                        pass_("root", 3, after=["left", "right"]),
                    ],
                },
                on_error="wait_all",
            ),
            map_(
                "lines",
                "${ input.lines }",
                [task("pick", task="pick", input="${ line }")],
                as_="line",
                max_concurrency=20,
                tolerate_count=1,
            ),
            map_(
                "again",
                [1, 2],
                [pass_("one_of", "${ item }")],
                tolerate_percent=12.5,
                compensate=compensate("undo"),
            ),
            run("invoice", "invoice", version=2, input={"a": 1}, key="${ run.id }", detached=True),
            run("child", "invoice", when="input.too"),
        ],
    )
    assert document == read_document(WHOLE)
    assert parse_definition(document).fingerprint == parse_definition(WHOLE).fingerprint


def test_a_document_holds_what_is_said_of_the_whole_workflow() -> None:
    document = workflow(
        "order",
        input_schema={"type": "object"},
        output={"tracking": "${ steps.ship.output }"},
        timeout="2h",
        priority="high",
        tags=["shop"],
        retry=retry(max_attempts=3),
        steps=[],
    )
    assert document == {
        "expressions": "cel/1",
        "workflow": "order",
        "input": {"type": "object"},
        "output": {"tracking": "${ steps.ship.output }"},
        "timeout": "2h",
        "priority": "high",
        "tags": ["shop"],
        "retry": {"max_attempts": 3},
        "steps": [],
    }


def test_nothing_but_what_was_given_is_in_the_document() -> None:
    document = workflow("w", steps=[task("a", task="t")])
    assert document == {
        "expressions": "cel/1",
        "workflow": "w",
        "steps": [{"name": "a", "task": "t"}],
    }


def test_what_would_be_two_things_at_once_is_refused() -> None:
    with pytest.raises(ValueError, match="one of the three"):
        wait("s")
    with pytest.raises(ValueError, match="one of the three"):
        wait("s", signal="a", all=["b"])
    with pytest.raises(ValueError, match="not both"):
        map_("s", [], [], tolerate_count=1, tolerate_percent=2)


def test_what_cannot_be_written_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="one of the two"):
        sleep("s")
    with pytest.raises(ValueError, match="one of the two"):
        sleep("s", "1s", until="2026-11-30T00:00:00Z")
    with pytest.raises(ValueError, match="whole milliseconds"):
        sleep("s", timedelta(microseconds=1))
    with pytest.raises(ValueError, match="longer than zero"):
        task("s", task="t", delay=timedelta(0))
    with pytest.raises(InvalidValueError):
        task("s", task="t", input=object())
