"""Who owns which partition of P_IN, and which engines live: the seam, and what both stores share.

Leases are for speed alone: the owner keeps its runs in memory, fires their timers and sweeps. What
an engine writes is fenced by the run's version, whoever owns its partition.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final, Protocol

from msgspec import Struct

from towpath_protocol import subjects

PARTITIONS: Final = range(subjects.PARTITION_COUNT)
"""Every partition that is leased."""


@lru_cache(maxsize=32_768)
def partition_of_run(run_id: str) -> int:
    """The partition of a run: that of the messages about it. Asked for with every commit."""
    return subjects.partition_of(run_id)


class Standing(StrEnum):
    """Whether an engine should own partitions."""

    FIT = "fit"
    CUT_OFF = "cut_off"
    """It has no connection to NATS: it owns partitions only where no engine is fit."""
    STOPPING = "stopping"
    """It gives away what it has."""


class Origin(StrEnum):
    """How a partition was acquired."""

    RELEASED = "released"
    """Nobody had it, or its owner had let go of it: nothing of it is on the way to anybody."""
    EXPIRED = "expired"
    """Its owner died, was paused, or could not let go: deliveries to it may never be acked."""


class LeaseTick(Struct, frozen=True, kw_only=True):
    """What an engine says once a tick."""

    engine_id: str
    """A UUID of this process, in lower case; a later one sorts behind an earlier one."""
    standing: Standing
    lease_seconds: float
    released: Sequence[int] = ()
    """Let go of: whoever comes next finds nothing on the way."""
    abandoned: Sequence[int] = ()
    """Given up with deliveries that may be on the way: as if the lease had expired."""


class LeaseAnswer(Struct, frozen=True, kw_only=True):
    """What the engine owns now, and for `lease_seconds` from when it asked."""

    kept: frozenset[int]
    acquired: Mapping[int, Origin]
    target: int
    """How many partitions it should own: let go of what is more."""
    engines: int
    """How many engines live and are not stopping, this one counted if it is not."""


class LeaseTable(Protocol):
    """The leases of all partitions, and the engines that may own them."""

    async def tick(self, tick: LeaseTick, *, now: datetime | None = None) -> LeaseAnswer:
        """Say that the engine lives, give back, renew what it owns, take what is free up to its
        share: one statement. `now` is the store's clock unless a test says otherwise.

        Shares differ by one at most, the engines that came first have the larger ones. Of two
        engines that want a partition at the same time one gets it. Raises StoreUnavailable.
        """
        ...


def share(position: int, engines: int) -> int:
    """The share of the engine at this place (from 0) among those that own partitions."""
    each, rest = divmod(len(PARTITIONS), engines)
    return each + (1 if position < rest else 0)
