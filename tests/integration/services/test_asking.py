"""Decisions ask for rows that a run was loaded without: joins, inner expressions, retries."""

from typing import Any

from tests.support.engines import running
from tests.support.wire_client import WireClient, connected
from towpath_engine.settings import Settings

Json = Any
ITEMS = 150
"""More than a run keeps in memory until they are joined."""
BAD = 77
"""The item that fails at first."""


def each() -> Json:
    steps = [
        {"name": "one", "task": "do.one", "input": "${ item }"},
        {"name": "two", "task": "do.two", "input": "${ steps.one.output + prev + 1 }"},
    ]
    return {
        "workflow": "each",
        "steps": [{"name": "lines", "map": {"items": "${ input }", "steps": steps}}],
    }


async def test_the_outputs_of_more_items_than_memory_keeps_are_joined_in_order(
    wire: WireClient,
) -> None:
    await wire.deploy(each())
    wire.work("default", lambda dispatch: dispatch["input"])
    run_id = await wire.start("each", list(range(ITEMS)))
    run = await wire.result(run_id)
    assert run["status"] == "completed", run
    assert run["output"] == [2 * n + 1 for n in range(ITEMS)]


async def test_an_engine_that_takes_over_asks_for_what_inner_steps_see(
    settings: Settings,
) -> None:
    async with running(settings), connected(settings.nats_url, settings.prefix) as wire:
        await wire.deploy(each())
        run_id = await wire.start("each", [10, 20])
        firsts = sorted([await wire.take(), await wire.take()], key=lambda one: one["input"])
        await wire.complete(firsts[0], 10)
        await wire.step_in(run_id, "lines[0]/two", "dispatched")
    async with running(settings), connected(settings.nats_url, settings.prefix) as wire:
        await wire.complete(firsts[1], 20)
        seconds = sorted([await wire.take(), await wire.take()], key=lambda one: one["input"])
        assert [one["input"] for one in seconds] == [21, 41]
        for one in seconds:
            await wire.complete(one, one["input"])
        assert (await wire.result(run_id))["output"] == [21, 41]


async def test_a_run_with_many_items_is_retried_where_one_of_them_failed(
    wire: WireClient,
) -> None:
    seen: list[str] = []

    def work(dispatch: Json) -> Json:
        seen.append(dispatch["step"])
        return dispatch["input"]

    await wire.deploy(each())
    wire.work("default", work)
    run_id = await wire.start("each", ["x" if n == BAD else n for n in range(ITEMS)])
    run = await wire.result(run_id)
    assert (run["status"], run["error"]["type"]) == ("failed", "ExpressionError")
    assert run["error"]["step"] == f"lines[{BAD}]/two"
    completed = {
        row["step"] for row in await wire.history(run_id) if row["what"] == "step-completed"
    }
    assert completed
    seen.clear()
    await wire.api("run.retry", run_id=run_id, step=f"lines[{BAD}]/two", input=-1)
    run = await wire.result(run_id)
    assert run["status"] == "completed", run
    assert run["output"] == [-1 if n == BAD else 2 * n + 1 for n in range(ITEMS)]
    assert completed.isdisjoint(seen), "what was completed is kept"
