"""The bus on NATS: puts connection, streams, pull loops, publisher and API service together.

On every new link: check the server, make streams and consumers, attach everything, tell the
services. Whatever is missing afterwards (a deleted consumer, a wiped stream) is noticed by the
pull loops, the publisher, the server's advisories or the audit, and leads to `_repair`.
"""

import asyncio
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import structlog

from towpath_engine.bus import streams
from towpath_engine.bus.api import ApiService
from towpath_engine.bus.connection import Connection, Link, Message
from towpath_engine.bus.core_messages import CoreMessages
from towpath_engine.bus.errors import BusRefused, BusUnavailable, JetStreamError
from towpath_engine.bus.handover import Handover
from towpath_engine.bus.interface import (
    ApiHandler,
    Confirmation,
    ConsumerState,
    InboundMessage,
    OutboundMessage,
    StoredMessage,
    StreamState,
)
from towpath_engine.bus.jetstream import JetStreamApi
from towpath_engine.bus.publisher import Publisher
from towpath_engine.bus.pull import Pulls, Source
from towpath_engine.bus.server import check_server
from towpath_engine.bus.settings import BusSettings
from towpath_protocol import subjects

log: Any = structlog.get_logger(__name__)


class NatsBus:
    """See `bus.interface.Bus`, whose contract this class fulfils."""

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._queues: set[str] = set()
        self._queues_made: set[str] = set()
        self._states: dict[str, StreamState] = {}
        self._server_id = ""
        self._attaching = False
        self._on_message: list[Callable[[InboundMessage], None]] = []
        self._on_confirmation: list[Callable[[Confirmation], None]] = []
        self._on_reset: list[Callable[[], None]] = []
        self._core = CoreMessages(queue_max=settings.core_queue_max)
        self._repair_wake = asyncio.Event()
        self._repair_lock = asyncio.Lock()
        self._service: ApiService | None = None
        self._connection = Connection(settings, prepare=self._prepare, lost=self._lost)
        self._publisher = Publisher(
            settings, confirm=self._confirm, stream_missing=self._repair_wake.set
        )
        self._pulls = Pulls(
            settings, _sources(settings), deliver=self._deliver, repair=self._repair_wake.set
        )
        self._handover = Handover(settings, self._pulls, self._repair_lock)

    # Life

    async def start(self) -> None:
        """Connect, check the server, create or migrate streams and partition consumers.

        Raises BusRefused, with one sentence, when the server is not fit; BusUnavailable when none
        answers within `start_timeout_s` (then it may be called again).
        """
        self._publisher.start()
        try:
            await self._connection.start()
        except BaseException:
            await self._publisher.stop()
            raise

    async def close(self) -> None:
        """Stop pulling, let running API handlers and publishes end, give deliveries back, end."""
        self._pulls.set_credit(0)
        if self._service is not None:
            await self._service.drain()
        link = self._connection.link
        if link is not None:
            await self._publisher.settled(timeout_s=self._settings.drain_timeout_s)
            await self._pulls.close(link)
            try:
                await link.flush()
            except BusUnavailable as error:
                log.debug("bus_flush_failed", error=str(error))
        await self._connection.close()
        await self._publisher.stop()

    @property
    def connected(self) -> bool:
        """True while there is a live connection with streams, and requests would reach us."""
        return self._connection.link is not None and not self._attaching

    @property
    def in_flight(self) -> int:
        """Messages delivered and neither acknowledged nor forgotten."""
        return self._pulls.in_flight

    @property
    def unconfirmed(self) -> int:
        """Messages handed to `publish` whose outcome is not known yet."""
        return self._publisher.queued + self._publisher.in_flight

    # Callbacks

    def on_confirmation(self, callback: Callable[[Confirmation], None]) -> None:
        """Where the outcomes of `publish` go."""
        self._on_confirmation.append(callback)

    def on_message(self, callback: Callable[[InboundMessage], None]) -> None:
        """Where inbound messages of P_IN and P_ADV go."""
        self._on_message.append(callback)

    def on_reset(self, callback: Callable[[], None]) -> None:
        """Called after every (re)connection and after streams or consumers were re-created."""
        self._on_reset.append(callback)

    def _confirm(self, confirmation: Confirmation) -> None:
        for callback in self._on_confirmation:
            callback(confirmation)

    def _deliver(self, message: InboundMessage) -> None:
        for callback in self._on_message:
            callback(message)

    # Messages

    def publish(self, messages: Sequence[OutboundMessage]) -> None:
        """Hand over messages for publication. Never blocks; each is confirmed exactly once."""
        self._publisher.publish(messages)

    def acknowledge(self, messages: Sequence[InboundMessage]) -> None:
        """Ack each message; those of a stream that was wiped meanwhile are left alone."""
        self._pulls.acknowledge(messages)

    def forget(self, messages: Sequence[InboundMessage]) -> None:
        """These will not be acknowledged: give their credit back."""
        self._pulls.forget(messages)

    def set_credit(self, credit: int) -> None:
        """Pull only while fewer messages than this are in flight; 0 stops asking.

        What was asked for before still comes: at most about as much again, for `pull_expires_s`.
        """
        self._pulls.set_credit(credit)

    def set_partitions(self, partitions: Collection[int]) -> None:
        """Pull from these partitions of P_IN only; without a call from all."""
        self._pulls.set_partitions(partitions)

    def guard_partitions(self, valid: Callable[[], bool]) -> None:
        """Ask partitions for messages, and take them, only while this says so."""
        self._pulls.guard(valid)

    async def let_go(self, partitions: Collection[int], *, timeout_s: float) -> None:
        """See Bus. Raises BusUnavailable."""
        link = self._live_link()
        api = self._api_of(link)
        with _passing():
            await self._handover.let_go(api, link, partitions, timeout_s=timeout_s)

    async def reset_partition(self, partition: int) -> None:
        """See Bus. Raises BusUnavailable."""
        with _passing():
            await self._handover.reset(self._api(), partition)

    def send_core(self, subject: str, body: bytes) -> None:
        """Publish a core message; best effort: dropped without a connection or when too many."""
        self._core.send(subject, body)

    def subscribe_core(self, subject: str, callback: Callable[[str, bytes], None]) -> None:
        """Subscribe to core messages, kept over reconnections."""
        self._core.subscribe(subject, callback)

    def unsubscribe_core(self, subject: str) -> None:
        """Undo `subscribe_core`."""
        self._core.unsubscribe(subject)

    def serve_api(self, handler: ApiHandler, *, concurrency_max: int, polls_max: int) -> None:
        """Answer the API and heartbeats. To be called once, before or after `start`.

        After `start`, `connected` is False again until the subscriptions have reached the server.
        """
        assert self._service is None, "the API is served already"
        self._service = ApiService(
            self._settings, handler, concurrency_max=concurrency_max, polls_max=polls_max
        )
        link = self._connection.link
        if link is not None:
            self._attaching = True
            link.run(self._attach_service(link, self._service), name="bus-serve")

    # Streams

    async def ensure_queues(self, queues: Sequence[str]) -> None:
        """Create the four consumers of each queue (idempotent); kept over a wiped store.

        Raises BusRefused above `queues_max` queues, BusUnavailable without a connection (the
        queues are remembered all the same and created with the next one).
        """
        wanted = set(queues)
        if len(self._queues | wanted) > self._settings.queues_max:
            raise BusRefused(f"There may be at most {self._settings.queues_max} queues.")
        # Known ones are looked after by the audit; workers' heartbeats ask for them all the time.
        missing = sorted(wanted - self._queues_made)
        consumers = [consumer for queue in missing for consumer in self._queue_consumers(queue)]
        self._queues |= wanted
        api = self._api()
        try:
            ensured = await streams.ensure_consumers(api, consumers)
        except BusRefused:
            # Else every new link would ask for them, and be refused as a whole.
            self._queues.difference_update(missing)
            raise
        self._queues_made.update(missing)
        if ensured.created:
            log.info("bus_consumers_created", consumers=sorted(ensured.created))

    async def stream_state(self, stream: str) -> StreamState | None:
        """None when the stream does not exist. Raises BusUnavailable."""
        with _passing():
            return await self._api().stream_state(stream)

    async def consumer_state(self, stream: str, consumer: str) -> ConsumerState | None:
        """None when it does not exist. Raises BusUnavailable."""
        with _passing():
            return await self._api().consumer_state(stream, consumer)

    async def find_message(
        self, stream: str, *, subject: str | None = None, seq: int | None = None
    ) -> StoredMessage | None:
        """The last message on an exact subject (as stored), or the one with a sequence.

        None if absent. Raises BusUnavailable.
        """
        assert (subject is None) != (seq is None), "one of subject and seq"
        with _passing():
            return await self._api().find_message(stream, subject=subject, seq=seq)

    async def pause_consumer(self, stream: str, consumer: str, until: datetime | None) -> None:
        """See Bus."""
        with _passing():
            await self._api().pause_consumer(stream, consumer, until)

    async def purge_subject(self, stream: str, subject: str) -> int:
        """Remove the messages of an exact subject; returns how many. Raises BusUnavailable."""
        with _passing():
            return await self._api().purge_subject(stream, subject)

    def _live_link(self) -> Link:
        link = self._connection.link
        if link is None:
            raise BusUnavailable("not connected to NATS")
        return link

    def _api(self) -> JetStreamApi:
        return self._api_of(self._live_link())

    def _api_of(self, link: Link) -> JetStreamApi:
        return JetStreamApi(link, timeout_s=self._settings.request_timeout_s)

    def _queue_consumers(self, queue: str) -> list[streams.Consumer]:
        return streams.queue_consumers(self._settings, queue)

    # Links

    async def _prepare(self, link: Link) -> None:
        """Make a fresh link usable. Raises BusRefused, BusUnavailable."""
        api = self._api_of(link)
        with _passing():
            await check_server(link, api, self._settings)
            if link.server_id != self._server_id:
                self._server_id = link.server_id
                self._pulls.disown_all()
            async with self._repair_lock:
                await self._ensure_all(api)
        await self._publisher.attach(link)
        await self._pulls.attach(link)
        await self._core.attach(link)
        for stream in _stream_names(self._settings):
            for deleted in (f"STREAM.DELETED.{stream}", f"CONSUMER.DELETED.{stream}.*"):
                await link.subscribe(f"$JS.EVENT.ADVISORY.{deleted}", self._on_deleted)
        if self._service is not None:
            await self._service.attach(link)
        # Who was told that we are there must find our subscriptions.
        await link.flush(timeout_s=self._settings.request_timeout_s)
        self._attaching = False
        self._repair_wake.clear()
        link.run(self._tend(link), name="bus-tend")

    def _lost(self) -> None:
        self._core.detach()
        self._pulls.detach()
        self._publisher.detach()
        if self._service is not None:
            self._service.detach()

    async def _on_deleted(self, _: Message) -> None:
        self._repair_wake.set()

    async def _attach_service(self, link: Link, service: ApiService) -> None:
        await service.attach(link)
        await link.flush(timeout_s=self._settings.request_timeout_s)
        self._attaching = False

    # Repair

    async def _tend(self, link: Link) -> None:
        """Tell the services about the new link, then look after streams and consumers."""
        self._tell_reset()
        while link.alive:
            try:
                async with asyncio.timeout(self._settings.audit_interval_s):
                    await self._repair_wake.wait()
            except TimeoutError:
                pass
            self._repair_wake.clear()
            try:
                changed = await self._repair(self._api_of(link))
            except BusUnavailable as error:
                log.debug("bus_repair_failed", error=str(error))
            except BusRefused as error:
                log.error("bus_refused", reason=str(error))  # noqa: TRY400 - one sentence
            else:
                if changed:
                    self._tell_reset()
            # Many faults at once are one repair.
            await asyncio.sleep(self._settings.recovery_backoff_min_s)

    def _tell_reset(self) -> None:
        for callback in self._on_reset:
            callback()

    async def _repair(self, api: JetStreamApi) -> bool:
        """Re-create what is missing. True when something was missing, or data was lost."""
        with _passing():
            async with self._repair_lock:
                if await self._is_complete(api):
                    return False
                changed = await self._ensure_all(api)
        if changed:
            log.warning("bus_repaired")
        return changed

    async def _is_complete(self, api: JetStreamApi) -> bool:
        """A cheap look: six requests, whatever the number of queues."""
        for name in _stream_names(self._settings):
            state = await api.stream_state(name)
            known = self._states.get(name)
            if state is None or known is None or _is_other(known, state):
                return False
            self._states[name] = state
        wanted: dict[str, set[str]] = {}
        for consumer in self._all_consumers():
            wanted.setdefault(consumer.stream, set()).add(consumer.name)
        for stream, names in wanted.items():
            if names - (await api.consumer_names(stream) or set()):
                return False
        return True

    async def _ensure_all(self, api: JetStreamApi) -> bool:
        """Streams, partition consumers, the consumers of all known queues. True: it mattered.

        The caller holds the lock.
        """
        queues = frozenset(self._queues)
        self._queues_made.clear()
        ensured = await streams.ensure_streams(api, self._settings)
        lost = False
        for name, state in ensured.states.items():
            known = self._states.get(name)
            seen = self._pulls.seq_max(name)
            if known is not None and (_is_other(known, state) or state.last_seq < seen):
                lost = True
                self._pulls.disown(name)
                log.warning("bus_stream_lost_data", stream=name)
        consumers = await streams.ensure_consumers(api, self._all_consumers())
        self._states = dict(ensured.states)
        self._queues_made |= queues
        return lost or bool(ensured.created) or bool(consumers.created)

    def _all_consumers(self) -> list[streams.Consumer]:
        consumers = streams.engine_consumers(self._settings)
        for queue in sorted(self._queues):
            consumers.extend(self._queue_consumers(queue))
        return consumers


