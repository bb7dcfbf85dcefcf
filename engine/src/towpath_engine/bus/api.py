"""The micro service `towpath`: requests on `P.api.>` and `P.heartbeat.*`, and its `$SRV` answers.

Not nats-py's `nats.micro`: it runs the requests of an endpoint one at a time, sends an exception's
repr to the caller, and answers to any reply subject. This is the same wire (NATS ADR-32).
"""

import asyncio
import re
import secrets
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct

from towpath_engine.bus.answers import error_reply
from towpath_engine.bus.connection import Link, Message, OnMessage, Subscription
from towpath_engine.bus.errors import BusUnavailable, UnsendableMessageError
from towpath_engine.bus.interface import ApiHandler, ApiReply, ApiRequest
from towpath_engine.bus.publisher import headers_size
from towpath_engine.bus.settings import BusSettings
from towpath_protocol import subjects
from towpath_protocol.errors import ErrorCode
from towpath_protocol.headers import SERVICE_ERROR, SERVICE_ERROR_CODE

log: Any = structlog.get_logger(__name__)

RETRY_AFTER_MS: Final = 250
REPLY_LENGTH_MAX: Final = 1024
"""Longer reply subjects would make a control line that the server answers by closing us."""
DESCRIPTION_LENGTH_MAX: Final = 500
_REPLY: Final = re.compile(r"[^\s*>\x00-\x1f\x7f]+")
LONG_POLLS: Final = frozenset({"run.result"})
SERVICE_VERBS: Final = ("PING", "INFO", "STATS")


def is_answerable(reply: str) -> bool:
    """Only inboxes: a foreign reply subject would make us publish into a stream for the sender."""
    return (
        reply.startswith(subjects.REPLY_PREFIXES)
        and len(reply) <= REPLY_LENGTH_MAX
        and _REPLY.fullmatch(reply) is not None
    )


class Room(Struct):
    """How many requests of a kind may run at once, and how many do."""

    limit: int
    running: int = 0


class Endpoint(Struct):
    """One subscription of the service, and its counts since the start."""

    name: str
    subject: str
    prefix: str
    """What stands before the verb."""
    room: Room
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time: int = 0
    """Nanoseconds, of all requests."""

    def stats(self, queue_group: str) -> dict[str, Any]:
        """As STATS lists it."""
        return {
            "name": self.name,
            "subject": self.subject,
            "queue_group": queue_group,
            "num_requests": self.num_requests,
            "num_errors": self.num_errors,
            "last_error": self.last_error,
            "processing_time": self.processing_time,
            "average_processing_time": self.processing_time // max(self.num_requests, 1),
        }


