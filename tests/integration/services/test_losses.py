"""JetStream may lose anything at any moment: the run goes on (ARCHITECTURE, invariants 6 and 7)."""

from typing import Any

import asyncpg
from nats.errors import Error as NatsError

from tests.support.counted import counted
from tests.support.engines import engine_settings, running
from tests.support.eventually import eventually
from tests.support.jetstream import JetStreamServer, unique_prefix
from tests.support.wire_client import WireClient, connected
from tests.support.workflows import chain, one_task
from towpath_engine.settings import Settings

Json = Any
LOST_RUNS = 30
MORE_THAN_A_PAGE = 1_200


async def test_a_single_dispatch_that_vanished_goes_out_again_with_its_token(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    step = await wire.step_in(run_id, "work", "dispatched")
    stream = f"{wire.prefix.upper()}_DISPATCH"
    jetstream = wire.client.jetstream()

    async def stored() -> bool:
        return (await jetstream.stream_info(stream)).state.messages == 1

    await eventually(stored)
    await jetstream.purge_stream(stream)
    dispatch = await wire.take()
    assert dispatch["run_id"] == run_id
    assert dispatch["attempt"] == 1
    rows = await wire.history(run_id)
    dispatched = [row for row in rows if row["what"] == "step-dispatched"]
    assert [row["token"] for row in dispatched] == [dispatch["token"]]
    await wire.complete(dispatch, step["status"])
    assert (await wire.result(run_id))["status"] == "completed"


async def test_a_wiped_server_loses_nothing_but_time(
    own_jetstream: JetStreamServer, postgres_url: str, schema: str
) -> None:
    prefix = unique_prefix()
    settings = engine_settings(own_jetstream.url, postgres_url, prefix, schema)
    async with running(settings), connected(own_jetstream.url, prefix) as wire:
        await wire.deploy(chain(length=3))
        runs = [await wire.start("chain", number) for number in range(LOST_RUNS)]
        own_jetstream.wipe()
        wire.work("default", lambda dispatch: dispatch["input"])
        for number, run_id in enumerate(runs):
            result = await wire.result(run_id)
            assert (result["status"], result["output"]) == ("completed", number)
            rows = await wire.history(run_id)
            assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))


async def test_of_many_lost_dispatches_each_goes_out_again(
    own_jetstream: JetStreamServer, postgres_url: str, schema: str
) -> None:
    prefix = unique_prefix()
    settings = engine_settings(own_jetstream.url, postgres_url, prefix, schema)
    async with running(settings) as engine, connected(own_jetstream.url, prefix) as wire:
        await wire.deploy(one_task())
        items = [{"workflow": "one", "input": 1}] * MORE_THAN_A_PAGE
        await wire.api("run.start-many", items=items)

        async def stored() -> bool:
            info = await wire.client.jetstream().stream_info(f"{prefix.upper()}_DISPATCH")
            return info.state.messages == MORE_THAN_A_PAGE

        await eventually(stored)
        own_jetstream.wipe()

        async def stored_again() -> bool:
            try:
                return await stored()
            except NatsError:  # the server is not back, or the stream not made yet
                return False

        await eventually(stored_again)
        # Those whose outbox rows were still there are published by the sweep instead.
        assert 0 < counted(engine, "dispatch_lost_total") <= MORE_THAN_A_PAGE


async def test_a_killed_server_loses_nothing(
    own_jetstream: JetStreamServer, postgres_url: str, schema: str
) -> None:
    prefix = unique_prefix()
    settings = engine_settings(own_jetstream.url, postgres_url, prefix, schema)
    async with running(settings), connected(own_jetstream.url, prefix) as wire:
        await wire.deploy(chain(length=3))
        runs = [await wire.start("chain", number) for number in range(LOST_RUNS)]
        wire.work("default", lambda dispatch: dispatch["input"])
        own_jetstream.kill()
        own_jetstream.start()
        for number, run_id in enumerate(runs):
            result = await wire.result(run_id)
            assert (result["status"], result["output"]) == ("completed", number)


