"""Pauses and held steps over dictionaries."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from towpath_engine.core.gate import Scope, holder, scope_of_holder
from towpath_engine.store.admission import (
    Backlog,
    HeldStep,
    Pause,
    PauseMade,
    Pauses,
    QueueFacts,
)
from towpath_engine.store.derive import RUN_PATH, ReadyStep
from towpath_engine.store.memory_state import MemoryState

_PARTS: Final = {Scope.WINDOW.value: 0, Scope.WORKFLOW.value: 1}
"""In which part of the list of holders their scopes come; the rest comes last."""


class MemoryAdmission:
    """See `store.admission.AdmissionTable`. `state` gives the committed state; whoever changes it
    holds `turn`, as transactions do."""

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

    async def pauses(self) -> Pauses:
        """See AdmissionTable."""
        state = self._state()
        pauses = [pause for _, pause in sorted(state.pauses.items())]
        return Pauses(epoch=state.pause_epoch, pauses=pauses)

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
        async with self._turn:
            state = self._state()
            if (scope.value, name) in state.pauses:
                return PauseMade.STANDING
            if len(state.pauses) >= pauses_max:
                return PauseMade.FULL
            state.pauses[scope.value, name] = Pause(
                scope=scope, name=name, at=self._clock(), by=by, reason=reason
            )
            state.pause_epoch += 1
            return PauseMade.MADE

    async def resume(self, scope: Scope, name: str) -> bool:
        """See AdmissionTable."""
        async with self._turn:
            state = self._state()
            if state.pauses.pop((scope.value, name), None) is None:
                return False
            state.pause_epoch += 1
            return True

    async def backlogs(self, limit: int) -> list[Backlog]:
        """See AdmissionTable."""
        levels: dict[str, int] = {}
        for row in self._state().ready.values():
            levels[row.held_by] = min(row.level, levels.get(row.held_by, row.level))
        parts: list[list[Backlog]] = [[], [], []]
        for held_by, level in sorted(levels.items()):
            part = _PARTS.get(scope_of_holder(held_by), 2)
            parts[part].append(Backlog(held_by=held_by, level=level))
        return [one for part in parts for one in part[:limit]]

    async def held(self, held_by: str, *, by_level: int, by_time: int) -> list[HeldStep]:
        """See AdmissionTable."""
        rows = [row for row in self._state().ready.values() if row.held_by == held_by]
        chosen = sorted(rows, key=lambda row: (row.level, *_age(row)))[:by_level]
        chosen += sorted(rows, key=_age)[:by_time]
        return [
            HeldStep(
                run_id=row.run_id,
                path=None if row.path == RUN_PATH else row.path,
                level=row.level,
                ready_at=row.ready_at,
            )
            for row in {(row.run_id, row.path): row for row in chosen}.values()
        ]

    async def queues(self, names: Sequence[str], limit: int) -> Mapping[str, QueueFacts]:
        """See AdmissionTable."""
        state = self._state()
        live = [
            row.queue
            for rows in state.open_steps.values()
            for row in rows.values()
            if row.token is not None
        ]

        def level_of(scope: Scope, name: str) -> int | None:
            held_by = holder(scope, name)
            levels = (row.level for row in state.ready.values() if row.held_by == held_by)
            return min(levels, default=None)

        return {
            name: QueueFacts(
                undone=min(limit, live.count(name)),
                window_level=level_of(Scope.WINDOW, name),
                pause_level=level_of(Scope.QUEUE, name),
                known_since=state.queues.get(name),
            )
            for name in names
        }

    async def unpublished(self, tokens: Sequence[str]) -> set[str]:
        """See AdmissionTable."""
        return {
            row.token
            for row in self._state().outbox.values()
            if row.token is not None and row.token in tokens
        }


def _age(row: ReadyStep) -> tuple[datetime, str, str]:
    return row.ready_at, row.run_id, row.path
