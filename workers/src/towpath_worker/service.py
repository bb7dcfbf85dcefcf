"""One served worker, wired together: connection, keeper, pull loop, session, attempts, presence."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from importlib.metadata import version
from typing import Final, assert_never

from msgspec import UNSET

from towpath_protocol.codec import decode
from towpath_protocol.dispatch import (
    StepCancel,
    StepDispatch,
    WorkerHeartbeat,
    WorkerHeartbeatReply,
)
from towpath_protocol.errors import ProtocolError
from towpath_protocol.subjects import control_subject, heartbeat_subject, parse_dispatch
from towpath_worker.attempts import Attempts, Surroundings
from towpath_worker.background import Background
from towpath_worker.clock import now_ms
from towpath_worker.execution import Execution
from towpath_worker.links import Link
from towpath_worker.metrics import WorkerMetrics
from towpath_worker.options import WorkerOptions
from towpath_worker.presence import TOKENS_MAX, Presence
from towpath_worker.processes import TaskProcesses
from towpath_worker.pulling import Delivery, Puller
from towpath_worker.registry import Registry
from towpath_worker.reporting import Reporter
from towpath_worker.session import (
    Acknowledge,
    Action,
    Expire,
    GiveBack,
    Interrupt,
    Renew,
    Session,
    Start,
)
from towpath_worker.threads import TaskThreads
from towpath_worker.transport import NoAnswerError, Received, TransportError

_log = logging.getLogger("towpath.worker")

SDK: Final = f"python/{version('towpath-worker')}"
TICK_SECONDS: Final = 0.1
HOST_LENGTH_MAX: Final = 128
FAREWELL_MS: Final = 5_000
"""After the drain timeout: how long the reports that give attempts back may still take."""


class StopRequest:
    """A request to stop: the first drains, the second does not wait for running attempts."""

    def __init__(self) -> None:
        self.count = 0
        self.event = asyncio.Event()

    def add(self) -> None:
        """Ask (again) to stop."""
        self.count += 1
        self.event.set()


class Service:
    """Serves one queue until it is stopped, over a link that others may use too. Use once."""

    def __init__(
        self,
        queue: str,
        *,
        prefix: str,
        registry: Registry,
        link: Link,
        options: WorkerOptions,
        state: object,
        metrics: WorkerMetrics,
    ) -> None:
        host = socket.gethostname()[:HOST_LENGTH_MAX]
        self.worker_id = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
        self._queue = queue
        self._prefix = prefix
        self._registry = registry
        self._options = options
        self._metrics = metrics
        self._link = link
        self._connection = link.connection
        self._keeper = link.keeper
        self._threads = TaskThreads()
        self._processes = TaskProcesses(self._threads, options)
        self._session = Session(slots=options.slots, hold_ms=round(options.hold_seconds * 1000))
        self._reporter = Reporter(
            self._connection,
            worker_id=self.worker_id,
            ack_timeout_seconds=options.report_ack_timeout_seconds,
            on_unconfirmed=lambda: metrics.report_unconfirmed(queue),
        )
        self._background = Background()
        self._attempts = Attempts(
            session=self._session,
            registry=registry,
            execution=Execution(self._threads, options, self._processes),
            link=link,
            reporter=self._reporter,
            options=options,
            surroundings=Surroundings(state=state, still_mine=self._still_mine, metrics=metrics),
            on_actions=self._act,
        )
        self._presence = Presence(
            self._connection,
            subject=heartbeat_subject(self._prefix, queue),
            describe=self._describe,
            on_reply=self._on_reply,
            interval_seconds=options.heartbeat_interval_seconds,
        )
        self._puller = Puller(
            self._connection,
            prefix=self._prefix,
            queue=queue,
            free=lambda: self._session.free,
            on_delivery=self._on_delivery,
            on_missing=self._presence.nudge,
        )

    async def run(self, stop: StopRequest) -> None:
        """Serve until `stop`, then drain. Survives every absence of NATS."""
        try:
            if await self._open(stop):
                await self._serve(stop)
        finally:
            self._metrics.slots_set(self._queue, 0)
            self._presence.stop()
            self._puller.stop()
            await self._attempts.cancel()
            await self._background.cancel()
            self._processes.close()
            self._threads.close()

    async def _open(self, stop: StopRequest) -> bool:
        """True when connected; False when `stop` came first. The connection tells who waits."""
        opening = asyncio.create_task(self._link.open())
        stopping = asyncio.create_task(stop.event.wait())
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                return False
            await opening
            return True
        finally:
            for task in (opening, stopping):
                task.cancel()
            await asyncio.gather(opening, stopping, return_exceptions=True)

    async def _serve(self, stop: StopRequest) -> None:
        if not await self._subscribe(stop):
            return
        self._connection.on_reset(self._on_reset)
        self._metrics.slots_set(self._queue, self._options.slots)
        # The first exchange has the queue's consumers created, so that the first pull finds them.
        await self._presence.ask()
        self._background.start(self._presence.run())
        pulling = self._background.start(self._puller.run())
        _log.info(
            "worker_started queue=%s tasks=%s worker_id=%s",
            self._queue,
            ",".join(self._registry.names),
            self.worker_id,
        )
        while not stop.event.is_set():
            self._act(self._session.tick(now_ms()))
            self._puller.pump()
            await _wait(stop.event, TICK_SECONDS)
        await self._drain(stop, pulling)
        await self._presence.farewell()
        _log.info("worker_stopped queue=%s worker_id=%s", self._queue, self.worker_id)

    async def _subscribe(self, stop: StopRequest) -> bool:
        """Listen for cancel pushes; False when `stop` came before NATS was there for it."""
        control = control_subject(self._prefix, self._queue)
        while not stop.event.is_set():
            try:
                await self._connection.subscribe(control, self._on_control)
            except TransportError as error:
                _log.debug("worker_waiting queue=%s error=%s", self._queue, error)
                await _wait(stop.event, TICK_SECONDS)
            else:
                return True
        return False

    async def _drain(self, stop: StopRequest, pulling: asyncio.Task[None]) -> None:
        timeout_ms = round(self._options.drain_timeout_seconds * 1000)
        ends_ms = now_ms() + timeout_ms
        self._act(self._session.drain(timeout_ms=timeout_ms, now_ms=now_ms()))
        self._puller.stop()
        _log.info(
            "worker_draining queue=%s running=%d timeout_seconds=%g worker_id=%s",
            self._queue,
            len(self._session.tokens),
            self._options.drain_timeout_seconds,
            self.worker_id,
        )
        if not self._session.idle:
            # So that nobody waits for this worker to take more while it ends what it has.
            self._background.start(self._presence.ask())
        while not (self._session.idle and pulling.done()):
            if stop.count > 1 and now_ms() < ends_ms:
                ends_ms = now_ms()
                self._act(self._session.drain(timeout_ms=0, now_ms=ends_ms))
            if now_ms() > ends_ms + FAREWELL_MS:
                _log.warning("drain_incomplete tokens=%d", len(self._session.tokens))
                return
            self._act(self._session.tick(now_ms()))
            await asyncio.sleep(TICK_SECONDS / 5)

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Start(lease):
                    self._attempts.start(lease)
                case GiveBack(lease, reason):
                    self._attempts.give_back(lease, reason)
                case Acknowledge(ack_subject):
                    self._background.start(self._reporter.acknowledge(ack_subject))
                case Renew(lease):
                    self._keeper.renew(lease.token, lease.ack_subject)
                case Interrupt(lease):
                    self._attempts.interrupt(lease)
                case Expire(lease):
                    self._keeper.drop(lease.token)
                case _:
                    assert_never(action)
        self._puller.pump()

    def _on_delivery(self, delivery: Delivery) -> None:
        try:
            dispatch = decode(delivery.body, StepDispatch)
            subject = parse_dispatch(delivery.subject, self._prefix)
        except ProtocolError as error:
            self._refuse(delivery, f"undecodable dispatch: {error}")
            return
        if (subject.queue, subject.run_id, subject.token) != (
            self._queue,
            dispatch.run_id,
            dispatch.token,
        ):
            self._refuse(delivery, "the dispatch disagrees with its subject")
            return
        self._act(
            self._session.delivered(
                dispatch,
                delivery.ack_subject,
                known_task=self._registry.get(dispatch.task) is not None,
                now_ms=now_ms(),
                traceparent=delivery.traceparent,
            )
        )

    def _on_reset(self) -> None:
        self._metrics.connection_reset(self._queue)
        self._presence.nudge()

    async def _still_mine(self, token: str, timeout_seconds: float) -> bool:
        """Whether the engine says, now, that this token is live. Raises TransportError."""
        try:
            reply = await self._presence.exchange(timeout_seconds)
        except ProtocolError as error:
            raise NoAnswerError(f"the engine's answer cannot be read: {error}") from error
        return token not in reply.stale and token not in reply.cancel

    def _refuse(self, delivery: Delivery, reason: str) -> None:
        _log.error("dispatch_refused subject=%s reason=%s", delivery.subject, reason)
        self._background.start(self._reporter.terminate(delivery.ack_subject, reason))
        self._puller.pump()

    def _on_control(self, received: Received) -> None:
        try:
            cancel = decode(received.body, StepCancel)
        except ProtocolError as error:
            _log.warning("control_unreadable error=%s", error)
            return
        self._act(self._session.cancelled(cancel.token, cancel.reason or "cancelled"))

    def _describe(self) -> WorkerHeartbeat:
        return WorkerHeartbeat(
            worker_id=self.worker_id,
            tasks=self._registry.names,
            slots=self._options.slots,
            sdk=SDK,
            tokens=self._session.tokens[:TOKENS_MAX],
            draining=True if self._session.draining else UNSET,
        )

    def _on_reply(self, reply: WorkerHeartbeatReply) -> None:
        for token in reply.stale:
            self._act(self._session.stale(token))
        for token in reply.cancel:
            self._act(self._session.cancelled(token, "cancelled"))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