@contextmanager
def _passing() -> Generator[None]:
    """Errors of single JetStream calls that are nobody's fault pass: BusUnavailable."""
    try:
        yield
    except JetStreamError as error:
        raise BusUnavailable(str(error)) from error


def _is_other(known: StreamState, state: StreamState) -> bool:
    """Another stream of the same name, or the same with its last messages gone."""
    return known.created != state.created or state.last_seq < known.last_seq


def _stream_names(settings: BusSettings) -> tuple[str, ...]:
    prefix = settings.prefix
    return (
        subjects.dispatch_stream(prefix),
        subjects.in_stream(prefix),
        subjects.advisory_stream(prefix),
        subjects.event_stream(prefix),
    )


def _sources(settings: BusSettings) -> list[Source]:
    prefix = settings.prefix
    partitions = [
        Source(
            stream=subjects.in_stream(prefix),
            consumer=subjects.partition_consumer(number),
            partition=number,
            stored_prefix=f"{prefix}.inp.{number}.",
            original_prefix=f"{prefix}.in.",
        )
        for number in range(subjects.PARTITION_COUNT)
    ]
    advisories = Source(
        stream=subjects.advisory_stream(prefix),
        consumer=subjects.advisory_consumer(),
        partition=-1,
    )
    return [*partitions, advisories]
