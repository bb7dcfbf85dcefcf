"""Requests to `P.api.<group>.<verb>`: encode, ask, repeat what got no answer, decode.

A request is repeated with the same body, so that its `request_id` or `message_id` makes the engine
answer a repeat as the first time. While nobody listens, NATS is away or the engine is overloaded
(429, after as long as it asked for) or cannot reach Postgres, it is repeated too, until the call's
time is over. The few verbs that are not safe to repeat are not, once they may have arrived.
"""

import asyncio
import secrets
from typing import Final, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from towpath_protocol.codec import encode
from towpath_protocol.errors import ErrorBody, ErrorCode
from towpath_protocol.headers import SERVICE_ERROR, SERVICE_ERROR_CODE
from towpath_protocol.subjects import api_subject
from towpath_worker.api_errors import ApiError, OutcomeUnknownError, api_error
from towpath_worker.clock import now_ms
from towpath_worker.options import ConnectionOptions
from towpath_worker.transport import (
    Connection,
    MissingRightError,
    NoAnswerError,
    NobodyListensError,
    NotConnectedError,
    Received,
    TransportError,
)
from towpath_worker.values import InvalidValueError, from_json

T = TypeVar("T", bound=Struct)

ANSWER_SECONDS: Final = 5.0
PAUSE_MIN_MS: Final = 100
PAUSE_MAX_MS: Final = 2_000
RETRY_AFTER_MAX_MS: Final = 10_000
"""An engine that asks for more patience than this is asked again all the same."""
REPEATED_CODES: Final = frozenset({ErrorCode.OVERLOADED, ErrorCode.UNAVAILABLE})
READING: Final = frozenset({"list", "get", "output", "result", "history", "logs", "explain"})
"""The last words of verbs that change nothing."""
ONCE: Final = frozenset({"dead-letter.replay"})
"""Verbs whose repeat is another request to the engine: a letter that was replayed is gone."""


class ApiCaller:
    """Sends requests through one connection. `timeout_seconds` is how long a call goes on."""

    def __init__(
        self, connection: Connection, options: ConnectionOptions, *, timeout_seconds: float
    ) -> None:
        self.connection = connection
        self.prefix = options.prefix
        self.timeout_seconds = timeout_seconds
        self.answer_seconds = ANSWER_SECONDS
        self._address = options.address

    async def call(
        self,
        verb: str,
        request: Struct,
        reply: type[T],
        *,
        timeout_seconds: float | None = None,
        answer_seconds: float | None = None,
    ) -> T:
        """The reply to a request, which is repeated until `timeout_seconds` are over.

        `answer_seconds` is how long one answer may take. Raises ApiError when the engine refuses,
        NoAnswerError when no engine has answered (OutcomeUnknownError when what was asked for may
        still happen), NotConnectedError when NATS was not there, MissingRightError at once when it
        lets us not ask, InvalidValueError when the request is larger than a message.
        """
        subject = api_subject(self.prefix, verb)
        body = self._body(verb, request)
        answer_seconds = self.answer_seconds if answer_seconds is None else answer_seconds
        limit_seconds = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        ends_ms = now_ms() + round(limit_seconds * 1000)
        pause_ms = PAUSE_MIN_MS
        arrived = False
        while True:
            left_seconds = max(0.05, (ends_ms - now_ms()) / 1000)
            try:
                received = await self.connection.request(
                    subject, body, timeout_seconds=min(answer_seconds, left_seconds)
                )
                return _decoded(received, reply)
            except (TransportError, ApiError) as error:
                failure = error
            if isinstance(failure, ApiError) and failure.code not in REPEATED_CODES:
                raise failure
            if isinstance(failure, MissingRightError):
                raise failure
            arrived = arrived or _may_have_arrived(failure)
            wait_ms = max(_jittered(pause_ms), _retry_after_ms(failure))
            over = now_ms() + wait_ms >= ends_ms
            if over or (arrived and verb in ONCE):
                self._give_up(verb, request, failure, arrived=arrived)
            await asyncio.sleep(wait_ms / 1000)
            pause_ms = min(PAUSE_MAX_MS, pause_ms * 2)

    def _body(self, verb: str, request: Struct) -> bytes:
        body = encode(request)
        bytes_max = self.connection.payload_bytes_max
        if len(body) > bytes_max:
            raise InvalidValueError(
                f"the request {verb} is {len(body)} bytes, and a message takes {bytes_max}; "
                "send less, or a reference to where the data is",
                too_large=True,
            )
        return body

    def _give_up(
        self, verb: str, request: Struct, failure: TransportError | ApiError, *, arrived: bool
    ) -> NoReturn:
        """Tell the caller how the last try ended."""
        changes = verb.rpartition(".")[2] not in READING
        if arrived and changes:
            request_id = _id_of(request)
            what = failure.message if isinstance(failure, ApiError) else "no answer"
            advice = (
                "look at the run before you repeat it"
                if request_id is None
                else f"repeat it with {request_id[0]}={request_id[1]!r}, which does nothing twice"
            )
            raise OutcomeUnknownError(
                f"{verb} at {self._address}: {what}; it may still happen: {advice}",
                verb=verb,
                request_id=None if request_id is None else request_id[1],
            ) from failure
        if isinstance(failure, ApiError | NotConnectedError):
            raise failure
        raise NoAnswerError(
            f"no Towpath engine of prefix {self.prefix!r} answers {verb} at {self._address}: "
            "is `towpath serve` or `towpath dev` running?"
        ) from failure


def _may_have_arrived(failure: TransportError | ApiError) -> bool:
    match failure:
        case ApiError():
            return failure.code == ErrorCode.UNAVAILABLE
        case NotConnectedError() | NobodyListensError():
            return False
        case _:
            return True


def _id_of(request: Struct) -> tuple[str, str] | None:
    """Name and value of what makes a repeat harmless."""
    for name in ("request_id", "message_id"):
        value: object = getattr(request, name, None)
        if isinstance(value, str):
            return name, value
    return None


def _jittered(pause_ms: int) -> int:
    """Half to once the pause: callers that failed together do not come back together."""
    return pause_ms // 2 + secrets.randbelow(pause_ms // 2 + 1)


class _RetryAfter(Struct, frozen=True):
    retry_after_ms: int


def _retry_after_ms(failure: TransportError | ApiError) -> int:
    if not isinstance(failure, ApiError):
        return 0
    try:
        asked_ms = msgspec.convert(failure.details, _RetryAfter).retry_after_ms
    except msgspec.ValidationError:
        return 0
    return min(max(0, asked_ms), RETRY_AFTER_MAX_MS)


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
        return api_error("unknown", message, status=number)
    return api_error(info.code, info.message, from_json(bytes(info.details)), status=number)
