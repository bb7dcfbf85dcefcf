"""The connection to NATS: one client at a time, built anew whenever one ends.

nats-py closes for good on most `-ERR`s and its own reconnection resends
half-written buffers and may hang in them. So here a client never reconnects: it lives from its
connect to its first fault (a `Link`), and the `Connection` builds the next one, prepares it, and
only then shows it to the others. nats-py's loose types end in this module.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import nats.errors
import structlog
from nats.aio.client import Client, RawCredentials

from towpath_engine.bus.credentials import read_credentials, read_nkey_seed, tls_context
from towpath_engine.bus.errors import (
    BusRefused,
    BusUnavailable,
    NoResponderError,
    UnsendableMessageError,
)
from towpath_engine.bus.settings import BusSettings

log: Any = structlog.get_logger(__name__)

ALIVE_POLL_S = 0.5
CLOSE_TIMEOUT_S = 2.0
STEADY_AFTER_S = 10.0
PENDING_BYTES = 8 * 1024 * 1024


class Message(Protocol):
    """A received message, as the client builds it. Not to be changed."""

    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] | None


class Subscription(Protocol):
    """What a subscription can do."""

    async def unsubscribe(self, limit: int = 0) -> None:
        """End it; queued messages are dropped."""
        ...

    async def drain(self) -> None:
        """End it; queued messages are processed first."""
        ...


OnMessage = Callable[[Message], Awaitable[None]]
"""A coroutine function; it runs one message at a time per subscription, and never raises."""


class _CarefulClient(Client):
    """Shows no password to a server in the clear when TLS was demanded.

    The client's own way is to log in without TLS at a server that announces none, and so does
    whoever sits in front of it.
    """

    def __init__(self, *, demands_tls: bool) -> None:
        super().__init__()
        self._demands_tls = demands_tls

    def _connect_command(self) -> bytes:
        encrypted = self._server_info.get("tls_required") or self.options["tls_handshake_first"]
        websocket = self._current_server is not None and self._current_server.uri.scheme == "wss"
        if self._demands_tls and not encrypted and not websocket:
            raise nats.errors.Error("the server speaks no TLS, which was demanded")
        return super()._connect_command()


class Backoff:
    """Growing waits, with jitter, so that many engines do not come back in step."""

    def __init__(self, minimum_s: float, maximum_s: float) -> None:
        self._minimum_s = minimum_s
        self._maximum_s = maximum_s
        self._next_s = minimum_s

    def next_s(self) -> float:
        """The next wait in seconds: between half of it and the whole."""
        wait = self._next_s
        self._next_s = min(self._next_s * 2, self._maximum_s)
        return wait * (0.5 + random.random() / 2)  # noqa: S311 - jitter, not a secret

    def reset(self) -> None:
        """Start from the smallest wait again."""
        self._next_s = self._minimum_s


class Link:
    """One client from its connect to its end. `closed` is set once it has ended."""

    def __init__(self, client: Client, *, closed: asyncio.Event) -> None:
        self._client: Any = client
        self._closed = closed
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def alive(self) -> bool:
        """True while the client is connected."""
        return bool(self._client.is_connected) and not self._closed.is_set()

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body that the server takes in one message."""
        return int(self._client.max_payload)

    @property
    def server_version(self) -> tuple[int, int, int]:
        """As the server greets, for example (2, 15, 1); zeros when it is no version at all."""
        version = self._client.connected_server_version
        try:
            return int(version.major), int(version.minor), int(version.patch)
        except ValueError:
            return 0, 0, 0

    @property
    def server_id(self) -> str:
        """Names the server's process; another one after a restart."""
        info = self._client._server_info  # noqa: SLF001 - the client shows it nowhere else
        return str(info.get("server_id", ""))

    def run(self, work: Coroutine[Any, Any, None], *, name: str) -> "asyncio.Task[None]":
        """Run work that belongs to this link: it is cancelled with it, and its fault ends it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if not isinstance(error, BusUnavailable):
            log.error("bus_task_failed", task=task.get_name(), exc_info=error)
        self._closed.set()

    def new_inbox(self) -> str:
        """A subject nobody else uses."""
        return str(self._client.new_inbox())

    async def publish(
        self,
        subject: str,
        body: bytes = b"",
        *,
        reply: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Hand a message to the client's buffer; waits only when that buffer is full.

        Raises BusUnavailable when the link is down, UnsendableMessageError when the client
        refuses the message.
        """
        if not self._client.is_connected:
            raise BusUnavailable("not connected to NATS")
        try:
            await self._client.publish(subject, body, reply, headers)
        except (
            nats.errors.BadSubjectError,
            nats.errors.BadHeaderError,
            nats.errors.MaxPayloadError,
            UnicodeError,
        ) as error:
            raise UnsendableMessageError(str(error)) from error
        except (nats.errors.Error, OSError) as error:
            raise BusUnavailable(str(error)) from error

    async def request(self, subject: str, body: bytes, *, timeout_s: float) -> Message:
        """Ask and wait for one answer.

        Raises NoResponderError, or BusUnavailable when no answer came in time.
        """
        try:
            answer: Message = await self._client.request(subject, body, timeout=timeout_s)
        except nats.errors.NoRespondersError as error:
            raise NoResponderError(f"nobody answers on {subject}") from error
        except (nats.errors.Error, OSError, asyncio.InvalidStateError) as error:
            raise BusUnavailable(f"no answer on {subject}: {error}") from error
        return answer

    async def subscribe(
        self, subject: str, callback: OnMessage, *, queue: str = ""
    ) -> Subscription:
        """Receive messages until the link ends. Raises BusUnavailable."""
        try:
            subscription: Subscription = await self._client.subscribe(
                subject, queue=queue, cb=callback
            )
        except (nats.errors.Error, OSError) as error:
            raise BusUnavailable(str(error)) from error
        return subscription

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; nothing happens when the link is down already."""
        try:
            await subscription.unsubscribe()
        except (nats.errors.Error, OSError) as error:
            log.debug("bus_unsubscribe_failed", error=str(error))

    async def drain(self, subscription: Subscription) -> None:
        """End a subscription after its callback has seen all that is on the way.

        Raises BusUnavailable.
        """
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await subscription.drain()
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise BusUnavailable(f"a subscription did not drain: {error}") from error

    async def flush(self, *, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait until the server has read what was sent. Raises BusUnavailable."""
        try:
            # Twice, because the client writes its PING at once, ahead of what its buffer holds.
            await self._client.flush(timeout=timeout_s)
            await self._client.flush(timeout=timeout_s)
        except (nats.errors.Error, OSError) as error:
            raise BusUnavailable(str(error)) from error

    async def ended(self) -> None:
        """Return when the client has ended.

        Also polled, because the client's own closing can hang behind a peer that reads no more.
        """
        while self.alive:
            try:
                async with asyncio.timeout(ALIVE_POLL_S):
                    await self._closed.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """End the client, whatever its state, in bounded time."""
        self._closed.set()
        for task in self._tasks:
            task.cancel()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._client.close()
        except (TimeoutError, nats.errors.Error, OSError) as error:
            log.debug("bus_close_failed", error=str(error))


