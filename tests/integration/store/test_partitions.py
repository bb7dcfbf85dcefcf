"""Timers know their partition, also those that an engine of the release before writes."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg

from tests.support.postgres import fresh_schema
from tests.support.stores import a_postgres_store
from towpath_engine.store.migrate import load_migrations, migrate
from towpath_protocol.ids import new_uuid7
from towpath_protocol.subjects import partition_of

OLD = "INSERT INTO timer (run_id, path, due_at, preemptible) VALUES ($1, '', now(), true)"
BEFORE_PARTITIONS = 13


@asynccontextmanager
async def a_raw_connection(url: str, schema: str) -> "AsyncGenerator[asyncpg.Connection]":
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    try:
        yield connection
    finally:
        await connection.close()


def run_ids(count: int) -> list[str]:
    return [new_uuid7(1_700_000_000_000 + number, os.urandom(10)) for number in range(count)]


async def test_a_timer_without_a_partition_gets_that_of_the_server(postgres_url: str) -> None:
    async with a_postgres_store(postgres_url) as store, store.pool.acquire() as connection:
        ids = run_ids(200)
        await connection.executemany(OLD, [(run_id,) for run_id in ids])
        rows = await connection.fetch("SELECT run_id, partition FROM timer")
    assert {row[0]: row[1] for row in rows} == {run_id: partition_of(run_id) for run_id in ids}


async def test_timers_that_are_stored_already_get_their_partition_by_the_migration(
    postgres_url: str,
) -> None:
    async with fresh_schema(postgres_url) as schema:
        old = [one for one in load_migrations() if one.number <= BEFORE_PARTITIONS]
        await migrate(postgres_url, schema, migrations=old)
        ids = run_ids(50)
        everything = load_migrations()
        async with a_raw_connection(postgres_url, schema) as connection:
            await connection.executemany(OLD, [(run_id,) for run_id in ids])
        await migrate(postgres_url, schema, migrations=everything)
        async with a_postgres_store(postgres_url, schema=schema) as store:
            due = await store.due_timers(await store.now(), 100)
            by_partition = {
                row.run_id: partition
                for partition in range(16)
                for row in await store.due_timers(await store.now(), 100, partitions=[partition])
            }
    assert {row.run_id for row in due} == set(ids)
    assert by_partition == {run_id: partition_of(run_id) for run_id in ids}
