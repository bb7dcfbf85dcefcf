"""Gives parked signals to runs that exist by now, and buries those whose time is over.

Also keeps the two bounds of early signals: how many may be parked, and how long the identities of
signals by key are remembered.
"""

from collections.abc import Callable

from towpath_engine.services.dead_letters import DeadLetters
from towpath_engine.services.parking import Parking
from towpath_engine.services.shell import Shell


class ParkedSweep:
    """`run_once` handles at most `page` parked signals, in the one engine that `leads`. Every
    engine looks whether there is room for more."""

    def __init__(
        self,
        shell: Shell,
        *,
        leads: Callable[[], bool],
        parking: Parking,
        dead_letters: DeadLetters,
        page: int,
    ) -> None:
        self._shell = shell
        self._leads = leads
        self._parking = parking
        self._dead_letters = dead_letters
        self._page = page

    async def run_once(self) -> int:
        """Returns how many parked signals were looked at. Raises StoreUnavailable."""
        bound = self._parking.signals_max
        self._parking.full = await self._shell.store.count_parked(bound) >= bound
        if not self._leads():
            return 0
        await self._shell.store.prune_signal_ids(self._page)
        rows = await self._shell.store.due_parked(self._page)
        now = self._shell.clock.now()
        expired = [row for row in rows if row.expires_at <= now]
        for row in rows:
            if row.expires_at > now:
                self._shell.metrics.signals_parked.labels(outcome="delivered").inc()
                self._shell.submit(self._parking.unpark(row))
        if expired:
            self._shell.metrics.signals_parked.labels(outcome="expired").inc(len(expired))
            await self._dead_letters.expire(expired)
        return len(rows)
