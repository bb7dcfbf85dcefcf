"""Whole counts of the live runs, for tests: the engine counts page by page."""

from collections import Counter

from towpath_engine.store.census import FIRST, CensusPlace
from towpath_engine.store.interface import Store

_PAGE = 1_000


async def count_runs(store: Store, *, page: int = _PAGE) -> tuple[dict[str, int], int]:
    """(status -> number of live runs, how many of them have no reason)."""
    counts: Counter[str] = Counter()
    orphans = 0
    place: CensusPlace | None = FIRST
    while place is not None:
        found = await store.census.page(place, page)
        counts[found.status] += found.runs
        orphans += found.orphans
        place = found.next
    return dict(+counts), orphans


async def count_open_runs(store: Store) -> dict[str, int]:
    """Status -> number of runs that are not settled."""
    return (await count_runs(store))[0]


async def count_runs_without_reason(store: Store) -> int:
    """Runs that are not settled and that nothing will ever move again."""
    return (await count_runs(store))[1]
