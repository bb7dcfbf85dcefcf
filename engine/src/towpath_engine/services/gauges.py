"""Sets what an operator watches: servers, open runs, runs without a reason, unhandled messages."""

from towpath_engine.core.states import LIVE_RUN
from towpath_engine.services.shell import Shell
from towpath_engine.store.errors import StoreUnavailable
from towpath_protocol import subjects


class Gauges:
    """`run_once` reads the counts and sets the metrics (ARCHITECTURE, invariant 1)."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def run_once(self) -> int:
        """Returns the number of runs without a reason, which must be 0.

        Raises StoreUnavailable or BusUnavailable.
        """
        metrics, store = self._shell.metrics, self._shell.store
        metrics.bus_connected.set(1 if self._shell.bus.connected else 0)
        try:
            counts = await store.count_open_runs()
        except StoreUnavailable:
            metrics.store_connected.set(0)
            raise
        metrics.store_connected.set(1)
        for status in LIVE_RUN:
            metrics.runs_open.labels(status=status.value).set(counts.get(status.value, 0))
        orphans = await store.count_runs_without_reason()
        metrics.runs_without_reason.set(orphans)
        stream = subjects.in_stream(self._shell.prefix)
        for partition in range(subjects.PARTITION_COUNT):
            consumer = subjects.partition_consumer(partition)
            state = await self._shell.bus.consumer_state(stream, consumer)
            if state is not None:
                waiting = state.pending + state.ack_pending
                metrics.messages_pending.labels(partition=str(partition)).set(waiting)
        return orphans
