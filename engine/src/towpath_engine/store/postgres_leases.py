"""The leases on Postgres: one statement a tick."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from towpath_engine.store.leases import LeaseAnswer, LeaseTick, Origin
from towpath_engine.store.session import Connection, fetch


class PostgresLeases:
    """See `store.leases.LeaseTable`."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._connect = connect

    async def tick(self, tick: LeaseTick, *, now: datetime | None = None) -> LeaseAnswer:
        """See LeaseTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "lease_tick",
                now=now,
                engine_id=tick.engine_id,
                standing=tick.standing.value,
                lease_seconds=tick.lease_seconds,
                released=sorted(tick.released),
                abandoned=sorted(tick.abandoned),
            )
        mine = [row for row in rows if row["partition"] is not None]
        return LeaseAnswer(
            kept=frozenset(row["partition"] for row in mine if row["origin"] is None),
            acquired={row["partition"]: Origin(row["origin"]) for row in mine if row["origin"]},
            target=rows[0]["target"],
            engines=rows[0]["engines"],
        )
