"""The store on Postgres: what `store.interface.Store` asks, on a pool of connections."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Final

from asyncpg import InterfaceError

from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.store.cursors import FIRST_ID, FIRST_INSTANT, is_id
from towpath_engine.store.definitions import DefinitionCache, Parse
from towpath_engine.store.derive import RUN_PATH
from towpath_engine.store.errors import StoreRejected, StoreUnavailable
from towpath_engine.store.interface import (
    OutboxRow,
    ParkedSignal,
    RunFilter,
    RunPage,
    WorkflowVersion,
)
from towpath_engine.store.leases import PARTITIONS
from towpath_engine.store.migrate import check_schema
from towpath_engine.store.pool import Pool, open_pool
from towpath_engine.store.postgres_admission import PostgresAdmission
from towpath_engine.store.postgres_census import PostgresCensus
from towpath_engine.store.postgres_insight import PostgresInsight
from towpath_engine.store.postgres_leases import PostgresLeases
from towpath_engine.store.postgres_letters import PostgresLetters
from towpath_engine.store.postgres_past import PostgresPast
from towpath_engine.store.postgres_unfinished import PostgresUnfinished
from towpath_engine.store.postgres_workers import PostgresWorkers
from towpath_engine.store.records import DueTimer, LogLine, OpenDispatch, StreamEpoch
from towpath_engine.store.rows import (
    dispatch_from_row,
    log_from_row,
    outbox_from_row,
    parked_from_row,
    step_from_row,
    transition_from_row,
    workflow_from_row,
)
from towpath_engine.store.runs import RunReader
from towpath_engine.store.session import (
    Connection,
    execute,
    fetch,
    fetch_row,
    fetch_value,
    translating,
)
from towpath_engine.store.transaction import PostgresTransaction, StoreCaps

_ACQUIRE_SECONDS: Final = 30
_CLOSE_SECONDS: Final = 10
REPUBLISH_SECONDS: Final = 5.0
"""How far `due_outbox` moves a row on."""


async def open_postgres_store(
    dsn: str,
    schema: str,
    *,
    limits: CoreLimits,
    parse: Parse,
    pool_size: int = 10,
    statement_timeout_ms: int = 30_000,
    caps: StoreCaps | None = None,
) -> "PostgresStore":
    """Connect and check the schema. `parse` makes a Definition of a stored document.

    Raises SchemaMismatch (one sentence that names the fix) or StoreUnavailable.
    """
    pool = await open_pool(
        dsn, schema=schema, size=pool_size, statement_timeout_ms=statement_timeout_ms
    )
    try:
        await check_schema(pool, schema)
    except BaseException:
        await pool.close()
        raise
    return PostgresStore(pool, limits=limits, parse=parse, caps=caps or StoreCaps())


class PostgresStore:
    """See `store.interface.Store` for the contract. Owns `pool`."""

    def __init__(self, pool: Pool, *, limits: CoreLimits, parse: Parse, caps: StoreCaps) -> None:
        self.pool = pool
        """The connections; for tests and for maintenance by hand."""
        self._limits = limits
        self._caps = caps
        self._runs = RunReader(DefinitionCache(parse), limits)
        self.leases = PostgresLeases(self._connection)
        self.census = PostgresCensus(self._connection)
        self.letters = PostgresLetters(self._connection)
        self.past = PostgresPast(self._connection)
        """See Store."""
        self.admission = PostgresAdmission(self._connection)
        self.insight = PostgresInsight(self._connection)
        self.workers = PostgresWorkers(self._connection)
        self.unfinished = PostgresUnfinished(self._connection)
        """See Store."""

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Connection]:
        """A connection of the pool; its faults leave as the store's errors.

        Errors of the caller's own code pass unchanged, also those that look like the socket's.
        """
        with translating():
            connection = await self.pool.acquire(timeout=_ACQUIRE_SECONDS)
        try:
            yield connection
        finally:
            with translating():
                await self.pool.release(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[PostgresTransaction]:
        """See Store. A connection lost before the commit leaves nothing written."""
        async with self._connection() as connection:
            tx = PostgresTransaction(connection, self._limits, self._caps, begun=False)
            try:
                yield tx
            except BaseException:
                if tx.begun:
                    await _roll_back(connection)
                raise
            if tx.begun:
                await _commit(connection)

    async def now(self) -> datetime:
        """See Store."""
        async with self._connection() as connection:
            return await fetch_value(connection, "clock")

    async def close(self) -> None:
        """See Store. Waits for connections in use; after ten seconds it cuts them."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.pool.close()
        except TimeoutError:
            self.pool.terminate()

    # Workflows and queues

    async def deploy_workflow(
        self, workflow: str, fingerprint: str, document: bytes
    ) -> tuple[WorkflowVersion, bool]:
        """See Store."""
        async with self._connection() as connection:
            with translating():
                async with connection.transaction():
                    await execute(connection, "workflow_add", name=workflow)
                    await fetch_value(connection, "workflow_lock", name=workflow)
                    names: dict[str, Any] = {"workflow": workflow, "fingerprint": fingerprint}
                    found = await fetch_row(connection, "workflow_version_find", **names)
                    if found is not None:
                        return workflow_from_row(found), False
                    added = await fetch_row(
                        connection, "workflow_version_add", **names, document=document
                    )
            assert added is not None, "the workflow's row was just locked"
            return workflow_from_row(added), True

    async def get_workflow(self, workflow: str, version: int | None) -> WorkflowVersion | None:
        """See Store."""
        async with self._connection() as connection:
            row = await fetch_row(
                connection, "workflow_version_get", workflow=workflow, version=version
            )
        return None if row is None else workflow_from_row(row)

    async def find_workflow(self, workflow: str, fingerprint: str) -> WorkflowVersion | None:
        """See Store."""
        async with self._connection() as connection:
            row = await fetch_row(
                connection, "workflow_version_find", workflow=workflow, fingerprint=fingerprint
            )
        return None if row is None else workflow_from_row(row)

    async def list_workflows(self) -> list[WorkflowVersion]:
        """See Store."""
        async with self._connection() as connection:
            return [workflow_from_row(row) for row in await fetch(connection, "workflow_list")]

    async def list_queues(self) -> list[str]:
        """See Store."""
        async with self._connection() as connection:
            return [row[0] for row in await fetch(connection, "queue_list")]

    async def add_queues(self, queues: Sequence[str], count_max: int) -> list[str] | None:
        """See Store."""
        names = sorted(set(queues))
        async with self._connection() as connection:
            with translating():
                async with connection.transaction():
                    await fetch_value(connection, "queue_lock")
                    rows = await fetch(connection, "queue_add", names=names, count_max=count_max)
        return None if rows[0]["is_full"] else rows[0]["added"]

    async def remove_queues(self, queues: Sequence[str]) -> None:
        """See Store."""
        async with self._connection() as connection:
            await execute(connection, "queue_remove", names=sorted(set(queues)))

    # Runs

    async def get_run(self, run_id: str) -> Run | None:
        """See Store."""
        if not is_id(run_id):
            return None
        async with self._connection() as connection:
            return await self._runs.get(connection, run_id)

    async def run_statuses(self, run_ids: Sequence[str]) -> dict[str, str]:
        """See Store."""
        ids = [run_id for run_id in run_ids if is_id(run_id)]
        async with self._connection() as connection:
            return {row[0]: row[1] for row in await fetch(connection, "run_statuses", ids=ids)}

    async def get_key(self, workflow: str, key: str) -> str | None:
        """See Store."""
        async with self._connection() as connection:
            return await fetch_value(connection, "run_key_newest", workflow=workflow, key=key)

    async def get_steps(self, run_id: str, after_path: str | None, limit: int) -> list[Step]:
        """See Store."""
        if not is_id(run_id):
            return []
        async with self._connection() as connection:
            rows = await fetch(
                connection, "step_list", run_id=run_id, after_path=after_path or "", limit=limit
            )
        return [step_from_row(row) for row in rows]

    async def get_step(self, run_id: str, path: str) -> Step | None:
        """See Store."""
        if not is_id(run_id):
            return None
        async with self._connection() as connection:
            row = await fetch_row(connection, "step_get", run_id=run_id, path=path)
        return None if row is None else step_from_row(row)

    async def list_runs(self, where: RunFilter, cursor: str | None, limit: int) -> RunPage:
        """See Store."""
        async with self._connection() as connection:
            return await self._runs.page(connection, where, cursor=cursor, limit=limit)

    async def get_history(self, run_id: str, after_seq: int, limit: int) -> list[Transition]:
        """See Store."""
        if not is_id(run_id):
            return []
        async with self._connection() as connection:
            rows = await fetch(
                connection, "transition_list", run_id=run_id, after_seq=after_seq, limit=limit
            )
        return [transition_from_row(row) for row in rows]

    async def get_logs(
        self, run_id: str, path: str | None, after: int, limit: int
    ) -> list[tuple[int, LogLine]]:
        """See Store."""
        if not is_id(run_id):
            return []
        async with self._connection() as connection:
            rows = await fetch(
                connection, "log_list", run_id=run_id, path=path, after=after, limit=limit
            )
        return [log_from_row(row) for row in rows]

    # Sweeps

    async def due_timers(
        self,
        before: datetime,
        limit: int,
        *,
        after: DueTimer | None = None,
        partitions: Collection[int] = PARTITIONS,
    ) -> list[DueTimer]:
        """See Store."""
        last = after or DueTimer(run_id=FIRST_ID, path=None, due_at=FIRST_INSTANT, preemptible=True)
        async with self._connection() as connection:
            rows = await fetch(
                connection,
                "timer_due",
                partitions=sorted(partitions),
                before=before,
                after_due_at=last.due_at,
                after_run_id=last.run_id,
                after_path=last.path or RUN_PATH,
                limit=limit,
            )
        return [
            DueTimer(
                run_id=row["run_id"],
                path=None if row["path"] == RUN_PATH else row["path"],
                due_at=row["due_at"],
                preemptible=row["preemptible"],
            )
            for row in rows
        ]

    async def due_outbox(self, before: datetime, limit: int) -> list[OutboxRow]:
        """See Store."""
        async with self._connection() as connection:
            rows = await fetch(
                connection, "outbox_due", before=before, limit=limit, seconds=REPUBLISH_SECONDS
            )
        return sorted((outbox_from_row(row) for row in rows), key=lambda row: row.id)

    async def delete_outbox(self, ids: Sequence[str]) -> None:
        """See Store."""
        async with self._connection() as connection:
            await execute(connection, "outbox_delete", ids=sorted(ids))

    async def open_dispatches(
        self, older_than: datetime, after: tuple[str, str] | None, limit: int
    ) -> list[OpenDispatch]:
        """See Store."""
        run_id, path = (FIRST_ID, "") if after is None else after
        async with self._connection() as connection:
            rows = await fetch(
                connection,
                "open_step_dispatches",
                after_run_id=run_id,
                after_path=path,
                older_than=older_than,
                limit=limit,
            )
        return [dispatch_from_row(row) for row in rows]

    async def find_token(self, run_id: str, token: str) -> OpenDispatch | None:
        """See Store."""
        if not is_id(run_id):
            return None
        async with self._connection() as connection:
            row = await fetch_row(connection, "open_step_find_token", run_id=run_id, token=token)
        return None if row is None else dispatch_from_row(row)

    async def current_tokens(self, tokens: Sequence[tuple[str, str]]) -> dict[str, bool]:
        """See Store."""
        asked = [(run_id, token) for run_id, token in tokens if is_id(run_id)]
        async with self._connection() as connection:
            rows = await fetch(
                connection,
                "open_step_tokens",
                run_id=[run_id for run_id, _ in asked],
                token=[token for _, token in asked],
            )
        return {row["token"]: row["cancelling"] for row in rows}

    async def due_parked(self, limit: int) -> list[ParkedSignal]:
        """See Store."""
        async with self._connection() as connection:
            rows = await fetch(connection, "parked_signal_due", limit=limit)
        return [parked_from_row(row) for row in rows]

    async def count_parked(self, limit: int) -> int:
        """See Store."""
        async with self._connection() as connection:
            return await fetch_value(connection, "parked_signal_count", limit=limit)

    async def prune_signal_ids(self, limit: int) -> int:
        """See Store."""
        async with self._connection() as connection:
            return await execute(connection, "keyed_signal_prune", limit=limit)

    async def get_epoch(self, stream: str) -> StreamEpoch | None:
        """See Store."""
        async with self._connection() as connection:
            row = await fetch_row(connection, "stream_epoch_get", stream=stream)
        return None if row is None else StreamEpoch(**dict(row.items()))

    async def put_epoch(self, epoch: StreamEpoch) -> None:
        """See Store."""
        async with self._connection() as connection:
            await execute(
                connection,
                "stream_epoch_put",
                stream=epoch.stream,
                created=epoch.created,
                last_seq=epoch.last_seq,
            )


async def _commit(connection: Connection) -> None:
    try:
        with translating():
            tag = await connection.execute("COMMIT")
    except BaseException:
        # Cancelled or lost in the middle: nobody may go on in a session of unknown state.
        _abandon(connection)
        raise
    if tag != "COMMIT":
        message = "the transaction had failed and was rolled back: its error must not be swallowed"
        raise StoreRejected(message)


async def _roll_back(connection: Connection) -> None:
    """Leave the connection clean; one that is lost has rolled back by itself."""
    try:
        with translating():
            await connection.execute("ROLLBACK")
    except BaseException as fault:
        _abandon(connection)
        if not isinstance(fault, StoreUnavailable):
            raise


def _abandon(connection: Connection) -> None:
    """Close it at once. The pool takes a lost connection back by itself; nothing is left then."""
    with suppress(InterfaceError):
        connection.terminate()
