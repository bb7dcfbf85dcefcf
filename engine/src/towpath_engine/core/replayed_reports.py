"""Reports of workers, rebuilt from the transitions that they made and from what rows keep."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from towpath_engine.core.model import Transition
from towpath_engine.core.payloads import Payload, decode_payload, takes_output
from towpath_engine.core.transitions import StepChange
from towpath_protocol.failures import Failure as WireFailure
from towpath_protocol.reports import (
    CustomEvent,
    ReleaseReason,
    Report,
    StepCompleted,
    StepFailed,
    StepHeartbeat,
    StepReleased,
    StepStarted,
)

NULL: Final = Raw(b"null")
_ATTEMPT_FAILED: Final = frozenset({
    StepChange.RETRYING.value, StepChange.FAILED.value, StepChange.COMPENSATION_FAILED.value,
    # An attempt that was being cancelled is not retried; others are cancelled without an error.
    StepChange.CANCELLED.value,
})  # fmt: skip


class Unreplayable(Exception):  # noqa: N818 - named for what is the case
    """The history lacks something that its replay needs; the message says what and where."""


class _ErrorFacts(Struct, frozen=True, kw_only=True):
    type: str = ""
    message: str = ""


class _Facts(Struct, frozen=True, kw_only=True):
    """The facts of transitions that a report is rebuilt from."""

    name: str = ""
    reason: str | None = None
    wait_ms: int | None = None
    error: _ErrorFacts = msgspec.field(default_factory=_ErrorFacts)


class Outputs:
    """Where the history has the outputs that its completions have lost to later visits."""

    def __init__(self, history: Sequence[Transition]) -> None:
        self._replaced: dict[tuple[str, int], Raw] = {}
        visits: dict[str, int] = {}
        for row in history:
            if row.step is None or row.visit is None:
                continue
            replaced = _replaced_output(row)
            if bytes(replaced):
                self._replaced[row.step, visits.get(row.step, 1)] = replaced
            visits[row.step] = row.visit

    def of(self, row: Transition) -> Raw | None:
        """The output of the completion `row`; None when the history has none."""
        output = decode_payload(row.payload).output
        if bytes(output):
            return output
        return self._replaced.get((row.step or "", row.visit or 1))


def _replaced_output(row: Transition) -> Raw:
    if row.payload is None or b"replaced_output" not in row.payload:
        return Raw()
    try:
        return decode_payload(row.payload).replaced_output
    except msgspec.MsgspecError:
        return Raw()  # its own decision will say so


def report_of(recorded: Sequence[Transition], payload: Payload, outputs: Outputs) -> Report:
    """The report behind the transitions of one decision. Raises Unreplayable."""
    cause = recorded[0].cause
    worker_id = cause.worker_id
    match cause.kind:
        case "step-started":
            return StepStarted(worker_id=worker_id)
        case "step-heartbeat":
            return StepHeartbeat(worker_id=worker_id)
        case "step-completed":
            return StepCompleted(
                worker_id=worker_id,
                output=_output(recorded, payload, outputs),
                metadata=payload.metadata if bytes(payload.metadata) else None,
                again=payload.again,
                events=_events(recorded, payload),
            )
        case "step-failed":
            return StepFailed(
                worker_id=worker_id,
                error=payload.error or _error(recorded),
                events=_events(recorded, payload),
            )
        case "step-released":
            return _release(recorded)
        case other:
            message = f"transition {recorded[0].seq}: a report of kind {other!r} is not known"
            raise Unreplayable(message)


def _output(recorded: Sequence[Transition], payload: Payload, outputs: Outputs) -> Raw:
    if payload.output_bytes is not None:
        # Refused for its length alone: any text as long is refused in the same words.
        return Raw(b'"' + b"x" * max(0, payload.output_bytes - 2) + b'"')
    completion = next((row for row in recorded if takes_output(row)), None)
    if completion is None:
        return payload.output if bytes(payload.output) else NULL
    output = outputs.of(completion)
    if output is None:
        message = f"the output of step {completion.step} (seq {completion.seq}) is not in it"
        raise Unreplayable(message)
    return output


def _events(recorded: Sequence[Transition], payload: Payload) -> tuple[CustomEvent, ...]:
    if payload.event_count is not None:
        return tuple(CustomEvent(name="event") for _ in range(payload.event_count))
    return tuple(
        CustomEvent(name=_facts(row).name) for row in recorded if row.what == StepChange.ANNOUNCED
    )


def _error(recorded: Sequence[Transition]) -> WireFailure:
    failed = next(
        (row for row in recorded if row.what in _ATTEMPT_FAILED and "error" in (row.data or {})),
        None,
    )
    if failed is None:
        message = f"transition {recorded[0].seq}: a report of a failure that failed nothing"
        raise Unreplayable(message)
    error = _facts(failed).error
    return WireFailure(type=error.type, message=error.message)


def _release(recorded: Sequence[Transition]) -> StepReleased:
    first = recorded[0]
    facts = _facts(first)
    if first.what != StepChange.RELEASED:
        # One too many in a row: the attempt has failed, whatever the reason was.
        return StepReleased(worker_id=first.cause.worker_id, reason=ReleaseReason.INTERRUPTED)
    return StepReleased(
        worker_id=first.cause.worker_id,
        reason=ReleaseReason(facts.reason or ReleaseReason.INTERRUPTED),
        after_ms=facts.wait_ms,
    )


def _facts(row: Transition) -> _Facts:
    return msgspec.convert(row.data or {}, _Facts)
