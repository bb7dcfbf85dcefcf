"""The pull loop of one queue: does what `CreditPlan` says and feeds it what the server answers.

There is no `fetch` here: every request, status and heartbeat of the JetStream pull protocol is
seen. A request whose fate is unknown (reconnection, missed heartbeats, no answer) is forgotten with
its inbox, so that credit is never counted twice.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from towpath_protocol.subjects import LEVEL_COUNT, dispatch_stream, queue_consumer
from towpath_worker.background import Background
from towpath_worker.clock import now_ms
from towpath_worker.credit import CreditPlan, Probe, Stand, Withdraw
from towpath_worker.transport import Connection, Received, Subscription, TransportError

_log = logging.getLogger("towpath.worker.pull")

EXPIRES_NS: Final = 30 * 10**9
IDLE_HEARTBEAT_NS: Final = 5 * 10**9
SILENCE_MAX_MS: Final = 11_000
"""A little more than two idle heartbeats: after that a standing request is taken for lost."""
PROBE_ANSWER_MAX_MS: Final = 2_000
BACKOFF_MIN_MS: Final = 200
BACKOFF_MAX_MS: Final = 5_000


class Delivery(Struct, frozen=True):
    """A dispatch as it came: `body` undecoded, `ack_subject` verbatim."""

    level: int
    subject: str
    body: bytes
    ack_subject: str
    traceparent: str | None


class _Standing(Struct):
    subscription: Subscription
    inbox: str
    seen_ms: int


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
        self._background = Background()
        self._probe_inbox = connection.new_inbox()
        self._probe: Subscription | None = None
        self._probe_number = 0
        self._probing: tuple[int, int, int] | None = None  # number, level, asked at
        self._standing: dict[int, _Standing] = {}
        self._faults = 0
        self._stopped = False
        connection.on_reset(self._on_reset)

    def pump(self) -> None:
        """Slots may have become free, or time has passed: look again soon."""
        self._wake.set()

    def stop(self) -> None:
        """Ask for nothing more; what was delivered already still arrives."""
        self._stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Pull until `stop`; returns when every standing request is withdrawn."""
        while not self._stopped:
            await self._wake.wait()
            self._wake.clear()
            if self._connection.connected:
                try:
                    await self._do_plan()
                except TransportError as error:
                    _log.info("pull_interrupted error=%s", error)
                    self._on_reset()
        for level in list(self._standing):
            self._withdraw(level)
        if self._probe is not None:
            await self._connection.unsubscribe(self._probe)
        await self._background.join()

    async def _do_plan(self) -> None:
        self._check_silence()
        if self._probe is None:
            self._probe = await self._connection.subscribe(
                f"{self._probe_inbox}.*", self._on_probe_message
            )
        for ask in self._plan.plan(free=self._free(), now_ms=now_ms()):
            match ask:
                case Probe(level, batch):
                    self._probe_number += 1
                    self._probing = (self._probe_number, level, now_ms())
                    reply = f"{self._probe_inbox}.{self._probe_number}"
                    await self._ask(level, {"batch": batch, "no_wait": True}, reply=reply)
                case Stand(level, batch):
                    reply = (await self._standing_at(level)).inbox
                    await self._ask(
                        level,
                        {
                            "batch": batch,
                            "expires": EXPIRES_NS,
                            "idle_heartbeat": IDLE_HEARTBEAT_NS,
                        },
                        reply=reply,
                    )
                case Withdraw(level):
                    self._withdraw(level)

    async def _ask(self, level: int, request: dict[str, int], *, reply: str) -> None:
        body = json.dumps(request).encode()
        await self._connection.publish(self._next[level], body, reply=reply)

    async def _standing_at(self, level: int) -> _Standing:
        standing = self._standing.get(level)
        if standing is not None:
            standing.seen_ms = now_ms()
            return standing
        inbox = self._connection.new_inbox()

        def on_message(received: Received) -> None:
            self._on_standing_message(level, inbox, received)

        subscription = await self._connection.subscribe(inbox, on_message)
        standing = _Standing(subscription, inbox, now_ms())
        self._standing[level] = standing
        return standing

    def _withdraw(self, level: int) -> None:
        standing = self._standing.pop(level, None)
        if standing is not None:
            # The server drops requests whose inbox nobody listens on. Draining delivers what it
            # had sent before it knew.
            self._background.start(self._connection.unsubscribe(standing.subscription))

    def _on_probe_message(self, received: Received) -> None:
        probing = self._probing
        if received.status is None:
            delivery, pending = _delivery(received)
            if probing is not None and probing[1] == delivery.level:
                self._delivered_by_plan(delivery.level, pending)
            self._on_delivery(delivery)
            return
        if probing is None or received.subject != f"{self._probe_inbox}.{probing[0]}":
            return  # the answer to a probe that was given up
        if received.status in {"404", "408"}:
            self._faults = 0
            self._probing = None
            self._plan.probe_ended(probing[1], now_ms=now_ms())
        else:
            self._refused(probing[1], received)
        self._wake.set()

    def _on_standing_message(self, level: int, inbox: str, received: Received) -> None:
        standing = self._standing.get(level)
        current = standing is not None and standing.inbox == inbox
        if current and standing is not None:
            standing.seen_ms = now_ms()
        if received.status is None:
            delivery, pending = _delivery(received)
            if current:
                self._delivered_by_plan(level, pending)
            self._on_delivery(delivery)
            return
        if not current:
            return
        match received.status:
            case "100":
                self._faults = 0
            case "404" | "408":
                unused = int(received.headers.get("Nats-Pending-Messages", "1"))
                self._plan.standing_ended(level, unused=unused)
            case _:
                self._refused(level, received)
        self._wake.set()

    def _delivered_by_plan(self, level: int, pending: int) -> None:
        self._faults = 0
        self._plan.received(level, pending=pending, now_ms=now_ms())
        if not self._plan.probing(level) and self._probing and self._probing[1] == level:
            self._probing = None
        self._wake.set()

    def _refused(self, level: int, received: Received) -> None:
        """503: no such consumer or stream; 409: deleted, or too many requests; 400: our fault."""
        description = received.headers.get("Description", "")
        missing = received.status == "503" or "Deleted" in description
        _log.info("pull_refused level=%d status=%s %s", level, received.status, description)
        self._lose(level)
        if missing:
            self._on_missing()

    def _lose(self, level: int) -> None:
        self._withdraw(level)
        if self._probing is not None and self._probing[1] == level:
            self._probing = None
        backoff_ms = min(BACKOFF_MAX_MS, BACKOFF_MIN_MS << min(self._faults // LEVEL_COUNT, 8))
        self._faults += 1
        self._plan.lost(level, until_ms=now_ms() + backoff_ms)

    def _check_silence(self) -> None:
        now = now_ms()
        if self._probing is not None and now - self._probing[2] > PROBE_ANSWER_MAX_MS:
            self._lose(self._probing[1])
        for level, standing in list(self._standing.items()):
            if self._plan.standing(level) and now - standing.seen_ms > SILENCE_MAX_MS:
                _log.info("pull_silent level=%d", level)
                self._lose(level)

    def _on_reset(self) -> None:
        self._probing = None
        for level in list(self._standing):
            self._withdraw(level)
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
