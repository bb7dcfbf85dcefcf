"""Streams and consumers: what they should be, and making the server agree.

Only the engine creates and migrates them. Everything is idempotent, and several engines may do
it at once. What the server returns is compared with what was asked, because a server that does
not know a field may drop it without a word.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast

import structlog
from msgspec import Struct

from towpath_engine.bus.errors import BusRefused, BusUnavailable, JetStreamError
from towpath_engine.bus.interface import StreamState
from towpath_engine.bus.jetstream import JetStreamApi, Json, nanoseconds, stream_state_of
from towpath_engine.bus.settings import BusSettings
from towpath_protocol import subjects

log: Any = structlog.get_logger(__name__)

LAYOUT = "1"
"""Kept in the streams' metadata. A stream of a newer layout is left as the newer engine made it."""
LAYOUT_KEY = "towpath-layout"
CREATE_CONCURRENCY = 16

NO_ROOM = frozenset({10023, 10028, 10047})
EXISTS_DIFFERENTLY = 10058
PASSING = frozenset({404, 408, 429, 503})


class Consumer(Struct, frozen=True, kw_only=True):
    """A durable pull consumer as it should be."""

    stream: str
    name: str
    config: Json


DISPATCH_CONSUMERS_MAX = 16_384
"""Of P_DISPATCH. Left out, nats-server 2.15 takes 1,000, fewer than 256 queues have. A constant,
because older servers refuse to change it."""


class Ensured(Struct, frozen=True, kw_only=True):
    """What a pass over streams or consumers found and did."""

    states: Mapping[str, StreamState] = {}
    created: frozenset[str] = frozenset()
    """Names of the streams or consumers that were missing."""


def wanted_streams(settings: BusSettings) -> list[Json]:
    """The four streams as the JetStream API writes them."""
    prefix = settings.prefix
    dispatch: Json = {
        **_stream(settings, subjects.dispatch_stream(prefix), settings.dispatch_bytes_max),
        "subjects": list(subjects.dispatch_stream_subjects(prefix)),
        "retention": "workqueue",
        "max_consumers": DISPATCH_CONSUMERS_MAX,
        "allow_msg_ttl": True,
        "duplicate_window": nanoseconds(settings.dispatch_duplicate_window_s),
    }
    inbound: Json = {
        **_stream(settings, subjects.in_stream(prefix), settings.in_bytes_max),
        "subjects": list(subjects.in_stream_subjects(prefix)),
        "retention": "workqueue",
        "duplicate_window": nanoseconds(settings.in_duplicate_window_s),
        "subject_transform": {
            "src": subjects.in_transform_source(prefix),
            "dest": subjects.in_transform_destination(prefix),
        },
    }
    advisories: Json = {
        **_stream(settings, subjects.advisory_stream(prefix), settings.advisories_bytes_max),
        "subjects": list(subjects.advisory_stream_subjects(prefix)),
        "retention": "limits",
        "max_age": nanoseconds(settings.advisories_age_max_s),
    }
    events: Json = {
        **_stream(settings, subjects.event_stream(prefix), settings.events_bytes_max),
        "subjects": list(subjects.event_stream_subjects(prefix)),
        "retention": "limits",
        "max_age": nanoseconds(settings.events_age_max_s),
    }
    return [dispatch, inbound, advisories, events]


def _stream(settings: BusSettings, name: str, bytes_max: int) -> Json:
    return {
        "name": name,
        "storage": "file",
        "discard": "new",
        "max_bytes": bytes_max,
        "max_msg_size": settings.message_bytes_max,
        "num_replicas": settings.replicas,
        "metadata": {LAYOUT_KEY: LAYOUT},
    }


def engine_consumers(settings: BusSettings) -> list[Consumer]:
    """The consumers that the engines themselves pull from: partitions of P_IN, and P_ADV."""
    partitions = [
        partition_consumer(settings, number) for number in range(subjects.PARTITION_COUNT)
    ]
    advisories = _consumer(
        settings,
        stream=subjects.advisory_stream(settings.prefix),
        name=subjects.advisory_consumer(),
        deliveries_max=-1,
        filter_subject=None,
    )
    return [*partitions, advisories]


def partition_consumer(settings: BusSettings, partition: int) -> Consumer:
    """The consumer that the owner of a partition of P_IN pulls from."""
    return _consumer(
        settings,
        stream=subjects.in_stream(settings.prefix),
        name=subjects.partition_consumer(partition),
        deliveries_max=-1,
        filter_subject=subjects.partition_consumer_filter(settings.prefix, partition),
    )


def queue_consumers(settings: BusSettings, queue: str) -> list[Consumer]:
    """The consumers that a queue's workers pull from, one per priority level."""
    return [
        _consumer(
            settings,
            stream=subjects.dispatch_stream(settings.prefix),
            name=subjects.queue_consumer(queue, level),
            deliveries_max=settings.dispatch_deliveries_max,
            filter_subject=subjects.queue_consumer_filter(settings.prefix, queue, level),
        )
        for level in range(subjects.LEVEL_COUNT)
    ]


