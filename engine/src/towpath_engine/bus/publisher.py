"""Publishing with an ack window: many messages in flight, each with a deadline.

A message is confirmed exactly once, ok or not. Not ok never means "not stored": the caller
publishes it again with the same `Nats-Msg-Id`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from towpath_engine.bus.connection import Link, Message
from towpath_engine.bus.errors import BusUnavailable, UnsendableMessageError
from towpath_engine.bus.interface import Confirmation, OutboundMessage
from towpath_engine.bus.jetstream import ApiError
from towpath_engine.bus.settings import BusSettings

log: Any = structlog.get_logger(__name__)

SWEEP_INTERVAL_S = 0.25
FULL = frozenset({10023, 10047})
STORE_FAILED = 10077
"""Any failed store; it is about limits when its words are "maximum … exceeded"."""
WINDOW_BYTES_MAX = 16 * 1024 * 1024


class PubAck(Struct, frozen=True):
    """The server's answer to a published message."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


class Pending(Struct):
    """A message that waits for its turn or for its confirmation."""

    message: OutboundMessage
    size: int
    deadline: float


_decode = msgspec.json.Decoder(PubAck).decode


def headers_size(headers: Mapping[str, str]) -> int:
    """Bytes of a header block on the wire (the server's `max_payload` counts them)."""
    if not headers:
        return 0
    # 4 bytes a character is the most that UTF-8 takes; ASCII is what the protocol asks for.
    return 14 + sum(
        len(name) + len(value) * (1 if value.isascii() else 4) + 4
        for name, value in headers.items()
    )


