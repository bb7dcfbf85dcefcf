"""The keeper: in-progress acks and `step-started`, from a thread with a connection of its own.

A task that blocks the event loop, or a plain function that holds its thread, cannot stop them: the
keeper shares nothing with them but a table of leases behind a lock.
"""

import asyncio
import contextlib
import logging
import threading
from typing import Final

from msgspec import Struct

from towpath_protocol.codec import encode
from towpath_protocol.dispatch import StepDispatch
from towpath_protocol.reports import StepStarted
from towpath_worker.background import Background
from towpath_worker.clock import now_ms
from towpath_worker.credentials import ConnectionOptionsError
from towpath_worker.options import ConnectionOptions
from towpath_worker.publishing import Publisher
from towpath_worker.reporting import headers_of, subject_of
from towpath_worker.transport import Connection, TransportError

_log = logging.getLogger("towpath.worker.keeper")

IN_PROGRESS: Final = b"+WPI"
TICK_SECONDS: Final = 0.1
STARTED_ACK_SECONDS: Final = 5.0
STARTED_TRIES: Final = 5


class _Kept(Struct):
    dispatch: StepDispatch
    ack_subject: str
    interval_ms: int
    next_ms: int
    started: StepStarted | None
    started_due_ms: int
    traceparent: str | None


class Keeper:
    """Keeps leases alive until `drop`. All methods may be called from any thread."""

    def __init__(self, options: ConnectionOptions, *, name: str) -> None:
        self._options = options
        self._name = name
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="towpath-keeper", daemon=True)

    def start(self) -> None:
        """Start the thread; it connects, and reconnects, on its own."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """End the thread. Blocks for a moment; call it when the event loop has nothing to do."""
        self._stopping.set()
        self._nudge()
        self._thread.join(timeout_seconds)

    def keep(
        self,
        dispatch: StepDispatch,
        ack_subject: str,
        *,
        started: StepStarted | None,
        started_after_ms: int,
        traceparent: str | None,
    ) -> None:
        """Keep this lease; report `started`, if given, once it is that old (0: at once)."""
        now = now_ms()
        interval_ms = max(100, dispatch.ack_wait_ms // 3)
        kept = _Kept(
            dispatch,
            ack_subject,
            interval_ms,
            now + interval_ms,
            started,
            now + started_after_ms if started is not None else 0,
            traceparent,
        )
        with self._lock:
            self._kept[dispatch.token] = kept
        if started_after_ms == 0:
            self._nudge()

    def renew(self, token: str, ack_subject: str) -> None:
        """The dispatch was delivered again: in-progress acks go to the new subject."""
        with self._lock:
            kept = self._kept.get(token)
            if kept is not None:
                kept.ack_subject = ack_subject

    def drop(self, token: str) -> None:
        """The lease is over, or its attempt timeout is."""
        with self._lock:
            self._kept.pop(token, None)

    def _nudge(self) -> None:
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(wake.set)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        connection = Connection(self._options, name=f"{self._name}-keeper", aloud=False)
        background = Background()
        opening = background.start(_open(connection))
        publisher = Publisher(connection)
        while not self._stopping.is_set():
            if connection.connected:
                await self._tick(connection, publisher, background)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
        opening.cancel()
        await background.cancel()
        await connection.close()

    async def _tick(
        self, connection: Connection, publisher: Publisher, background: Background
    ) -> None:
        acks, starts = self._due(now_ms())
        for kept in starts:
            background.start(self._report_started(publisher, kept))
        for ack_subject in acks:
            try:
                await connection.publish(ack_subject, IN_PROGRESS)
            except TransportError as error:
                _log.info("in_progress_failed error=%s", error)

    def _due(self, now: int) -> tuple[list[str], list[_Kept]]:
        acks: list[str] = []
        starts: list[_Kept] = []
        with self._lock:
            for kept in self._kept.values():
                if now >= kept.next_ms:
                    kept.next_ms = now + kept.interval_ms
                    acks.append(kept.ack_subject)
                if kept.started_due_ms and now >= kept.started_due_ms:
                    kept.started_due_ms = 0
                    starts.append(kept)
        return acks, starts

    async def _report_started(self, publisher: Publisher, kept: _Kept) -> None:
        """Best effort: without it the engine starts the attempt's clock from the delivery."""
        started = kept.started
        if started is None:
            return
        subject = subject_of(kept.dispatch, started)
        headers = headers_of(kept.dispatch, started, kept.traceparent)
        for _ in range(STARTED_TRIES):
            try:
                await publisher.publish(
                    subject, encode(started), headers, timeout_seconds=STARTED_ACK_SECONDS
                )
            except TransportError as error:
                _log.info("started_unconfirmed token=%s error=%s", kept.dispatch.token, error)
                await asyncio.sleep(TICK_SECONDS)
                with self._lock:
                    if kept.dispatch.token not in self._kept:
                        return
            else:
                return


async def _open(connection: Connection) -> None:
    """Connect. A file that cannot be used is the worker's to report; here it may be mended."""
    while True:
        try:
            await connection.open()
        except ConnectionOptionsError as error:
            _log.info("keeper_waiting error=%s", error)
            await asyncio.sleep(STARTED_ACK_SECONDS)
        else:
            return