def _consumer(
    settings: BusSettings,
    *,
    stream: str,
    name: str,
    deliveries_max: int,
    filter_subject: str | None,
) -> Consumer:
    narrowed: Json = {} if filter_subject is None else {"filter_subject": filter_subject}
    return Consumer(
        stream=stream,
        name=name,
        config={
            "durable_name": name,
            "name": name,
            **narrowed,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "replay_policy": "instant",
            "ack_wait": nanoseconds(settings.ack_wait_s),
            "max_deliver": deliveries_max,
            "max_ack_pending": settings.ack_pending_max,
            "max_waiting": settings.waiting_max,
            "max_batch": settings.pull_batch_max,
            "max_expires": nanoseconds(settings.pull_expires_max_s),
        },
    )


async def ensure_streams(api: JetStreamApi, settings: BusSettings) -> Ensured:
    """Create or update the streams.

    Raises BusRefused when the server can't or won't, BusUnavailable.
    """
    states: dict[str, StreamState] = {}
    created: set[str] = set()
    for wanted in wanted_streams(settings):
        name = str(wanted["name"])
        try:
            info, is_new = await _ensure_stream(api, name, wanted)
        except JetStreamError as error:
            raise _explained(f"the stream {name}", error, size=int(wanted["max_bytes"])) from error
        states[name] = stream_state_of(info)
        if is_new:
            created.add(name)
    return Ensured(states=states, created=frozenset(created))


async def _ensure_stream(api: JetStreamApi, name: str, wanted: Json) -> tuple[Json, bool]:
    """The stream's info, and whether it was missing."""
    info = await api.stream_info(name)
    is_new = info is None
    if info is None:
        try:
            info = await api.call(f"STREAM.CREATE.{name}", wanted)
        except JetStreamError as error:
            if error.err_code != EXISTS_DIFFERENTLY:
                raise
            # Another engine with other settings was faster.
            info, is_new = await api.call(f"STREAM.INFO.{name}"), False
        else:
            log.info("bus_stream_created", stream=name)
    if _layout(info) > int(LAYOUT):
        return info, is_new
    if differences(wanted, info["config"]):
        # What we do not name stays as an operator may have set it (placement, mirrors' names…).
        info = await api.call(f"STREAM.UPDATE.{name}", {**info["config"], **wanted})
        log.info("bus_stream_updated", stream=name)
    _verify(f"the stream {name}", wanted, info["config"])
    return info, is_new


async def ensure_consumers(api: JetStreamApi, consumers: Iterable[Consumer]) -> Ensured:
    """Create or update consumers, several at a time.

    Raises BusRefused when the server can't or won't, BusUnavailable (also without the stream).
    """
    limit = asyncio.Semaphore(CREATE_CONCURRENCY)

    async def ensure(consumer: Consumer) -> str | None:
        async with limit:
            try:
                return consumer.name if await _ensure_consumer(api, consumer) else None
            except JetStreamError as error:
                raise _explained(f"the consumer {consumer.name}", error) from error

    created = await asyncio.gather(*(ensure(consumer) for consumer in consumers))
    return Ensured(created=frozenset(name for name in created if name is not None))


async def _ensure_consumer(api: JetStreamApi, consumer: Consumer) -> bool:
    """True when it was missing."""
    info = await api.consumer_info(consumer.stream, consumer.name)
    is_new = info is None
    if info is None or differences(consumer.config, info["config"]):
        kept: Json = {} if info is None else info["config"]
        narrowed = consumer.config.get("filter_subject")
        info = await api.call(
            f"CONSUMER.CREATE.{consumer.stream}.{consumer.name}"
            + (f".{narrowed}" if narrowed else ""),
            {"stream_name": consumer.stream, "config": {**kept, **consumer.config}},
        )
    _verify(f"the consumer {consumer.name}", consumer.config, info["config"])
    return is_new


def differences(wanted: Json, actual: Json) -> list[str]:
    """The wanted fields whose value the server does not have; of metadata, only wanted keys."""
    found: list[str] = []
    for name, value in wanted.items():
        have: Any = actual.get(name)
        if isinstance(value, dict):
            inner = differences(cast("Json", value), cast("Json", have or {}))
            found.extend(f"{name}.{key}" for key in inner)
        elif have != value:
            found.append(name)
    return found


def _verify(what: str, wanted: Json, actual: Json) -> None:
    dropped = differences(wanted, actual)
    if dropped:
        raise BusRefused(
            f"The NATS server did not take {', '.join(dropped)} of {what}: "
            "it is too old, or it limits this account."
        )


def _layout(info: Json) -> int:
    metadata = cast("Json", info["config"].get("metadata") or {})
    text = str(metadata.get(LAYOUT_KEY, "0"))
    return int(text) if text.isdecimal() else 0


def _explained(what: str, error: JetStreamError, *, size: int = 0) -> BusRefused | BusUnavailable:
    """Is it the operator's, or will it pass?"""
    if error.err_code in NO_ROOM and size:
        return BusRefused(
            f"The NATS server has no room for {what} of {size} bytes ({error.description}): "
            "raise max_file_store (or the account's limit), or lower the stream's byte limit."
        )
    if error.code in PASSING:
        return BusUnavailable(f"{what} can't be created yet: {error}")
    return BusRefused(f"The NATS server refuses {what}: {error}.")
