"""Remembers which workers there are: their heartbeats of a second become one statement.

Of a worker the newest heartbeat counts, by the time at which an engine got it: what it waits for
before it is noted changes nothing. Two engines agree on the time to a few milliseconds.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from towpath_engine.services.shell import Shell
from towpath_engine.store.workers import WorkerPlace, WorkerSighting
from towpath_protocol.dispatch import WorkerHeartbeat

_PENDING_MAX = 10_000
_TASKS_MAX = 1_000
"""Tasks of one worker that are kept, and …"""
_TEXT_LENGTH_MAX = 256
"""… characters of each, and of the name of its SDK."""


class WorkerRegister:
    """`now` and `saw` with every heartbeat, `flush` once a second, `prune` now and then.

    Nothing waits for it: when the database is away the newest sighting of each worker is kept, and
    beyond a bound new ones are not noticed until there is room.
    """

    def __init__(
        self,
        shell: Shell,
        *,
        leads: Callable[[], bool],
        forget_after_seconds: float,
        workers_max: int,
    ) -> None:
        self._shell = shell
        self._leads = leads
        self._forget_after = timedelta(seconds=forget_after_seconds)
        self._workers_max = workers_max
        self._pending: dict[WorkerPlace, WorkerSighting] = {}
        self._last_at = shell.clock.now()

    def now(self) -> datetime:
        """The time of a heartbeat that came in just now; no earlier than that of the one before,
        also where the clock was set right in between."""
        self._last_at = max(self._last_at, self._shell.clock.now())
        return self._last_at

    def saw(self, queue: str, beat: WorkerHeartbeat, at: datetime) -> None:
        """A heartbeat came in, at that time."""
        place = (queue, beat.worker_id)
        known = self._pending.get(place)
        if known is None and len(self._pending) >= _PENDING_MAX:
            return
        if known is not None and known.seen_at > at:
            return
        self._pending[place] = WorkerSighting(
            queue=queue,
            worker_id=beat.worker_id,
            tasks=tuple(_one_line(task) for task in beat.tasks[:_TASKS_MAX]),
            slots=beat.slots,
            running=len(beat.tokens),
            sdk=_one_line(beat.sdk),
            seen_at=at,
            draining=beat.draining is True,
        )

    async def flush(self) -> int:
        """Write what was seen since the last flush; returns how many workers that were.

        Raises StoreUnavailable; then the next flush writes them.
        """
        if not self._pending:
            return 0
        batch, self._pending = self._pending, {}
        try:
            await self._shell.store.workers.save(list(batch.values()))
        except BaseException:
            for place, known in self._pending.items():
                if place not in batch or batch[place].seen_at <= known.seen_at:
                    batch[place] = known
            self._pending = batch
            raise
        return len(batch)

    async def prune(self) -> int:
        """Forget workers that were not seen for long, in the engine that leads; returns how many.

        Raises StoreUnavailable.
        """
        if not self._leads():
            return 0
        before = self._shell.clock.now() - self._forget_after
        return await self._shell.store.workers.prune(before, self._workers_max)


def _one_line(text: str) -> str:
    return " ".join(text[:_TEXT_LENGTH_MAX].replace("\x00", " ").split())
