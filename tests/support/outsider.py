"""A NATS client that knows nothing of Towpath: what another service or worker would use."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from nats.aio.client import Client

ANSWER_TIMEOUT_S = 60.0


class Received(Protocol):
    """A message as nats-py hands it out."""

    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] | None


class Listener:
    """The messages of one subscription, in their order."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription

    async def next(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Received:
        return await self._subscription.next_msg(timeout=timeout_s)

    @property
    def waiting(self) -> int:
        """Messages that have arrived and were not taken."""
        return self._subscription.pending_msgs


class Outsider:
    """Plain publish, request, listen and pull."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def inbox(self) -> str:
        return self._client.new_inbox()

    async def publish(
        self,
        subject: str,
        body: bytes = b"",
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        await self._client.publish(subject, body, reply=reply, headers=headers)

    async def request(
        self, subject: str, body: bytes = b"", *, headers: dict[str, str] | None = None
    ) -> Received:
        return await self._client.request(subject, body, timeout=ANSWER_TIMEOUT_S, headers=headers)

    async def listen(self, subject: str) -> Listener:
        return Listener(await self._client.subscribe(subject))

    async def pull(self, stream: str, consumer: str) -> Received:
        """The next message of a consumer; its reply is where acks go."""
        inbox = self.inbox()
        listener = await self.listen(inbox)
        await self.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", b"1", reply=inbox)
        return await listener.next()

    async def flush(self) -> None:
        # Twice: the client's PING overtakes what its buffer holds.
        await self._client.flush()
        await self._client.flush()


@asynccontextmanager
async def connected_outsider(url: str, **options: Any) -> AsyncGenerator[Outsider]:
    client: Any = Client()
    await client.connect(url, **options)
    try:
        yield Outsider(client)
    finally:
        await client.close()
