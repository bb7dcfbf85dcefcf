"""The window of undone dispatches holds, whatever happens to the stream that they are in."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace
from nats.errors import Error as NatsError

from tests.support.counted import counted
from tests.support.engines import running
from tests.support.eventually import let_pass, until_async
from tests.support.pools import complete_all, start_many, take_all
from tests.support.wire_client import WireClient, connected
from tests.support.workflows import one_task
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings

Json = Any

WINDOW = 20
RUNS = 5 * WINDOW
WIPES = 3
KINDS = ("dispatch", "ready")
_LOOK_SECONDS = 0.01


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, dispatch_window_count_max=WINDOW, outbox_retry_seconds=1.0)


@pytest.fixture
async def database(settings: Settings) -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(
        settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
    )
    yield connection
    await connection.close()


def stream_of(wire: WireClient) -> str:
    return f"{wire.prefix.upper()}_DISPATCH"


async def stored(wire: WireClient) -> int:
    """Messages of the stream; 0 while it is gone."""
    try:
        return (await wire.client.jetstream().stream_info(stream_of(wire))).state.messages
    except NatsError:
        return 0


async def wipe(wire: WireClient) -> None:
    """Delete the stream with all that is in it; the engines make another one."""
    await wire.client.jetstream().delete_stream(stream_of(wire))


async def undone(database: Any) -> int:
    return await database.fetchval("SELECT count(*) FROM open_step WHERE token IS NOT NULL")


class Watcher:
    """The most that the stream, and Postgres, ever had at the same time."""

    def __init__(self) -> None:
        self.stored = 0
        self.undone = 0

    @asynccontextmanager
    async def watching(self, wire: WireClient, settings: Settings) -> AsyncGenerator["Watcher"]:
        connection: Any = await asyncpg.connect(
            settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
        )

        is_over = asyncio.Event()

        async def look() -> None:
            while not is_over.is_set():
                self.stored = max(self.stored, await stored(wire))
                self.undone = max(self.undone, await undone(connection))
                await let_pass(_LOOK_SECONDS)

        task = asyncio.create_task(look())
        try:
            yield self
        finally:
            is_over.set()  # a cancellation may get lost in a request that is answered just then
            await task
            await connection.close()


async def all_sent_again(wire: WireClient, database: Any) -> None:
    """Until the stream has each undone dispatch."""

    async def there() -> bool:
        return 0 < await undone(database) == await stored(wire)

    await until_async(there, "what is undone is in the stream")


async def engines_share(database: Any, engines: int) -> None:
    """Until each of so many engines owns partitions."""

    async def spread() -> bool:
        owners = "SELECT count(DISTINCT engine_id) FROM partition_lease"
        return await database.fetchval(owners) == engines

    await until_async(spread, "all engines own partitions")


async def run_all(wire: WireClient, count: int, queue: str = "away") -> list[str]:
    """Work as a pool does until so many dispatches are done; the runs that they were of."""
    done: list[str] = []

    async def all_done() -> bool:
        dispatches = await take_all(wire, queue)
        await complete_all(wire, dispatches)
        done.extend(dispatch["run_id"] for dispatch in dispatches)
        return len(done) >= count

    await until_async(all_done, "all steps have run")
    return done


async def all_settled(database: Any) -> None:
    async def none_open() -> bool:
        return not await database.fetchval("SELECT count(*) FROM run WHERE settled_at IS NULL")

    await until_async(none_open, "all runs have settled")


async def check_wipes(wire: WireClient, database: Any, settings: Settings) -> None:
    """Start far more than the window, wipe the stream again and again, then let a pool come."""
    await wire.deploy(one_task("away", queue="away"))
    async with Watcher().watching(wire, settings) as seen:
        run_ids = await start_many(wire, "away", RUNS)
        await all_sent_again(wire, database)
        for _ in range(WIPES):
            await wipe(wire)
            await all_sent_again(wire, database)
        done = await run_all(wire, RUNS)
        await all_settled(database)
    assert Counter(done) == Counter(run_ids), "each step ran once"
    assert seen.undone <= WINDOW
    assert seen.stored <= WINDOW


async def test_a_window_holds_however_often_the_stream_is_wiped(
    wire: WireClient, database: Any, settings: Settings
) -> None:
    await check_wipes(wire, database, settings)


async def test_two_engines_keep_the_window_together_however_often_the_stream_is_wiped(
    wire: WireClient, database: Any, settings: Settings
) -> None:
    async with running(settings):
        await engines_share(database, 2)
        await check_wipes(wire, database, settings)


@pytest.mark.parametrize("window", [1, 7])
async def test_three_engines_keep_a_window_of_which_each_has_next_to_nothing(
    settings: Settings, database: Any, window: int
) -> None:
    """Each engine meets each queue for the first time: none of them knows yet that it is full."""
    tight = replace(settings, dispatch_window_count_max=window)
    queues = [f"q{number}" for number in range(4)]
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(running(tight))
        wire = await stack.enter_async_context(connected(settings.nats_url, settings.prefix))
        await engines_share(database, 3)
        for queue in queues:
            await wire.deploy(one_task(queue, queue=queue))
        await asyncio.gather(*(wire.start(queue) for queue in queues for _ in range(4 * window)))
        # Nobody works: what was dispatched too much stays so.
        counts = await database.fetch(
            "SELECT count(token) FROM open_step GROUP BY queue HAVING count(token) > $1", window
        )
        assert counts == []
        for queue in queues:
            done = await run_all(wire, 4 * window, queue)
            assert len(done) == len(set(done)) == 4 * window
        await all_settled(database)


async def test_what_an_engine_left_in_the_outbox_counts_for_the_next_one(
    wire: WireClient, database: Any, settings: Settings
) -> None:
    """A full stream keeps dispatches in the outbox; the engine that comes then adds none."""
    await wire.deploy(one_task("away", queue="away"))
    jetstream = wire.client.jetstream()
    info = await jetstream.stream_info(stream_of(wire))
    await jetstream.update_stream(info.config.evolve(max_msgs=WINDOW // 2))
    async with Watcher().watching(wire, settings) as seen:
        await start_many(wire, "away", RUNS)
        async with running(settings):
            await jetstream.update_stream(info.config)
            await all_sent_again(wire, database)
            done = await run_all(wire, RUNS)
            await all_settled(database)
    assert len(done) == RUNS
    assert (seen.undone, seen.stored) <= (WINDOW, WINDOW)


async def test_a_purged_stream_gets_each_undone_dispatch_again_and_no_other(
    wire: WireClient, database: Any, settings: Settings
) -> None:
    await wire.deploy(one_task("away", queue="away"))
    async with Watcher().watching(wire, settings) as seen:
        run_ids = await start_many(wire, "away", RUNS)
        await all_sent_again(wire, database)
        await wire.client.jetstream().purge_stream(stream_of(wire))
        await all_sent_again(wire, database)
        assert Counter(await run_all(wire, RUNS)) == Counter(run_ids)
    assert (seen.undone, seen.stored) <= (WINDOW, WINDOW)


async def test_messages_that_postgres_knows_nothing_of_take_room_in_the_window(
    settings: Settings, database: Any
) -> None:
    """As an engine leaves them that dies before it has purged what was cancelled."""
    async with connected(settings.nats_url, settings.prefix) as wire:
        async with running(settings):
            await wire.deploy(one_task("away", queue="away"))
        for _ in range(WINDOW):
            subject = f"{wire.prefix}.dispatch.away.2.{uuid.uuid4()}.t"
            await wire.client.jetstream().publish(subject, b"{}")
        async with running(settings):
            await start_many(wire, "away", RUNS)
            ready = await database.fetchval("SELECT count(*) FROM ready_step")
            assert (ready, await stored(wire)) == (RUNS, WINDOW)
            (view,) = (await wire.api("queue.list"))["queues"]
            assert (view["ready"], view["dispatched"]) == (RUNS, 0), "they are no dispatches"
            await wire.client.jetstream().purge_stream(stream_of(wire))
            await run_all(wire, RUNS)
            await all_settled(database)


async def test_a_stream_that_has_a_dispatch_gets_no_second_message_of_it_after_a_loss(
    wire: WireClient, database: Any, engine: Engine
) -> None:
    """What was dispatched between the loss and its discovery."""
    await wire.deploy(one_task("away", queue="away"))
    await start_many(wire, "away", 5)
    await all_sent_again(wire, database)
    await wipe(wire)

    async def is_back() -> bool:
        try:
            await wire.client.jetstream().stream_info(stream_of(wire))
        except NatsError:
            return False
        return True

    await until_async(is_back, "the stream is made again")
    await start_many(wire, "away", 5)

    async def is_noticed() -> bool:
        return counted(engine, "stream_reset_total") >= 1

    await until_async(is_noticed, "the loss is discovered")
    await all_sent_again(wire, database)
    done = await run_all(wire, 10)
    await all_settled(database)
    assert len(done) == len(set(done)) == 10
    assert await stored(wire) == 0


async def test_a_wipe_changes_nothing_of_how_a_queue_is_shown(
    wire: WireClient, database: Any
) -> None:
    await wire.deploy(one_task("away", queue="away"))
    await start_many(wire, "away", RUNS)
    await all_sent_again(wire, database)
    (before,) = (await wire.api("queue.list"))["queues"]
    assert (before["ready"], before["dispatched"]) == (RUNS - WINDOW, WINDOW)
    assert before["nobody_pulls_since"] is not None
    await wipe(wire)
    await all_sent_again(wire, database)

    async def same() -> bool:
        (after,) = (await wire.api("queue.list"))["queues"]
        return after == before

    await until_async(same, "the same steps wait, and since the same time")


async def test_steps_that_became_ready_together_say_how_many_go_before_them(
    wire: WireClient, database: Any
) -> None:
    await wire.deploy(one_task("away", queue="away"))
    run_ids = await start_many(wire, "away", WINDOW + 5)
    await all_sent_again(wire, database)
    reasons = [(await wire.api("run.explain", run_id=one))["reasons"][0] for one in run_ids]
    places = {kind: [r["ahead"] for r in reasons if r["kind"] == kind] for kind in KINDS}
    assert {kind: sorted(ahead) for kind, ahead in places.items()} == {
        "dispatch": list(range(WINDOW)),
        "ready": list(range(5)),
    }