def redacted(urls: tuple[str, ...]) -> str:
    """The servers' addresses without user, password or token."""
    return ", ".join(urlsplit(url).netloc.rpartition("@")[2] or url for url in urls)


def client_options(settings: BusSettings) -> dict[str, Any]:
    """The client's options, read anew each time, files included. Raises BusRefused."""
    credentials = read_credentials(settings.credentials_file)
    return {
        "servers": list(settings.urls),
        "name": settings.name,
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0.05,
        "connect_timeout": settings.connect_timeout_s,
        "ping_interval": settings.ping_interval_s,
        "max_outstanding_pings": settings.pings_outstanding_max,
        "pending_size": PENDING_BYTES,
        "flush_timeout": CLOSE_TIMEOUT_S,
        "inbox_prefix": settings.inbox_prefix,
        "user": settings.user,
        "password": settings.password,
        "token": settings.token,
        "user_credentials": None if credentials is None else RawCredentials(credentials),
        "nkeys_seed_str": read_nkey_seed(settings.nkey_seed_file),
        "tls": tls_context(settings),
        "tls_hostname": settings.tls_hostname,
        "tls_handshake_first": settings.tls_handshake_first,
    }


async def open_link(settings: BusSettings) -> Link:
    """Connect once. Raises BusUnavailable, or BusRefused for options that can never work."""
    closed = asyncio.Event()
    client = _CarefulClient(demands_tls=settings.demands_tls)
    reasons: list[str] = []

    async def on_error(error: Exception) -> None:
        if not client.is_connected:
            reasons[:] = [str(error) or type(error).__name__]
        else:
            log.warning("bus_client_error", error=str(error) or type(error).__name__)

    async def on_closed() -> None:
        closed.set()

    link = Link(client, closed=closed)
    options = client_options(settings)
    try:
        async with asyncio.timeout(settings.connect_timeout_s * 2 * len(settings.urls) + 1):
            await client.connect(**options, error_cb=on_error, closed_cb=on_closed)
    except (nats.errors.Error, OSError, TimeoutError) as error:
        await link.close()
        reason = reasons[0] if reasons else (str(error) or type(error).__name__)
        raise BusUnavailable(f"no NATS at {redacted(settings.urls)}: {reason}") from error
    except BaseException:
        await link.close()
        raise
    return link


