"""A pool that is away: its steps wait in Postgres, the stream has room for the others."""

import time
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from tests.support.counted import counted
from tests.support.engines import running
from tests.support.eventually import until_async
from tests.support.pools import complete_all, pending, start_many, take_all, undone
from tests.support.wire_client import WireClient
from tests.support.workflows import one_task
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings

Json = Any

WINDOW = 200
TOP_UP = 20
RUNS = 20
"""Runs that are watched from their start to their end."""


@pytest.fixture
def settings(settings: Settings, window: int) -> Settings:
    # This pool acknowledges before it reports: the audit would send dispatches again in between.
    return replace(settings, dispatch_window_count_max=window, dispatch_audit_seconds=3_600.0)


@pytest.fixture
def window() -> int:
    return WINDOW


@pytest.fixture
async def database(settings: Settings) -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(
        settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
    )
    yield connection
    await connection.close()


async def deploy_two(wire: WireClient) -> None:
    await wire.deploy(one_task("away", queue="away"))
    await wire.deploy(one_task("here", queue="here"))


async def are_ready(database: Any, count: int) -> None:
    async def there() -> bool:
        return await database.fetchval("SELECT count(*) FROM ready_step") == count

    await until_async(there, f"{count} steps are ready")


async def are_undone(wire: WireClient, queue: str, count: int) -> None:
    async def there() -> bool:
        return await undone(wire, queue) == count

    await until_async(there, f"the stream has {count} dispatches for {queue}")


async def cost_of_a_run(wire: WireClient, engine: Engine) -> tuple[float, float, float]:
    """Batches and transitions that a run of the other queue costs, and seconds, each on average."""
    before = [counted(engine, name) for name in ("batch_events_count", "transition_total")]
    began = time.monotonic()
    for number in range(RUNS):
        run_id = await wire.start("here", number)
        await wire.complete(await wire.take("here"), number)
        assert (await wire.result(run_id))["output"] == number
    seconds = (time.monotonic() - began) / RUNS
    after = [counted(engine, name) for name in ("batch_events_count", "transition_total")]
    batches, transitions = (b - a for a, b in zip(before, after, strict=True))
    return batches / RUNS, transitions / RUNS, seconds


