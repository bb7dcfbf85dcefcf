"""pause, resume, pauses: what is asked of the engine, and what is said."""

import asyncio

import pytest

from tests.integration.client.conftest import ApiSide, api
from tests.support.command_line import succeed
from tests.support.engine_side import new_run_id
from tests.support.jetstream import jetstream_url, prefix

__all__ = ["api", "jetstream_url", "prefix"]

RUN_ID = new_run_id()


@pytest.mark.parametrize(
    ("arguments", "verb", "body", "said"),
    [
        (
            ["pause", "run", RUN_ID, "--reason", "look"],
            "run.pause",
            {"run_id": RUN_ID, "by": "ann", "reason": "look"},
            f"Run {RUN_ID} is now paused.\n",
        ),
        (
            ["resume", "run", RUN_ID],
            "run.resume",
            {"run_id": RUN_ID, "by": "ann"},
            f"Run {RUN_ID} is already not paused.\n",
        ),
        (
            ["pause", "workflow", "order", "--version", "3"],
            "workflow.pause",
            {"workflow": "order", "version": 3, "by": "ann"},
            "Workflow order@3 is now paused.\n",
        ),
        (
            ["resume", "queue", "stock"],
            "queue.resume",
            {"queue": "stock", "by": "ann"},
            "Queue stock is already not paused.\n",
        ),
        (
            ["pause", "task", "stock.take"],
            "task.pause",
            {"task": "stock.take", "by": "ann"},
            "Task stock.take is now paused.\n",
        ),
    ],
)
async def test_a_pause_says_who_and_what_is_now(
    api: ApiSide,
    jetstream_url: str,
    arguments: list[str],
    verb: str,
    body: dict[str, object],
    said: str,
) -> None:
    paused = verb.endswith("pause")
    state = {"paused": paused, "changed": paused}
    name = "order@3" if verb.startswith("workflow") else arguments[2]
    api.answers[verb] = lambda _: (
        {"run_id": RUN_ID, "status": "running", **state}
        if verb.startswith("run")
        else {"scope": arguments[1], "name": name, **state}
    )
    environment = {"TOWPATH_NATS_URL": jetstream_url, "TOWPATH_PREFIX": api.prefix}
    found = await asyncio.to_thread(succeed, environment, [*arguments, "--by", "ann"])
    assert found == said
    assert api.requests == [(verb, body)]


async def test_pauses_are_listed_with_who_and_why(api: ApiSide, jetstream_url: str) -> None:
    pause = {"scope": "queue", "name": "stock", "at": "2026-01-01T00:00:00.000000Z", "by": "ann"}
    api.answers["pause.list"] = lambda _: {"pauses": [pause]}
    environment = {"TOWPATH_NATS_URL": jetstream_url, "TOWPATH_PREFIX": api.prefix}
    told = await asyncio.to_thread(succeed, environment, ["pauses"])
    assert told.splitlines()[1].split() == ["queue", "stock", "2026-01-01T00:00:00.000000Z", "ann"]
    whole = await asyncio.to_thread(succeed, environment, ["pauses", "--json"])
    assert whole.json() == {"pauses": [pause]}
