"""The only place that spells a subject, a stream, a consumer or a message id (PROTOCOL.md,
"Subjects" and "Streams").

`prefix` is the installation's subject prefix. Builders check every part, so that no name can add
a token to a subject; they raise ProtocolError (`invalid_name`). Parsers raise ProtocolError
(`bad_subject`).
"""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.ids import (
    check_key,
    check_prefix,
    check_queue,
    check_run_id,
    check_signal,
    check_token,
    check_workflow,
)
from towpath_protocol.reports import REPORT_KINDS, Report, StepHeartbeat

PARTITION_COUNT: Final = 16
"""Partitions of P_IN, by the run id token."""
LEVEL_COUNT: Final = 4
"""Priority levels of a queue: 0 critical, 1 high, 2 normal, 3 low."""
REPLY_PREFIXES: Final = ("_INBOX", "_R_")
"""The engine answers only to reply subjects that begin with one of these."""
SERVICE_NAME: Final = "towpath"
"""Name of the micro service behind `P.api.>`."""
NOTHING: Final = "-"
"""Fills a token of the subject that a kind does not use."""


class InKind(StrEnum):
    """The kinds of message on P_IN."""

    STEP_STARTED = "step-started"
    STEP_HEARTBEAT = "step-heartbeat"
    STEP_COMPLETED = "step-completed"
    STEP_FAILED = "step-failed"
    STEP_RELEASED = "step-released"
    SIGNAL = "signal"
    SIGNAL_KEY = "signal-key"
    START = "start"
    CHILD_START = "child-start"
    CHILD_CANCEL = "child-cancel"
    CHILD_SETTLED = "child-settled"


STEP_KINDS: Final = frozenset({
    InKind.STEP_STARTED, InKind.STEP_HEARTBEAT, InKind.STEP_COMPLETED, InKind.STEP_FAILED,
    InKind.STEP_RELEASED,
})  # fmt: skip
"""The kinds that are reports: scope is the queue, name the token."""


CHILD_KINDS: Final = frozenset({
    InKind.CHILD_START, InKind.CHILD_CANCEL, InKind.CHILD_SETTLED,
})  # fmt: skip
"""The kinds between runs, which only engines send: scope is `-`, name the id of the other run."""


class InSubject(Struct, frozen=True, kw_only=True):
    """A parsed `P.in.<kind>.<scope>.<run_id>.<name>`, every part checked for its kind.

    For `start` and `signal-key`, `run_id` holds the spreading token (or `-`).
    """

    kind: InKind
    scope: str
    run_id: str
    name: str


class DispatchSubject(Struct, frozen=True, kw_only=True):
    """A parsed `P.dispatch.<queue>.<level>.<run_id>.<token>`."""

    queue: str
    level: int
    run_id: str
    token: str


def dispatch_stream(prefix: str) -> str:
    """P_DISPATCH: the work queue of dispatches. `-` in a prefix stays, it is legal."""
    return f"{check_prefix(prefix).upper()}_DISPATCH"


def in_stream(prefix: str) -> str:
    """P_IN: everything that advances a run."""
    return f"{check_prefix(prefix).upper()}_IN"


def advisory_stream(prefix: str) -> str:
    """P_ADV: advisories about dispatches that the server gave up."""
    return f"{check_prefix(prefix).upper()}_ADV"


def event_stream(prefix: str) -> str:
    """P_EVENTS: what the engine announces."""
    return f"{check_prefix(prefix).upper()}_EVENTS"


def dispatch_stream_subjects(prefix: str) -> tuple[str, ...]:
    """The subjects that P_DISPATCH stores."""
    return (f"{check_prefix(prefix)}.dispatch.*.*.*.*",)


def in_stream_subjects(prefix: str) -> tuple[str, ...]:
    """The subjects that P_IN stores, before its transform."""
    return (in_transform_source(prefix),)


def advisory_stream_subjects(prefix: str) -> tuple[str, ...]:
    """The subjects that P_ADV stores."""
    stream = dispatch_stream(prefix)
    return (
        f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.*",
        f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{stream}.*",
    )


def event_stream_subjects(prefix: str) -> tuple[str, ...]:
    """The subjects that P_EVENTS stores."""
    return (f"{check_prefix(prefix)}.events.*.*.*",)


def in_transform_source(prefix: str) -> str:
    """Source of the subject transform of P_IN."""
    return f"{check_prefix(prefix)}.in.*.*.*.*"


