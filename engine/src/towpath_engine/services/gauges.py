"""Counts what an operator watches: open runs by status, and runs that nothing keeps alive."""

from towpath_engine.core.states import LIVE_RUN
from towpath_engine.metrics import Metrics
from towpath_engine.store.interface import Store


class Gauges:
    """`run_once` reads the counts and sets the metrics (DESIGN, invariant 1)."""

    def __init__(self, *, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    async def run_once(self) -> int:
        """Returns the number of runs without a reason, which must be 0."""
        counts = await self._store.count_open_runs()
        for status in LIVE_RUN:
            self._metrics.runs_open.labels(status=status.value).set(counts.get(status.value, 0))
        orphans = await self._store.count_runs_without_reason()
        self._metrics.runs_without_reason.set(orphans)
        return orphans
