"""Reads for `explain` on Postgres."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from towpath_engine.core.model import KeptSignal, Step
from towpath_engine.store.insight import HeldBacklog, HeldPlace, KeptName, QueuePlace, time_of_id
from towpath_engine.store.rows import kept_from_row, step_from_row
from towpath_engine.store.session import Connection, fetch, fetch_value


class PostgresInsight:
    """See `store.insight.InsightTable`."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._connect = connect

    async def open_steps(self, run_id: str, limit: int) -> list[Step]:
        """See InsightTable."""
        async with self._connect() as connection:
            rows = await fetch(connection, "open_step_list", run_id=run_id, limit=limit)
        return [step_from_row(row) for row in rows]

    async def count_open_steps(self, run_id: str) -> int:
        """See InsightTable."""
        async with self._connect() as connection:
            return await fetch_value(connection, "open_step_count", run_id=run_id)

    async def ahead_of(self, places: Sequence[QueuePlace], limit: int) -> list[int]:
        """See InsightTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "open_step_ahead",
                queue=[place.queue for place in places],
                level=[place.level for place in places],
                dispatched_at=[place.dispatched_at for place in places],
                run_id=[place.run_id for place in places],
                path=[place.path for place in places],
                limit=limit,
            )
        return [row["ahead"] for row in rows]

    async def held_ahead_of(self, places: Sequence[HeldPlace], limit: int) -> list[int]:
        """See InsightTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "ready_step_ahead",
                held_by=[place.held_by for place in places],
                level=[place.level for place in places],
                ready_at=[place.ready_at for place in places],
                run_id=[place.run_id for place in places],
                path=[place.path for place in places],
                limit=limit,
            )
        return [row["ahead"] for row in rows]

    async def backlogs_of(self, held_by: Sequence[str], limit: int) -> Mapping[str, HeldBacklog]:
        """See InsightTable."""
        async with self._connect() as connection:
            rows = await fetch(connection, "ready_step_count", held_by=list(held_by), limit=limit)
        return {
            row["held_by"]: HeldBacklog(count=row["held"], oldest_at=row["oldest_at"])
            for row in rows
        }

    async def letters_of(self, run_id: str, limit: int) -> Mapping[str | None, str]:
        """See InsightTable."""
        async with self._connect() as connection:
            rows = await fetch(connection, "dead_letter_of_run", run_id=run_id, limit=limit)
        return {row["step"]: row["id"] for row in rows}

    async def written_at(self, tokens: Sequence[str]) -> Mapping[str, datetime]:
        """See InsightTable."""
        async with self._connect() as connection:
            rows = await fetch(connection, "outbox_written", tokens=list(tokens))
        return {row["token"]: time_of_id(row["first_id"]) for row in rows}

    async def kept_signals(self, run_id: str) -> tuple[KeptSignal, ...]:
        """See InsightTable."""
        async with self._connect() as connection:
            rows = await fetch(connection, "signal_load_kept", run_ids=[run_id])
        return tuple(kept_from_row(row) for row in rows)

    async def kept_names(self, run_id: str, limit: int) -> list[KeptName]:
        """See InsightTable."""
        async with self._connect() as connection:
            rows = await fetch(connection, "signal_count_kept", run_id=run_id, limit=limit)
        return [
            KeptName(name=row["name"], count=row["kept"], newest_at=row["newest_at"])
            for row in rows
        ]