def in_transform_destination(prefix: str, partitions: int = PARTITION_COUNT) -> str:
    """Destination of the transform: the partition, by the run id token, goes in front."""
    tokens = ".".join(f"{{{{wildcard({n})}}}}" for n in range(1, 5))
    return f"{check_prefix(prefix)}.inp.{{{{partition({partitions},3)}}}}.{tokens}"


def queue_consumer(queue: str, level: int) -> str:
    """Durable pull consumer of P_DISPATCH for one queue and level: `<queue>_p<level>`."""
    return f"{check_queue(queue)}_p{_check_level(level)}"


def queue_consumer_filter(prefix: str, queue: str, level: int) -> str:
    """The subjects that `queue_consumer` delivers."""
    return f"{check_prefix(prefix)}.dispatch.{check_queue(queue)}.{_check_level(level)}.*.*"


def partition_consumer(partition: int) -> str:
    """Durable pull consumer of P_IN for one partition."""
    return f"partition_{_check_partition(partition)}"


def partition_consumer_filter(prefix: str, partition: int) -> str:
    """The transformed subjects that `partition_consumer` delivers."""
    return f"{check_prefix(prefix)}.inp.{_check_partition(partition)}.>"


def advisory_consumer() -> str:
    """Durable pull consumer of P_ADV, shared by all engines."""
    return "engine"


def dispatch_subject(prefix: str, dispatch: DispatchSubject) -> str:
    """`P.dispatch.<queue>.<level>.<run_id>.<token>`."""
    return (
        f"{check_prefix(prefix)}.dispatch.{check_queue(dispatch.queue)}"
        f".{_check_level(dispatch.level)}.{check_run_id(dispatch.run_id)}"
        f".{check_token(dispatch.token)}"
    )


def reply_prefix(prefix: str) -> str:
    """What a dispatch carries as `reply`: reports go to subjects that begin with it."""
    return f"{check_prefix(prefix)}.in"


def report_subject(reply: str, kind: str, queue: str, run_id: str, *, token: str) -> str:
    """`<reply>.<kind>.<queue>.<run_id>.<token>`, `reply` being that of the dispatch."""
    return f"{reply}.{kind}.{check_queue(queue)}.{check_run_id(run_id)}.{check_token(token)}"


def signal_subject(prefix: str, run_id: str, signal: str) -> str:
    """`P.in.signal.-.<run_id>.<signal>`."""
    return f"{check_prefix(prefix)}.in.signal.-.{check_run_id(run_id)}.{check_signal(signal)}"


def signal_key_subject(prefix: str, workflow: str, key: str, signal: str) -> str:
    """`P.in.signal-key.<workflow>.<spread>.<signal>`; the key itself goes into a header."""
    return (
        f"{check_prefix(prefix)}.in.signal-key.{check_workflow(workflow)}"
        f".{spread(key)}.{check_signal(signal)}"
    )


def start_subject(prefix: str, workflow: str, key: str | None) -> str:
    """`P.in.start.<workflow>.<spread>.-`; without a key the spreading token is `-`."""
    token = NOTHING if key is None else spread(key)
    return f"{check_prefix(prefix)}.in.start.{check_workflow(workflow)}.{token}.-"


def child_start_subject(prefix: str, parent_run_id: str, child_run_id: str) -> str:
    """`P.in.child-start.-.<child>.<parent>` (engines only)."""
    return _between_runs(prefix, InKind.CHILD_START, child_run_id, parent_run_id)


def child_cancel_subject(prefix: str, parent_run_id: str, child_run_id: str) -> str:
    """`P.in.child-cancel.-.<child>.<parent>` (engines only)."""
    return _between_runs(prefix, InKind.CHILD_CANCEL, child_run_id, parent_run_id)


def child_settled_subject(prefix: str, parent_run_id: str, child_run_id: str) -> str:
    """`P.in.child-settled.-.<parent>.<child>` (engines only)."""
    return _between_runs(prefix, InKind.CHILD_SETTLED, parent_run_id, child_run_id)


def _between_runs(prefix: str, kind: InKind, to: str, about: str) -> str:
    return f"{check_prefix(prefix)}.in.{kind}.-.{check_run_id(to)}.{check_run_id(about)}"


def event_subject(prefix: str, workflow: str, run_id: str, event: str) -> str:
    """`P.events.<workflow>.<run_id>.<event>`."""
    return (
        f"{check_prefix(prefix)}.events.{check_workflow(workflow)}.{check_run_id(run_id)}"
        f".{check_token(event, 'event')}"
    )


