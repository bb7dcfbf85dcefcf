"""Pauses and held steps on Postgres."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from towpath_engine.core.gate import Scope, holder
from towpath_engine.store.admission import (
    Backlog,
    HeldStep,
    Pause,
    PauseMade,
    Pauses,
    QueueFacts,
)
from towpath_engine.store.derive import RUN_PATH
from towpath_engine.store.session import Connection, fetch, fetch_value, translating


class PostgresAdmission:
    """See `store.admission.AdmissionTable`."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._connect = connect

    async def pauses(self) -> Pauses:
        """See AdmissionTable."""
        async with self._connect() as connection:
            rows = await fetch(connection, "pause_list")
        pauses = [
            Pause(
                scope=Scope(row["scope"]),
                name=row["name"],
                at=row["at"],
                by=row["by"],
                reason=row["reason"],
            )
            for row in rows
            if row["scope"] is not None
        ]
        return Pauses(epoch=rows[0]["epoch"], pauses=pauses)

    async def pause(
        self,
        scope: Scope,
        name: str,
        *,
        pauses_max: int,
        by: str | None = None,
        reason: str | None = None,
    ) -> PauseMade:
        """See AdmissionTable."""
        async with self._connect() as connection:
            with translating():
                async with connection.transaction():
                    await fetch_value(connection, "pause_lock")
                    made = await fetch_value(
                        connection,
                        "pause_add",
                        scope=scope.value,
                        name=name,
                        by=by,
                        reason=reason,
                        pauses_max=pauses_max,
                    )
        return PauseMade(made)

    async def resume(self, scope: Scope, name: str) -> bool:
        """See AdmissionTable."""
        async with self._connect() as connection:
            with translating():
                async with connection.transaction():
                    await fetch_value(connection, "pause_lock")
                    return await fetch_value(
                        connection, "pause_delete", scope=scope.value, name=name
                    )

    async def backlogs(self, limit: int) -> list[Backlog]:
        """See AdmissionTable."""
        async with self._connect() as connection:
            rows = await fetch(connection, "ready_step_holders", limit=limit)
        return [Backlog(held_by=row[0], level=row[1]) for row in rows]

    async def held(self, held_by: str, *, by_level: int, by_time: int) -> list[HeldStep]:
        """See AdmissionTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection, "ready_step_page", held_by=held_by, by_level=by_level, by_time=by_time
            )
        return [
            HeldStep(
                run_id=row["run_id"],
                path=None if row["path"] == RUN_PATH else row["path"],
                level=row["level"],
                ready_at=row["ready_at"],
            )
            for row in rows
        ]

    async def queues(self, names: Sequence[str], limit: int) -> Mapping[str, QueueFacts]:
        """See AdmissionTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "queue_facts",
                names=list(names),
                windows=[holder(Scope.WINDOW, name) for name in names],
                pauses=[holder(Scope.QUEUE, name) for name in names],
                limit=limit,
            )
        return {
            row["name"]: QueueFacts(
                undone=row["undone"],
                window_level=row["window_level"],
                pause_level=row["pause_level"],
                known_since=row["created_at"],
            )
            for row in rows
        }

    async def unpublished(self, tokens: Sequence[str]) -> set[str]:
        """See AdmissionTable."""
        async with self._connect() as connection:
            rows = await fetch(connection, "outbox_tokens", tokens=list(tokens))
        return {row[0] for row in rows}
