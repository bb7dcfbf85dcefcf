"""Which workers there are, as their heartbeats said: the seam, and what both stores share.

For people, and for `explain`: nothing that decides about a run reads it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct


class WorkerSighting(Struct, frozen=True, kw_only=True):
    """What a worker says of itself in a heartbeat on a queue. `running` counts its attempts."""

    queue: str
    worker_id: str
    tasks: tuple[str, ...]
    slots: int
    running: int
    sdk: str
    seen_at: datetime


class SeenWorker(Struct, frozen=True, kw_only=True):
    """A worker on a queue: its newest sighting, and when it was seen first."""

    newest: WorkerSighting
    first_seen_at: datetime


class QueueWorkers(Struct, frozen=True, kw_only=True):
    """The workers of a queue in short. `last_seen_at` is of any of them, None: of none, ever."""

    live: int
    last_seen_at: datetime | None


WorkerPlace = tuple[str, str]
"""(queue, worker id): the identity, and the order of pages."""


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
        """How many workers of each queue were seen since then, and when any was seen last."""
        ...

    async def last_seen(self, places: Sequence[WorkerPlace]) -> Mapping[WorkerPlace, datetime]:
        """When each of these was seen last; absent: never, or too long ago."""
        ...

    async def prune(self, before: datetime, workers_max: int) -> int:
        """Forget workers not seen since `before`, and all but the newest `workers_max`; returns
        how many."""
        ...
