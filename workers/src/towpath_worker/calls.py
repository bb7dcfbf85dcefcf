"""One request to the engine's API: encode, repeat until answered, decode the answer or the error.

Every request that a client sends may be repeated: starts and signals carry an id, everything else
is idempotent. So a lost answer, an absent engine and "too much at once" are waited out.
"""

import asyncio
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from towpath_protocol.codec import encode
from towpath_protocol.errors import ErrorBody, ErrorCode
from towpath_protocol.headers import SERVICE_ERROR, SERVICE_ERROR_CODE
from towpath_protocol.subjects import api_subject
from towpath_worker.clock import now_ms
from towpath_worker.transport import (
    Connection,
    NoAnswerError,
    NotConnectedError,
    Received,
    TransportError,
)
from towpath_worker.values import Json, from_json

T = TypeVar("T", bound=Struct)

ANSWER_SECONDS: Final = 5.0
PAUSE_MIN_MS: Final = 100
PAUSE_MAX_MS: Final = 2_000
REPEATED_CODES: Final = frozenset({ErrorCode.OVERLOADED, ErrorCode.UNAVAILABLE})


class ApiError(Exception):
    """The engine refused a request.

    `code` is a word from the closed list in PROTOCOL.md, `status` its HTTP-like number, `details`
    whatever the engine added, as every fault of a refused definition.
    """

    def __init__(self, code: str, message: str, details: Json = None, *, status: int = 0) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.details = details
        self.status = status


class ApiCaller:
    """Sends requests through one connection."""

    def __init__(self, connection: Connection, *, prefix: str, url: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._url = url

    async def call(
        self,
        verb: str,
        request: Struct,
        reply: type[T],
        *,
        timeout_seconds: float,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> T:
        """The reply to a request, which is repeated until `timeout_seconds` are over.

        `answer_seconds` is how long one answer may take. Raises ApiError when the engine refuses,
        NoAnswerError when no engine has answered, NotConnectedError when NATS was not there.
        """
        subject = api_subject(self._prefix, verb)
        body = encode(request)
        ends_ms = now_ms() + round(timeout_seconds * 1000)
        pause_ms = PAUSE_MIN_MS
        while True:
            left_seconds = max(0.05, (ends_ms - now_ms()) / 1000)
            failure: TransportError | ApiError
            try:
                received = await self._connection.request(
                    subject, body, timeout_seconds=min(answer_seconds, left_seconds)
                )
                return _decoded(received, reply)
            except NotConnectedError as error:
                failure = error
            except NoAnswerError as error:
                message = f"no Towpath engine answers on {subject} at {self._url}"
                failure = NoAnswerError(message)
                failure.__cause__ = error
            except ApiError as error:
                if error.code not in REPEATED_CODES:
                    raise
                failure = error
            if now_ms() + pause_ms >= ends_ms:
                raise failure
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(PAUSE_MAX_MS, pause_ms * 2)


def _decoded(received: Received, reply: type[T]) -> T:
    status = received.headers.get(SERVICE_ERROR_CODE)
    if status is not None:
        raise _api_error(received, status)
    try:
        return msgspec.json.decode(received.body, type=reply)
    except msgspec.MsgspecError as error:
        raise ApiError("unreadable", f"the engine's answer cannot be read: {error}") from error


def _api_error(received: Received, status: str) -> ApiError:
    number = int(status) if status.isdecimal() else 500
    try:
        info = msgspec.json.decode(received.body, type=ErrorBody).error
    except msgspec.MsgspecError:
        message = received.headers.get(SERVICE_ERROR, "the engine refused the request")
        return ApiError("unknown", message, status=number)
    return ApiError(info.code, info.message, from_json(bytes(info.details)), status=number)
