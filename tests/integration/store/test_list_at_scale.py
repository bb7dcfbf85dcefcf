"""run.list among many runs: a page by any filters reads what a page needs, not what there is.

Rows and buffers are counted, never time. The large size is run by `make test-all` only.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from tests.support.store_builders import LIMITS, a_document, parse
from tests.support.stores import a_postgres_store
from towpath_engine.core.states import RunStatus
from towpath_engine.store.definitions import DefinitionCache
from towpath_engine.store.interface import RunFilter, RunPage
from towpath_engine.store.postgres import PostgresStore
from towpath_engine.store.runs import SCAN_MAX, RunReader
from towpath_engine.store.statements import load_statement, statement_names

LIMIT = 100
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
WORKFLOWS = ("order", "invoice", "seldom")

# 98 % are completed, as in life; only invoices fail, and `seldom` has one run in ten thousand. Each
# run has the tag `all` and a key of its own or, one in three, the key `nightly`.
FILL = """
INSERT INTO run (
  id, status, version, seq, workflow, workflow_version, key, priority, tags, input, context,
  metadata, created_at, started_at, settled_at, signal_count, reached)
SELECT
  (lpad(to_hex(1767225600000 + n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid,
  fresh.status, 1, 1, fresh.workflow, 1,
  CASE n % 3 WHEN 0 THEN 'nightly' ELSE 'k' || n END,
  2, '["all"]', 'null'::bytea, '{}'::bytea, '{}'::bytea, fresh.at,
  CASE WHEN fresh.status <> 'pending' THEN fresh.at END,
  CASE WHEN fresh.status NOT IN ('pending', 'running', 'waiting') THEN fresh.at END,
  0, ''::bytea
FROM (
  SELECT n,
    $2::timestamptz + n * interval '1 second' AS at,
    CASE
      WHEN n % 10000 = 17 THEN 'seldom'
      WHEN n % 10 < 6 THEN 'order'
      ELSE 'invoice' END AS workflow,
    CASE
      WHEN n % 100 = 99 THEN 'failed'
      WHEN n % 200 = 98 THEN 'cancelled'
      WHEN n % 1000 = 97 THEN 'timed_out'
      WHEN n % 1000 = 197 THEN 'pending'
      WHEN n % 1000 = 297 THEN 'running'
      WHEN n % 1000 = 397 THEN 'waiting'
      ELSE 'completed' END AS status
  FROM generate_series(1, $1::bigint) AS n
) AS fresh
"""
TAGS = """
INSERT INTO run_tag (run_id, tag, created_at)
SELECT run.id, named.tag, run.created_at
FROM run CROSS JOIN (VALUES ('all'), ('some'), ('old')) AS named (tag)
WHERE named.tag = 'all'
  OR (named.tag = 'some' AND run.workflow = 'seldom')
  OR (named.tag = 'old' AND run.created_at < $1::timestamptz)
"""

ALL = """
SELECT id FROM run
WHERE ($1::text IS NULL OR workflow = $1) AND ($2::text IS NULL OR status = $2)
  AND ($3::text IS NULL OR key = $3)
  AND ($4::text IS NULL OR EXISTS (
    SELECT 1 FROM run_tag WHERE run_tag.run_id = run.id AND run_tag.tag = $4))
  AND ($5::timestamptz IS NULL OR created_at >= $5)
  AND ($6::timestamptz IS NULL OR created_at < $6)
ORDER BY created_at DESC, id DESC
"""


def arguments(where: RunFilter) -> list[Any]:
    """The parameters of ALL."""
    values = (where.workflow, where.status, where.key, where.tag)
    return [*values, where.created_from, where.created_to]


async def fill(store: PostgresStore, count: int) -> None:
    for workflow in WORKFLOWS:
        await store.deploy_workflow(workflow, f"f-{workflow}", a_document())
    async with store.pool.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute(FILL, count, FIRST, timeout=1_800)
        await connection.execute(TAGS, FIRST + timedelta(seconds=10), timeout=1_800)
        await connection.execute("ANALYZE run, run_tag")


def at(count: int, share: float) -> datetime:
    """The instant at which so much of the runs had been created."""
    return FIRST + timedelta(seconds=count * share)


def filters(count: int) -> Iterator[RunFilter]:
    """Every combination of filters, each with a frequent and a rare value."""
    times: list[tuple[datetime | None, datetime | None]] = [
        (None, None),
        (at(count, 0.9), None),
        (None, at(count, 0.1)),
        (at(count, 0.5), at(count, 0.5001)),
    ]
    for workflow, status, key, tag, (since, until) in itertools.product(
        (None, "order", "seldom"),
        (None, "completed", "failed", "waiting"),
        (None, "nightly", "k100"),
        (None, "all", "some", "old"),
        times,
    ):
        yield RunFilter(
            workflow=workflow,
            status=status,
            key=key,
            tag=tag,
            created_from=since,
            created_to=until,
        )


def literal(value: Any) -> str:
    """As text of SQL: EXECUTE takes no parameters."""
    match value:
        case None:
            return "NULL"
        case datetime():
            return f"'{value.isoformat()}'"
        case int():
            return str(value)
        case list():
            found = cast("list[object]", value)
            return f"'{{{','.join(str(item) for item in found)}}}'"
        case _:
            return f"'{value}'"


class Reader:
    """Reads pages on one connection, and runs what was asked once more to see what it read."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._runs = RunReader(DefinitionCache(parse), LIMITS)
        self._names = {load_statement(name).sql: name for name in statement_names()}
        self._prepared: set[str] = set()

    async def page(self, where: RunFilter, cursor: str | None, limit: int = LIMIT) -> RunPage:
        return await self._runs.page(self.connection, where, cursor=cursor, limit=limit)

    def is_list(self, query: str) -> bool:
        return self._names.get(query, "").startswith("run_list")

    async def explain(self, query: str, values: Sequence[Any]) -> dict[str, Any]:
        """The generic plan of the statement, as it went."""
        name = self._names[query]
        if name not in self._prepared:
            await self.connection.execute(f"PREPARE {name} AS {query}")
            self._prepared.add(name)
        given = ", ".join(literal(value) for value in values)
        text = await self.connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE {name}({given})"
        )
        return json.loads(text)[0]["Plan"]


def parts(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from parts(inner)


def rows_read(part: dict[str, Any]) -> float:
    dropped = part.get("Rows Removed by Filter", 0) + part.get("Rows Removed by Index Recheck", 0)
    return (part["Actual Rows"] + dropped) * part["Actual Loops"]


def rows_needed(where: RunFilter) -> int:
    """How many rows of a table a page may read."""
    rest = [where.workflow, where.status, None if where.key is None else where.tag]
    if where.key is None and where.tag is None:
        return (LIMIT + 1) * len(RunStatus)  # a page of each status
    return LIMIT + 1 if rest == [None, None, None] else SCAN_MAX


def faults(plan: dict[str, Any], where: RunFilter) -> list[str]:
    """What the plan does that it must not."""
    rows_max = rows_needed(where)
    buffers_max = 6 * rows_max
    found: list[str] = []
    for part in parts(plan):
        if "Relation Name" not in part:
            continue
        place = f"the scan of {part['Relation Name']} by {part.get('Index Name')}"
        if "Index Cond" not in part:
            found.append(f"{place} without a condition of an index")
        if rows_read(part) > rows_max:
            found.append(f"{place} reads {rows_read(part)} rows")
    buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    if buffers > buffers_max:
        found.append(f"{buffers} buffers")
    return found


async def faults_of(reader: Reader, where: RunFilter, cursors: Sequence[str | None]) -> list[str]:
    """Of the pages behind these cursors."""
    found: list[str] = []
    for cursor in cursors:
        seen: list[tuple[str, Sequence[Any]]] = []

        def note(record: Any, into: list[tuple[str, Sequence[Any]]] = seen) -> None:
            into.append((record.query, record.args))

        with reader.connection.query_logger(note):
            page = await reader.page(where, cursor)
            await reader.connection.fetchval("SELECT 1")  # asyncpg tells of a query in a later turn
        assert len(page.runs) <= LIMIT
        plans = [await reader.explain(*one) for one in seen if reader.is_list(one[0])]
        assert len(plans) == 1, "a page is one statement"
        found.extend(faults(plans[0], where))
    return found


async def faults_of_all(url: str, count: int) -> dict[RunFilter, list[str]]:
    middle = int(at(count, 0.5).timestamp()) * 1_000_000
    cursors = (None, f"{middle}.ffffffff-ffff-ffff-ffff-ffffffffffff")
    async with a_postgres_store(url) as store:
        await fill(store, count)
        async with store.pool.acquire() as connection:
            reader = Reader(connection)
            found = {where: await faults_of(reader, where, cursors) for where in filters(count)}
    assert len(found) == 576
    return {where: what for where, what in found.items() if what}


async def test_a_page_by_any_filters_reads_no_more_than_it_needs(postgres_url: str) -> None:
    assert await faults_of_all(postgres_url, 20_000) == {}


@pytest.mark.slow
async def test_among_a_million_runs_a_page_reads_no_more_than_it_needs(postgres_url: str) -> None:
    assert await faults_of_all(postgres_url, 1_000_000) == {}


async def test_the_pages_of_every_filter_together_hold_exactly_the_runs_that_fit(
    postgres_url: str,
) -> None:
    count = 25_000  # more than two pages look at
    async with a_postgres_store(postgres_url) as store:
        await fill(store, count)
        async with store.pool.acquire() as connection:
            reader = Reader(connection)
            for where in filters(count):
                if where.key is None and where.tag is None and where.status == "completed":
                    continue  # pages and pages of the same
                wanted = [row[0] for row in await connection.fetch(ALL, *arguments(where))]
                found: list[str] = []
                cursor, more = None, True
                while more:
                    page = await reader.page(where, cursor, limit=1_000)
                    found.extend(run.id for run in page.runs)
                    cursor, more = page.next_cursor, page.next_cursor is not None
                assert found == wanted, where


async def test_a_page_of_rare_hits_may_be_empty_and_says_where_to_go_on(postgres_url: str) -> None:
    async with a_postgres_store(postgres_url) as store:
        await fill(store, 2 * SCAN_MAX + 100)
        async with store.pool.acquire() as connection:
            reader = Reader(connection)
            where = RunFilter(tag="all", workflow="seldom", created_to=at(9_990, 1))
            pages = [await reader.page(where, None)]
            assert [len(pages[0].runs), pages[0].next_cursor] == [1, None]
            where = RunFilter(tag="all", workflow="nobody")
            first = await reader.page(where, None)
            second = await reader.page(where, first.next_cursor)
            third = await reader.page(where, second.next_cursor)
    assert [list(page.runs) for page in (first, second, third)] == [[], [], []]
    assert None not in {first.next_cursor, second.next_cursor}
    assert third.next_cursor is None
