"""Knows when a partition of P_IN has handled every message stored before some instant.

A timer that a message could pre-empt, and the audit of lost dispatches, ask here first: a slow
engine must not time out a healthy attempt whose report is already in the stream. The question goes
to the server, so that it holds for several engines too.
"""

from datetime import datetime, timedelta

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.services.shell import Shell
from towpath_protocol import subjects


class PartitionProgress:
    """One `refresh` asks the server about the partitions of interest, at most once each."""

    def __init__(self, shell: Shell, *, late_seconds_max: float) -> None:
        self._bus = shell.bus
        self._clock = shell.clock
        self._stream = subjects.in_stream(shell.prefix)
        self._handled: dict[int, datetime] = {}
        self._barriers: dict[int, tuple[int, datetime]] = {}
        self.late_max = timedelta(seconds=late_seconds_max)

    def partition_of(self, run_id: str) -> int:
        """The partition whose consumer delivers the messages of this run."""
        return subjects.partition_of(run_id)

    def handled(self, partition: int, instant: datetime) -> bool:
        """True when every message stored before `instant` is known to have been handled."""
        known = self._handled.get(partition)
        return known is not None and known >= instant

    async def refresh(self, partitions: set[int]) -> None:
        """Ask the server about these partitions. Without a connection nothing is learnt."""
        try:
            stream = await self._bus.stream_state(self._stream)
            for partition in sorted(partitions):
                asked_at = self._clock.now()
                name = subjects.partition_consumer(partition)
                state = await self._bus.consumer_state(self._stream, name)
                if state is None or stream is None:
                    continue
                if state.pending == 0 and state.ack_pending == 0:
                    self._handled[partition] = asked_at
                    self._barriers.pop(partition, None)
                    continue
                # Busy: everything up to the stream's end as it was some time ago is handled once
                # the consumer's acknowledgement floor has passed that end.
                barrier = self._barriers.get(partition)
                if barrier is not None and state.ack_floor_seq >= barrier[0]:
                    self._handled[partition] = barrier[1]
                    barrier = None
                if barrier is None or barrier[0] > stream.last_seq:
                    self._barriers[partition] = (stream.last_seq, asked_at)
        except BusUnavailable:
            return
