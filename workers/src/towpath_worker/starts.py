"""Starts as a program writes them, and as the wire takes them; large lots cut into messages."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Raw, Struct

from towpath_protocol.codec import encode
from towpath_protocol.limits import WireLimits
from towpath_protocol.priorities import Priority
from towpath_protocol.requests import OnConflict, StartMany, StartRun
from towpath_protocol.times import format_instant
from towpath_worker.values import to_json

LIMITS: Final = WireLimits()
ROOM_BYTES: Final = 16 * 1024
"""Headers and the frame of a start-many message."""
ITEMS_PER_MESSAGE: Final = 2_000
"""Fewer than the engine takes: the answers of all have to fit into one message, too."""


class StartItem(Struct, frozen=True, kw_only=True):
    """One start. `delay` is a timedelta or seconds; `at` needs a time zone.

    Without a `request_id` one is made, so that repeating the request starts nothing twice.
    """

    workflow: str
    input: object = None
    key: str | None = None
    version: int | None = None
    delay: timedelta | float | None = None
    at: datetime | None = None
    priority: Priority | None = None
    tags: Sequence[str] | None = None
    context: Mapping[str, object] | None = None
    on_conflict: OnConflict = OnConflict.EXISTING
    request_id: str | None = None
    triggered_by: str | None = None


def start_of(item: StartItem | Mapping[str, object]) -> StartRun:
    """The request of a start.

    Raises TypeError for an unknown field, ValueError (msgspec.ValidationError for a mapping) for a
    bad name, key, priority or instant, InvalidValueError for an input or a context that is no JSON
    or too large.
    """
    if not isinstance(item, StartItem):
        item = _item_of(item)
    return StartRun(
        workflow=item.workflow,
        input=Raw(to_json(item.input, bytes_max=LIMITS.input_bytes_max, field="input")),
        key=item.key,
        version=item.version,
        delay_ms=_delay_ms(item.delay),
        at=None if item.at is None else format_instant(item.at),
        priority=item.priority,
        tags=None if item.tags is None else tuple(item.tags),
        context=_context(item.context),
        on_conflict=item.on_conflict,
        request_id=item.request_id or str(uuid.uuid4()),
        triggered_by=item.triggered_by,
    )


def batches(starts: Sequence[StartRun], *, bytes_max: int) -> Iterator[StartMany]:
    """Requests of at most `ITEMS_PER_MESSAGE` items and `bytes_max` bytes, in order."""
    batch: list[StartRun] = []
    size = 0
    room = min(bytes_max, LIMITS.message_bytes_max) - ROOM_BYTES
    for start in starts:
        start_size = len(encode(start)) + 1
        if batch and (size + start_size > room or len(batch) >= ITEMS_PER_MESSAGE):
            yield StartMany(items=tuple(batch))
            batch, size = [], 0
        batch.append(start)
        size += start_size
    if batch:
        yield StartMany(items=tuple(batch))


def _item_of(fields: Mapping[str, object]) -> StartItem:
    known = StartItem.__struct_fields__
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise TypeError(f"a start has no field {', '.join(unknown)}; it has {', '.join(known)}")
    if "workflow" not in fields:
        raise TypeError("a start needs a workflow")
    return msgspec.convert(dict(fields), type=StartItem, strict=True)


def _context(context: Mapping[str, object] | None) -> Raw | None:
    if context is None:
        return None
    return Raw(to_json(context, bytes_max=LIMITS.context_bytes_max, field="context"))


def _delay_ms(delay: timedelta | float | None) -> int | None:
    if delay is None:
        return None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if seconds < 0:
        raise ValueError("delay must not be negative")
    return round(seconds * 1000)
