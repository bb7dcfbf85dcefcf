"""Slots and levels: how much a worker takes, and of what."""

import asyncio

from tests.integration.worker.conftest import Serving, worker_of
from tests.support.engine_side import EngineSide
from tests.support.eventually import until, until_async


async def test_a_worker_takes_no_more_than_it_has_slots(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url, slots=2)
    go = asyncio.Event()
    running: list[int] = []

    @worker.task("hold")
    async def hold(number: int) -> int:
        running.append(number)
        await go.wait()
        return number

    async with serving(worker):
        tokens = [await engine.dispatch("hold", n) for n in range(6)]
        await until(lambda: len(running) == 2, "both slots are taken")

        async def two_are_out() -> bool:
            info = await engine.consumer()
            return (info.num_ack_pending, info.num_waiting) == (2, 0)

        await until_async(two_are_out, "nothing more is taken or asked for")
        go.set()
        await until(lambda: all(engine.ends(token) for token in tokens), "all end")
    assert {report.kind for report in engine.reports} == {"step-completed"}


async def test_one_slot_serves_every_level(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url, slots=1)
    worker.task("quick")(lambda: None)
    async with serving(worker):
        for level in (3, 0, 2, 1, 1, 2, 3, 0):
            await engine.end_of(await engine.dispatch("quick", level=level))
    assert len(engine.reports) == 8


async def test_higher_levels_go_first_and_lower_ones_do_not_starve(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url, slots=1)
    order: list[int] = []

    @worker.task("level")
    async def note(level: int) -> None:
        order.append(level)

    tokens: list[str] = []
    for level in (3, 2, 1, 0):
        tokens += [await engine.dispatch("level", level, level=level) for _ in range(40)]
    async with serving(worker):
        await until(lambda: all(engine.ends(token) for token in tokens), "all end")
    while_critical = order[: len(order) - order[::-1].index(0)]
    assert while_critical.count(0) == 40
    assert 1 <= len(while_critical) - 40 <= 12
    # Each lower level gets one slot of sixteen, plus what a standing request brought it.
    assert set(order[:20]) == {0, 1, 2, 3}


async def test_consumers_that_do_not_exist_yet_are_asked_for(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    js = engine.client.jetstream()
    for level in range(4):
        await js.delete_consumer(engine.dispatch_stream, f"inventory_p{level}")
    worker = worker_of(engine, jetstream_url)
    worker.task("quick")(lambda: None)
    async with serving(worker):
        token = await engine.dispatch("quick")
        await until(lambda: len(engine.presences) >= 3, "it asks")
        assert engine.ends(token) == []
        engine.creates_consumers = True
        assert (await engine.end_of(token)).kind == "step-completed"
