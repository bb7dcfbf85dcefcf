"""`P.api` by plain nats-py: what any service without an SDK does. Imports nothing of Towpath."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

REPLY_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.5
PASSING_CODES: Final = frozenset({"overloaded", "unavailable"})
T = TypeVar("T")


class RefusedError(Exception):
    """The engine answered with an error; `code` is from the closed list of PROTOCOL.md."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class AwayError(Exception):
    """No answer within the caller's patience."""


class Fault(msgspec.Struct):
    code: str = "internal"
    message: str = ""


class FaultBody(msgspec.Struct):
    error: Fault


async def ignore(_: Exception) -> None:
    """Disconnects are expected here: every call repeats itself until its patience is over."""


class PlainApi:
    """Requests that survive a server that is restarted, wiped or away for a while.

    Only for requests that may be repeated: reads, and writes with an id of their own.
    """

    def __init__(self, nats_url: str, prefix: str, *, patience_seconds: float = 180.0) -> None:
        self._url = nats_url
        self.prefix = prefix
        self._patience = patience_seconds
        self._nc: NatsClient | None = None
        self._lock = asyncio.Lock()

    async def connection(self) -> NatsClient:
        """The current connection; a client that closed for good is replaced."""
        async with self._lock:
            if self._nc is None or self._nc.is_closed:
                self._nc = NatsClient()
                await self._nc.connect(
                    self._url,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=1,
                    connect_timeout=2,
                    ping_interval=5,
                    error_cb=ignore,
                )
            return self._nc

    async def close(self) -> None:
        """Close the connection."""
        if self._nc is not None and not self._nc.is_closed:
            await self._nc.close()

    async def call(self, verb: str, body: Mapping[str, object], shape: type[T]) -> T:
        """Ask until there is an answer.

        Raises `RefusedError` for an error that asking again won't change, `AwayError` when nobody
        answers for `patience_seconds`.
        """
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return msgspec.json.decode(await self._ask(verb, body), type=shape)
            except (NatsError, TimeoutError, OSError) as error:
                if time.monotonic() > deadline:
                    raise AwayError(f"no answer to {verb} in {self._patience:g} s") from error
            except RefusedError as refused:
                if refused.code not in PASSING_CODES or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> bool:
        """Publish to a stream; True when its PubAck came. A False may be stored all the same."""
        try:
            nc = await self.connection()
            reply = await nc.request(subject, payload, timeout=REPLY_SECONDS, headers=headers)
        except (NatsError, TimeoutError, OSError):
            return False
        return b'"error"' not in reply.data

    async def _ask(self, verb: str, body: Mapping[str, object]) -> bytes:
        nc = await self.connection()
        payload = json.dumps(body, ensure_ascii=False).encode()
        reply: Msg = await nc.request(f"{self.prefix}.api.{verb}", payload, timeout=REPLY_SECONDS)
        if "Nats-Service-Error-Code" in (reply.headers or {}):
            fault = msgspec.json.decode(reply.data, type=FaultBody).error
            raise RefusedError(fault.code, fault.message)
        return reply.data
