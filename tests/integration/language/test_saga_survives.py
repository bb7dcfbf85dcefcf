"""Engines are killed and streams wiped in the middle of undoing: nothing is lost, nothing twice."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from tests.support.card_shop import CardShop
from tests.support.eventually import eventually
from tests.support.fleet import EngineProcess
from tests.support.jetstream import JetStreamServer
from tests.support.wire_client import WireClient, connected

Json = Any
Starts = Callable[[], Awaitable[EngineProcess]]

RUNS = 6
ITEMS = 5
UNDOS = RUNS * (2 + ITEMS)
UNDOABLE = {"compensate": {"task": "undo"}}
TRIP = {
    "workflow": "trip",
    "steps": [
        {"name": "first", "task": "do", **UNDOABLE},
        {
            "name": "lines",
            "map": {"items": "${ input }", "steps": [{"name": "line", "task": "do", **UNDOABLE}]},
        },
        {"name": "second", "task": "do", **UNDOABLE},
        {"name": "last", "task": "fail"},
    ],
}


@pytest.fixture
async def starts(
    own_jetstream: JetStreamServer, postgres_url: str, prefix: str, schema: str
) -> AsyncGenerator[Starts]:
    """Starts one more engine, as a process that can be killed."""
    engines: list[EngineProcess] = []

    async def start() -> EngineProcess:
        engine = EngineProcess(own_jetstream.url, postgres_url, prefix, schema)
        engines.append(engine)
        return await asyncio.to_thread(engine.wait_ready)

    yield start
    for engine in engines:
        engine.close()


@pytest.fixture
async def wire(own_jetstream: JetStreamServer, prefix: str) -> AsyncGenerator[WireClient]:
    async with connected(own_jetstream.url, prefix) as wire:
        yield wire


async def undone(shop: CardShop, count: int) -> None:
    """Until so many undos were done."""

    async def there() -> bool:
        return len(shop.undone()) >= count

    await eventually(there)


async def check(wire: WireClient, shop: CardShop, run_id: str) -> None:
    """Each effect of the run was taken back once, in reverse order of what the history says."""
    result = await wire.result(run_id)
    assert (result["status"], result["compensation"]) == ("compensated", "compensated")
    rows = await wire.history(run_id)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    completed = [row["step"] for row in rows if row["what"] == "step-completed"]
    taken_back = [row["step"] for row in rows if row["what"] == "step-compensated"]
    names = {"first", "line", "second"}
    assert taken_back == [one for one in completed if one.rpartition("/")[2] in names][::-1]
    assert len(taken_back) == 2 + ITEMS
    done = [key for key in shop.done() if key.startswith(run_id)]
    assert sorted(key for key in shop.undone() if key.startswith(run_id)) == sorted(
        key.removesuffix("/0") for key in done
    )


async def test_engines_are_killed_while_runs_are_being_undone(
    starts: Starts, wire: WireClient, own_jetstream: JetStreamServer
) -> None:
    engine = await starts()
    await wire.deploy(TRIP)
    shop = CardShop(wire)
    shop.open(slots=RUNS)
    run_ids = [await wire.start("trip", list(range(ITEMS))) for _ in range(RUNS)]
    shop.allow(5)
    await undone(shop, 5)
    engine.kill()
    shop.allow(4)  # their reports wait for an engine
    await undone(shop, 9)
    engine = await starts()
    shop.allow(8)
    await undone(shop, 17)
    engine.kill()
    engine = await starts()
    await undone(shop, 17)
    own_jetstream.wipe()
    engine.kill()
    await starts()
    shop.allow(10 * UNDOS)
    for run_id in run_ids:
        await check(wire, shop, run_id)
    await shop.close()


async def test_an_effect_of_an_attempt_that_is_being_cancelled_outlives_its_engine(
    starts: Starts, wire: WireClient
) -> None:
    branches = {
        "pay": [{"name": "pay", "task": "pay", **UNDOABLE}],
        "fails": [{"name": "fails", "task": "fails", "queue": "bad"}],
    }
    steps = [
        {"name": "first", "task": "do", **UNDOABLE},
        {"name": "both", "parallel": {"branches": branches}},
    ]
    engine = await starts()
    await wire.deploy({"workflow": "both", "steps": steps})
    run_id = await wire.start("both")
    await wire.complete(await wire.take(), 1)
    pay = await wire.take()
    await wire.fail(await wire.take("bad"), retryable=False)
    await wire.step_in(run_id, "both/pay/pay", "cancelling")
    engine.kill()
    await wire.complete(pay, {"receipt": 2})
    await starts()
    undo = await wire.take()
    assert (undo["compensation"]["step"], undo["input"]) == ("both/pay/pay", {"receipt": 2})
    await wire.complete(undo)
    undo = await wire.take()
    assert (undo["compensation"]["step"], undo["input"]) == ("first", 1)
    await wire.complete(undo)
    assert (await wire.result(run_id))["status"] == "compensated"
