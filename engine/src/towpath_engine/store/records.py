"""Rows that a store keeps beside runs and steps. The seam (`store.interface`) hands them out."""

from datetime import datetime

from msgspec import Struct


class LogLine(Struct, frozen=True, kw_only=True):
    """The log lines of one report: `lines` is a JSON array as text.

    `cut` is set by the store: older rows of the attempt were dropped just before this one.
    """

    run_id: str
    path: str
    attempt: int
    token: str
    at: datetime
    lines: bytes
    cut: bool = False


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A message that could not be decoded, placed or applied, kept for a person."""

    id: str
    at: datetime
    reason: str
    """A code of the closed list in towpath_protocol.errors."""
    message: str
    subject: str
    headers: dict[str, str]
    body: bytes
    run_id: str | None = None
    step: str | None = None


class DueTimer(Struct, frozen=True, kw_only=True):
    """A stored instant: `path` None is the run's own."""

    run_id: str
    path: str | None
    due_at: datetime
    preemptible: bool
    """True when a report or signal could still make it void (decision 0011)."""


class OpenDispatch(Struct, frozen=True, kw_only=True):
    """A step that is dispatched, or running without a worker that said so."""

    run_id: str
    path: str
    token: str
    queue: str
    level: int
    dispatched_at: datetime
    status: str
    in_outbox: bool
    cancelling: bool = False
    """The attempt is to end: its dispatch is not sent again."""


class StreamEpoch(Struct, frozen=True, kw_only=True):
    """What was last seen of a stream. A changed `created` or a lower `last_seq`: data was lost."""

    stream: str
    created: str
    last_seq: int
