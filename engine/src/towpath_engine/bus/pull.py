"""The pull loops: one per partition of P_IN that this engine owns, one for P_ADV, with one credit
over all of them.

Messages arrive in a callback and go straight on; one task sends acks and pull requests. The
server's acks do not fence: an ack whose stream was wiped meanwhile could hit another message
with the same sequence. So only messages of the present streams are acknowledged at all.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from towpath_engine.bus.connection import Backoff, Link, Message, Subscription
from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.bus.interface import InboundMessage
from towpath_engine.bus.jetstream import nanoseconds, time_of_nanoseconds
from towpath_engine.bus.settings import BusSettings

log: Any = structlog.get_logger(__name__)

MIB = 1024 * 1024
NO_PARTITION = -1
"""Stands for P_ADV, which every engine pulls from."""
PULL_BYTES = 4 * MIB
"""One pull delivers at most this much; must exceed the largest message."""
TICK_S = 0.5
MISSED_HEARTBEATS = 2.2
ACK_TOKENS_V1 = 9
ACK_TOKENS_V2 = 11


class AckMetadata(Struct, frozen=True):
    """What the reply subject of a delivery tells."""

    deliveries: int
    stream_seq: int
    stored_at_ns: int
    pending: int


def parse_ack_subject(subject: str) -> AckMetadata:
    """Parse `$JS.ACK.<stream>.<consumer>.…` or `$JS.ACK.<domain>.<account>.<stream>.…`.

    Both end in deliveries, stream sequence, consumer sequence, time in ns, pending; the longer
    form may have a random token behind. Raises ValueError when it is neither.
    """
    tokens = subject.split(".")
    count = len(tokens)
    if tokens[:2] != ["$JS", "ACK"] or not (count == ACK_TOKENS_V1 or count >= ACK_TOKENS_V2):
        raise ValueError(f"not an ack subject: {subject!r}")
    first = 4 if count == ACK_TOKENS_V1 else 6
    deliveries, stream_seq, _, stored_at_ns, pending = map(int, tokens[first : first + 5])
    return AckMetadata(deliveries, stream_seq, stored_at_ns, pending)


class Verdict(StrEnum):
    """What a status message means for the pull."""

    ALIVE = "alive"
    ENDED = "ended"
    """The request is over; ask again."""
    BROKEN = "broken"
    """Consumer or stream are gone, or the request is refused: back off, repair, start anew."""


def judge_status(status: str, description: str) -> Verdict:
    """Sort a status message of a pull."""
    match status:
        case "100":
            return Verdict.ALIVE
        case "404" | "408":
            return Verdict.ENDED
        case "409" if "Completed" in description or "MaxBytes" in description:
            return Verdict.ENDED
        case _:
            return Verdict.BROKEN


class Source(Struct, frozen=True, kw_only=True):
    """A consumer to pull from. `partition` is -1 for P_ADV."""

    stream: str
    consumer: str
    partition: int
    stored_prefix: str = ""
    """What the stream put in front of a subject…"""
    original_prefix: str = ""
    """…and what stood there before."""


class Held(Struct, frozen=True):
    """A message in flight."""

    size: int
    partition: int


def _to_nobody(_: InboundMessage) -> None:
    """Where messages go that arrive while the bus is closed: they are given back."""


class Puller:
    """The open pulls of one consumer on one link. `open` counts messages asked for, not come."""

    def __init__(self, source: Source, settings: BusSettings) -> None:
        self.source = source
        self.open = 0
        self.generation = 0
        self.heard_at = 0.0
        self.resume_at: float | None = None
        self.subscription: Subscription | None = None
        self.inbox = ""
        self.backoff = Backoff(settings.recovery_backoff_min_s, settings.recovery_backoff_max_s)
        self.next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{source.stream}.{source.consumer}"

    @property
    def ready(self) -> bool:
        """True while it has an inbox to pull into."""
        return self.subscription is not None


class Pulls:
    """All pull loops of an engine."""

    def __init__(
        self,
        settings: BusSettings,
        sources: Sequence[Source],
        *,
        deliver: Callable[[InboundMessage], None],
        repair: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._pullers = [Puller(source, settings) for source in sources]
        self._wanted = frozenset(source.partition for source in sources)
        self._valid: Callable[[], bool] = lambda: True
        self._deliver = deliver
        self._repair = repair
        self._credit = 0
        self._in_flight: dict[str, Held] = {}
        self._released = asyncio.Event()
        self._in_flight_bytes = 0
        self._acks: deque[str] = deque()
        self._seq_max: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._feeder: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> int:
        """Messages delivered and neither acknowledged nor forgotten."""
        return len(self._in_flight)

    @property
    def open(self) -> int:
        """Messages that the server may still deliver without being asked again."""
        return sum(puller.open for puller in self._pullers)

    def seq_max(self, stream: str) -> int:
        """The highest stream sequence seen of a stream since its data was last known to be new."""
        return self._seq_max.get(stream, 0)

    def set_credit(self, credit: int) -> None:
        """Pull while fewer messages than this are in flight; 0 stops asking."""
        self._credit = max(credit, 0)
        self._wake.set()

    def set_partitions(self, partitions: Collection[int]) -> None:
        """Pull from these partitions and P_ADV only. What was asked of others no longer comes."""
        self._wanted = frozenset(partitions) | {NO_PARTITION}
        self._wake.set()

    def guard(self, valid: Callable[[], bool]) -> None:
        """Ask for messages of partitions, and take them, only while `valid()`."""
        self._valid = valid

    def acknowledge(self, messages: Sequence[InboundMessage]) -> None:
        """Queue the acks of messages in flight; others (of wiped streams, twice) are left."""
        for message in messages:
            if self._release(message):
                self._acks.append(message.ack_subject)
        self._wake.set()

    def forget(self, messages: Sequence[InboundMessage]) -> None:
        """Give the credit of messages back that will not be acknowledged."""
        for message in messages:
            self._release(message)
        self._wake.set()

    def disown_all(self) -> None:
        """Another server answers now, maybe with older data: never acknowledge what came before.

        Whatever was not acknowledged comes again, and is a repetition then.
        """
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self._released.set()
        self._acks.clear()

    def disown(self, stream: str) -> None:
        """The stream's data is not what it was: never acknowledge what came from it before."""
        mark = f".{stream}."
        for subject in [subject for subject in self._in_flight if mark in subject]:
            self._drop(subject)
        self._acks = deque(subject for subject in self._acks if mark not in subject)
        self._seq_max.pop(stream, None)

    async def attach(self, link: Link) -> None:
        """Pull through this link from now on. Raises BusUnavailable."""
        for puller in self._pullers:
            puller.backoff.reset()
        await self._adjust(link)
        self._wake.set()
        self._feeder = link.run(self._feed(link), name="bus-pull")

    def detach(self) -> None:
        """The link has ended. Messages in flight stay: they may be acknowledged on the next."""
        feeder, self._feeder = self._feeder, None
        if feeder is not None:
            feeder.cancel()
        for puller in self._pullers:
            puller.generation += 1
            puller.open = 0
            puller.subscription = None

    async def let_go(self, link: Link, partitions: Collection[int], *, timeout_s: float) -> None:
        """Ask nothing more of these partitions; return when what came of them is settled.

        What is not within `timeout_s` is given back to the server. Raises BusUnavailable.
        """
        self._wanted -= set(partitions)
        leaving = [puller for puller in self._pullers if puller.source.partition in partitions]
        subscriptions = [p.subscription for p in leaving if p.subscription is not None]
        for puller in leaving:
            puller.subscription = None
            puller.resume_at = None
        # What is on the way still arrives and is worked off.
        await asyncio.gather(*(link.drain(subscription) for subscription in subscriptions))
        for puller in leaving:
            puller.generation += 1
            puller.open = 0
        try:
            async with asyncio.timeout(timeout_s):
                while any(held.partition in partitions for held in self._in_flight.values()):
                    self._released.clear()
                    await self._released.wait()
        except TimeoutError:
            log.info("bus_given_back", partitions=sorted(partitions))
        await self._send_acks(link)
        for subject, held in list(self._in_flight.items()):
            if held.partition in partitions:
                self._drop(subject)
                await link.publish(subject, b"-NAK")
        await link.flush()

    async def close(self, link: Link) -> None:
        """Stop asking, send the acks that wait, give everything else back at once.

        A pull can't be withdrawn without a race: a message that the server sends in that very
        moment is lost to us and comes again after its ack_wait (seen once in some 50 closes under
        load). Waiting for the pulls to expire instead would cost every close half a minute.
        """
        self._credit = 0
        self._deliver = _to_nobody
        subscriptions = [p.subscription for p in self._pullers if p.subscription is not None]
        try:
            # First, so that nothing that is given back is delivered to us again. What is on the
            # way still arrives and is given back, too; dropped, it would wait for its ack_wait.
            await asyncio.gather(*(link.drain(subscription) for subscription in subscriptions))
            self.detach()
            await self._send_acks(link)
            for subject in list(self._in_flight):
                await link.publish(subject, b"-NAK")
        except BusUnavailable as error:
            log.debug("bus_give_back_failed", error=str(error))
        self.detach()
        self._in_flight.clear()
        self._in_flight_bytes = 0

    def _release(self, message: InboundMessage) -> bool:
        return self._drop(message.ack_subject)

    def _drop(self, ack_subject: str) -> bool:
        held = self._in_flight.pop(ack_subject, None)
        if held is None:
            return False
        self._in_flight_bytes -= held.size
        self._released.set()
        return True

    async def _adjust(self, link: Link) -> None:
        """Give the pullers that are wanted an inbox, and take it from the others."""
        for puller in self._pullers:
            if puller.source.partition in self._wanted:
                if puller.subscription is None and puller.resume_at is None:
                    await self._renew(link, puller)
            elif puller.subscription is not None:
                subscription, puller.subscription = puller.subscription, None
                puller.generation += 1
                puller.open = 0
                puller.resume_at = None
                await link.unsubscribe(subscription)

    async def _renew(self, link: Link, puller: Puller) -> None:
        """A new inbox, so that no credit of the old one can be counted again."""
        old, puller.subscription = puller.subscription, None
        puller.generation += 1
        puller.open = 0
        puller.resume_at = None
        puller.heard_at = asyncio.get_running_loop().time()
        if old is not None:
            await link.unsubscribe(old)
        generation = puller.generation

        async def on_message(message: Message) -> None:
            self._on_message(puller, generation, message)

        puller.inbox = link.new_inbox()
        puller.subscription = await link.subscribe(puller.inbox, on_message)

    def _on_message(self, puller: Puller, generation: int, message: Message) -> None:
        if generation != puller.generation:
            return
        puller.heard_at = asyncio.get_running_loop().time()
        headers = message.headers or {}
        status = headers.get("Status") if not message.data and not message.reply else None
        if status is None:
            self._on_data(puller, message)
            return
        match judge_status(status, headers.get("Description", "")):
            case Verdict.ALIVE:
                puller.backoff.reset()
            case Verdict.ENDED:
                puller.backoff.reset()
                rest = headers.get("Nats-Pending-Messages", "")
                self._shrink(puller, int(rest) if rest.isdecimal() else self._batch())
            case Verdict.BROKEN:
                self._break(puller, f"{status} {headers.get('Description', '')}".strip())

    def _on_data(self, puller: Puller, message: Message) -> None:
        try:
            facts = parse_ack_subject(message.reply)
        except ValueError:
            log.warning("bus_delivery_unreadable", subject=message.subject)
            return
        puller.backoff.reset()
        self._shrink(puller, 1)
        source = puller.source
        if source.partition != NO_PARTITION and not self._valid():
            return  # whoever owns the partition next begins with a new consumer
        size = len(message.data) + len(message.subject)
        self._in_flight[message.reply] = Held(size, source.partition)
        self._in_flight_bytes += size
        if facts.stream_seq > self._seq_max.get(source.stream, 0):
            self._seq_max[source.stream] = facts.stream_seq
        self._deliver(
            InboundMessage(
                subject=source.original_prefix + message.subject.removeprefix(source.stored_prefix),
                headers=message.headers or {},
                body=message.data,
                partition=source.partition,
                stream_seq=facts.stream_seq,
                stored_at=time_of_nanoseconds(facts.stored_at_ns),
                pending=facts.pending,
                deliveries=facts.deliveries,
                ack_subject=message.reply,
            )
        )

    def _shrink(self, puller: Puller, count: int) -> None:
        puller.open = max(puller.open - count, 0)
        if puller.open <= self._batch() // 2:
            self._wake.set()

    def _break(self, puller: Puller, reason: str) -> None:
        """Back off, then start anew; the bus looks after streams and consumers meanwhile."""
        if puller.resume_at is not None:
            return
        wait_s = puller.backoff.next_s()
        puller.generation += 1
        puller.open = 0
        puller.resume_at = asyncio.get_running_loop().time() + wait_s
        log.warning(
            "bus_pull_broken", consumer=puller.source.consumer, reason=reason, retry_s=wait_s
        )
        self._repair()

    def _batch(self) -> int:
        """How much one pull asks for: the pulls of all loops together stay below the credit."""
        fair = self._credit // (2 * max(1, len(self._wanted)))
        return max(1, min(fair, self._settings.pull_batch_max))

    def _hungry(self) -> bool:
        return (
            len(self._in_flight) < self._credit
            and self._in_flight_bytes < self._settings.pull_bytes_max
        )

    async def _feed(self, link: Link) -> None:
        """Send acks and pull requests; watch heartbeats."""
        me = asyncio.current_task()
        loop = asyncio.get_running_loop()
        next_tick = loop.time() + TICK_S
        # The client swallows cancellation while it waits for its buffer: hence the comparison.
        while link.alive and self._feeder is me:
            await self._send_acks(link)
            await self._adjust(link)
            await self._top_up(link)
            if loop.time() >= next_tick:
                next_tick = loop.time() + TICK_S
                await self._watch(link)
            if self._acks:
                continue
            self._wake.clear()
            try:
                async with asyncio.timeout(max(next_tick - loop.time(), 0.001)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _send_acks(self, link: Link) -> None:
        while self._acks and link.alive:
            subject = self._acks.popleft()
            try:
                await link.publish(subject, b"+ACK")
            except BusUnavailable:
                self._acks.appendleft(subject)  # the next link sends it
                raise

    async def _top_up(self, link: Link) -> None:
        batch = self._batch()
        valid = self._valid()
        for puller in self._pullers:
            if puller.resume_at is not None or not puller.ready or puller.open > batch // 2:
                continue
            if not valid and puller.source.partition != NO_PARTITION:
                continue
            if not self._hungry():
                return
            if puller.open == 0:
                puller.heard_at = asyncio.get_running_loop().time()
            puller.open += batch
            request = {
                "batch": batch,
                "max_bytes": PULL_BYTES,
                "expires": nanoseconds(self._settings.pull_expires_s),
                "idle_heartbeat": nanoseconds(self._settings.pull_heartbeat_s),
            }
            body = msgspec.json.encode(request)
            await link.publish(puller.next_subject, body, reply=puller.inbox)

    async def _watch(self, link: Link) -> None:
        now = asyncio.get_running_loop().time()
        patience_s = self._settings.pull_heartbeat_s * MISSED_HEARTBEATS
        for puller in self._pullers:
            if puller.resume_at is not None:
                if puller.resume_at <= now:
                    await self._renew(link, puller)
                    self._wake.set()
            elif puller.open > 0 and now - puller.heard_at > patience_s:
                self._break(puller, "no heartbeat")
