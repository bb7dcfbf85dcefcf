"""Hands a partition of P_IN over to another engine, so that no message waits for its ack_wait.

An engine that gives a partition up pulls no more, settles what it has, and looks whether the server
still counts anything as delivered: that was on the way to an inbox that had just gone. One that
takes a partition over from an engine that died can't know what the dead one had. Both begin with a
new consumer then: whatever is not acknowledged is delivered again at once. An ack of the other
engine that comes late does no harm: it follows a commit, and the server ignores acks of what the
new consumer has not delivered.
"""

import asyncio
from collections.abc import Collection
from typing import Final

import structlog

from towpath_engine.bus.connection import Link
from towpath_engine.bus.jetstream import JetStreamApi
from towpath_engine.bus.pull import Pulls
from towpath_engine.bus.settings import BusSettings
from towpath_engine.bus.streams import ensure_consumers, partition_consumer
from towpath_protocol import subjects

log = structlog.get_logger(__name__)

_LOOKS: Final = 20
_LOOK_SECONDS: Final = 0.01
"""The server works acks off in the background: so often, and so long between, is it asked."""


class Handover:
    """`lock` is held while a consumer is away, which is no fault that needs a repair."""

    def __init__(self, settings: BusSettings, pulls: Pulls, lock: asyncio.Lock) -> None:
        self._settings = settings
        self._pulls = pulls
        self._lock = lock
        self._stream = subjects.in_stream(settings.prefix)

    async def let_go(
        self, api: JetStreamApi, link: Link, partitions: Collection[int], *, timeout_s: float
    ) -> None:
        """See Bus.let_go. Raises BusUnavailable, JetStreamError."""
        await self._pulls.let_go(link, partitions, timeout_s=timeout_s)
        await asyncio.gather(*(self._settle(api, partition) for partition in partitions))

    async def reset(self, api: JetStreamApi, partition: int) -> None:
        """See Bus.reset_partition. Raises BusUnavailable, JetStreamError."""
        async with self._lock:
            await api.find(f"CONSUMER.DELETE.{self._stream}.{_consumer(partition)}")
            await ensure_consumers(api, [partition_consumer(self._settings, partition)])

    async def _settle(self, api: JetStreamApi, partition: int) -> None:
        for _ in range(_LOOKS):
            state = await api.consumer_state(self._stream, _consumer(partition))
            if state is None or not state.ack_pending:
                return
            await asyncio.sleep(_LOOK_SECONDS)
        log.info("partition_reset", partition=partition, why="deliveries_lost")
        await self.reset(api, partition)


def _consumer(partition: int) -> str:
    return subjects.partition_consumer(partition)
