"""Structs ↔ rows. Columns are named like the fields, so a row is the struct but for a few.

Users' JSON is bytea and comes back byte for byte. A failure is JSON text, too, with its details
as they came, so that a person can read it with `convert_from(error, 'UTF8')`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, Struct

from towpath_engine.core.definition import Definition
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Cause, Failure, KeptSignal, Parts, Run, Step, Transition
from towpath_engine.core.states import RunStatus, StepKind, StepStatus, WaitReason
from towpath_engine.store.interface import (
    OutboxRow,
    ParkedSignal,
    StoredSignal,
    WorkflowVersion,
)
from towpath_engine.store.records import DeadLetter, LogLine, OpenDispatch

Columns = dict[str, list[Any]]

_NOT_COLUMNS: Final = frozenset({"definition", "limits", "steps", "kept"})
RUN_FIELDS: Final = tuple(f for f in Run.__struct_fields__ if f not in _NOT_COLUMNS)
RUN_FIELDS_CHANGING: Final = (
    "status", "version", "seq", "metadata", "output", "error", "cancelled_by", "cancel_reason",
    "paused_at", "paused_by", "pause_reason", "held_by", "revival_count", "visit_base", "start_at",
    "started_at", "settled_at", "deadline_at", "last_at", "cursor", "last_step", "signal_count",
    "reached", "ending", "compensation", "undo_top",
)  # fmt: skip
TRANSITION_FIELDS: Final = (
    "seq", "at", "what", "step", "attempt", "iteration", "visit", "token", "payload",
)  # fmt: skip
STEP_FIELDS: Final = Step.__struct_fields__
STEP_FIELDS_CHANGING: Final = tuple(f for f in STEP_FIELDS if f != "kind")
STEP_PAYLOADS: Final = ("input", "output", "last_output", "progress", "errors")
"""Fields of a step that may be large and are not sent again when a decision left them alone."""


class RowLike(Protocol):
    """What is needed of a record."""

    def items(self) -> Iterable[tuple[str, Any]]:
        """Column names with their values."""
        ...


# Left out when encoding: msgspec compares defaults by identity.
_NO_DETAILS: Final = Raw()


class _StoredFailure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: str
    message: str
    retryable: bool = True
    details: Raw = _NO_DETAILS
    stack: str | None = None
    step: str | None = None
    attempt: int | None = None
    attached: str | None = None


_failure_decoder: Final = msgspec.json.Decoder(_StoredFailure)
_cause_decoder: Final = msgspec.json.Decoder(Cause)
_headers_decoder: Final = msgspec.json.Decoder(dict[str, str])
_tags_decoder: Final = msgspec.json.Decoder(tuple[str, ...])
_data_decoder: Final = msgspec.json.Decoder(dict[str, Any])
_parts_decoder: Final = msgspec.json.Decoder(Parts)


def to_text(value: object) -> str:
    """JSON text of our own small values."""
    return msgspec.json.encode(value).decode()


def encode_failure(failure: Failure | None) -> bytes | None:
    """JSON text of a failure."""
    if failure is None:
        return None
    return msgspec.json.encode(
        _StoredFailure(
            type=failure.type,
            message=failure.message,
            retryable=failure.retryable,
            details=_NO_DETAILS if failure.details is None else Raw(failure.details),
            stack=failure.stack,
            step=failure.step,
            attempt=failure.attempt,
            attached=failure.attached,
        )
    )


def decode_failure(data: bytes | None) -> Failure | None:
    """The failure again; `details` byte for byte."""
    if data is None:
        return None
    stored = _failure_decoder.decode(data)
    return Failure(
        type=stored.type,
        message=stored.message,
        retryable=stored.retryable,
        details=bytes(stored.details) or None,
        stack=stored.stack,
        step=stored.step,
        attempt=stored.attempt,
        attached=stored.attached,
    )


def columns_of(items: Sequence[Struct], fields: Sequence[str]) -> Columns:
    """The fields of these structs, two or more, as a list each."""
    read = _reader(tuple(fields))
    if len(items) == 1:  # as most batches of a quiet engine have it
        return {field: [value] for field, value in zip(fields, read(items[0]), strict=True)}
    columns = zip(*map(read, items), strict=True)
    return dict(zip(fields, map(list, columns), strict=True)) if items else {f: [] for f in fields}


@lru_cache(maxsize=64)
def _reader(fields: tuple[str, ...]) -> Callable[[Struct], tuple[Any, ...]]:
    # Reads all fields in one call: a third of what a call a field takes, on the hot path.
    return attrgetter(*fields)


def run_columns(runs: Sequence[Run], fields: Sequence[str]) -> Columns:
    """Arrays for unnest, a field each."""
    columns = columns_of(runs, fields)
    columns["error"] = [encode_failure(run.error) for run in runs]
    if "tags" in columns:
        columns["tags"] = [to_text(run.tags) for run in runs]
    return columns


def run_from_row(row: RowLike, definition: Definition, limits: CoreLimits) -> Run:
    """A run without its steps and signals."""
    values: dict[str, Any] = dict(row.items())
    values["status"] = RunStatus(values["status"])
    for field in ("ending", "compensation"):
        if values.get(field) is not None:
            values[field] = RunStatus(values[field])
    values["tags"] = _tags_decoder.decode(values["tags"])
    values["error"] = decode_failure(values["error"])
    return Run(definition=definition, limits=limits, **values)


def step_columns(steps: Sequence[Step], fields: Sequence[str] = STEP_FIELDS) -> Columns:
    """Arrays for unnest, a field each; run ids are the caller's."""
    columns = columns_of(steps, fields)
    columns["error"] = [encode_failure(step.error) for step in steps]
    columns["last_error"] = [encode_failure(step.last_error) for step in steps]
    columns["parts"] = [None if step.parts is None else to_text(step.parts) for step in steps]
    return columns


