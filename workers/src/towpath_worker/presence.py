"""The heartbeat exchange of a worker: which tokens it holds, which of them it should stop.

It makes lost cancel pushes good within seconds, and asks the engine to create missing consumers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from towpath_protocol.codec import decode, encode
from towpath_protocol.dispatch import WorkerHeartbeat, WorkerHeartbeatReply
from towpath_protocol.errors import ProtocolError
from towpath_protocol.headers import SERVICE_ERROR
from towpath_worker.transport import Connection, NoAnswerError, TransportError

_log = logging.getLogger("towpath.worker.presence")

ANSWER_SECONDS: Final = 5.0
FAREWELL_SECONDS: Final = 1.0
NUDGE_GAP_SECONDS: Final = 0.5
TOKENS_MAX: Final = 10_000


class Presence:
    """Asks every `interval_seconds`, and soon after `nudge`, until `stop`."""

    def __init__(
        self,
        connection: Connection,
        *,
        subject: str,
        describe: Callable[[], WorkerHeartbeat],
        on_reply: Callable[[WorkerHeartbeatReply], None],
        interval_seconds: float,
    ) -> None:
        self._connection = connection
        self._subject = subject
        self._describe = describe
        self._on_reply = on_reply
        self._interval_seconds = interval_seconds
        self._nudged = asyncio.Event()
        self._stopped = False
        self._answered = True

    def nudge(self) -> None:
        """Ask soon: a consumer is missing, or the connection is new."""
        self._nudged.set()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped = True
        self._nudged.set()

    async def run(self) -> None:
        """Ask until `stop`."""
        while not self._stopped:
            await self.ask()
            await asyncio.sleep(min(NUDGE_GAP_SECONDS, self._interval_seconds))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_seconds):
                    await self._nudged.wait()
            if not self._stopped:
                self._nudged.clear()

    async def exchange(self, timeout_seconds: float) -> WorkerHeartbeatReply:
        """One exchange, whose answer is acted upon and returned.

        Raises NoAnswerError when no engine answers in time or it refuses, NotConnectedError
        without a connection, ProtocolError for an answer that is none.
        """
        received = await self._connection.request(
            self._subject, encode(self._describe()), timeout_seconds=timeout_seconds
        )
        refusal = received.headers.get(SERVICE_ERROR)
        if refusal is not None:
            raise NoAnswerError(f"the engine refused {self._subject}: {refusal}")
        reply = decode(received.body, WorkerHeartbeatReply)
        self._on_reply(reply)
        return reply

    async def farewell(self) -> None:
        """The last exchange, when the worker has drained: nobody counts on it any more. Without an
        engine it is found out by its silence."""
        self.stop()
        try:
            await self.exchange(FAREWELL_SECONDS)
        except (TransportError, ProtocolError) as error:
            _log.debug("farewell_unheard subject=%s error=%s", self._subject, error)

    async def ask(self) -> None:
        """One exchange; without an engine, or without NATS, nothing happens."""
        try:
            await self.exchange(ANSWER_SECONDS)
        except TransportError as error:
            # Told once an outage: the worker goes on, but somebody may be waiting for it.
            level = logging.INFO if self._answered else logging.DEBUG
            self._answered = False
            _log.log(level, "engine_silent subject=%s error=%s", self._subject, error)
        except ProtocolError as error:
            _log.warning("heartbeat_answer_unreadable error=%s", error)
        else:
            if not self._answered:
                _log.info("engine_answers_again subject=%s", self._subject)
            self._answered = True
