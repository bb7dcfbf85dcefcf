"""The pull loop of one queue: does what `CreditPlan` says and feeds it what the server answers.

There is no `fetch` here: every request and every status of the JetStream pull protocol is seen. A
request whose fate is unknown (reconnection, no answer in time) is forgotten with its reply subject,
so that credit is never counted twice.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Final, assert_never

from msgspec import Struct

from towpath_protocol.subjects import LEVEL_COUNT, dispatch_stream, queue_consumer
from towpath_worker.clock import now_ms
from towpath_worker.credit import CreditPlan, Probe, Stand
from towpath_worker.denials import DeniedAction
from towpath_worker.transport import (
    Connection,
    MissingRightError,
    Received,
    Subscription,
    TransportError,
)

_log = logging.getLogger("towpath.worker.pull")

STANDING_MS: Final = 1_000
"""How long a standing request waits. It is also how long a drained worker lingers."""
ANSWER_MAX_MS: Final = 2_000
"""After this, on top of its own time, a request that has not ended is taken for lost."""
BACKOFF_MIN_MS: Final = 200
BACKOFF_MAX_MS: Final = 5_000


class Delivery(Struct, frozen=True):
    """A dispatch as it came: `body` undecoded, `ack_subject` verbatim."""

    level: int
    subject: str
    body: bytes
    ack_subject: str
    traceparent: str | None


class _Request(Struct, frozen=True):
    reply: str
    lost_ms: int


class Puller:
    """Pulls dispatches while `free()` says that slots are free.

    `on_delivery` gets every dispatch, `on_missing` is told when a consumer does not exist. Both
    must neither raise nor block.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        prefix: str,
        queue: str,
        free: Callable[[], int],
        on_delivery: Callable[[Delivery], None],
        on_missing: Callable[[], None],
    ) -> None:
        self._connection = connection
        stream = dispatch_stream(prefix)
        self._next = [
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{queue_consumer(queue, level)}"
            for level in range(LEVEL_COUNT)
        ]
        self._free = free
        self._on_delivery = on_delivery
        self._on_missing = on_missing
        self._plan = CreditPlan()
        self._wake = asyncio.Event()
        self._inbox = connection.new_inbox()
        self._subscription: Subscription | None = None
        self._number = 0
        self._open: dict[int, _Request] = {}
        self._faults = 0
        self._stopped = False
        connection.on_reset(self._on_reset)
        connection.on_denied(self._on_denied)

    def pump(self) -> None:
        """Slots may have become free, or time has passed: look again soon."""
        self._wake.set()

    def stop(self) -> None:
        """Ask for nothing more; what the server sends for open requests still arrives."""
        self._stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Pull until `stop`; returns when every open request has run out."""
        while not (self._stopped and not self._open):
            await self._wake.wait()
            self._wake.clear()
            self._forget_lost()
            if self._connection.connected and not self._stopped:
                try:
                    await self._pull()
                except TransportError as error:
                    _log.info("pull_interrupted error=%s", error)
                    self._on_reset()

    async def _pull(self) -> None:
        if self._subscription is None:
            self._subscription = await self._connection.subscribe(
                f"{self._inbox}.*", self._on_message
            )
        for ask in self._plan.plan(free=self._free(), now_ms=now_ms()):
            match ask:
                case Probe(level, batch):
                    request = {"batch": batch, "no_wait": True}
                    lost_ms = now_ms() + ANSWER_MAX_MS
                case Stand(level, batch):
                    request = {"batch": batch, "expires": STANDING_MS * 1_000_000}
                    lost_ms = now_ms() + STANDING_MS + ANSWER_MAX_MS
                case _:
                    assert_never(ask)
            self._number += 1
            reply = f"{self._inbox}.{self._number}"
            self._open[level] = _Request(reply, lost_ms)
            body = json.dumps(request).encode()
            await self._connection.publish(self._next[level], body, reply=reply)

    def _on_message(self, received: Received) -> None:
        self._wake.set()
        if received.status is not None:
            for level, request in self._open.items():
                if request.reply == received.subject:
                    self._on_status(received, level)
                    break
            return
        delivery, pending = _delivery(received)
        self._faults = 0
        self._plan.received(delivery.level, pending=pending, now_ms=now_ms())
        if self._plan.idle(delivery.level):
            # The server sends no status for a request that was filled.
            self._open.pop(delivery.level, None)
        self._on_delivery(delivery)

    def _on_status(self, received: Received, level: int) -> None:
        if received.status in {"404", "408"}:
            del self._open[level]
            self._faults = 0
            self._plan.ended(level, now_ms=now_ms())
        else:
            self._on_refusal(received, level)

    def _on_refusal(self, received: Received, level: int) -> None:
        """503: no such consumer or stream; 409: deleted, or too many requests; 400: our fault."""
        description = received.headers.get("Description", "")
        # 503 comes as long as no engine has made the consumer; `Presence` tells that, once.
        importance = logging.DEBUG if received.status == "503" else logging.INFO
        told = " ".join(description.split())
        _log.log(importance, "pull_refused level=%d status=%s %s", level, received.status, told)
        self._lose(level)
        if received.status == "503" or "Deleted" in description:
            self._on_missing()

    def _on_denied(self, missing: MissingRightError) -> None:
        """The connection has told it; here it only must not be asked for again at once."""
        denial = missing.denial
        if denial.action is DeniedAction.PUBLISH and denial.subject in self._next:
            self._lose(self._next.index(denial.subject))
            self._wake.set()

    def _lose(self, level: int) -> None:
        self._open.pop(level, None)
        backoff_ms = min(BACKOFF_MAX_MS, BACKOFF_MIN_MS << min(self._faults // LEVEL_COUNT, 8))
        self._faults += 1
        self._plan.lost(level, until_ms=now_ms() + backoff_ms)

    def _forget_lost(self) -> None:
        now = now_ms()
        for level, request in list(self._open.items()):
            if now > request.lost_ms:
                _log.info("pull_unanswered level=%d", level)
                self._lose(level)

    def _on_reset(self) -> None:
        self._open.clear()
        self._plan = CreditPlan()
        self._faults = 0
        self._wake.set()


def _delivery(received: Received) -> tuple[Delivery, int]:
    """The delivery, and how many more its consumer holds.

    `$JS.ACK.<stream>.<consumer>.<delivered>.<seq>.<seq>.<time>.<pending>`; the second form has a
    domain and an account hash in front of the stream.
    """
    tokens = received.reply.split(".")
    first = 2 if len(tokens) < 11 else 4
    level = int(tokens[first + 1].rpartition("_p")[2])
    pending = int(tokens[first + 6])
    delivery = Delivery(
        level,
        received.subject,
        received.body,
        received.reply,
        received.headers.get("traceparent"),
    )
    return delivery, pending
