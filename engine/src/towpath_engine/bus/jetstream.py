"""Requests to the JetStream API, raw: nats-py's dataclasses lack fields that we need."""

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from towpath_engine.bus.connection import Link
from towpath_engine.bus.errors import BusUnavailable, JetStreamError
from towpath_engine.bus.interface import ConsumerState, StoredMessage, StreamState
from towpath_protocol.times import format_instant

Json = dict[str, Any]

NOT_FOUND = 404
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NANOSECONDS_PER_SECOND = 1_000_000_000

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$")


def nanoseconds(seconds: float) -> int:
    """Seconds as the JetStream API writes durations."""
    return round(seconds * NANOSECONDS_PER_SECOND)


def time_of_nanoseconds(value: int) -> datetime:
    """Nanoseconds since 1970 to the microsecond below, without float arithmetic."""
    return EPOCH + timedelta(microseconds=value // 1000)


def time_of_text(text: str) -> datetime:
    """The server's RFC 3339 with up to nanoseconds, to the microsecond below, in UTC.

    Raises ValueError when it is no such time.
    """
    match = _TIME.match(text)
    if match is None:
        raise ValueError(f"not a time: {text!r}")
    base, fraction, zone = match.groups()
    micros = (fraction or "")[:6].ljust(6, "0")
    zone = "+00:00" if zone == "Z" else zone
    return datetime.fromisoformat(f"{base}.{micros}{zone}").astimezone(UTC)


def parse_headers(raw: bytes) -> dict[str, str]:
    """The stored header block `NATS/1.0\\r\\nName: value\\r\\n…`; the last of equal names wins."""
    headers: dict[str, str] = {}
    for line in raw.split(b"\r\n")[1:]:
        name, found, value = line.partition(b":")
        if found:
            headers[name.strip().decode("ascii", "replace")] = value.strip().decode(
                "utf-8", "replace"
            )
    return headers


class ApiError(msgspec.Struct, frozen=True):
    """How JetStream says no."""

    code: int = 0
    err_code: int = 0
    description: str = "unknown error"


class JetStreamApi:
    """The API as one link reaches it. Every method raises BusUnavailable, JetStreamError."""

    def __init__(self, link: Link, *, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s

    async def call(self, name: str, request: Mapping[str, Any] | None = None) -> Json:
        """Call `$JS.API.<name>`; the answer without its error."""
        body = b"" if request is None else msgspec.json.encode(request)
        answer = await self._link.request(f"$JS.API.{name}", body, timeout_s=self._timeout_s)
        try:
            result = msgspec.json.decode(answer.data, type=Json)
            error = msgspec.convert(result.get("error"), ApiError | None)
        except (msgspec.DecodeError, msgspec.ValidationError) as fault:
            raise BusUnavailable(f"$JS.API.{name} answered something unreadable") from fault
        if error is not None:
            raise JetStreamError(error.code, error.err_code, error.description)
        return result

    async def find(self, name: str, request: Mapping[str, Any] | None = None) -> Json | None:
        """As `call`, but None when the server answers 404."""
        try:
            return await self.call(name, request)
        except JetStreamError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    async def stream_info(self, stream: str) -> Json | None:
        """STREAM.INFO as the server answers it; None when there is no such stream."""
        return await self.find(f"STREAM.INFO.{stream}")

    async def consumer_info(self, stream: str, consumer: str) -> Json | None:
        """CONSUMER.INFO as the server answers it; None when it or its stream is missing."""
        return await self.find(f"CONSUMER.INFO.{stream}.{consumer}")

    async def consumer_names(self, stream: str) -> set[str] | None:
        """The names of all consumers of a stream; None when there is no such stream."""
        names: set[str] = set()
        while True:
            page = await self.find(f"CONSUMER.NAMES.{stream}", {"offset": len(names)})
            if page is None:
                return None
            found: list[str] = page.get("consumers") or []
            names.update(found)
            if not found or len(names) >= int(page.get("total", 0)):
                return names

    async def stream_state(self, stream: str) -> StreamState | None:
        """STREAM.INFO in short; None when there is no such stream."""
        info = await self.stream_info(stream)
        return None if info is None else stream_state_of(info)

    async def consumer_state(self, stream: str, consumer: str) -> ConsumerState | None:
        """CONSUMER.INFO in short; None when it or its stream is missing."""
        info = await self.consumer_info(stream, consumer)
        if info is None:
            return None
        return ConsumerState(
            stream=stream,
            name=consumer,
            created=str(info["created"]),
            delivered_seq=int(info["delivered"]["stream_seq"]),
            paused=bool(info.get("paused", False)),
            ack_floor_seq=int(info["ack_floor"]["stream_seq"]),
            ack_pending=int(info["num_ack_pending"]),
            pending=int(info["num_pending"]),
            waiting=int(info["num_waiting"]),
        )

    async def find_message(
        self, stream: str, *, subject: str | None, seq: int | None
    ) -> StoredMessage | None:
        """STREAM.MSG.GET by sequence, or the last on a subject as stored; None if absent."""
        request: Json = {"last_by_subj": subject} if seq is None else {"seq": seq}
        found = await self.find(f"STREAM.MSG.GET.{stream}", request)
        if found is None:
            return None
        message: Json = found["message"]
        try:
            return StoredMessage(
                subject=str(message["subject"]),
                seq=int(message["seq"]),
                stored_at=time_of_text(str(message["time"])),
                headers=parse_headers(base64.b64decode(message.get("hdrs") or "")),
                body=base64.b64decode(message.get("data") or ""),
            )
        except (KeyError, ValueError, binascii.Error) as error:
            raise BusUnavailable(f"the message of {stream} can't be read: {error}") from error

    async def pause_consumer(self, stream: str, consumer: str, until: datetime | None) -> None:
        """CONSUMER.PAUSE; nothing happens without the consumer."""
        request = {} if until is None else {"pause_until": format_instant(until)}
        await self.find(f"CONSUMER.PAUSE.{stream}.{consumer}", request)

    async def purge_subject(self, stream: str, subject: str) -> int:
        """STREAM.PURGE of one exact subject; how many messages went (0 without the stream)."""
        answer = await self.find(f"STREAM.PURGE.{stream}", {"filter": subject})
        return 0 if answer is None else int(answer.get("purged", 0))


def stream_state_of(info: Json) -> StreamState:
    """The short form of an answer to STREAM.INFO, STREAM.CREATE or STREAM.UPDATE."""
    state: Json = info["state"]
    return StreamState(
        name=str(info["config"]["name"]),
        created=str(info["created"]),
        first_seq=int(state["first_seq"]),
        last_seq=int(state["last_seq"]),
        messages=int(state["messages"]),
    )