class Publisher:
    """A bounded queue, a window of messages in flight, and one task that feeds it."""

    def __init__(
        self,
        settings: BusSettings,
        *,
        confirm: Callable[[Confirmation], None],
        stream_missing: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._confirm = confirm
        self._stream_missing = stream_missing
        self._queue: deque[Pending] = deque()
        self._queue_bytes = 0
        self._open: dict[str, Pending] = {}
        self._open_bytes = 0
        self._number = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._feeder: asyncio.Task[None] | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> int:
        """Messages sent and not confirmed yet."""
        return len(self._open)

    @property
    def queued(self) -> int:
        """Messages that wait for room in the window or for a connection."""
        return len(self._queue)

    def start(self) -> None:
        """Begin to watch deadlines; publishing begins with `attach`."""
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="bus-publish-sweep")

    async def stop(self) -> None:
        """End all tasks; what is not confirmed yet is confirmed as not ok."""
        self.detach()
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.cancel()
            await asyncio.gather(sweeper, return_exceptions=True)
        while self._queue:
            self._settle(self._pop(), error="down")

    async def settled(self, *, timeout_s: float) -> None:
        """Wait until everything handed over is confirmed, at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            log.warning("bus_publish_unsettled", queued=self.queued, in_flight=self.in_flight)

    def publish(self, messages: Sequence[OutboundMessage]) -> None:
        """Queue messages.

        What does not fit is confirmed as `full` in the loop's next round; everything as `down`
        before `start` and after `stop`.
        """
        deadline = asyncio.get_running_loop().time() + self._settings.publish_timeout_s
        refused: list[Pending] = []
        error = "full" if self._sweeper is not None else "down"
        for message in messages:
            size = len(message.body) + headers_size(message.headers)
            entry = Pending(message=message, size=size, deadline=deadline)
            if (
                self._sweeper is None
                or len(self._queue) >= self._settings.publish_queue_max
                or self._queue_bytes + size > self._settings.publish_queue_bytes_max
            ):
                refused.append(entry)
                continue
            self._queue.append(entry)
            self._queue_bytes += size
        if self._queue:
            self._idle.clear()
            self._wake.set()
        for entry in refused:
            # Not from within this call: the callback may publish again.
            asyncio.get_running_loop().call_soon(partial(self._settle, entry, error=error))

    async def attach(self, link: Link) -> None:
        """Publish through this link from now on. Raises BusUnavailable."""
        inbox = link.new_inbox()
        await link.subscribe(f"{inbox}.*", self._on_answer)
        self._feeder = link.run(self._feed(link, inbox), name="bus-publish")

    def detach(self) -> None:
        """The link has ended: nobody knows what became of the messages in flight."""
        feeder, self._feeder = self._feeder, None
        if feeder is not None:
            feeder.cancel()
        open_, self._open, self._open_bytes = self._open, {}, 0
        for entry in open_.values():
            self._settle(entry, error="down")

    async def _feed(self, link: Link, inbox: str) -> None:
        me = asyncio.current_task()
        # The client swallows cancellation while it waits for its buffer, hence the comparison.
        while link.alive and self._feeder is me:
            if not self._queue or not self._has_room():
                self._wake.clear()
                await self._wake.wait()
                continue
            entry = self._pop()
            self._number += 1
            number = str(self._number)
            self._open[number] = entry
            self._open_bytes += entry.size
            try:
                await self._send(link, entry, f"{inbox}.{number}")
            except UnsendableMessageError as error:
                self._close(number, error=str(error) or "unsendable")
            except BusUnavailable:
                self._close(number, error="down")
                raise

    async def _send(self, link: Link, entry: Pending, reply: str) -> None:
        message = entry.message
        if entry.size > link.max_payload:
            # The server would close the whole connection over it.
            raise UnsendableMessageError(
                f"too large: {entry.size} bytes, the server takes {link.max_payload}"
            )
        await link.publish(message.subject, message.body, reply=reply, headers=message.headers)

    def _has_room(self) -> bool:
        return (
            len(self._open) < self._settings.publish_window and self._open_bytes < WINDOW_BYTES_MAX
        )

    def _pop(self) -> Pending:
        entry = self._queue.popleft()
        self._queue_bytes -= entry.size
        return entry

    async def _on_answer(self, answer: Message) -> None:
        number = answer.subject.rpartition(".")[2]
        if answer.headers is not None and answer.headers.get("Status") == "503":
            self._close(number, error="no_stream")
            self._stream_missing()
            return
        try:
            ack = _decode(answer.data)
        except (msgspec.DecodeError, msgspec.ValidationError):
            # Anybody may write to an inbox whose name got known; the deadline decides.
            log.warning("bus_publish_answer_unreadable", subject=answer.subject)
            return
        if ack.error is not None:
            self._close(number, error=_reason(ack.error))
            return
        entry = self._forget(number)
        if entry is not None:
            self._confirm(
                Confirmation(
                    id=entry.message.id,
                    ok=True,
                    stream=ack.stream,
                    seq=ack.seq,
                    duplicate=ack.duplicate,
                )
            )

    def _forget(self, number: str) -> Pending | None:
        """None for an answer that comes after the deadline or from an ended link."""
        entry = self._open.pop(number, None)
        if entry is not None:
            self._open_bytes -= entry.size
            if self._queue:
                self._wake.set()
            elif not self._open:
                self._idle.set()
        return entry

    def _close(self, number: str, *, error: str) -> None:
        entry = self._forget(number)
        if entry is not None:
            self._settle(entry, error=error)

    def _settle(self, entry: Pending, *, error: str) -> None:
        if not self._queue and not self._open:
            self._idle.set()
        self._confirm(Confirmation(id=entry.message.id, ok=False, error=error))

    async def _sweep(self) -> None:
        """Deadlines grow in order of arrival, so only the expired are looked at."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            now = loop.time()
            expired: list[str] = []
            for number, entry in self._open.items():
                if entry.deadline > now:
                    break
                expired.append(number)
            for number in expired:
                self._close(number, error="timeout")
            while self._queue and self._queue[0].deadline <= now:
                error = "timeout" if self._feeder is not None else "down"
                self._settle(self._pop(), error=error)


def _reason(error: ApiError) -> str:
    is_limit = error.err_code == STORE_FAILED and "maximum" in error.description
    if is_limit or error.err_code in FULL:
        return "full"
    return error.description
