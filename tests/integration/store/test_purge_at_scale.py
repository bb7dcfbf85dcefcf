"""Purges of many runs: batches that cost the same however many there are, found by index."""

import re
from typing import Any

import pytest

from tests.support.store_builders import a_document, an_id, later
from tests.support.stores import a_postgres_store
from towpath_engine.core.states import RunStatus
from towpath_engine.store.past import PurgeSize
from towpath_engine.store.postgres import PostgresStore
from towpath_engine.store.statements import load_statement

FEW, MANY = 5_000, 100_000
DAY_MS = 86_400_000

# Five thousand are live; each settled one has two steps, six transitions, a tag and a request.
FILL = """
INSERT INTO run (
  id, status, version, seq, workflow, workflow_version, request_id, priority, tags, input, context,
  metadata, created_at, started_at, settled_at, signal_count, reached)
SELECT id, CASE WHEN live THEN 'waiting' ELSE 'completed' END, 3, 6, workflow, 1, 'r' || n, 2,
  '["t"]', 'null', '{}', '{}', at, at, CASE WHEN NOT live THEN at + interval '1 minute' END, 0, ''
FROM filler
"""
ROWS = (
    "INSERT INTO run_request (workflow, request_id, run_id)"
    " SELECT workflow, 'r' || n, id FROM filler",
    "INSERT INTO run_tag (run_id, tag, created_at) SELECT id, 't', at FROM filler",
    """INSERT INTO step (
      run_id, path, kind, status, visit, attempt, iteration, release_count, dispatch_no, settled_at)
      SELECT id, 's' || k, 'pass', 'completed', 1, 0, 0, 0, 0, at
      FROM filler, generate_series(1, 2) AS k""",
    """INSERT INTO transition (run_id, seq, at, what, cause)
      SELECT id, k, at, 'run-started', '{"type":"start"}'
      FROM filler, generate_series(1, 6) AS k""",
    "INSERT INTO log (run_id, path, attempt, token, at, lines) SELECT id, 's1', 1, 't', at, '[]'"
    " FROM filler WHERE n % 10 = 0",
    """INSERT INTO signal (run_id, number, name, payload, message_id, received_at)
      SELECT id, 1, 'go', 'null', 'm', at FROM filler WHERE n % 10 = 0""",
)
TABLES = ("run", "run_request", "run_tag", "step", "transition", "log", "signal")


async def fill(store: PostgresStore, count: int) -> None:
    """So many settled runs of two workflows, a minute apart, and a twentieth of them live."""
    for name in ("order", "other"):
        await store.deploy_workflow(name, f"f-{name}", a_document(name))
    async with store.pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "CREATE TEMP TABLE filler ON COMMIT DROP AS SELECT n,"
            " ('0195f000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id,"
            " CASE WHEN n % 4 = 0 THEN 'other' ELSE 'order' END AS workflow, n % 20 = 0 AS live,"
            " $1::timestamptz + n * interval '1 minute' AS at FROM generate_series(1, $2) AS n",
            later(0), count,
        )  # fmt: skip
        for statement in (FILL, *ROWS):
            await connection.execute(statement)
    async with store.pool.acquire() as connection:
        await connection.execute("ANALYZE run")


async def plan(store: PostgresStore, name: str, **values: Any) -> str:
    """How the statement runs, with what it read."""
    statement = load_statement(name)
    async with store.pool.acquire() as connection, connection.transaction():
        rows = await connection.fetch(
            f"EXPLAIN (ANALYZE, BUFFERS) {statement.sql}", *statement.arguments(values)
        )
    return "\n".join(row[0] for row in rows)


def pages(text: str) -> int:
    """Pages of tables and indexes that the whole statement touched."""
    found = re.search(r"Buffers: shared (?:hit=(\d+))? ?(?:read=(\d+))?", text)
    assert found is not None, text
    return sum(int(part or 0) for part in found.groups())


async def counts(store: PostgresStore) -> dict[str, int]:
    async with store.pool.acquire() as connection:
        return {
            table: await connection.fetchval(f"SELECT count(*) FROM {table}") for table in TABLES
        }


async def check_batches(url: str, count: int, size: PurgeSize) -> None:
    async with a_postgres_store(url) as store:
        await fill(store, count)
        now = later(86_400 * 400)
        overdue = await plan(store, "run_overdue", default_ms=DAY_MS, now=now, limit=10)
        locked = await plan(
            store, "run_settled_lock", workflow="order", before=now, limit=size.runs_max + 1
        )
        for text in (overdue, locked):
            assert "run_by_settled" in text, text
            assert not re.search(r"Seq Scan on run\b", text), text
        assert pages(overdue) < 50
        assert pages(locked) < 40 * size.runs_max
        whole = await counts(store)
        purged = 0
        while batch := (await store.past.purge_overdue(DAY_MS, size, now=now)).purged:
            assert batch <= size.runs_max
            purged += batch
            if purged >= 4 * size.runs_max:
                break
        # The oldest went, and with each all of its rows.
        assert purged == 4 * size.runs_max
        left = await counts(store)
        assert whole["run"] - left["run"] == purged
        assert whole["transition"] - left["transition"] == 6 * purged
        assert whole["step"] - left["step"] == 2 * purged
        assert whole["run_tag"] - left["run_tag"] == whole["run"] - left["run"]
        assert whole["run_request"] - left["run_request"] == purged
        statuses = await store.run_statuses([an_id(n) for n in range(1, purged)])
        assert set(statuses.values()) == {RunStatus.WAITING.value}
        everything = PurgeSize(runs_max=5_000, transitions_max=30_000)
        while (await store.past.purge_overdue(DAY_MS, everything, now=now)).purged:
            pass
        live = count // 20
        assert await counts(store) == {
            "run": live, "run_request": live, "run_tag": live, "step": 2 * live,
            "transition": 6 * live, "log": live, "signal": live,
        }  # fmt: skip


async def test_a_purge_goes_by_index_in_bounded_batches(postgres_url: str) -> None:
    await check_batches(postgres_url, FEW, PurgeSize(runs_max=100, transitions_max=10_000))


@pytest.mark.slow
async def test_a_purge_of_a_hundred_thousand_runs_goes_by_index_in_bounded_batches(
    postgres_url: str,
) -> None:
    await check_batches(postgres_url, MANY, PurgeSize())


async def test_a_run_that_somebody_has_in_hand_is_left_for_later(postgres_url: str) -> None:
    async with a_postgres_store(postgres_url) as store:
        await fill(store, 2)
        size = PurgeSize()
        before = later(86_400)
        async with store.transaction() as tx:
            await tx.lock_runs([an_id(1)])
            assert (await store.past.purge_before("order", before, size)).purged == 1
            assert list(await store.run_statuses([an_id(1), an_id(2)])) == [an_id(1)]
        assert (await store.past.purge_before("order", before, size)).purged == 1


async def test_a_run_enters_the_index_of_the_settled_when_it_settles_and_costs_nothing_before(
    postgres_url: str,
) -> None:
    async with a_postgres_store(postgres_url) as store, store.pool.acquire() as connection:
        defined = await connection.fetchval(
            "SELECT indexdef FROM pg_indexes WHERE indexname = 'run_by_settled'"
            " AND schemaname = current_schema()"
        )
    assert defined.endswith("(workflow, settled_at, id) WHERE (settled_at IS NOT NULL)")
