"""Count redeliveries by asking JetStream about the consumers of both streams."""

from typing import Final

import msgspec
from msgspec import Struct
from nats.errors import Error as NatsError

from deploy.demo.api import PlainApi

REPLY_SECONDS: Final = 2.0


class ConsumerState(Struct):
    name: str
    num_redelivered: int = 0


class ConsumerList(Struct):
    consumers: list[ConsumerState] = []


class Redeliveries:
    """The most messages that each consumer had out again at one time, summed over consumers.

    It is a lower bound: a message that is delivered again and acked between two looks is not seen.
    """

    def __init__(self, api: PlainApi) -> None:
        self._api = api
        self._seen: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Redeliveries seen so far."""
        return sum(self._seen.values())

    async def look(self) -> None:
        """Ask both streams once; a server that is away is simply not counted."""
        for stream in ("DISPATCH", "IN"):
            name = f"{self._api.prefix.upper()}_{stream}"
            try:
                nc = await self._api.connection()
                subject = f"$JS.API.CONSUMER.LIST.{name}"
                reply = await nc.request(subject, b"{}", timeout=REPLY_SECONDS)
            except (NatsError, TimeoutError, OSError):
                return
            for one in msgspec.json.decode(reply.data, type=ConsumerList).consumers:
                key = f"{name}.{one.name}"
                self._seen[key] = max(self._seen.get(key, 0), one.num_redelivered)
