"""Counts the live runs page by page: what an operator watches must not cost more than a page.

A pass over all pages is no snapshot: a run that changes its status meanwhile may be counted twice
or not at all. That a run has no reason is seen within one page, and is true when it is said.
"""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from towpath_engine.core.states import LIVE_RUN
from towpath_engine.store.cursors import LAST_ID, LAST_INSTANT

STATUSES = tuple(sorted(status.value for status in LIVE_RUN))
"""The order in which a pass takes the statuses."""


class CensusPlace(Struct, frozen=True, kw_only=True):
    """Where a pass has got to: behind this run, the newest come first."""

    status: str = STATUSES[0]
    created_at: datetime = LAST_INSTANT
    run_id: str = LAST_ID


FIRST = CensusPlace()
"""The beginning of a pass."""


class CensusPage(Struct, frozen=True, kw_only=True):
    """Runs of one status. `next` None: the pass is over."""

    status: str
    runs: int
    orphans: int
    """Of these, runs that nothing will ever move again: neither a dispatch nor a step that may go
    out, neither a timer nor an awaited signal or child, nor a pause."""
    next: CensusPlace | None


class Census(Protocol):
    """The live runs, counted."""

    async def page(self, place: CensusPlace, limit: int) -> CensusPage:
        """Count at most `limit` runs behind this place. Raises StoreUnavailable."""
        ...


def place_after(place: CensusPlace, last: tuple[datetime, str] | None) -> CensusPlace | None:
    """Where to go on: behind `last`, or, None, with the next status; None after all of them."""
    if last is not None:
        return CensusPlace(status=place.status, created_at=last[0], run_id=last[1])
    number = STATUSES.index(place.status) + 1
    return CensusPlace(status=STATUSES[number]) if number < len(STATUSES) else None
