"""Count redeliveries by asking JetStream about the consumers of both streams."""

from typing import Final

import msgspec
from msgspec import Struct
from nats.errors import Error as NatsError

from deploy.demo.api import PlainApi

REPLY_SECONDS: Final = 2.0


class Delivered(Struct):
    """`consumer_seq` counts every delivery of a consumer, repeats included."""

    consumer_seq: int = 0


class ConsumerState(Struct):
    name: str
    delivered: Delivered
    num_redelivered: int = 0


class ConsumerList(Struct):
    consumers: list[ConsumerState] = []


class StreamState(Struct):
    """`last_seq` counts every message that the stream ever stored."""

    last_seq: int = 0


class StreamInfo(Struct):
    state: StreamState


class Redeliveries:
    """Deliveries beyond the first of each message, as far as JetStream's counters show them.

    A lower bound: deliveries minus messages stored, or the messages out again at one moment,
    whichever is more. A wipe resets JetStream's counters; what was seen before stays counted.
    """

    def __init__(self, api: PlainApi) -> None:
        self._api = api
        self._most: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Redeliveries seen so far."""
        return sum(self._most.values())

    async def look(self) -> None:
        """Ask both streams once; a server that is away is simply not counted."""
        for stream in ("DISPATCH", "IN"):
            name = f"{self._api.prefix.upper()}_{stream}"
            try:
                consumers = msgspec.json.decode(
                    await self._ask(f"CONSUMER.LIST.{name}"), type=ConsumerList
                ).consumers
                info = msgspec.json.decode(await self._ask(f"STREAM.INFO.{name}"), type=StreamInfo)
            except (NatsError, TimeoutError, OSError, msgspec.ValidationError):
                return
            deliveries = sum(one.delivered.consumer_seq for one in consumers)
            out_again = sum(one.num_redelivered for one in consumers)
            seen = max(deliveries - info.state.last_seq, out_again)
            self._most[name] = max(self._most.get(name, 0), seen)

    async def _ask(self, call: str) -> bytes:
        nc = await self._api.connection()
        return (await nc.request(f"$JS.API.{call}", b"{}", timeout=REPLY_SECONDS)).data
