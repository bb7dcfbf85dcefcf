"""What holds dispatches back: the seam for pauses and for the steps that wait behind them.

A batch that writes dispatches says under which pauses it decided them (`BatchWrite.pause_epoch`),
and is refused with PausesChanged when these have changed: a pause that was answered holds.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from towpath_engine.core.gate import Scope


class Pause(Struct, frozen=True, kw_only=True):
    """An operator's pause of a workflow, a version (`order@3`), a task or a queue."""

    scope: Scope
    name: str
    at: datetime
    by: str | None = None
    reason: str | None = None


class Pauses(Struct, frozen=True, kw_only=True):
    """All pauses there are, by scope and name. `epoch` grows with every change of them."""

    epoch: int
    pauses: Sequence[Pause] = ()


class PauseMade(StrEnum):
    """What became of the wish to pause something."""

    MADE = "made"
    STANDING = "standing"
    """It was paused before, and stays so as it was."""
    FULL = "full"
    """There are as many pauses as there may be."""


class Backlog(Struct, frozen=True, kw_only=True):
    """Something is held by `held_by`; `level` is the most urgent of it."""

    held_by: str
    level: int


class HeldStep(Struct, frozen=True, kw_only=True):
    """A ready step or, with `path` None, a run that may not begin."""

    run_id: str
    path: str | None
    level: int
    ready_at: datetime


class QueueFacts(Struct, frozen=True, kw_only=True):
    """A queue as of one instant. `undone` counts its dispatches that have not ended: in the outbox,
    in the stream or with a worker.

    `window_level` and `pause_level` are the most urgent of what its window and its pause (or one
    that was lifted a moment ago) hold back; None: they hold nothing. `known_since` is when the
    queue was first named; None: it never was.
    """

    undone: int
    window_level: int | None
    pause_level: int | None
    known_since: datetime | None


class AdmissionTable(Protocol):
    """Pauses, and what is held back. Every method raises StoreUnavailable."""

    async def pauses(self) -> Pauses:
        """The pauses as they are now."""
        ...

    async def pause(
        self,
        scope: Scope,
        name: str,
        *,
        pauses_max: int,
        by: str | None = None,
        reason: str | None = None,
    ) -> PauseMade:
        """Pause it, unless there are `pauses_max` pauses.

        Once this has returned no transaction commits a dispatch that the pause forbids.
        """
        ...

    async def resume(self, scope: Scope, name: str) -> bool:
        """Lift the pause. False: there was none."""
        ...

    async def backlogs(self, limit: int) -> list[Backlog]:
        """What holds anything back: windows, then workflows, then the rest, up to `limit` of each
        part, by `held_by`. Costs their number, not that of the steps."""
        ...

    async def held(self, held_by: str, *, by_level: int, by_time: int) -> list[HeldStep]:
        """The first steps by level, then time, together with those that have waited longest,
        whatever their level; each once, in no order."""
        ...

    async def queues(self, names: Sequence[str], limit: int) -> Mapping[str, QueueFacts]:
        """How full each of these is and what waits for it, all as of the same instant. Undone
        dispatches are counted up to `limit`: the cost is theirs, not that of what waits."""
        ...

    async def unpublished(self, tokens: Sequence[str]) -> set[str]:
        """Those of these tokens whose dispatch is still in the outbox."""
        ...