class Connection:
    """Keeps one prepared link alive.

    `prepare` makes a fresh link usable (it may raise BusRefused or BusUnavailable); `lost` is told
    when a link that `prepare` saw has ended. Both run in the connection's own task, in turns.
    """

    def __init__(
        self,
        settings: BusSettings,
        *,
        prepare: Callable[[Link], Awaitable[None]],
        lost: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._prepare = prepare
        self._lost = lost
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._last_failure = ""
        self._backoff = Backoff(settings.reconnect_backoff_min_s, settings.reconnect_backoff_max_s)

    @property
    def link(self) -> Link | None:
        """The prepared link, while it lives."""
        link = self._link
        return link if link is not None and link.alive else None

    async def start(self) -> None:
        """Connect and prepare, trying until `start_timeout_s` is over.

        Raises BusRefused at once, BusUnavailable when the time is over. May be called again.
        """
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(first), name="bus-connection")
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                await asyncio.shield(first)
        except TimeoutError as error:
            await self.close()
            reason = self._last_failure or f"no NATS at {redacted(self._settings.urls)}"
            raise BusUnavailable(reason) from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the link and never build another."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, first: "asyncio.Future[None]") -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._one_life(first)
                failures = 0
            except BusRefused as refusal:
                if not first.done():
                    first.set_exception(refusal)
                    return
                # A server that was fine was replaced by one that is not: only its operator helps.
                failures += 1
                if failures % 10 == 1:
                    log.error("bus_refused", reason=str(refusal))  # noqa: TRY400 - one sentence
            except BusUnavailable as failure:
                self._remember(failure)
                failures += 1
                if failures % 10 == 1:
                    log.warning("bus_connection_failed", reason=str(failure), attempts=failures)
            except Exception as error:  # the service loop: a bug must not end it
                log.exception("bus_connection_crashed")
                if not first.done():
                    first.set_exception(error)
                    return
            if loop.time() - began > STEADY_AFTER_S:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next_s())

    def _remember(self, failure: BusUnavailable) -> None:
        """Keep the reason for whoever waits for the start. A server that refuses a login resets the
        connection, sometimes before its reason was read: that says less than what it said before.
        """
        if not (self._last_failure and isinstance(failure.__cause__, ConnectionError)):
            self._last_failure = str(failure)

    async def _one_life(self, first: "asyncio.Future[None]") -> None:
        """One link from its connect to its end. Raises BusRefused, BusUnavailable."""
        link = await open_link(self._settings)
        try:
            await self._prepare(link)
            if not link.alive:
                raise BusUnavailable("the connection ended while it was prepared")
            self._link = link
            log.info("bus_connected", server=".".join(map(str, link.server_version)))
            if not first.done():
                first.set_result(None)
            await link.ended()
            log.warning("bus_connection_lost")
        finally:
            self._link = None
            self._lost()
            await link.close()
