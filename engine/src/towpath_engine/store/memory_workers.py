"""The workers over a dictionary."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from towpath_engine.store.workers import (
    LastSight,
    QueueWorkers,
    SeenWorker,
    TaskPlace,
    TaskWorkers,
    WorkerPlace,
    WorkerSighting,
)


class MemoryWorkers:
    """See `store.workers.WorkerTable`."""

    def __init__(self) -> None:
        self._seen: dict[WorkerPlace, SeenWorker] = {}

    async def save(self, sightings: Sequence[WorkerSighting]) -> None:
        """See WorkerTable."""
        for one in sightings:
            known = self._seen.get((one.queue, one.worker_id))
            if known is not None and known.newest.seen_at > one.seen_at:
                continue
            first = one.seen_at if known is None else known.first_seen_at
            self._seen[one.queue, one.worker_id] = SeenWorker(newest=one, first_seen_at=first)

    async def page(
        self, queue: str | None, after: WorkerPlace | None, limit: int
    ) -> list[SeenWorker]:
        """See WorkerTable."""
        places = sorted(
            place
            for place in self._seen
            if (queue is None or place[0] == queue) and (after is None or place > after)
        )
        return [self._seen[place] for place in places[:limit]]

    async def of_queues(
        self, queues: Sequence[str], live_since: datetime
    ) -> Mapping[str, QueueWorkers]:
        """See WorkerTable."""
        found: dict[str, QueueWorkers] = {}
        for queue in queues:
            seen = [one.newest.seen_at for place, one in self._seen.items() if place[0] == queue]
            live = len(self._taking(queue, live_since))
            found[queue] = QueueWorkers(live=live, last_seen_at=max(seen, default=None))
        return found

    async def of_tasks(
        self, places: Sequence[TaskPlace], live_since: datetime
    ) -> Mapping[TaskPlace, TaskWorkers]:
        """See WorkerTable."""
        found: dict[TaskPlace, TaskWorkers] = {}
        for queue, task in places:
            live = self._taking(queue, live_since)
            found[queue, task] = TaskWorkers(
                live=len(live),
                able=sum(not one.tasks or task in one.tasks for one in live),
                last_seen_at=max((one.seen_at for one in live), default=None),
            )
        return found

    def _taking(self, queue: str, live_since: datetime) -> list[WorkerSighting]:
        newest = [one.newest for place, one in self._seen.items() if place[0] == queue]
        return [one for one in newest if one.seen_at >= live_since and not one.draining]

    async def last_seen(self, places: Sequence[WorkerPlace]) -> Mapping[WorkerPlace, LastSight]:
        """See WorkerTable."""
        newest = {place: self._seen[place].newest for place in places if place in self._seen}
        return {
            place: LastSight(at=one.seen_at, draining=one.draining) for place, one in newest.items()
        }

    async def prune(self, before: datetime, workers_max: int) -> int:
        """See WorkerTable."""
        newest = sorted(
            self._seen, key=lambda place: (self._seen[place].newest.seen_at, place), reverse=True
        )
        gone = [
            place
            for index, place in enumerate(newest)
            if index >= workers_max or self._seen[place].newest.seen_at < before
        ]
        for place in gone:
            del self._seen[place]
        return len(gone)
