"""What `explain` asks of a store: the seam. Committed data only, every answer bounded."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct

from towpath_engine.core.model import KeptSignal, Step


class QueuePlace(Struct, frozen=True, kw_only=True):
    """Where a dispatch stands: those of a more urgent level, and earlier ones of its own, go
    before it; of one instant by run and path."""

    queue: str
    level: int
    dispatched_at: datetime
    run_id: str
    path: str


class HeldPlace(Struct, frozen=True, kw_only=True):
    """Where a step that is held back stands: by level, then time, then run and path."""

    held_by: str
    level: int
    ready_at: datetime
    run_id: str
    path: str


class HeldBacklog(Struct, frozen=True, kw_only=True):
    """How many steps are held back, and since when the first of them waits."""

    count: int
    oldest_at: datetime | None


class KeptName(Struct, frozen=True, kw_only=True):
    """Signals of one name that a run keeps: how many, and when the newest came."""

    name: str
    count: int
    newest_at: datetime


def time_of_id(uuid7: str) -> datetime:
    """When a UUID of version 7 was made, to the millisecond."""
    at_ms = int(uuid7.replace("-", "")[:12], 16)
    return datetime.fromtimestamp(at_ms / 1_000, UTC)


class InsightTable(Protocol):
    """Reads for people: none of them is on the way of a message."""

    async def open_steps(self, run_id: str, limit: int) -> list[Step]:
        """The open steps of a run in order of path, without inputs and outputs; not those that are
        open only because of what is open below them."""
        ...

    async def count_open_steps(self, run_id: str) -> int:
        """How many there are."""
        ...

    async def ahead_of(self, places: Sequence[QueuePlace], limit: int) -> list[int]:
        """How many undone dispatches go before each, counted up to `limit`; in order."""
        ...

    async def held_ahead_of(self, places: Sequence[HeldPlace], limit: int) -> list[int]:
        """How many held steps are tried before each, counted up to `limit`; in order."""
        ...

    async def backlogs_of(self, held_by: Sequence[str], limit: int) -> Mapping[str, HeldBacklog]:
        """What each of these holds back, counted up to `limit`."""
        ...

    async def letters_of(self, run_id: str, limit: int) -> Mapping[str | None, str]:
        """The newest dead letter of each step of a run (None: of the run itself), path → id."""
        ...

    async def written_at(self, tokens: Sequence[str]) -> Mapping[str, datetime]:
        """Since when the dispatches of these tokens are in the outbox; absent: they are not."""
        ...

    async def kept_names(self, run_id: str, limit: int) -> list[KeptName]:
        """The signals of a run that no wait has taken, by name."""
        ...

    async def kept_signals(self, run_id: str) -> tuple[KeptSignal, ...]:
        """The same signals one by one, with their payloads, in order of arrival: as `Run.kept`."""
        ...
