"""A retry that comes to nothing leaves its key to whoever wants it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg

from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient, new_key
from tests.support.workflows import one_task


@asynccontextmanager
async def _database(url: str, schema: str) -> AsyncGenerator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    try:
        yield connection
    finally:
        await connection.close()


async def _failed(wire: WireClient, key: str) -> str:
    run_id = await wire.start("one", key=key)
    await wire.fail(await wire.take())
    assert (await wire.result(run_id))["status"] == "failed"
    return run_id


async def _refusal(wire: WireClient, run_id: str) -> str:
    try:
        await wire.api("run.retry", run_id=run_id)
    except RefusedError as refused:
        return refused.code
    return "ok"


async def _assert_free(wire: WireClient, key: str) -> None:
    started = await wire.api("run.start", workflow="one", input=None, key=key)
    assert not started["deduplicated"]
    assert (await wire.run(started["run_id"]))["status"] == "running"


async def test_a_retry_that_can_not_be_decided_does_not_keep_the_key(
    wire: WireClient, postgres_url: str, schema: str
) -> None:
    await wire.deploy(one_task())
    key = new_key()
    run_id = await _failed(wire, key)
    async with _database(postgres_url, schema) as connection:
        await connection.execute("DELETE FROM step WHERE run_id = $1", run_id)
    assert await _refusal(wire, run_id) == "internal"
    await _assert_free(wire, key)


async def test_a_retry_of_a_run_that_is_purged_meanwhile_does_not_keep_the_key(
    wire: WireClient, postgres_url: str, schema: str
) -> None:
    await wire.deploy(one_task())
    key = new_key()
    run_id = await _failed(wire, key)
    async with _database(postgres_url, schema) as connection:
        claim = connection.transaction()
        await claim.start()
        # Whoever wants the key waits for the end of this transaction.
        await connection.execute(
            "INSERT INTO run_key (workflow, key, run_id) VALUES ('one', $1, $2)", key, run_id
        )
        retrying = asyncio.create_task(_refusal(wire, run_id))

        async def retry_waits() -> bool:
            waiting = await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            )
            return waiting == 1

        await eventually(retry_waits)
        await wire.api("run.purge", run_id=run_id)
        await claim.rollback()
    assert await retrying == "run_not_found"
    await _assert_free(wire, key)
