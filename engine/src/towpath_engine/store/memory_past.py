"""Histories and retention over dictionaries."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from towpath_engine.core.model import KeptSignal, Run, Transition
from towpath_engine.core.payloads import RowsOutput
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.store.memory_state import MemoryState
from towpath_engine.store.past import Purge, PurgedBatch, PurgeSize, as_outputs, in_one_batch


class MemoryPast:
    """See `store.past.PastTable`. `state` gives the committed state; whoever changes it holds
    `turn`, as transactions do."""

    def __init__(
        self,
        state: Callable[[], MemoryState],
        *,
        turn: asyncio.Lock,
        clock: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._turn = turn
        self._clock = clock

    async def history(
        self, run_id: str, after_seq: int, limit: int, *, bytes_max: int
    ) -> list[Transition]:
        """See PastTable."""
        rows = [row for row in self._state().transitions.get(run_id, ()) if row.seq > after_seq]
        sizes = [len(row.payload or b"") for row in rows[:limit]]
        return rows[: _fitting(sizes, bytes_max)]

    async def outputs(
        self, run_id: str, paths: Sequence[str], *, bytes_max: int
    ) -> dict[str, RowsOutput]:
        """See PastTable."""
        steps = self._state().steps.get(run_id, {})
        found = [steps[path] for path in paths if path in steps]
        rows = [(step.path, step.visit, step.output) for step in found if step.output is not None]
        return dict(as_outputs(rows, bytes_max))

    async def signals(
        self, run_id: str, numbers: Sequence[int], *, bytes_max: int
    ) -> dict[int, KeptSignal]:
        """See PastTable."""
        rows = self._state().signals.get(run_id, {})
        found = [rows[number].signal for number in numbers if number in rows]
        count = _fitting([len(signal.payload) for signal in found], bytes_max)
        return {signal.number: signal for signal in found[:count]}

    async def set_retention(self, workflow: str, retention_ms: int | None) -> bool:
        """See PastTable."""
        async with self._turn:
            state = self._state()
            if workflow not in state.workflows:
                return False
            state.retentions[workflow] = retention_ms
            return True

    async def purge_overdue(
        self, default_ms: int, size: PurgeSize, *, now: datetime | None = None
    ) -> PurgedBatch:
        """See PastTable."""
        async with self._turn:
            moment = now or self._clock()
            overdue: list[tuple[datetime, str, datetime]] = []
            for name in self._state().workflows:
                own = self._state().retentions.get(name)
                kept_ms = default_ms if own is None else own
                before = moment - timedelta(milliseconds=kept_ms)
                oldest = self._settled(name, before)[:1] if kept_ms > 0 else []
                overdue += [(run.settled_at or before, name, before) for run in oldest]
            if not overdue:
                return PurgedBatch()
            _, workflow, before = min(overdue)
            return self._purge_all(workflow, before, size)

    async def purge_before(
        self, workflow: str, settled_before: datetime, size: PurgeSize
    ) -> PurgedBatch:
        """See PastTable."""
        async with self._turn:
            return self._purge_all(workflow, settled_before, size)

    async def purge_run(self, run_id: str) -> Purge:
        """See PastTable."""
        async with self._turn:
            verdict = await self.may_purge(run_id)
            if verdict is Purge.PURGED:
                self._delete([run_id])
            return verdict

    async def count_before(self, workflow: str, settled_before: datetime, limit: int) -> int:
        """See PastTable."""
        return len(self._settled(workflow, settled_before)[:limit])

    async def may_purge(self, run_id: str) -> Purge:
        """See PastTable."""
        run = self._state().runs.get(run_id)
        if run is None:
            return Purge.UNKNOWN
        return Purge.PURGED if self._is_past(run) else Purge.LIVE

    def _settled(self, workflow: str, before: datetime) -> list[Run]:
        """Those that may go, the oldest first."""
        found = [
            (run.settled_at, run.id, run)
            for run in self._state().runs.values()
            if run.workflow == workflow
            and run.settled_at is not None
            and run.settled_at < before
            and self._is_past(run)
        ]
        return [run for _, _, run in sorted(found, key=lambda place: place[:2])]

    def _is_past(self, run: Run) -> bool:
        runs = self._state().runs
        kin = [one for one in runs.values() if one.parent_run_id == run.id]
        if run.parent_run_id in runs:
            kin.append(runs[run.parent_run_id])
        return all(one.status in SETTLED_RUN for one in (run, *kin))

    def _purge_all(self, workflow: str, before: datetime, size: PurgeSize) -> PurgedBatch:
        found = [(run.id, run.seq) for run in self._settled(workflow, before)]
        taken = in_one_batch(found, size)
        self._delete(taken)
        return PurgedBatch(purged=len(taken), more=len(found) > len(taken), workflow=workflow)

    def _delete(self, run_ids: Iterable[str]) -> None:
        state = self._state()
        gone = set(run_ids)
        for table in (
            state.runs, state.steps, state.open_steps, state.transitions, state.signals, state.logs
        ):  # fmt: skip
            for run_id in gone & table.keys():
                del table[run_id]
        for place in [place for place in state.timers if place[0] in gone]:
            del state.timers[place]
        for name in [name for name, run_id in state.requests.items() if run_id in gone]:
            del state.requests[name]


def _fitting(sizes: Sequence[int], bytes_max: int) -> int:
    """How many leading values fit; the first always does."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if count and total > bytes_max:
            return count
    return len(sizes)
