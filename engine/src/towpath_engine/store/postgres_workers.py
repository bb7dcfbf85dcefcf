"""The workers on Postgres: a row each, written at most once a second for all heartbeats."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from towpath_engine.store.session import Connection, Record, fetch, fetch_value
from towpath_engine.store.workers import (
    LastSight,
    QueueWorkers,
    SeenWorker,
    TaskPlace,
    TaskWorkers,
    WorkerPlace,
    WorkerSighting,
)


class PostgresWorkers:
    """See `store.workers.WorkerTable`."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._connect = connect

    async def save(self, sightings: Sequence[WorkerSighting]) -> None:
        """See WorkerTable."""
        ordered = sorted(sightings, key=lambda one: (one.queue, one.worker_id))
        async with self._connect() as connection:
            await fetch(
                connection,
                "worker_save",
                queue=[one.queue for one in ordered],
                worker_id=[one.worker_id for one in ordered],
                tasks=["\n".join(one.tasks) for one in ordered],
                slots=[one.slots for one in ordered],
                running=[one.running for one in ordered],
                sdk=[one.sdk for one in ordered],
                draining=[one.draining for one in ordered],
                seen_at=[one.seen_at for one in ordered],
            )

    async def page(
        self, queue: str | None, after: WorkerPlace | None, limit: int
    ) -> list[SeenWorker]:
        """See WorkerTable."""
        after_queue, after_id = after or ("", "")
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "worker_list",
                first_queue=queue or "",
                queue=queue,
                after_queue=after_queue,
                after_id=after_id,
                limit=limit,
            )
        return [_seen(row) for row in rows]

    async def of_queues(
        self, queues: Sequence[str], live_since: datetime
    ) -> Mapping[str, QueueWorkers]:
        """See WorkerTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection, "worker_count", queues=list(queues), live_since=live_since
            )
        return {
            row["queue"]: QueueWorkers(live=row["live"], last_seen_at=row["last_seen_at"])
            for row in rows
        }

    async def of_tasks(
        self, places: Sequence[TaskPlace], live_since: datetime
    ) -> Mapping[TaskPlace, TaskWorkers]:
        """See WorkerTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "worker_of_tasks",
                queues=[queue for queue, _ in places],
                tasks=[task for _, task in places],
                live_since=live_since,
            )
        return {
            (row["queue"], row["task"]): TaskWorkers(
                live=row["live"], able=row["able"], last_seen_at=row["last_seen_at"]
            )
            for row in rows
        }

    async def last_seen(self, places: Sequence[WorkerPlace]) -> Mapping[WorkerPlace, LastSight]:
        """See WorkerTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "worker_last_seen",
                queues=[queue for queue, _ in places],
                worker_ids=[worker_id for _, worker_id in places],
            )
        return {
            (row["queue"], row["worker_id"]): LastSight(at=row["seen_at"], draining=row["draining"])
            for row in rows
        }

    async def prune(self, before: datetime, workers_max: int) -> int:
        """See WorkerTable."""
        async with self._connect() as connection:
            return await fetch_value(
                connection, "worker_prune", before=before, workers_max=workers_max
            )


def _seen(row: Record) -> SeenWorker:
    newest = WorkerSighting(
        queue=row["queue"],
        worker_id=row["worker_id"],
        tasks=tuple(row["tasks"].split("\n")) if row["tasks"] else (),
        slots=row["slots"],
        running=row["running"],
        sdk=row["sdk"],
        draining=row["draining"],
        seen_at=row["seen_at"],
    )
    return SeenWorker(newest=newest, first_seen_at=row["first_seen_at"])
