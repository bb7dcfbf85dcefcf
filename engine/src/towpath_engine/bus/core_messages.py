"""Core messages (control pushes, wakes): stored nowhere, sent and received at best."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog

from towpath_engine.bus.connection import Link, Message, Subscription
from towpath_engine.bus.errors import UnsendableMessageError

log: Any = structlog.get_logger(__name__)

CoreCallback = Callable[[str, bytes], None]


class CoreMessages:
    """A bounded queue of what is to be sent, and the subscriptions, kept over all links."""

    def __init__(self, *, queue_max: int) -> None:
        self._queue: deque[tuple[str, bytes]] = deque(maxlen=queue_max)
        self._wake = asyncio.Event()
        self._callbacks: dict[str, CoreCallback] = {}
        self._link: Link | None = None
        self._subscriptions: dict[str, Subscription] = {}

    def send(self, subject: str, body: bytes) -> None:
        """Send soon; dropped without a link, and the oldest ones when there are too many."""
        if self._link is not None:
            self._queue.append((subject, body))
            self._wake.set()

    def subscribe(self, subject: str, callback: CoreCallback) -> None:
        """Call it with (subject, body) of each message from now on. One callback a subject."""
        self._callbacks[subject] = callback
        self._wake.set()

    def unsubscribe(self, subject: str) -> None:
        """Undo `subscribe`; nothing happens when there was none."""
        self._callbacks.pop(subject, None)
        self._wake.set()

    async def attach(self, link: Link) -> None:
        """Use this link from now on. Raises BusUnavailable."""
        self._subscriptions.clear()
        await self._adjust(link)
        self._link = link
        link.run(self._serve(link), name="bus-core")

    def detach(self) -> None:
        """The link has ended."""
        self._link = None
        self._queue.clear()
        self._subscriptions.clear()

    async def _serve(self, link: Link) -> None:
        while link.alive:
            self._wake.clear()
            await self._adjust(link)
            while self._queue:
                subject, body = self._queue.popleft()
                try:
                    await link.publish(subject, body)
                except UnsendableMessageError as error:
                    log.warning("bus_core_message_refused", subject=subject, error=str(error))
            await self._wake.wait()

    async def _adjust(self, link: Link) -> None:
        """Make the link's subscriptions those that are asked for."""
        for subject in self._subscriptions.keys() - self._callbacks.keys():
            await link.unsubscribe(self._subscriptions.pop(subject))
        for subject in self._callbacks.keys() - self._subscriptions.keys():
            self._subscriptions[subject] = await link.subscribe(subject, self._on_message(subject))

    def _on_message(self, subscribed: str) -> Callable[[Message], Any]:
        async def on_message(message: Message) -> None:
            callback = self._callbacks.get(subscribed)
            if callback is not None:
                callback(message.subject, message.data)

        return on_message
