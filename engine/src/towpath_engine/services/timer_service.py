"""Fires stored instants: near ones from a heap, the rest and what a crash left by a sweep.

Only those of the partitions that this engine owns: of what it loses it fires nothing more. The heap
is a convenience; the rows are the truth. Firing means feeding TimerDue to the pipeline: the core
decides whether anything is due.
"""

import heapq
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from towpath_engine.core.events import TimerDue
from towpath_engine.core.model import Cause, Run, Step
from towpath_engine.services.leases import Leases, Partitions
from towpath_engine.services.progress import PartitionProgress
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import Outcome, Work
from towpath_engine.store.derive import run_timer, step_timer
from towpath_engine.store.leases import partition_of_run
from towpath_engine.store.records import DueTimer

_Key = tuple[str, str | None]

_HELD_PAUSE_SECONDS = 0.1
"""Between two questions to the server about a busy partition."""
_PAUSE_SECONDS_MAX = 1.0


class TimerService:
    """`arm` after each commit; `fire` at each instant; `sweep` now and then loads what is due soon.

    `on_armed` is called when an instant became the nearest one: the ticker of `fire` must wake;
    `on_held` when one was held: the ticker of `release` must.
    """

    def __init__(
        self,
        shell: Shell,
        *,
        leases: Leases,
        progress: PartitionProgress,
        heap_max: int,
        horizon_seconds: float,
        sweep_seconds: float,
        sweep_max: int,
    ) -> None:
        self._shell = shell
        self._leases = leases
        self._progress = progress
        self._heap_max = heap_max
        self._horizon = timedelta(seconds=horizon_seconds)
        self._sweep_ahead = timedelta(seconds=2 * sweep_seconds)
        self._sweep_max = sweep_max
        self._heap: list[tuple[datetime, str, str, bool]] = []
        self._armed: dict[_Key, datetime] = {}
        self._firing: set[_Key] = set()
        self._held: dict[_Key, datetime] = {}
        self.on_armed = lambda: None
        self.on_held = lambda: None
        leases.on_lost.append(self.forget)

    def arm(self, row: DueTimer) -> None:
        """Take over an instant of a run that this engine owns, if it is near."""
        key = (row.run_id, row.path)
        armed = self._armed.get(key)
        if armed is not None and armed <= row.due_at:
            return
        if not self.is_near(row.due_at) or len(self._heap) >= self._heap_max:
            return
        self._armed[key] = row.due_at
        heapq.heappush(self._heap, (row.due_at, row.run_id, row.path or "", row.preemptible))
        if self._heap[0][0] == row.due_at:
            self.on_armed()

    def is_near(self, due_at: datetime) -> bool:
        """Whether an instant is armed in memory, or left to a later sweep."""
        return due_at <= self._shell.clock.now() + self._horizon

    def forget(self, partitions: Partitions) -> None:
        """Fire nothing of these partitions any more: another engine does."""
        self._heap = [one for one in self._heap if partition_of_run(one[1]) not in partitions]
        heapq.heapify(self._heap)
        self._armed = _others(self._armed, partitions)
        self._held = _others(self._held, partitions)

    async def sweep(self) -> int:
        """Load timers that are due within two sweeps, page by page; returns how many.

        All of them, as far as the heap has room: after a restart a page a sweep would be late.
        """
        before = self._shell.clock.now() + self._sweep_ahead
        count, last = 0, None
        while len(self._heap) < self._heap_max and (owned := self._leases.owned):
            rows = await self._shell.store.due_timers(
                before, self._sweep_max, after=last, partitions=owned
            )
            for row in rows:
                if self._leases.owns_run(row.run_id):  # it may have moved meanwhile
                    self.arm(row)
            count += len(rows)
            if len(rows) < self._sweep_max:
                break
            last = rows[-1]
        return count

    async def fire(self) -> int:
        """Fire what is due, and hold what a message could pre-empt. Returns how many fired."""
        fired = self._fire_due()
        self._shell.metrics.timers_armed.set(len(self._armed) + len(self._held))
        return fired

    def pause_seconds(self) -> float:
        """How long `fire` has nothing to do: until the nearest instant, at most a second."""
        if not self._heap or not self._leases.valid():
            return _PAUSE_SECONDS_MAX
        left = (self._heap[0][0] - self._shell.clock.now()).total_seconds()
        return min(_PAUSE_SECONDS_MAX, max(0.0, left))

    async def release(self) -> int:
        """Fire what was held and may fire now; returns how many.

        A duty of its own: it asks the server, and a server that does not answer must not make
        sleeps late.
        """
        if not self._held or not self._leases.valid():
            return 0
        fired = 0
        partitions = {self._progress.partition_of(run_id) for run_id, _ in self._held}
        await self._progress.refresh(partitions)
        now = self._shell.clock.now()
        for key, due_at in list(self._held.items()):
            if not self._leases.owns_run(key[0]):
                continue
            partition = self._progress.partition_of(key[0])
            late = now - due_at
            if self._progress.handled(partition, due_at) or late >= self._progress.late_max:
                del self._held[key]
                self._fire(key, due_at, kind="preemptible")
                fired += 1
        return fired

    def release_pause_seconds(self) -> float:
        """How long `release` has nothing to ask."""
        return _HELD_PAUSE_SECONDS if self._held else _PAUSE_SECONDS_MAX

    def _fire_due(self) -> int:
        """Fire or hold everything due; returns how many were fired."""
        fired = 0
        if not self._leases.valid():
            return 0  # after a pause: what is owned now is not known yet
        now = self._shell.clock.now()
        while self._heap and self._heap[0][0] <= now:
            due_at, run_id, text, preemptible = heapq.heappop(self._heap)
            key = (run_id, text or None)
            if self._armed.get(key) != due_at:
                continue  # an earlier entry of the same step has fired meanwhile
            del self._armed[key]
            if preemptible:
                self._held.setdefault(key, due_at)
                self.on_held()
            else:
                self._fire(key, due_at, kind="plain")
                fired += 1
        return fired

    def _fire(self, key: _Key, due_at: datetime, *, kind: str) -> None:
        if key in self._firing:
            return
        self._firing.add(key)
        self._shell.metrics.timers_fired.labels(kind=kind).inc()
        self._shell.metrics.timer_late_seconds.observe(
            max(0.0, (self._shell.clock.now() - due_at).total_seconds())
        )
        run_id, path = key

        def settle(outcome: Outcome) -> None:
            del outcome
            self._firing.discard(key)

        event = TimerDue(seed=self._shell.identity.new_seed(), cause=Cause(type="timer"), path=path)
        self._shell.submit(Work(settle=settle, run_id=run_id, event=event))


def _others(rows: Mapping[_Key, datetime], partitions: Partitions) -> dict[_Key, datetime]:
    return {key: at for key, at in rows.items() if partition_of_run(key[0]) not in partitions}


def due_rows(run: Run, steps: Sequence[Step]) -> list[DueTimer]:
    """The instants of a run that was just committed, and of those of its steps that changed: as
    their rows have them, so that memory and the sweep fire the same."""
    timers = [run_timer(run, run), *(step_timer(run, step) for step in steps)]
    return [
        DueTimer(
            run_id=timer.run_id,
            path=timer.path or None,
            due_at=timer.due_at,
            preemptible=timer.preemptible,
        )
        for timer in timers
        if timer is not None
    ]
