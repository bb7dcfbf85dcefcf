"""Fires stored instants: near ones from a heap, the rest and what a crash left by a sweep.

The heap is a convenience; the rows are the truth. Firing means feeding TimerDue to the pipeline:
the core decides whether anything is due.
"""

import heapq
from datetime import datetime, timedelta

from towpath_engine.core.events import TimerDue
from towpath_engine.core.model import Cause, Run, Step
from towpath_engine.core.states import WaitReason
from towpath_engine.services.progress import PartitionProgress
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import Outcome, Work

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
        progress: PartitionProgress,
        heap_max: int,
        horizon_seconds: float,
        sweep_seconds: float,
        sweep_max: int,
    ) -> None:
        self._shell = shell
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

    def arm(self, run: Run, steps: list[Step]) -> None:
        """Take over the instants of a run that was just committed, as far as they are near."""
        if run.due_at is not None and run.settled_at is None:
            self._push(run.id, None, run.due_at, preemptible=run.start_at is None)
        for step in steps:
            if step.due_at is not None:
                self._push(run.id, step.path, step.due_at, preemptible=is_preemptible(step))

    async def sweep(self) -> int:
        """Load timers that are due within two sweeps, page by page; returns how many.

        All of them, as far as the heap has room: after a restart a page a sweep would be late.
        """
        before = self._shell.clock.now() + self._sweep_ahead
        count, last = 0, None
        while len(self._heap) < self._heap_max:
            rows = await self._shell.store.due_timers(before, self._sweep_max, after=last)
            for row in rows:
                self._push(row.run_id, row.path, row.due_at, preemptible=row.preemptible)
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
        if not self._heap:
            return _PAUSE_SECONDS_MAX
        left = (self._heap[0][0] - self._shell.clock.now()).total_seconds()
        return min(_PAUSE_SECONDS_MAX, max(0.0, left))

    async def release(self) -> int:
        """Fire what was held and may fire now; returns how many.

        A duty of its own: it asks the server, and a server that does not answer must not make
        sleeps late.
        """
        if not self._held:
            return 0
        fired = 0
        partitions = {self._progress.partition_of(run_id) for run_id, _ in self._held}
        await self._progress.refresh(partitions)
        now = self._shell.clock.now()
        for key, due_at in list(self._held.items()):
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

    def _push(self, run_id: str, path: str | None, due_at: datetime, *, preemptible: bool) -> None:
        key = (run_id, path)
        armed = self._armed.get(key)
        if armed is not None and armed <= due_at:
            return
        if due_at > self._shell.clock.now() + self._horizon or len(self._heap) >= self._heap_max:
            return
        self._armed[key] = due_at
        heapq.heappush(self._heap, (due_at, run_id, path or "", preemptible))
        if self._heap[0][0] == due_at:
            self.on_armed()

    def _fire_due(self) -> int:
        """Fire or hold everything due; returns how many were fired."""
        fired = 0
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


def is_preemptible(step: Step) -> bool:
    """Whether a report or a signal could still make the step's next instant void."""
    if step.waiting_for in {WaitReason.SIGNAL, None}:
        return True
    return step.wake_at is None or step.due_at != step.wake_at