def step_from_row(row: RowLike) -> Step:
    """A step; a `run_id` column is ignored."""
    values: dict[str, Any] = dict(row.items())
    values.pop("run_id", None)
    values["kind"] = StepKind(values["kind"])
    values["status"] = StepStatus(values["status"])
    reason = values["waiting_for"]
    values["waiting_for"] = None if reason is None else WaitReason(reason)
    values["error"] = decode_failure(values["error"])
    values["last_error"] = decode_failure(values["last_error"])
    parts = values["parts"]
    values["parts"] = None if parts is None else _parts_decoder.decode(parts)
    return Step(**values)


def transition_columns(rows: Sequence[tuple[str, Transition]]) -> Columns:
    """Arrays for unnest of (run id, transition) pairs."""
    items = [item for _, item in rows]
    columns = columns_of(items, TRANSITION_FIELDS)
    columns["run_id"] = [run_id for run_id, _ in rows]
    columns["status_before"] = [item.before for item in items]
    columns["status_after"] = [item.after for item in items]
    columns["cause"] = [to_text(item.cause) for item in items]
    columns["data"] = [None if item.data is None else to_text(item.data) for item in items]
    return columns


def transition_from_row(row: RowLike) -> Transition:
    """A line of the history."""
    values: dict[str, Any] = dict(row.items())
    values["before"] = values.pop("status_before")
    values["after"] = values.pop("status_after")
    values["cause"] = _cause_decoder.decode(values["cause"])
    data = values["data"]
    values["data"] = None if data is None else _data_decoder.decode(data)
    return Transition(**values)


def signal_columns(rows: Sequence[StoredSignal]) -> Columns:
    """Arrays for unnest of signals to keep."""
    columns = columns_of([row.signal for row in rows], KeptSignal.__struct_fields__)
    columns["run_id"] = [row.run_id for row in rows]
    columns["consumed_by"] = [row.consumed_by for row in rows]
    return columns


def kept_from_row(row: RowLike) -> KeptSignal:
    """A kept signal; a `run_id` column is ignored."""
    values: dict[str, Any] = dict(row.items())
    values.pop("run_id", None)
    return KeptSignal(**values)


def parked_columns(rows: Sequence[ParkedSignal]) -> Columns:
    """Arrays for unnest of parked signals."""
    return columns_of(rows, ParkedSignal.__struct_fields__)


def parked_from_row(row: RowLike) -> ParkedSignal:
    """A parked signal."""
    return ParkedSignal(**dict(row.items()))


def outbox_columns(rows: Sequence[OutboxRow]) -> Columns:
    """Arrays for unnest of outbox rows."""
    columns = columns_of(rows, OutboxRow.__struct_fields__)
    columns["headers"] = [to_text(row.headers) for row in rows]
    return columns


def outbox_from_row(row: RowLike) -> OutboxRow:
    """An outbox row."""
    values: dict[str, Any] = dict(row.items())
    values["headers"] = _headers_decoder.decode(values["headers"])
    return OutboxRow(**values)


def log_columns(rows: Sequence[LogLine]) -> Columns:
    """Arrays for unnest of log rows."""
    return columns_of(rows, ("run_id", "path", "attempt", "token", "at", "lines"))


def log_from_row(row: RowLike) -> tuple[int, LogLine]:
    """(row number, log lines)."""
    values: dict[str, Any] = dict(row.items())
    return values.pop("number"), LogLine(**values)


def _printable(text: str) -> str:
    """Postgres' text takes neither NUL nor lone surrogates, and a dead letter may hold both."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def printable_letter(letter: DeadLetter) -> DeadLetter:
    """The letter as it can be stored: its texts come from whoever sent garbage."""
    return msgspec.structs.replace(
        letter,
        message=_printable(letter.message),
        subject=_printable(letter.subject),
        headers={_printable(k): _printable(v) for k, v in letter.headers.items()},
        run_id=None if letter.run_id is None else _printable(letter.run_id),
        step=None if letter.step is None else _printable(letter.step),
    )


def letter_bytes(letter: DeadLetter) -> int:
    """What a letter counts against the cap: its body and its headers as JSON text."""
    return len(letter.body) + len(msgspec.json.encode(letter.headers))


def letter_columns(rows: Sequence[DeadLetter]) -> Columns:
    """Arrays for unnest of dead letters."""
    columns = columns_of(rows, DeadLetter.__struct_fields__)
    columns["headers"] = [to_text(row.headers) for row in rows]
    return columns


def letter_from_row(row: RowLike) -> DeadLetter:
    """A dead letter."""
    values: dict[str, Any] = dict(row.items())
    values["headers"] = _headers_decoder.decode(values["headers"])
    return DeadLetter(**values)


def dispatch_from_row(row: RowLike) -> OpenDispatch:
    """An open dispatch."""
    return OpenDispatch(**dict(row.items()))


def workflow_from_row(row: RowLike) -> WorkflowVersion:
    """A deployed version."""
    return WorkflowVersion(**dict(row.items()))