class ApiService:
    """Answers requests, each in a task of its own, up to `concurrency_max` of the API.

    Heartbeats have as many places of their own. Long polls, which only wait, have `polls_max`: so
    they starve neither the other requests nor the workers' heartbeats.
    """

    def __init__(
        self, settings: BusSettings, handler: ApiHandler, *, concurrency_max: int, polls_max: int
    ) -> None:
        prefix = settings.prefix
        self._settings = settings
        self._handler = handler
        self._queue_group = subjects.queue_group(prefix)
        self._id = secrets.token_hex(11)
        self._started = datetime.now(UTC)
        api, heartbeat = f"{prefix}.api.", f"{prefix}.heartbeat."
        self._endpoints = (
            Endpoint("api", subjects.api_filter(prefix), api, Room(concurrency_max)),
            Endpoint(
                "heartbeat", subjects.heartbeat_filter(prefix), heartbeat, Room(concurrency_max)
            ),
        )
        self._polls = Room(polls_max)
        self._tasks: set[asyncio.Task[None]] = set()
        self._link: Link | None = None
        self._subscriptions: list[Subscription] = []

    async def attach(self, link: Link) -> None:
        """Answer through this link from now on. Raises BusUnavailable."""
        self._link = link
        self._subscriptions = [
            await link.subscribe(
                endpoint.subject, self._on_request(endpoint), queue=self._queue_group
            )
            for endpoint in self._endpoints
        ]
        for verb in SERVICE_VERBS:
            on_question = self._on_question(verb)
            name = subjects.SERVICE_NAME
            for subject in (
                f"$SRV.{verb}",
                f"$SRV.{verb}.{name}",
                f"$SRV.{verb}.{name}.{self._id}",
            ):
                await link.subscribe(subject, on_question)

    def detach(self) -> None:
        """The link has ended; handlers go on and answer through the next one."""
        self._link = None
        self._subscriptions = []

    async def drain(self) -> None:
        """Take no more requests, let the running ones end, cancel those that take too long."""
        link, subscriptions = self._link, self._subscriptions
        self._subscriptions = []
        if link is not None:
            for subscription in subscriptions:
                await link.unsubscribe(subscription)
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=self._settings.drain_timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _on_request(self, endpoint: Endpoint) -> OnMessage:
        async def on_request(message: Message) -> None:
            if not is_answerable(message.reply):
                log.debug("api_reply_subject_refused", subject=message.subject)
                return
            endpoint.num_requests += 1
            verb = _verb(endpoint, message.subject)
            room = self._polls if verb in LONG_POLLS else endpoint.room
            if room.running >= room.limit:
                overloaded = error_reply(
                    ErrorCode.OVERLOADED,
                    f"{room.limit} requests are running; try again soon",
                    {"retry_after_ms": RETRY_AFTER_MS},
                )
                await self._answer(endpoint, message.reply, overloaded)
                return
            room.running += 1
            task = asyncio.create_task(self._serve(endpoint, room, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return on_request

    async def _serve(self, endpoint: Endpoint, room: Room, message: Message) -> None:
        request = ApiRequest(
            subject=message.subject,
            verb=_verb(endpoint, message.subject),
            headers=message.headers or {},
            body=message.data,
            reply=message.reply,
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            reply = await self._handler(request)
        except Exception:  # the execution of a foreign handler; logged here, told to nobody
            log.exception("api_handler_failed", verb=request.verb)
            reply = error_reply(ErrorCode.INTERNAL, "the engine failed to answer; see its log")
        finally:
            room.running -= 1
            endpoint.processing_time += round((loop.time() - began) * 1_000_000_000)
        await self._answer(endpoint, message.reply, reply)

    async def _answer(self, endpoint: Endpoint, to: str, reply: ApiReply) -> None:
        link = self._link
        if link is None:
            return  # the caller repeats its request
        headers = reply_headers(reply)
        if len(reply.body) + headers_size(headers) > link.max_payload:
            reply = error_reply(
                ErrorCode.TOO_LARGE,
                "the answer is too large for one message; ask for less, with a smaller `limit`",
            )
            headers = reply_headers(reply)
        if reply.code:
            endpoint.num_errors += 1
            endpoint.last_error = f"{reply.code}:{headers[SERVICE_ERROR]}"
        try:
            await link.publish(to, reply.body, headers=headers)
        except (BusUnavailable, UnsendableMessageError) as error:
            log.debug("api_answer_lost", error=str(error))

    def _on_question(self, verb: str) -> OnMessage:
        async def on_question(message: Message) -> None:
            link = self._link
            if link is None or not is_answerable(message.reply):
                return
            try:
                await link.publish(message.reply, msgspec.json.encode(self._about(verb)))
            except (BusUnavailable, UnsendableMessageError) as error:
                log.debug("api_answer_lost", error=str(error))

        return on_question

    def _about(self, verb: str) -> dict[str, Any]:
        about: dict[str, Any] = {
            "type": f"io.nats.micro.v1.{verb.lower()}_response",
            "name": subjects.SERVICE_NAME,
            "id": self._id,
            "version": self._settings.service_version,
            "metadata": {"prefix": self._settings.prefix, **self._settings.service_metadata},
        }
        match verb:
            case "INFO":
                about["description"] = "Towpath, a durable workflow engine"
                about["endpoints"] = [
                    {
                        "name": endpoint.name,
                        "subject": endpoint.subject,
                        "queue_group": self._queue_group,
                        "metadata": {},
                    }
                    for endpoint in self._endpoints
                ]
            case "STATS":
                about["started"] = self._started.isoformat().replace("+00:00", "Z")
                about["endpoints"] = [
                    endpoint.stats(self._queue_group) for endpoint in self._endpoints
                ]
            case _:
                pass
        return about


def _verb(endpoint: Endpoint, subject: str) -> str:
    return "heartbeat" if endpoint.name == "heartbeat" else subject.removeprefix(endpoint.prefix)


def reply_headers(reply: ApiReply) -> dict[str, str]:
    """The headers of an answer: its content type, and for errors code and description in ASCII."""
    headers: dict[str, str] = {}
    if reply.content_type is not None:
        headers["Content-Type"] = reply.content_type
    if reply.code:
        headers[SERVICE_ERROR_CODE] = str(reply.code)
        text = reply.description[:DESCRIPTION_LENGTH_MAX]
        headers[SERVICE_ERROR] = " ".join(ascii(text)[1:-1].split()) or "error"
    return headers
