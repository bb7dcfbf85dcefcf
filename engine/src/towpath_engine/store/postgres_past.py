"""Histories and retention on Postgres."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final

from towpath_engine.core.model import KeptSignal, Transition
from towpath_engine.core.payloads import RowsOutput
from towpath_engine.store.cursors import is_id
from towpath_engine.store.past import Purge, PurgedBatch, PurgeSize, in_one_batch
from towpath_engine.store.rows import kept_from_row, transition_from_row
from towpath_engine.store.session import (
    Connection,
    execute,
    fetch,
    fetch_value,
    translating,
)

_WORKFLOWS_MAX: Final = 10
"""How many are tried, the longest overdue first, until one has runs that nobody has in hand."""


class PostgresPast:
    """See `store.past.PastTable`."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._connect = connect

    async def history(
        self, run_id: str, after_seq: int, limit: int, *, bytes_max: int
    ) -> list[Transition]:
        """See PastTable."""
        if not is_id(run_id):
            return []
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "transition_list_whole",
                run_id=run_id,
                after_seq=after_seq,
                limit=limit,
                bytes_max=bytes_max,
            )
        return [transition_from_row(row) for row in rows]

    async def outputs(
        self, run_id: str, paths: Sequence[str], *, bytes_max: int
    ) -> dict[str, RowsOutput]:
        """See PastTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection, "step_outputs", run_id=run_id, paths=list(paths), bytes_max=bytes_max
            )
        return {
            row["path"]: RowsOutput(visit=row["visit"], size=row["size"], value=row["value"])
            for row in rows
        }

    async def signals(
        self, run_id: str, numbers: Sequence[int], *, bytes_max: int
    ) -> dict[int, KeptSignal]:
        """See PastTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "signal_numbers",
                run_id=run_id,
                numbers=list(numbers),
                bytes_max=bytes_max,
            )
        return {row["number"]: kept_from_row(row) for row in rows}

    async def set_retention(self, workflow: str, retention_ms: int | None) -> bool:
        """See PastTable."""
        async with self._connect() as connection:
            count = await execute(
                connection, "workflow_retention_set", name=workflow, retention_ms=retention_ms
            )
        return count > 0

    async def purge_overdue(
        self, default_ms: int, size: PurgeSize, *, now: datetime | None = None
    ) -> PurgedBatch:
        """See PastTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection, "run_overdue", default_ms=default_ms, now=now, limit=_WORKFLOWS_MAX
            )
            batch = PurgedBatch()
            for due in rows:
                batch = await _purge(connection, due["name"], due["before"], size)
                if batch.purged:
                    break
            return batch

    async def purge_before(
        self, workflow: str, settled_before: datetime, size: PurgeSize
    ) -> PurgedBatch:
        """See PastTable."""
        async with self._connect() as connection:
            return await _purge(connection, workflow, settled_before, size)

    async def purge_run(self, run_id: str) -> Purge:
        """See PastTable."""
        if not is_id(run_id):
            return Purge.UNKNOWN
        async with self._connect() as connection:
            with translating():
                async with connection.transaction():
                    await fetch(connection, "run_lock", ids=[run_id])
                    found = _verdict(await fetch_value(connection, "run_is_past", run_id=run_id))
                    if found is Purge.PURGED:
                        await execute(connection, "run_purge", ids=[run_id])
        return found

    async def count_before(self, workflow: str, settled_before: datetime, limit: int) -> int:
        """See PastTable."""
        async with self._connect() as connection:
            return await fetch_value(
                connection,
                "run_settled_count",
                workflow=workflow,
                before=settled_before,
                limit=limit,
            )

    async def may_purge(self, run_id: str) -> Purge:
        """See PastTable."""
        if not is_id(run_id):
            return Purge.UNKNOWN
        async with self._connect() as connection:
            return _verdict(await fetch_value(connection, "run_is_past", run_id=run_id))


_VERDICTS: Final = {None: Purge.UNKNOWN, False: Purge.LIVE, True: Purge.PURGED}


def _verdict(is_past: bool | None) -> Purge:  # noqa: FBT001 - a column of a row
    return _VERDICTS[is_past]


async def _purge(
    connection: Connection, workflow: str, before: datetime, size: PurgeSize
) -> PurgedBatch:
    with translating():
        async with connection.transaction():
            rows = await fetch(
                connection,
                "run_settled_lock",
                workflow=workflow,
                before=before,
                # One more than is deleted tells whether there are more.
                limit=size.runs_max + 1,
            )
            found = [(row["id"], row["seq"]) for row in rows]
            taken = in_one_batch(found, size)
            purged = await execute(connection, "run_purge", ids=taken) if taken else 0
    return PurgedBatch(purged=purged, more=len(found) > len(taken), workflow=workflow)