async def check_absent_pool(
    wire: WireClient, engine: Engine, database: Any, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    await deploy_two(wire)
    alone = await cost_of_a_run(wire, engine)
    began = time.monotonic()
    run_ids = await start_many(wire, "away", count)
    started = time.monotonic() - began
    await are_ready(database, count - WINDOW)
    beside = await cost_of_a_run(wire, engine)
    assert beside[:2] == alone[:2], "a run costs the same beside all that waits"
    assert await undone(wire, "away") == WINDOW
    assert await database.fetchval("SELECT count(*) FROM ready_step") == count - WINDOW
    # The pool comes.
    began = time.monotonic()
    done: list[str] = []
    while len(done) < count:
        dispatches = await take_all(wire, "away")
        await complete_all(wire, dispatches)
        done += [dispatch["run_id"] for dispatch in dispatches]
        if not dispatches:
            await until_async(lambda: _has_work(wire), "the stream is topped up")
        assert await undone(wire, "away") <= WINDOW
    drained = time.monotonic() - began
    assert Counter(done) == Counter(run_ids)

    async def all_settled() -> bool:
        return not await database.fetchval("SELECT count(*) FROM run WHERE settled_at IS NULL")

    await until_async(all_settled, "all runs have settled")
    with capsys.disabled():
        print(  # noqa: T201 - what was measured
            f"\n{count} steps of an absent pool, window {WINDOW}: started in {started:.1f} s, "
            f"drained in {drained:.1f} s; another queue's run took {alone[2] * 1e3:.1f} ms "
            f"before and {beside[2] * 1e3:.1f} ms beside them"
        )


async def _has_work(wire: WireClient) -> bool:
    return await pending(wire, "away", 2) > 0


async def test_an_absent_pool_does_not_slow_the_other_queues(
    wire: WireClient, engine: Engine, database: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await check_absent_pool(wire, engine, database, 2_000, capsys)


@pytest.mark.slow
async def test_a_hundred_thousand_steps_of_an_absent_pool_do_not_slow_the_other_queues(
    wire: WireClient, engine: Engine, database: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await check_absent_pool(wire, engine, database, 100_000, capsys)


@pytest.mark.parametrize("window", [TOP_UP])
async def test_what_waits_goes_by_priority_then_time_and_one_in_ten_by_time_alone(
    wire: WireClient, database: Any, window: int
) -> None:
    await wire.deploy(one_task("away", queue="away"))
    # What became ready in the same instant goes by the id of its run.
    low = await start_many(wire, "away", window, priority="low")
    later = sorted(await start_many(wire, "away", 10, priority="low"))
    normal = sorted(await start_many(wire, "away", window, priority="normal"))
    critical = sorted(await start_many(wire, "away", window, priority="critical"))
    await are_ready(database, 2 * window + 10)
    first = await take_all(wire, "away", 3)
    assert [dispatch["run_id"] for dispatch in first] == sorted(low), "they came first"
    await complete_all(wire, first)
    await are_undone(wire, "away", window)
    urgent = await take_all(wire, "away", 0)
    aged = await take_all(wire, "away", 3)
    assert [dispatch["run_id"] for dispatch in urgent] == critical[: window - 2]
    assert [dispatch["run_id"] for dispatch in aged] == later[:2]
    await complete_all(wire, [*urgent, *aged])
    await are_undone(wire, "away", window)
    rest = [await take_all(wire, "away", level) for level in (0, 2, 3)]
    found = [[dispatch["run_id"] for dispatch in level] for level in rest]
    assert found[0] == critical[window - 2 :]
    assert found[1] == normal[: window - 4]
    assert found[2] == later[2:4]


@pytest.mark.parametrize("window", [TOP_UP])
async def test_nothing_new_goes_before_what_waits_unless_it_is_more_urgent(
    wire: WireClient, database: Any, window: int
) -> None:
    await wire.deploy(one_task("away", queue="away"))
    await start_many(wire, "away", window)
    (waiting,) = await start_many(wire, "away", 1)
    (pressing,) = await start_many(wire, "away", 1, priority="high")
    await are_ready(database, 2)
    first = await take_all(wire, "away", 2)
    assert len(first) == window
    # Acknowledged is not done: what counts is what Postgres knows.
    assert await undone(wire, "away") == 0
    await complete_all(wire, first)
    await are_undone(wire, "away", 2)
    (urgent,) = await take_all(wire, "away", 1)
    (other,) = await take_all(wire, "away", 2)
    assert (urgent["run_id"], other["run_id"]) == (pressing, waiting)
    await complete_all(wire, [urgent, other])
    for run_id in (waiting, pressing):
        assert (await wire.result(run_id))["status"] == "completed"


@pytest.mark.parametrize("window", [TOP_UP])
async def test_a_step_that_waits_keeps_its_timeout(
    wire: WireClient, database: Any, window: int
) -> None:
    timeouts = {"step": "600ms", "attempt": "300ms"}
    await wire.deploy(one_task("away", queue="away"))
    await wire.deploy(one_task("hasty", queue="away", timeouts=timeouts))
    await start_many(wire, "away", window)
    run_id = await wire.start("hasty")
    result = await wire.result(run_id)
    assert (result["status"], result["error"]["type"]) == ("failed", "Timeout")
    await are_ready(database, 0)


async def test_two_engines_share_the_window_and_what_waits(
    wire: WireClient, settings: Settings, database: Any
) -> None:
    """One engine tops up for both, and leaves room for what the other may dispatch unseen."""
    await wire.deploy(one_task("away", queue="away"))
    async with running(settings):
        await engines_share(settings)
        count = 3 * WINDOW
        run_ids = await start_many(wire, "away", count)

        async def all_there() -> bool:
            ready = await database.fetchval("SELECT count(*) FROM ready_step")
            return ready + await undone(wire, "away") == count

        await until_async(all_there, "each step is dispatched or ready")
        # The other may have dispatched a quarter, for all that the one knows that tops up.
        await are_undone(wire, "away", WINDOW * 3 // 4)
        done: list[str] = []

        async def all_done() -> bool:
            dispatches = await take_all(wire, "away")
            await complete_all(wire, dispatches)
            done.extend(dispatch["run_id"] for dispatch in dispatches)
            return len(done) == count

        await until_async(all_done, "all steps have run")
        assert Counter(done) == Counter(run_ids)


async def engines_share(settings: Settings) -> None:
    """Wait until both engines own partitions."""
    connection: Any = await asyncpg.connect(
        settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
    )

    async def spread() -> bool:
        owners = "SELECT count(DISTINCT engine_id) FROM partition_lease"
        return await connection.fetchval(owners) == 2

    await until_async(spread, "both engines own partitions")
    await connection.close()
