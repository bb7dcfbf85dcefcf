"""Counts what an operator watches: open runs, runs that nothing keeps alive, unhandled messages."""

from towpath_engine.core.states import LIVE_RUN
from towpath_engine.services.shell import Shell
from towpath_protocol import subjects


class Gauges:
    """`run_once` reads the counts and sets the metrics (DESIGN, invariant 1)."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def run_once(self) -> int:
        """Returns the number of runs without a reason, which must be 0.

        Raises StoreUnavailable or BusUnavailable.
        """
        metrics, store = self._shell.metrics, self._shell.store
        counts = await store.count_open_runs()
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
