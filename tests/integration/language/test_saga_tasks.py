"""Tasks of the worker library that undo, and that are told to stop while their run is undone."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.integration.worker.conftest import serving_worker
from tests.support.eventually import until
from tests.support.wire_client import WireClient
from towpath_engine.settings import Settings
from towpath_worker import Context, Worker, WorkerOptions

Json = Any


class Shop:
    """A worker with tasks that take their time, and what they saw."""

    def __init__(self, settings: Settings) -> None:
        options = WorkerOptions(slots=4, heartbeat_interval_seconds=0.2)
        self.worker = Worker(
            "shop", nats_url=settings.nats_url, prefix=settings.prefix, options=options
        )
        self.begun = asyncio.Event()
        self.undone: list[tuple[Json, Json, str, Json, str | None]] = []
        self.worker.task("reserve")(self.reserve)
        self.worker.task("fail")(self.fail)
        self.worker.task("stops")(self.stops)
        self.worker.task("insists")(self.insists)
        self.worker.task("undo")(self.undo)

    async def reserve(self, what: str) -> Json:
        return {"shelf": what}

    async def fail(self) -> None:
        await self.begun.wait()
        raise ValueError("no luck")

    async def stops(self) -> None:
        """Ends when it is told to, without an effect."""
        self.begun.set()
        await asyncio.Event().wait()

    async def insists(self, ctx: Context) -> str:
        """Is told to stop when its effect is done."""
        try:
            self.begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return f"done, although: {ctx.cancelled.reason}"
        return "never"

    async def undo(self, given: Json, ctx: Context) -> None:
        undone = ctx.compensation
        assert undone is not None
        error = None if undone.error is None else undone.error["type"]
        self.undone.append((given, undone.output, undone.step, error, ctx.key))


@pytest.fixture
async def shop(wire: WireClient, settings: Settings) -> AsyncGenerator[Shop]:
    del wire
    shop = Shop(settings)
    async with serving_worker(shop.worker):
        yield shop


def two_branches(task: str) -> Json:
    undo = {"compensate": {"task": "undo", "queue": "shop"}}
    reserve = {
        "task": "reserve",
        "queue": "shop",
        "input": "${ input }",
        "compensate": {"task": "undo", "queue": "shop", "input": "${ output.shelf }"},
    }
    branches = {
        "bad": [{"name": "fail", "task": "fail", "queue": "shop"}],
        "slow": [{"name": "slow", "task": task, "queue": "shop", **undo}],
    }
    steps = [{"name": "reserve", **reserve}, {"name": "both", "parallel": {"branches": branches}}]
    return {"workflow": "shop", "steps": steps}


async def test_a_task_sees_what_it_undoes_and_why(wire: WireClient, shop: Shop) -> None:
    await wire.deploy(two_branches("stops"))
    run_id = await wire.start("shop", "tea", key="k")
    result = await wire.result(run_id)
    assert result["status"] == "compensated"
    # The one that was told to stop has had no effect: there is nothing to undo of it.
    assert shop.undone == [("tea", {"shelf": "tea"}, "reserve", "ValueError", "k")]
    slow = await wire.step(run_id, "both/slow/slow")
    assert slow["status"] == "cancelled"
    rows = await wire.history(run_id)
    (ended,) = [row for row in rows if row["step"] == "both/slow/slow"][-1:]
    assert (ended["what"], ended["cause"]["type"]) == ("step-cancelled", "report")


async def test_a_task_that_was_done_when_it_was_told_to_stop_is_undone(
    wire: WireClient, shop: Shop
) -> None:
    await wire.deploy(two_branches("insists"))
    run_id = await wire.start("shop", "tea")
    assert (await wire.result(run_id))["status"] == "compensated"
    first, second = shop.undone
    assert first[:3] == ("done, although: both failed",) * 2 + ("both/slow/slow",)
    assert second[2] == "reserve"


async def test_a_cancelled_run_is_undone_without_an_error(wire: WireClient, shop: Shop) -> None:
    steps = two_branches("stops")["steps"]
    steps[1]["parallel"]["branches"]["bad"][0]["task"] = "stops"
    await wire.deploy({"workflow": "shop", "steps": steps})
    run_id = await wire.start("shop", "tea")
    await until(shop.begun.is_set, "both attempts run")
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    result = await wire.result(run_id)
    assert (result["status"], result["compensation"]) == ("cancelled", "compensated")
    assert [seen[2:] for seen in shop.undone] == [("reserve", None, None)]
