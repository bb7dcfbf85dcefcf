"""A page of the census costs what a page costs, however many runs wait."""

import json
from typing import Any

import asyncpg

from tests.support.census import count_runs
from tests.support.store_builders import NOW, a_document
from tests.support.stores import a_postgres_store
from towpath_engine.store.census import FIRST
from towpath_engine.store.statements import load_statement

LOST = 3
PAGE = 500
BLOCKS_A_RUN = 16
"""Of the run, and of a look into each of two indexes with their tables."""

FILL = """
INSERT INTO run (
  id, status, version, seq, workflow, workflow_version, priority, tags, input, context, metadata,
  created_at, started_at, signal_count, reached)
SELECT
  ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'waiting', 1, 1, 'order', 1, 2,
  '[]', 'null'::bytea, '{}'::bytea, '{}'::bytea, at, at, 0, ''::bytea
FROM (
  SELECT n, $2::timestamptz - n * interval '1 second' AS at FROM generate_series(1, $1::bigint) AS n
) AS fresh
"""
WAITS = """
INSERT INTO open_step (run_id, path, status, level, reported, signal)
SELECT id, 'wait', 'waiting', 2, false, 'go' FROM run ORDER BY id OFFSET $1
"""


async def filled(
    connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]", count: int
) -> None:
    await connection.execute("SET statement_timeout = 0")
    await connection.execute(FILL, count, NOW, timeout=1_800)
    await connection.execute(WAITS, LOST, timeout=1_800)
    await connection.execute("VACUUM ANALYZE run, open_step, timer")


async def blocks_of_a_page(connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]") -> int:
    """Blocks that a page in the middle reads, wherever they are."""
    statement = load_statement("run_census")
    (middle,) = await connection.fetch(
        "SELECT created_at, id FROM run ORDER BY created_at"
        " OFFSET (SELECT count(*) / 2 FROM run) LIMIT 1"
    )
    values: dict[str, Any] = {
        "status": "waiting", "before_created_at": middle[0], "before_id": middle[1], "limit": PAGE,
    }  # fmt: skip
    plan = await connection.fetchval(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}", *statement.arguments(values)
    )
    top = json.loads(plan)[0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


async def test_a_page_reads_no_more_when_there_are_many_more_runs(postgres_url: str) -> None:
    blocks: list[int] = []
    for count in (2_000, 40_000):
        async with a_postgres_store(postgres_url) as store:
            await store.deploy_workflow("order", "f-order", a_document())
            async with store.pool.acquire() as connection:
                await filled(connection, count)
                blocks.append(await blocks_of_a_page(connection))
            assert await count_runs(store, page=PAGE) == ({"waiting": count}, LOST)
            assert (await store.census.page(FIRST, PAGE)).runs == 0, "'compensating' comes first"
    assert blocks[1] < PAGE * BLOCKS_A_RUN
    assert blocks[1] < 2 * blocks[0]
