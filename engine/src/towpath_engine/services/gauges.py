"""Sets what an operator watches: servers, open runs, runs without a reason, unhandled messages.

What is counted over all runs is counted by one engine, a few pages a tick: with more runs than that
the numbers are those of the last pass over all of them.
"""

from collections import Counter

from towpath_engine.core.states import LIVE_RUN
from towpath_engine.services.leases import Leases, Partitions
from towpath_engine.services.shell import Shell
from towpath_engine.store.census import FIRST, CensusPlace
from towpath_engine.store.errors import StoreUnavailable
from towpath_protocol import subjects

_PAGE = 2_000
"""Live runs of one statement."""
_PAGES_MAX = 50
"""Statements of one tick: a million runs take ten ticks of about 0.2 s in Postgres."""


class Gauges:
    """`run_once` reads the counts and sets the metrics (ARCHITECTURE, invariant 1)."""

    def __init__(self, shell: Shell, *, leases: Leases) -> None:
        self._shell = shell
        self._leases = leases
        self._place: CensusPlace | None = None
        self._runs: Counter[str] = Counter()
        self._orphans = 0
        self._orphans_last = 0
        leases.on_lost.append(self._forget)

    async def run_once(self) -> int:
        """Returns the number of runs without a reason, which must be 0.

        Raises StoreUnavailable or BusUnavailable.
        """
        self._shell.metrics.bus_connected.set(1 if self._shell.bus.connected else 0)
        try:
            if self._leases.leads:
                await self._count_runs()
            else:
                await self._shell.store.now()
        except StoreUnavailable:
            self._shell.metrics.store_connected.set(0)
            raise
        self._shell.metrics.store_connected.set(1)
        await self._count_messages()
        return self._orphans_last

    async def _count_runs(self) -> None:
        """Go on with the pass; set what it found when it is over, orphans at once."""
        place = self._place or FIRST
        if place is FIRST:
            self._runs.clear()
            self._orphans = 0
        for _ in range(_PAGES_MAX):
            page = await self._shell.store.census.page(place, _PAGE)
            self._runs[page.status] += page.runs
            self._orphans += page.orphans
            self._place = page.next
            if page.next is None:
                self._orphans_last = self._orphans
                self._show()
                return
            place = page.next
        worst = max(self._orphans, self._orphans_last)
        self._shell.metrics.runs_without_reason.set(worst)

    def _show(self) -> None:
        metrics = self._shell.metrics
        for status in LIVE_RUN:
            metrics.runs_open.labels(status=status.value).set(self._runs[status.value])
        metrics.runs_without_reason.set(self._orphans_last)

    async def _count_messages(self) -> None:
        stream = subjects.in_stream(self._shell.prefix)
        for partition in sorted(self._leases.owned):
            consumer = subjects.partition_consumer(partition)
            state = await self._shell.bus.consumer_state(stream, consumer)
            if state is not None and self._leases.owns(partition):
                waiting = state.pending + state.ack_pending
                self._shell.metrics.messages_pending.labels(partition=str(partition)).set(waiting)

    def _forget(self, lost: Partitions) -> None:
        """Show nothing that another engine shows from now on."""
        for partition in lost:
            self._shell.metrics.messages_pending.labels(partition=str(partition)).set(0)
        if self._leases.leads:
            return
        self._place = None
        self._runs.clear()
        self._orphans = self._orphans_last = 0
        self._show()
