"""Which workers there are, as their heartbeats said: the seam, and what both stores share.

For people, and for `explain`: nothing that decides about a run reads it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct


class WorkerSighting(Struct, frozen=True, kw_only=True):
    """What a worker says of itself in a heartbeat on a queue. `running` counts its attempts,
    `draining` means that it takes no more."""

    queue: str
    worker_id: str
    tasks: tuple[str, ...]
    slots: int
    running: int
    sdk: str
    seen_at: datetime
    draining: bool = False


class SeenWorker(Struct, frozen=True, kw_only=True):
    """A worker on a queue: its newest sighting, and when it was seen first."""

    newest: WorkerSighting
    first_seen_at: datetime

    def is_live(self, live_since: datetime) -> bool:
        """Whether it was seen since then and has not said goodbye: draining, and without work."""
        gone = self.newest.draining and not self.newest.running
        return self.newest.seen_at >= live_since and not gone


class QueueWorkers(Struct, frozen=True, kw_only=True):
    """The workers of a queue in short: `live` ones take work. `last_seen_at` is of any of them,
    None: of none, ever."""

    live: int
    last_seen_at: datetime | None


class TaskWorkers(Struct, frozen=True, kw_only=True):
    """The workers of a queue that take work, and how many of them are `able`: they have the task,
    or did not say which ones. `last_seen_at` is of any that is live."""

    live: int
    able: int
    last_seen_at: datetime | None


class LastSight(Struct, frozen=True, kw_only=True):
    """When a worker was seen last, and whether it drained then."""

    at: datetime
    draining: bool


WorkerPlace = tuple[str, str]
"""(queue, worker id): the identity, and the order of pages."""
TaskPlace = tuple[str, str]
"""(queue, task)"""


class WorkerTable(Protocol):
    """The workers of the last day."""

    async def save(self, sightings: Sequence[WorkerSighting]) -> None:
        """Take over what the workers said, at most one sighting each. An older sighting than the
        stored one changes nothing. Raises StoreUnavailable."""
        ...

    async def page(
        self, queue: str | None, after: WorkerPlace | None, limit: int
    ) -> list[SeenWorker]:
        """Workers by (queue, id) after the given one, of one queue or of all."""
        ...

    async def of_queues(
        self, queues: Sequence[str], live_since: datetime
    ) -> Mapping[str, QueueWorkers]:
        """How many workers of each queue were seen since then and do not drain, and when any was
        seen last."""
        ...

    async def of_tasks(
        self, places: Sequence[TaskPlace], live_since: datetime
    ) -> Mapping[TaskPlace, TaskWorkers]:
        """For each of these, given once: who may run it, of those seen since then."""
        ...

    async def last_seen(self, places: Sequence[WorkerPlace]) -> Mapping[WorkerPlace, LastSight]:
        """When each of these was seen last; absent: never, or too long ago."""
        ...

    async def prune(self, before: datetime, workers_max: int) -> int:
        """Forget workers not seen since `before`, and all but the newest `workers_max`; returns
        how many."""
        ...
