"""Who may do what in NATS: the complete rights of each party of an installation.

A pool's rights are the protocol's (`subjects.permissions`); here are those of the engine, which
follow from what this package asks of the server, of a service that starts and signals runs, and
of an operator. A list is complete: what is not in it is not needed, and a test runs everything
with exactly these.

Nobody shares an inbox. An inbox is where pulled messages arrive, tokens and all, so a party
that could listen to `_INBOX.>` would see what everybody pulls. Names of queues begin with a
letter, hence `_INBOX_<queue>` never is `_INBOX-<prefix>-<party>`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from towpath_protocol import subjects
from towpath_protocol.ids import check_prefix
from towpath_protocol.subjects import InKind, Permissions

CLIENT_VERBS: Final = (
    "run.start",
    "run.start-many",
    "run.signal",
    "run.signal-with-start",
    "run.cancel",
    "run.get",
    "run.output",
    "run.result",
    "run.list",
    "run.history",
    "run.logs",
    "run.explain",
    "workflow.list",
    "workflow.get",
)
"""What a service may ask that starts runs, signals them and waits for them."""
CLIENT_KINDS: Final = (InKind.SIGNAL, InKind.SIGNAL_KEY, InKind.START)


class Party(StrEnum):
    """Who is not a pool."""

    ENGINE = "engine"
    CLIENT = "client"
    OPERATOR = "operator"


def party_inbox(prefix: str, party: Party) -> str:
    """The inbox prefix that a party must be told to use (`TOWPATH_NATS_INBOX_PREFIX`)."""
    return f"_INBOX-{check_prefix(prefix)}-{party}"


def pool_inbox(queue: str) -> str:
    """The inbox prefix of a queue's pool, as the protocol names it."""
    return f"_INBOX_{queue}"


def engine_rights(prefix: str, *, reply_to: Sequence[str] = ()) -> Permissions:
    """The rights of an engine that answers to the inbox prefixes `reply_to`, and to the usual ones.

    `_INBOX` serves parties without a prefix of their own; `_R_` those of other accounts.
    """
    inboxes = dict.fromkeys((*subjects.REPLY_PREFIXES, *reply_to))
    return Permissions(
        publish=(
            *_stream_calls(prefix),
            *_pulls_and_acks(prefix),
            f"{prefix}.dispatch.*.*.*.*",
            f"{prefix}.events.*.*.*",
            # Messages between runs, and letters that are handled once more.
            f"{prefix}.in.*.*.*.*",
            f"{prefix}.control.*",
            f"{prefix}.wake.*",
            *(f"{inbox}.>" for inbox in inboxes),
        ),
        subscribe=(
            subjects.api_filter(prefix),
            subjects.heartbeat_filter(prefix),
            f"{prefix}.wake.*",
            *_service_questions(),
            *_deletion_advisories(prefix),
            f"{party_inbox(prefix, Party.ENGINE)}.>",
        ),
    )


def client_rights(prefix: str) -> Permissions:
    """The rights of a service that starts, signals, cancels and reads runs, and sees events."""
    return Permissions(
        publish=(
            *(subjects.api_subject(prefix, verb) for verb in CLIENT_VERBS),
            *(f"{prefix}.in.{kind}.*.*.*" for kind in CLIENT_KINDS),
        ),
        subscribe=(f"{prefix}.events.>", f"{party_inbox(prefix, Party.CLIENT)}.>"),
    )


def operator_rights(prefix: str) -> Permissions:
    """The rights of a person or pipeline that deploys, repairs and pauses: the whole API."""
    return Permissions(
        publish=(subjects.api_filter(prefix), *_service_questions()),
        subscribe=(f"{prefix}.events.>", f"{party_inbox(prefix, Party.OPERATOR)}.>"),
    )


def _streams(prefix: str) -> tuple[str, ...]:
    return (*_consumed_streams(prefix), subjects.event_stream(prefix))


def _consumed_streams(prefix: str) -> tuple[str, ...]:
    """Those whose durable consumers are ours; events are for whoever wants them."""
    return (
        subjects.dispatch_stream(prefix),
        subjects.in_stream(prefix),
        subjects.advisory_stream(prefix),
    )


def _stream_calls(prefix: str) -> list[str]:
    """Streams and consumers are made, looked at and mended; only dispatches are read and purged."""
    api = "$JS.API"
    dispatches = subjects.dispatch_stream(prefix)
    return [
        f"{api}.INFO",
        *(
            f"{api}.STREAM.{call}.{stream}"
            for stream in _streams(prefix)
            for call in ("INFO", "CREATE", "UPDATE")
        ),
        f"{api}.STREAM.MSG.GET.{dispatches}",
        f"{api}.STREAM.PURGE.{dispatches}",
        f"{api}.CONSUMER.PAUSE.{dispatches}.*",
        *(
            f"{api}.CONSUMER.{call}"
            for stream in _consumed_streams(prefix)
            for call in (f"NAMES.{stream}", f"INFO.{stream}.*", f"CREATE.{stream}.>")
        ),
        # A partition that was taken over from a dead engine is delivered anew.
        f"{api}.CONSUMER.DELETE.{subjects.in_stream(prefix)}.*",
    ]


def _pulls_and_acks(prefix: str) -> list[str]:
    """Only of the streams that engines read; the second form of an ack names domain and account."""
    streams = (subjects.in_stream(prefix), subjects.advisory_stream(prefix))
    return [
        *(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*" for stream in streams),
        *(f"$JS.ACK.{stream}.>" for stream in streams),
        *(f"$JS.ACK.*.*.{stream}.>" for stream in streams),
    ]


def _service_questions() -> list[str]:
    """PING, INFO and STATS: to all services, to this one, to one engine."""
    name = subjects.SERVICE_NAME
    return [
        f"$SRV.{verb}{rest}"
        for verb in ("PING", "INFO", "STATS")
        for rest in ("", f".{name}", f".{name}.*")
    ]


def _deletion_advisories(prefix: str) -> list[str]:
    return [
        subject
        for stream in _streams(prefix)
        for subject in (
            f"$JS.EVENT.ADVISORY.STREAM.DELETED.{stream}",
            f"$JS.EVENT.ADVISORY.CONSUMER.DELETED.{stream}.*",
        )
    ]
