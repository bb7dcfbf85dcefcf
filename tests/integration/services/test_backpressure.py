"""Too much at once: what comes in waits where it is, what goes out waits in Postgres, and nobody
is told that something was done that was not."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from tests.support.counted import counted
from tests.support.eventually import eventually, until, until_async
from tests.support.pools import complete_all, start_many, take_all
from tests.support.wire_client import RefusedError, WireClient
from tests.support.workflows import one_task, one_wait
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings

Json = Any

CREDIT = 100
HELD_MAX = CREDIT * 3 // 2
"""Pulls that are open when the credit is used up may still bring half as many."""
CONCURRENCY = 3
ITEMS = 30
WINDOW = 20
PARKED = 5
KIB = 1_024


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(
        settings,
        pull_credit_count_max=CREDIT,
        api_concurrency=CONCURRENCY,
        api_item_count_max=ITEMS,
        dispatch_window_count_max=WINDOW,
        stream_dispatch_bytes_max=64 * KIB,
        parked_count_max=PARKED,
        parked_sweep_seconds=0.1,
        park_seconds=300.0,
        outbox_retry_seconds=0.5,
    )


@pytest.fixture
async def database(settings: Settings) -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(
        settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
    )
    yield connection
    await connection.close()


@asynccontextmanager
async def stalled(database: Any) -> AsyncGenerator[None]:
    """Within it no transaction that writes a run gets on: the database is as slow as can be."""
    async with database.transaction():
        await database.execute("LOCK TABLE run IN EXCLUSIVE MODE")
        yield


async def held_by_the_engine(wire: WireClient) -> int:
    """Messages of P_IN that the engine was given and has not acknowledged."""
    jetstream = wire.client.jetstream()
    infos = await jetstream.consumers_info(f"{wire.prefix.upper()}_IN")
    return sum(info.num_ack_pending for info in infos)


async def stored(wire: WireClient, stream: str) -> int:
    info = await wire.client.jetstream().stream_info(f"{wire.prefix.upper()}_{stream}")
    return info.state.messages


async def test_an_engine_pulls_no_more_than_its_credit_while_postgres_does_not_get_on(
    wire: WireClient, database: Any
) -> None:
    await wire.deploy(one_wait())
    run_ids = [await wire.start("waiting") for _ in range(4)]
    total = 5 * CREDIT
    async with stalled(database):
        for number in range(total):
            run_id = run_ids[number % len(run_ids)]
            subject = f"{wire.prefix}.in.signal.-.{run_id}.other"
            await wire.client.publish(subject, b"1", headers={"Towpath-Message-Id": f"m{number}"})
        await wire.client.flush()

        async def credit_is_used_up() -> bool:
            return await held_by_the_engine(wire) >= CREDIT

        await until_async(credit_is_used_up, "the engine has taken what it may")
        for _ in range(20):
            assert await held_by_the_engine(wire) <= HELD_MAX
        assert await stored(wire, "IN") == total, "the rest waits where it is"

    async def all_taken() -> bool:
        return await stored(wire, "IN") == 0

    await until_async(all_taken, "nothing was lost")
    kept = await database.fetchval("SELECT count(*) FROM signal")
    assert kept == total


async def test_requests_over_the_limit_are_told_when_to_come_again_and_nothing_is_done(
    wire: WireClient, database: Any, engine: Engine
) -> None:
    await wire.deploy(one_task())
    async with stalled(database):
        starts = [
            asyncio.create_task(wire.start("one", number, request_id=f"r{number}"))
            for number in range(2 * CONCURRENCY)
        ]
        await until(
            lambda: sum(start.done() for start in starts) == CONCURRENCY, "half of them are refused"
        )
        refused = [number for number, start in enumerate(starts) if start.done()]
        for number in refused:
            error = starts[number].exception()
            assert isinstance(error, RefusedError)
            assert (error.status, error.code) == (429, "overloaded")
            assert error.details["retry_after_ms"] > 0
    run_ids = {await start for number, start in enumerate(starts) if number not in refused}
    assert len(run_ids) == CONCURRENCY
    assert counted(engine, "run_started_total") == CONCURRENCY, "who was refused has no run"
    run_ids |= {await wire.start("one", number, request_id=f"r{number}") for number in refused}
    assert len(run_ids) == 2 * CONCURRENCY


async def test_start_many_is_refused_by_the_items_that_stand_and_not_by_requests(
    wire: WireClient, database: Any, engine: Engine
) -> None:
    await wire.deploy(one_task())

    async def many(count: int) -> Json:
        items = [{"workflow": "one", "input": n} for n in range(count)]
        return await wire.api("run.start-many", items=items)

    async def transactions_wait() -> bool:
        return await database.fetchval("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")

    async with stalled(database):
        first = asyncio.create_task(many(ITEMS + 10))
        await until_async(transactions_wait, "the first request stands, since it came alone")
        with pytest.raises(RefusedError) as refused:
            await many(1)
        assert (refused.value.status, refused.value.code) == (429, "overloaded")
        assert refused.value.details["retry_after_ms"] > 0
    assert len((await first)["results"]) == ITEMS + 10
    assert len((await many(ITEMS))["results"]) == ITEMS, "their places are free again"
    assert counted(engine, "run_started_total") == 2 * ITEMS + 10


async def test_a_full_stream_leaves_dispatches_in_the_outbox_and_all_runs_go_on(
    wire: WireClient, database: Any
) -> None:
    """The stream holds about a dozen of these dispatches, the window many more."""
    await wire.deploy(one_task("big"))
    await wire.deploy(one_wait())
    count = 2 * WINDOW
    payload = "x" * 4 * KIB
    items = [{"workflow": "big", "input": payload} for _ in range(count)]
    body = json.dumps({"items": items}).encode()
    answer = await wire.api_raw("run.start-many", body, timeout=120)
    run_ids = {result["run_id"] for result in answer["results"]}

    async def is_full() -> bool:
        waiting = await database.fetchval("SELECT count(*) FROM outbox WHERE token IS NOT NULL")
        return waiting > 0 and 0 < await stored(wire, "DISPATCH") < WINDOW

    await until_async(is_full, "the stream takes no more, the outbox has the rest")
    waiting = await database.fetchval("SELECT count(*) FROM outbox WHERE token IS NOT NULL")
    assert waiting <= WINDOW, "the outbox is bounded by the window"
    # What needs no dispatch goes on meanwhile.
    other = await wire.start("waiting")
    await wire.api("run.signal", run_id=other, signal="go", payload=1)
    assert (await wire.result(other))["status"] == "completed"
    # With a pool all of it goes through, little by little.
    done: set[str] = set()

    async def all_are_done() -> bool:
        dispatches = await take_all(wire, "default")
        await complete_all(wire, dispatches)
        done.update(dispatch["run_id"] for dispatch in dispatches)
        return done == run_ids

    await until_async(all_are_done, "every run was dispatched")

    async def all_settled() -> bool:
        return not await database.fetchval("SELECT count(*) FROM run WHERE settled_at IS NULL")

    await until_async(all_settled, "every run has settled")


async def test_an_outage_of_nats_fills_the_outbox_no_further_than_the_window(
    wire: WireClient, database: Any, engine: Engine
) -> None:
    """A stream that takes nothing is, to the engine, one that is away."""
    await wire.deploy(one_task())
    name = f"{wire.prefix.upper()}_DISPATCH"
    jetstream = wire.client.jetstream()
    info = await jetstream.stream_info(name)
    await jetstream.update_stream(info.config.evolve(max_msgs=1))
    await start_many(wire, "one", 3 * WINDOW)

    async def outbox_is_as_full_as_may_be() -> bool:
        waiting = await database.fetchval("SELECT count(*) FROM outbox WHERE token IS NOT NULL")
        ready = await database.fetchval("SELECT count(*) FROM ready_step")
        return waiting <= WINDOW and waiting + ready >= 3 * WINDOW - 1

    await until_async(outbox_is_as_full_as_may_be, "the rest is ready, not dispatched")
    for _ in range(20):
        waiting = await database.fetchval("SELECT count(*) FROM outbox WHERE token IS NOT NULL")
        assert waiting <= WINDOW
    assert counted(engine, "step_dispatched_total") <= WINDOW + 1


async def test_parked_signals_are_bounded_and_those_beyond_are_dead_letters(
    wire: WireClient, database: Any, engine: Engine
) -> None:
    await wire.deploy(one_wait())

    async def park(number: int) -> None:
        await wire.put(
            "in.signal-key.waiting.s.go", b"1",
            {"Towpath-Key": f"k{number}", "Towpath-Message-Id": f"m{number}"},
        )  # fmt: skip

    for number in range(PARKED):
        await park(number)

    async def all_parked() -> bool:
        return await database.fetchval("SELECT count(*) FROM parked_signal") == PARKED

    await until_async(all_parked, "as many are parked as may be")
    number = PARKED

    async def one_is_buried() -> bool:
        nonlocal number
        number += 1
        await park(number)
        return counted(engine, "dead_letter_total") > 0

    await until_async(one_is_buried, "a signal beyond the bound is a dead letter")
    letters = await eventually(wire.dead_letters)
    assert {letter["reason"] for letter in letters} == {"key_not_found"}
    # Those that are parked are still good.
    run_id = await wire.start("waiting", key="k0")
    assert (await wire.result(run_id))["output"]["payload"] == 1
