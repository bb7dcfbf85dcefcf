"""Reads for `explain` over the dictionaries."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from towpath_engine.core.model import KeptSignal, Step
from towpath_engine.core.states import StepStatus
from towpath_engine.core.stepmap import is_leaf
from towpath_engine.store.derive import OpenStep
from towpath_engine.store.insight import HeldBacklog, HeldPlace, KeptName, QueuePlace, time_of_id
from towpath_engine.store.memory_state import MemoryState


class MemoryInsight:
    """See `store.insight.InsightTable`. `state` gives what is committed."""

    def __init__(self, state: Callable[[], MemoryState]) -> None:
        self._state = state

    async def open_steps(self, run_id: str, limit: int) -> list[Step]:
        """See InsightTable."""
        return [
            replace(step, input=None, output=None, last_output=None, progress=None)
            for step in self._leaves(run_id)[:limit]
        ]

    async def count_open_steps(self, run_id: str) -> int:
        """See InsightTable."""
        return len(self._leaves(run_id))

    def _leaves(self, run_id: str) -> list[Step]:
        state = self._state()
        steps = state.steps.get(run_id, {})
        return [step for path in sorted(state.open_of(run_id)) if is_leaf(step := steps[path])]

    async def ahead_of(self, places: Sequence[QueuePlace], limit: int) -> list[int]:
        """See InsightTable."""
        rows = [row for opened in self._state().open_steps.values() for row in opened.values()]
        return [min(limit, sum(_goes_before(row, place) for row in rows)) for place in places]

    async def held_ahead_of(self, places: Sequence[HeldPlace], limit: int) -> list[int]:
        """See InsightTable."""
        rows = list(self._state().ready.values())
        return [
            min(
                limit,
                sum(
                    row.held_by == place.held_by
                    and (row.level, row.ready_at, row.run_id, row.path)
                    < (place.level, place.ready_at, place.run_id, place.path)
                    for row in rows
                ),
            )
            for place in places
        ]

    async def backlogs_of(self, held_by: Sequence[str], limit: int) -> Mapping[str, HeldBacklog]:
        """See InsightTable."""
        found: dict[str, HeldBacklog] = {}
        for holder in held_by:
            since = [row.ready_at for row in self._state().ready.values() if row.held_by == holder]
            found[holder] = HeldBacklog(
                count=min(limit, len(since)), oldest_at=min(since, default=None)
            )
        return found

    async def letters_of(self, run_id: str, limit: int) -> Mapping[str | None, str]:
        """See InsightTable."""
        found: dict[str | None, str] = {}
        for letter in sorted(self._state().letters.values(), key=lambda one: one.id):
            if letter.run_id == run_id:
                found[letter.step] = letter.id
        return dict(list(found.items())[:limit])

    async def written_at(self, tokens: Sequence[str]) -> Mapping[str, datetime]:
        """See InsightTable."""
        wanted, found = set(tokens), dict[str, datetime]()
        for row in self._state().outbox.values():
            if row.token is not None and row.token in wanted:
                at = time_of_id(row.id)
                found[row.token] = min(at, found.get(row.token, at))
        return found

    async def kept_signals(self, run_id: str) -> tuple[KeptSignal, ...]:
        """See InsightTable."""
        rows = self._state().signals.get(run_id, {}).values()
        kept = [row.signal for row in rows if row.consumed_by is None]
        return tuple(sorted(kept, key=lambda signal: signal.number))

    async def kept_names(self, run_id: str, limit: int) -> list[KeptName]:
        """See InsightTable."""
        since: dict[str, list[datetime]] = {}
        for row in self._state().signals.get(run_id, {}).values():
            if row.consumed_by is None:
                since.setdefault(row.signal.name, []).append(row.signal.received_at)
        return [
            KeptName(name=name, count=len(since[name]), newest_at=max(since[name]))
            for name in sorted(since)[:limit]
        ]


def _goes_before(row: OpenStep, place: QueuePlace) -> bool:
    if row.token is None or row.reported or row.status != StepStatus.DISPATCHED:
        return False
    if row.queue != place.queue or row.dispatched_at is None:
        return False
    mine = (row.level, row.dispatched_at, row.run_id, row.path)
    return mine < (place.level, place.dispatched_at, place.run_id, place.path)