def control_subject(prefix: str, queue: str) -> str:
    """`P.control.<queue>`: pushes to the workers of a queue."""
    return f"{check_prefix(prefix)}.control.{check_queue(queue)}"


def wake_subject(prefix: str, partition: int) -> str:
    """`P.wake.<n>`: to the owner of a partition, about runs that another engine has written."""
    return f"{check_prefix(prefix)}.wake.{_check_partition(partition)}"


def wake_all_subject(prefix: str) -> str:
    """`P.wake.all`: to all engines, when partitions have been let go of."""
    return f"{check_prefix(prefix)}.wake.all"


def wake_settled_subject(prefix: str) -> str:
    """`P.wake.settled`: to all engines, about runs that have settled."""
    return f"{check_prefix(prefix)}.wake.settled"


def heartbeat_subject(prefix: str, queue: str) -> str:
    """`P.heartbeat.<queue>`: requests of the workers of a queue."""
    return f"{check_prefix(prefix)}.heartbeat.{check_queue(queue)}"


def heartbeat_filter(prefix: str) -> str:
    """What engines subscribe to for heartbeats."""
    return f"{check_prefix(prefix)}.heartbeat.*"


def api_subject(prefix: str, verb: str) -> str:
    """`P.api.<group>.<verb>`; `verb` is `run.start` and so on."""
    group, _, name = verb.partition(".")
    return f"{check_prefix(prefix)}.api.{check_token(group, 'verb')}.{check_token(name, 'verb')}"


def api_filter(prefix: str) -> str:
    """What engines subscribe to for the API."""
    return f"{check_prefix(prefix)}.api.>"


def queue_group(prefix: str) -> str:
    """Queue group in which all engines of an installation answer requests."""
    return f"{check_prefix(prefix)}-engines"


def _bad(subject: str, reason: str) -> ProtocolError:
    shown = ascii(subject if len(subject) <= 200 else subject[:197] + "...")
    return ProtocolError(ErrorCode.BAD_SUBJECT, f"{shown}: {reason}", field="subject")


def _tokens(subject: str, prefix: str, families: Mapping[str, int]) -> tuple[str, list[str]]:
    """The family (second token) and what follows it; `families` says how many must follow."""
    first, *rest = subject.split(".")
    if first != prefix or not rest:
        raise _bad(subject, f"does not begin with '{prefix}.'")
    family, *tokens = rest
    if family not in families:
        raise _bad(subject, f"'{family}' is none of {', '.join(families)}")
    if len(tokens) != families[family]:
        raise _bad(subject, f"{families[family]} tokens expected after '{family}'")
    return family, tokens


_IN_FAMILIES: Final = {"in": 4, "inp": 5}


def parse_in(subject: str, prefix: str) -> InSubject:
    """Parse a subject of P_IN, original or transformed. Raises ProtocolError (`bad_subject`)."""
    family, tokens = _tokens(subject, prefix, _IN_FAMILIES)
    kind, scope, run_id, name = tokens if family == "in" else tokens[1:]
    try:
        parsed = InSubject(kind=InKind(kind), scope=scope, run_id=run_id, name=name)
        _check_in(parsed)
    except ProtocolError as error:
        raise _bad(subject, str(error)) from error
    except ValueError as error:
        raise _bad(subject, f"'{kind}' is no kind of message") from error
    return parsed


def _check_in(parsed: InSubject) -> None:
    match parsed.kind:
        case InKind.SIGNAL:
            _check_nothing(parsed.scope, "scope")
            check_run_id(parsed.run_id)
            check_signal(parsed.name)
        case InKind.SIGNAL_KEY:
            check_workflow(parsed.scope)
            check_token(parsed.run_id, "spread")
            check_signal(parsed.name)
        case InKind.START:
            check_workflow(parsed.scope)
            check_token(parsed.run_id, "spread")
            _check_nothing(parsed.name, "name")
        case InKind.CHILD_START | InKind.CHILD_CANCEL | InKind.CHILD_SETTLED:
            _check_nothing(parsed.scope, "scope")
            check_run_id(parsed.run_id)
            check_run_id(parsed.name, "name")
        case _:
            check_queue(parsed.scope)
            check_run_id(parsed.run_id)
            check_token(parsed.name)


