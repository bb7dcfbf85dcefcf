"""The census on Postgres: one statement a page, by the index over status."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from towpath_engine.store.census import CensusPage, CensusPlace, place_after
from towpath_engine.store.session import Connection, fetch_row


class PostgresCensus:
    """See `store.census.Census`."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._connect = connect

    async def page(self, place: CensusPlace, limit: int) -> CensusPage:
        """See Census."""
        async with self._connect() as connection:
            row = await fetch_row(
                connection,
                "run_census",
                status=place.status,
                before_created_at=place.created_at,
                before_id=place.run_id,
                limit=limit,
            )
        assert row is not None, "a count has a row"
        last = (row["last_created_at"], row["last_id"]) if row["runs"] == limit else None
        return CensusPage(
            status=place.status,
            runs=row["runs"],
            orphans=row["orphans"],
            next=place_after(place, last),
        )
