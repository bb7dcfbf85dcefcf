"""What the history keeps of an event so that it replays: only what no other row keeps.

A transition's payload is a JSON object. The first transition of a decision has what its event
said:

    output          of an "again"; a final output stands in the step's row
    output_bytes    length of an output that was refused as too large
    metadata, again as in step-completed
    error           as in step-failed, unless the transition's own facts tell all of it
    event_count     of a report that had too many events
    progress, heartbeat_deadline_at   signs of life, which have no transitions of their own, as
                    they stood when the attempt ended without an output
    input           that an operator gave to a step
    cancel          what a cancel asked for
    child           how a child run settled that was not completed

and the one that empties a completed task or run step for another visit has its `replaced_output`.
What rows keep is added when the history is read for a replay (`whole_payloads`). A plain completion
has no payload: the hot path writes nothing for a replay.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from towpath_engine.core.changes import Changes
from towpath_engine.core.events import CancelRequested, ChildSettled
from towpath_engine.core.failures import MESSAGE_IN_FACTS_MAX, TYPE_LENGTH_MAX
from towpath_engine.core.instants import plus_ms
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Failure, KeptSignal, Step, Transition
from towpath_engine.core.states import RunStatus, StepKind, StepStatus
from towpath_engine.core.transitions import RunChange, StepChange
from towpath_protocol.failures import Failure as WireFailure
from towpath_protocol.raw import OptionalRaw
from towpath_protocol.reports import Again, Report, StepCompleted, StepFailed
from towpath_protocol.times import format_instant

_ABSENT: Final = Raw()
CHILD_CAUSE: Final = "child"
"""Type of the cause of what a settled child run changes in its parent."""


class CancelGiven(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a cancel asked for."""

    by: str | None = None
    reason: str | None = None
    compensate: bool | None = None


class ChildEnd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a child run settled that was not completed."""

    child_run_id: str
    status: RunStatus
    failure: Failure | None = None


class Payload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A payload, decoded. An empty Raw: there is none, which is not the same as JSON's null."""

    output: Raw = field(default=_ABSENT)
    output_bytes: int | None = None
    output_omitted: int | None = None
    """Bytes of an output that does not fit into one answer; run.output has it."""
    metadata: Raw = field(default=_ABSENT)
    again: Again | None = None
    error: WireFailure | None = None
    event_count: int | None = None
    progress: Raw = field(default=_ABSENT)
    heartbeat_deadline_at: str | None = None
    replaced_output: Raw = field(default=_ABSENT)
    input: Raw = field(default=_ABSENT)
    """An input that an operator gave to a step."""
    signal: OptionalRaw = None
    """Payload of a signal; `received_at` and `sent_by` are its own."""
    received_at: str | None = None
    sent_by: str | None = None
    cancel: CancelGiven | None = None
    child: ChildEnd | None = None


_decoder: Final = msgspec.json.Decoder(Payload)


def decode_payload(payload: bytes | None) -> Payload:
    """The payload of a transition; an empty one when there is none. Raises msgspec's errors."""
    return Payload() if payload is None else _decoder.decode(payload)


# Writing


def remember_report(changes: Changes, report: Report) -> None:
    """Keep what a replay needs of the report and no row keeps."""
    limits = changes.run.limits
    match report:
        case StepCompleted():
            _remember_completion(changes, report)
        case StepFailed() if not _told_by_facts(report.error, limits):
            changes.remember(error=report.error)
        case _:
            pass
    if (
        isinstance(report, StepCompleted | StepFailed)
        and len(report.events) > limits.events_per_report_max
    ):
        changes.remember(event_count=len(report.events))


def _remember_completion(changes: Changes, report: StepCompleted) -> None:
    if report.metadata is not None:
        changes.remember(metadata=report.metadata)
    size = len(bytes(report.output))
    if size > changes.run.limits.payload_bytes_max:
        changes.remember(output_bytes=size)
    elif report.again is not None:
        changes.remember(output=report.output)
    if report.again is not None:
        changes.remember(again=report.again)


