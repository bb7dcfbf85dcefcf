"""NATS, behind one typed wall: the only module of this package that imports nats.

A `Connection` stays usable for ever: a lost server is reconnected to by the client, a client that
closed for good (a fatal error of the server, rotated credentials) is replaced by a new one. After
each of these the subscriptions are back and the reset callbacks run. Callbacks given to a
connection never raise and never block.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any, Final

import nats
import nats.errors
from msgspec import Struct
from nats.aio.client import Client as NatsClient
from nats.aio.client import RawCredentials
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from towpath_worker.credentials import (
    ConnectionOptionsError,
    read_credentials,
    read_nkey_seed,
    tls_context,
)
from towpath_worker.denials import Denial, DeniedAction, denial_in, in_words
from towpath_worker.options import ConnectionOptions
from towpath_worker.outages import OutageLog, refuses_us

_log = logging.getLogger("towpath.worker.transport")

RECONNECT_WAIT_SECONDS: Final = 0.25
REBUILD_WAIT_MAX_SECONDS: Final = 5.0
PENDING_BYTES_MAX: Final = 8 * 2**20
TOLD_MAX: Final = 20
"""Different errors that are logged until the connection is back."""
_ERROR_LINE: Final = re.compile(rb"-ERR\s+'(.+)'\r\n")


class TransportError(Exception):
    """NATS could not be used. Whether a message arrived is not known."""


class NotConnectedError(TransportError, ConnectionError):
    """There is no live connection to NATS now."""


class CredentialsRefusedError(NotConnectedError):
    """The server is there and does not let us in: user, password, token or credentials are wrong,
    or missing."""


class MissingRightError(TransportError):
    """NATS lets this user not do what was tried. `denial` says what; the message has the fix.

    Nothing was published, but where it is the inbox that may not be listened to: then what was
    asked for may have happened, unheard.
    """

    def __init__(self, denial: Denial, message: str) -> None:
        super().__init__(message)
        self.denial = denial


class InsecureServerError(TransportError, OSError):
    """TLS was demanded and the server has none. It is asked again, as a server that is away."""


class NoAnswerError(TransportError, TimeoutError):
    """Nobody answered a request in time, or nobody listens on its subject."""


class NobodyListensError(NoAnswerError):
    """Nobody listens on the subject of a request: it has surely not arrived."""


class Received(Struct, frozen=True):
    """A message. `status` is the NATS status of a message without a body, as `404` or `503`."""

    subject: str
    reply: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def status(self) -> str | None:
        """The status code, or None for a message with content."""
        return self.headers.get("Status") if not self.body else None


class _CarefulClient(NatsClient):
    """Shows no password to a server in the clear where TLS is demanded.

    The client would log in without TLS at a server that announces none, and so does whoever sits
    in front of it. Raises InsecureServerError, which counts as a server that is away.
    """

    def __init__(self, options: ConnectionOptions, on_denied: Callable[[Denial], None]) -> None:
        super().__init__()
        self._on_denied = on_denied
        self._demanded = options.demands_tls and not options.tls_handshake_first
        self._address = options.address

    def _connect_command(self) -> bytes:
        server = self._current_server
        websocket = server is not None and server.uri.scheme == "wss"
        if self._demanded and not websocket and not self._server_info.get("tls_required"):
            raise InsecureServerError(f"the server at {self._address} speaks no TLS")
        return super()._connect_command()

    async def _process_err(self, err_msg: str) -> None:
        # The parser gives it in lower case, but subjects have a case. It still holds the line.
        line = _ERROR_LINE.match(self._ps.buf)
        denial = denial_in(err_msg if line is None else line[1].decode(errors="replace"))
        if denial is None:
            await super()._process_err(err_msg)
        else:
            self._on_denied(denial)


Callback = Callable[[Received], None]


class Subscription:
    """A subscription that survives reconnection and replacement of the client."""

    def __init__(self, subject: str, callback: Callback) -> None:
        self.subject = subject
        self._callback = callback
        self._native: NatsSubscription | None = None
        self.closed = False

    async def attach(self, client: NatsClient) -> None:
        """Subscribe on this client; for `Connection` alone."""

        async def on_message(msg: Msg) -> None:
            self._callback(_received(msg))

        untyped: Any = client  # its signature names types that do not exist
        self._native = await untyped.subscribe(self.subject, cb=on_message)

    async def detach(self) -> None:
        """Unsubscribe, and deliver what the server had sent before; for `Connection` alone."""
        self.closed = True
        native, self._native = self._native, None
        if native is not None:
            with contextlib.suppress(nats.errors.Error, OSError, asyncio.TimeoutError):
                await native.drain()


class Connection:
    """One connection to NATS. Use `open`, then the rest; `close` ends it.

    `publish` and `subscribe` raise NotConnectedError while there is no live connection. `aloud`:
    whether it logs that the server is away, or leaves that to another connection of this process.
    """

    def __init__(self, options: ConnectionOptions, *, name: str, aloud: bool = True) -> None:
        self._outage = OutageLog(options.address, aloud=aloud)
        self._options = options
        self._name = name
        self._client: NatsClient | None = None
        self._subscriptions: list[Subscription] = []
        self._resets: list[Callable[[], None]] = []
        self._denial_watchers: list[Callable[[MissingRightError], None]] = []
        self._requests: dict[str, set[asyncio.Timeout]] = {}
        self._deaf: Denial | None = None
        self._rebuilding: asyncio.Task[None] | None = None
        self._closing = False
        self._opened = False
        self._last_error = ""
        self._refused = False
        self._told: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def connected(self) -> bool:
        """True while there is a live connection."""
        return self._client is not None and self._client.is_connected

    @property
    def payload_bytes_max(self) -> int:
        """The server's `max_payload`: body and headers of one message together."""
        return self._client.max_payload if self.connected and self._client else 2**20

    def on_reset(self, callback: Callable[[], None]) -> None:
        """Run `callback` after every reconnection: replies under way are lost."""
        self._resets.append(callback)

    def on_denied(self, callback: Callable[[MissingRightError], None]) -> None:
        """Run `callback` with whatever NATS does not let this user do; `request` looks itself."""
        self._denial_watchers.append(callback)

    def new_inbox(self) -> str:
        """A subject that nobody else uses, below the inbox prefix."""
        return f"{self._options.inbox_prefix}.{token_hex(11)}"

    async def open(self, *, timeout_seconds: float | None = None) -> None:
        """Connect. Raises NotConnectedError when no server takes us within `timeout_seconds`; None
        goes on for ever. Raises ConnectionOptionsError when a file of the options is unusable."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._rebuild(0.0)
        except TimeoutError as error:
            self._outage.failed(self._last_error or "no answer")
            reason = f" ({self._last_error})" if self._last_error else ""
            refused = refuses_us(self._last_error)
            kind = CredentialsRefusedError if refused else NotConnectedError
            raise kind(f"no NATS server takes us at {self._options.address}{reason}") from error

    def check(self) -> None:
        """Raises ConnectionOptionsError when a file of the options is unusable; asks nobody."""
        read_credentials(self._options)
        read_nkey_seed(self._options)
        tls_context(self._options)

    async def close(self) -> None:
        """Flush and disconnect. Nothing works afterwards."""
        self._closing = True
        if self._rebuilding is not None:
            self._rebuilding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._rebuilding
        client, self._client = self._client, None
        if client is None:
            return
        with contextlib.suppress(nats.errors.Error, OSError, asyncio.TimeoutError):
            if client.is_connected:
                await client.flush(2)
        with contextlib.suppress(nats.errors.Error, OSError, asyncio.TimeoutError):
            await client.close()

    async def publish(
        self,
        subject: str,
        body: bytes,
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send a message. Raises TransportError when it cannot even be buffered."""
        client = self._live()
        try:
            await client.publish(subject, body, reply=reply, headers=headers)
        except (nats.errors.Error, OSError) as error:
            raise TransportError(f"publish to {subject} failed: {error}") from error

    async def request(
        self,
        subject: str,
        body: bytes,
        *,
        timeout_seconds: float,
        headers: dict[str, str] | None = None,
    ) -> Received:
        """Send a request and wait for one answer.

        Raises NoAnswerError when nobody listens or nobody answers in time, NotConnectedError
        without a connection, MissingRightError when NATS forbids it, TransportError when the
        message cannot be sent.
        """
        client = self._live()
        denied = asyncio.timeout(None)
        waiting = self._requests.setdefault(subject, set())
        waiting.add(denied)
        try:
            if self._deaf is not None:
                raise self._missing(self._deaf)
            async with denied:
                msg = await client.request(subject, body, timeout=timeout_seconds, headers=headers)
        except nats.errors.NoRespondersError as error:
            raise NobodyListensError(f"nobody listens on {subject}") from error
        except (TimeoutError, nats.errors.TimeoutError) as error:
            if denied.expired():
                missing = self._deaf or Denial(DeniedAction.PUBLISH, subject)
                raise self._missing(missing) from error
            raise NoAnswerError(f"no answer on {subject} within {timeout_seconds:g} s") from error
        except (nats.errors.Error, OSError) as error:
            raise TransportError(f"request to {subject} failed: {error}") from error
        finally:
            waiting.discard(denied)
            if not waiting:
                self._requests.pop(subject, None)
        return _received(msg)

    async def subscribe(self, subject: str, callback: Callback) -> Subscription:
        """Subscribe until `unsubscribe`. Raises TransportError without a live connection."""
        client = self._live()
        subscription = Subscription(subject, callback)
        try:
            await subscription.attach(client)
        except (nats.errors.Error, OSError) as error:
            raise TransportError(f"subscribe to {subject} failed: {error}") from error
        self._subscriptions.append(subscription)
        return subscription

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription after what the server had already sent was delivered."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        await subscription.detach()

    def _live(self) -> NatsClient:
        client = self._client
        if client is None or not client.is_connected:
            raise NotConnectedError(f"not connected to NATS at {self._options.address}")
        return client

    async def _rebuild(self, wait_seconds: float) -> None:
        """Connect a new client, for ever, and put the subscriptions back."""
        while True:
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(REBUILD_WAIT_MAX_SECONDS, max(0.25, wait_seconds * 2))
            client = _CarefulClient(self._options, self._denied)
            try:
                await client.connect(**self._arguments(client))
                for subscription in list(self._subscriptions):
                    await subscription.attach(client)
            except (
                TimeoutError,
                nats.errors.Error,
                OSError,
                ConnectionOptionsError,
            ) as error:
                if isinstance(error, ConnectionOptionsError) and not self._opened:
                    raise
                self._remember(error)
                self._outage.failed(self._last_error)
                with contextlib.suppress(nats.errors.Error, OSError):
                    await client.close()
                continue
            except asyncio.CancelledError:
                with contextlib.suppress(nats.errors.Error, OSError):
                    await client.close()
                raise
            self._client = client
            self._opened = True
            self._reset()
            return

    def _arguments(self, client: NatsClient) -> dict[str, Any]:
        options = self._options
        credentials = read_credentials(options)

        async def on_error(error: Exception) -> None:
            # A server that is away repeats itself four times a second: once is enough.
            text = self._remember(error)
            if not client.is_connected:
                self._outage.failed(self._last_error or text)
            elif text not in self._told and len(self._told) < TOLD_MAX:
                self._told.add(text)
                _log.warning("nats_error name=%s error=%s", self._name, text)

        async def on_reconnect() -> None:
            self._reset()

        async def on_closed() -> None:
            self._closed(client)

        return {
            "servers": options.servers,
            "name": self._name,
            "user": options.user,
            "password": options.password,
            "token": options.token,
            "inbox_prefix": options.inbox_prefix,
            "user_credentials": None if credentials is None else RawCredentials(credentials),
            "nkeys_seed_str": read_nkey_seed(options),
            "tls": tls_context(options),
            "tls_hostname": options.tls_hostname,
            "tls_handshake_first": options.tls_handshake_first,
            "connect_timeout": options.connect_timeout_seconds,
            # The first connection is retried here, so that it can be cancelled.
            "allow_reconnect": True,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_WAIT_SECONDS,
            "ping_interval": 5,
            "max_outstanding_pings": 2,
            "pending_size": PENDING_BYTES_MAX,
            "error_cb": on_error,
            "reconnected_cb": on_reconnect,
            "closed_cb": on_closed,
        }

    def _closed(self, client: NatsClient) -> None:
        # The client gave up for good; only a new one can help (nats-py never revives itself).
        if self._closing or self._client is not client or self._loop is None:
            return
        _log.warning("nats_client_closed name=%s", self._name)
        self._client = None
        self._rebuilding = self._loop.create_task(self._rebuild(RECONNECT_WAIT_SECONDS))

    def _missing(self, denial: Denial) -> MissingRightError:
        return MissingRightError(denial, in_words(denial, self._options.inbox_prefix))

    def _denied(self, denial: Denial) -> None:
        """The server refused something: who waits for it need not wait, and it is told once."""
        missing = self._missing(denial)
        if denial.deafens(self._options.inbox_prefix):
            self._deaf = denial
            concerned = [scope for scopes in self._requests.values() for scope in scopes]
        else:
            concerned = list(self._requests.get(denial.subject, ()))
        for scope in concerned:
            if not scope.expired():
                scope.reschedule(0)  # a moment that is over
        told = f"{denial.action} {denial.right}"
        if told not in self._told and len(self._told) < TOLD_MAX:
            self._told.add(told)
            _log.error(
                "right_missing name=%s action=%s subject=%s: %s",
                self._name,
                denial.action,
                denial.right,
                missing,
            )
        for watch in self._denial_watchers:
            watch(missing)

    def _remember(self, error: Exception) -> str:
        """Keep why there is no connection. What the server said beats that it hung up then."""
        text = str(error) or ("no answer" if isinstance(error, TimeoutError) else repr(error))
        hung_up = isinstance(error, OSError) and self._refused
        if not hung_up:
            self._last_error = text
            self._refused = not isinstance(error, OSError)
        return text

    def _reset(self) -> None:
        self._outage.over()
        self._last_error = ""
        self._refused = False
        self._deaf = None
        self._told.clear()
        for callback in self._resets:
            callback()


def _received(msg: Msg) -> Received:
    return Received(msg.subject, msg.reply, msg.headers or {}, msg.data)