async def test_what_was_decided_while_the_server_was_away_is_published_afterwards(
    own_jetstream: JetStreamServer, postgres_url: str, schema: str
) -> None:
    prefix = unique_prefix()
    settings = engine_settings(own_jetstream.url, postgres_url, prefix, schema)
    definition: Json = {
        "workflow": "late",
        "steps": [{"name": "nap", "sleep": "1s"}, {"name": "work", "task": "do.it"}],
    }
    async with running(settings) as engine, connected(own_jetstream.url, prefix) as wire:
        await wire.deploy(definition)
        run_id = await wire.start("late")
        own_jetstream.stop()

        async def dispatched() -> bool:
            return counted(engine, "step_dispatched_total", queue="default") == 1

        await eventually(dispatched)
        own_jetstream.start()
        await wire.complete(await wire.take(), "found")
        assert (await wire.result(run_id))["output"] == "found"


async def test_a_dispatch_the_broker_gives_up_spends_the_attempt(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    stream = f"{wire.prefix.upper()}_DISPATCH"
    # Deliveries are made quick here, since five times the acknowledgement wait is minutes.
    jetstream = wire.client.jetstream()
    info = await jetstream.consumer_info(stream, "default_p2")
    for _ in range(info.config.max_deliver or 0):
        _, message = await wire.pull()
        await message.nak()
    await wire.client.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.default_p2", b'{"batch":1,"no_wait":true}', "x.y"
    )
    result = await wire.result(run_id)
    assert result["status"] == "failed"
    assert result["error"]["type"] == "WorkerLost"

    async def purged() -> bool:
        return (await jetstream.stream_info(stream)).state.messages == 0

    await eventually(purged)


async def test_a_terminated_dispatch_spends_the_attempt(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    _, message = await wire.pull()
    await message.term()
    result = await wire.result(run_id)
    assert result["error"]["type"] == "WorkerLost"


async def test_two_engines_share_the_work_and_agree(settings: Settings) -> None:
    async with (
        running(settings),
        running(settings),
        connected(settings.nats_url, settings.prefix) as wire,
    ):
        await wire.deploy(chain(length=4))
        items = [{"workflow": "chain", "input": number} for number in range(LOST_RUNS * 4)]
        started = (await wire.api("run.start-many", items=items))["results"]
        wire.work("default", lambda dispatch: dispatch["input"])
        for number, answer in enumerate(started):
            result = await wire.result(answer["run_id"])
            assert (result["status"], result["output"]) == ("completed", number)
            rows = await wire.history(answer["run_id"])
            assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
            named = [(r["step"], r["token"], r["what"]) for r in rows if r["token"] is not None]
            assert len(named) == len(set(named))


async def test_one_sweep_publishes_all_that_an_outage_left(
    jetstream_url: str, postgres_url: str, prefix: str, schema: str
) -> None:
    # More than two pages of it, and no second sweep within the test.
    count = 2_500
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(
            f"""
            INSERT INTO {schema}.outbox (id, run_id, subject, msg_id, headers, body, publish_after)
            SELECT gen_random_uuid(), gen_random_uuid(), $1 || '.events.w.' || n || '.custom',
              n::text, '{{}}', '{{}}', now() - interval '1 minute'
            FROM generate_series(1, {count}) AS n
            """,
            prefix,
        )
    finally:
        await connection.close()
    settings = engine_settings(
        jetstream_url, postgres_url, prefix, schema, outbox_sweep_seconds=3_600
    )
    async with running(settings), connected(jetstream_url, prefix) as wire:

        async def all_published() -> bool:
            info = await wire.client.jetstream().stream_info(f"{prefix.upper()}_EVENTS")
            assert info.state.messages == count, info.state.messages
            return True

        assert await eventually(all_published)