def original_in(subject: str, prefix: str) -> tuple[str, int]:
    """`P.inp.<n>.<rest>` → (`P.in.<rest>`, n). Raises ProtocolError (`bad_subject`)."""
    head = f"{prefix}.inp."
    number, dot, rest = subject.removeprefix(head).partition(".")
    if not subject.startswith(head) or not dot or not number.isdecimal():
        raise _bad(subject, "not a transformed subject of P_IN")
    return f"{prefix}.in.{rest}", int(number)


def parse_dispatch(subject: str, prefix: str) -> DispatchSubject:
    """Parse a subject of P_DISPATCH. Raises ProtocolError (`bad_subject`)."""
    _, (queue, level, run_id, token) = _tokens(subject, prefix, {"dispatch": 4})
    if level not in _LEVELS:
        raise _bad(subject, f"'{level}' is no level")
    try:
        check_queue(queue)
        check_run_id(run_id)
        check_token(token)
    except ProtocolError as error:
        raise _bad(subject, str(error)) from error
    return DispatchSubject(queue=queue, level=int(level), run_id=run_id, token=token)


def parse_api(subject: str, prefix: str) -> str:
    """The verb of an API subject, `run.start`. Raises ProtocolError (`bad_subject`)."""
    _, (group, name) = _tokens(subject, prefix, {"api": 2})
    return f"{group}.{name}"


def parse_heartbeat(subject: str, prefix: str) -> str:
    """The queue of a heartbeat subject. Raises ProtocolError (`bad_subject`)."""
    _, (queue,) = _tokens(subject, prefix, {"heartbeat": 1})
    try:
        return check_queue(queue)
    except ProtocolError as error:
        raise _bad(subject, str(error)) from error


def report_msg_id(report: Report, token: str) -> str:
    """`Nats-Msg-Id` of a report: `<token>:<kind>:<worker_id>`, of a heartbeat `…:<n>`."""
    last = str(report.n) if isinstance(report, StepHeartbeat) else report.worker_id or NOTHING
    return f"{check_token(token)}:{REPORT_KINDS[type(report)]}:{last}"


def dispatch_msg_id(token: str, dispatch_no: int) -> str:
    """`Nats-Msg-Id` of a dispatch: `<token>.<dispatch_no>`; publishing a lost one counts on."""
    return f"{check_token(token)}.{dispatch_no}"


def spread(key: str) -> str:
    """The spreading token of a key: the first 32 hex digits of its SHA-256.

    Any token would do, as long as the same key always gives the same one.
    """
    return hashlib.sha256(check_key(key).encode()).hexdigest()[:32]


def partition_of(token: str, partitions: int = PARTITION_COUNT) -> int:
    """The partition in which the server puts this run id token (FNV-1a, 32 bits, modulo)."""
    value = 0x811C9DC5
    for byte in token.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value % partitions


class Permissions(Struct, frozen=True, kw_only=True):
    """The rights of a NATS user, as its `permissions` list them."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def permissions(prefix: str, queue: str, *, inbox: str | None = None) -> Permissions:
    """The complete rights of the worker pool of one queue.

    `inbox` is the pool's inbox prefix (the client must be told to use it); default
    `_INBOX_<queue>`.
    """
    stream = dispatch_stream(prefix)
    consumers = [queue_consumer(queue, level) for level in range(LEVEL_COUNT)]
    return Permissions(
        publish=(
            *(f"{prefix}.in.{kind}.{queue}.*.*" for kind in InKind if kind in STEP_KINDS),
            heartbeat_subject(prefix, queue),
            *(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}" for name in consumers),
            *(f"$JS.ACK.{stream}.{name}.>" for name in consumers),
            *(f"$JS.ACK.*.*.{stream}.{name}.>" for name in consumers),
        ),
        subscribe=(control_subject(prefix, queue), f"{inbox or f'_INBOX_{queue}'}.>"),
    )


_LEVELS: Final = tuple(str(level) for level in range(LEVEL_COUNT))


def _check_level(level: int) -> int:
    if not 0 <= level < LEVEL_COUNT:
        raise ProtocolError(
            ErrorCode.INVALID_NAME, f"{level} is no level", field="level", fix="use 0 to 3"
        )
    return level


def _check_partition(partition: int) -> int:
    if partition < 0:
        raise ProtocolError(
            ErrorCode.INVALID_NAME, f"{partition} is no partition", field="partition"
        )
    return partition


def _check_nothing(token: str, field: str) -> None:
    if token != NOTHING:
        raise ProtocolError(ErrorCode.BAD_SUBJECT, "must be '-' for this kind", field=field)