def _told_by_facts(error: WireFailure, limits: CoreLimits) -> bool:
    """Whether `failures.to_facts` of the failure says all that it said."""
    return (
        error.retryable
        and error.retry_after_ms is None
        and error.details is None
        and error.stack is None
        and len(error.type) <= TYPE_LENGTH_MAX
        and len(error.message) <= MESSAGE_IN_FACTS_MAX
        and len(error.type.encode()) + len(error.message.encode()) <= limits.error_bytes_max
    )


def remember_signs(changes: Changes, step: Step, heartbeat_ms: int | None) -> None:
    """Keep the signs of life of an attempt that ends without an output: the next attempt is handed
    its progress, and its renewed heartbeat timeout decides which timeout was the first to pass.
    `heartbeat_ms` is that timeout; None: the task has none."""
    if step.progress is not None:
        changes.remember(progress=Raw(step.progress))
    if step.heartbeat_deadline_at is None or step.started_at is None:
        return
    if heartbeat_ms is not None and step.heartbeat_deadline_at != plus_ms(
        step.started_at, heartbeat_ms
    ):
        changes.remember(heartbeat_deadline_at=format_instant(step.heartbeat_deadline_at))


def remember_replaced(changes: Changes, earlier: Step) -> None:
    """Keep, with the transition just made, the output that it takes from the step's row. Outputs
    of other kinds than tasks are made of what the history has."""
    if (
        earlier.kind in {StepKind.TASK, StepKind.RUN}
        and earlier.status is StepStatus.COMPLETED
        and earlier.output is not None
    ):
        changes.remember_here(replaced_output=Raw(earlier.output))


def remember_cancel(changes: Changes, event: CancelRequested) -> None:
    """Keep what the cancel asked for: the run may end long after it."""
    given = CancelGiven(by=event.by, reason=event.reason, compensate=event.compensate)
    changes.remember(cancel=given)


def remember_child(changes: Changes, event: ChildSettled) -> None:
    """Keep how the child settled; the output of a completed one stands in the step's row."""
    if event.status is not RunStatus.COMPLETED:
        end = ChildEnd(child_run_id=event.child_run_id, status=event.status, failure=event.failure)
        changes.remember(child=end)


# Reading


class RowsOutput(Struct, frozen=True, kw_only=True):
    """The output in a step's row: of visit `visit`, `size` bytes; `value` None: left out."""

    visit: int
    size: int
    value: bytes | None


def takes_output(row: Transition) -> bool:
    """Whether the transition completed a step with what a worker reported, or a child run: its
    output is in the step's row, unless the step was done again."""
    if row.what != StepChange.COMPLETED:
        return False
    # Other steps that the same decision completes are made of what the history has.
    if row.cause.kind == "step-completed":
        return row.token is not None
    return row.cause.type == CHILD_CAUSE and row.cause.seed is not None


def signal_number(row: Transition) -> int | None:
    """The number of the signal that the transition received, if it did."""
    if row.what != RunChange.SIGNALLED or row.data is None:
        return None
    number = row.data.get("number")
    return number if isinstance(number, int) else None


def whole_payloads(
    rows: Sequence[Transition],
    *,
    outputs: Mapping[str, RowsOutput],
    signals: Mapping[int, KeptSignal],
) -> list[bytes | None]:
    """The payload of each transition with what the rows of steps and signals keep.

    `outputs` by path of step, `signals` by number.
    """
    found: list[bytes | None] = []
    for row in rows:
        added: dict[str, object] = {}
        output = outputs.get(row.step or "") if takes_output(row) else None
        if output is not None and output.visit == row.visit:
            if output.value is None:
                added["output_omitted"] = output.size
            else:
                added["output"] = Raw(output.value)
        signal = signals.get(signal_number(row) or 0)
        if signal is not None:
            added["signal"] = Raw(signal.payload)
            added["received_at"] = format_instant(signal.received_at)
            added["sent_by"] = signal.sent_by
        if not added:
            found.append(row.payload)
            continue
        stored = {} if row.payload is None else _fields_decoder.decode(row.payload)
        found.append(msgspec.json.encode({**stored, **added}))
    return found


_fields_decoder: Final = msgspec.json.Decoder(dict[str, Raw])
