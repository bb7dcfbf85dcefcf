"""Decodes a request, calls its handler, encodes the answer; every error becomes an error answer."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import structlog
from msgspec import Struct

from towpath_engine.bus.answers import error_reply
from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.bus.interface import ApiReply, ApiRequest
from towpath_engine.metrics import Metrics
from towpath_engine.services.api.errors import ApiFailureError, of_protocol_error
from towpath_engine.services.worker_heartbeats import WorkerHeartbeats
from towpath_engine.store.errors import StoreUnavailable
from towpath_protocol import bounds, codec, headers
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.limits import WireLimits
from towpath_protocol.verbs import VERBS

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Struct)

Handler = Callable[[ApiRequest], Awaitable[Struct]]
"""Takes a request (body not decoded) and returns the reply struct.

Raises ApiFailureError, ProtocolError, StoreUnavailable or BusUnavailable."""

_UNAVAILABLE = "the engine can't reach {what}; repeat with the same request_id or message_id"


class ApiRouter:
    """The one handler that the bus gets."""

    def __init__(
        self,
        *,
        handlers: Mapping[str, Handler],
        heartbeats: WorkerHeartbeats,
        metrics: Metrics,
        limits: WireLimits,
    ) -> None:
        built = {name for name, verb in VERBS.items() if verb.built}
        assert handlers.keys() == built, "every built verb has a handler"
        self._handlers = handlers
        self._heartbeats = heartbeats
        self._metrics = metrics
        self._limits = limits

    async def handle(self, request: ApiRequest) -> ApiReply:
        """Answer one request. Raises nothing that a client could cause."""
        began = time.monotonic()
        try:
            headers.check_headers(request.headers, self._limits)
            reply, code = await self._answer(request), "ok"
        except ApiFailureError as failure:
            reply, code = error_reply(failure.code, failure.message, failure.details), failure.code
        except ProtocolError as error:
            code, text, details = of_protocol_error(error)
            reply = error_reply(code, text, details)
        except StoreUnavailable as error:
            log.warning("request_unavailable", verb=request.verb, error=str(error))
            code = ErrorCode.UNAVAILABLE
            reply = error_reply(code, _UNAVAILABLE.format(what="Postgres"))
        except BusUnavailable as error:
            log.warning("request_unavailable", verb=request.verb, error=str(error))
            code = ErrorCode.UNAVAILABLE
            reply = error_reply(code, _UNAVAILABLE.format(what="JetStream"))
        label = request.verb if request.verb in VERBS else "other"
        self._metrics.api_requests.labels(verb=label, code=code).inc()
        self._metrics.api_seconds.labels(verb=label).observe(time.monotonic() - began)
        return reply

    async def _answer(self, request: ApiRequest) -> ApiReply:
        if request.verb == "heartbeat":
            return await self._heartbeats.answer(request)
        handler = self._handlers.get(request.verb)
        if handler is None:
            if request.verb in VERBS:
                raise ApiFailureError(
                    ErrorCode.NOT_YET, f"{request.verb} is not built in this version of the engine"
                )
            raise ApiFailureError(ErrorCode.UNKNOWN_VERB, f"there is no verb {request.verb[:80]!r}")
        reply = await handler(request)
        if codec.is_messagepack(headers.get(request.headers, headers.CONTENT_TYPE)):
            return ApiReply(
                body=codec.encode_messagepack(reply), content_type=headers.MESSAGEPACK_TYPE
            )
        return ApiReply(body=codec.encode(reply))


class RequestReader:
    """Decodes request bodies with the installation's limits; an empty body is `{}`."""

    def __init__(self, limits: WireLimits) -> None:
        self.limits = limits

    def read(self, request: ApiRequest, cls: type[T]) -> T:
        """The request as `cls`. Raises ProtocolError."""
        message = codec.decode(
            request.body or b"{}",
            cls,
            content_type=headers.get(request.headers, headers.CONTENT_TYPE),
            limits=self.limits,
        )
        bounds.check_bounds(message, self.limits)
        return message
