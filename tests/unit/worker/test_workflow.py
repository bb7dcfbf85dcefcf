"""The builder and the document it produces."""

from datetime import timedelta

import pytest

from towpath_worker import InvalidValueError
from towpath_worker.workflow import (
    choice,
    pass_,
    repeat,
    retry,
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
