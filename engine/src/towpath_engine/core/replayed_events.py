"""Events, rebuilt from the transitions that they made and from what rows keep."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from towpath_engine.core.events import (
    AttemptLost,
    CancelRequested,
    ChildSettled,
    DecisionContinued,
    DispatchDelivered,
    DispatchVanished,
    DispatchWithdrawn,
    Event,
    PauseRequested,
    RedriveRequested,
    ReportReceived,
    ResumeRequested,
    RetryRequested,
    RunBegun,
    SignalReceived,
    StepAdmitted,
    TimerDue,
)
from towpath_engine.core.gate import gate_of_history
from towpath_engine.core.model import KeptSignal, Run, Step, Transition
from towpath_engine.core.outcomes import NO_OUTPUT
from towpath_engine.core.payloads import Payload, decode_payload
from towpath_engine.core.replayed_reports import Outputs, Unreplayable, report_of
from towpath_engine.core.states import OPEN_STEP, RunStatus, StepStatus
from towpath_engine.core.stepmap import StepMap
from towpath_engine.core.transitions import RunChange, StepChange
from towpath_protocol.times import parse_instant

_LOST: Final = "the broker gave the attempt up: "


def rebuild(run: Run, recorded: Sequence[Transition], outputs: Outputs) -> tuple[Run, Event]:
    """The event behind the transitions of one decision, and the run as it was then: with what
    unrecorded signs of life had left on it.

    Raises Unreplayable, or an error of msgspec for a payload that can't be read.
    """
    payload = decode_payload(recorded[0].payload)
    alive = _with_signs_of_life(run, recorded[0], payload)
    event = _event_of(alive, recorded, payload, outputs)
    return alive, replace(event, gate=gate_of_history(recorded))


def _with_signs_of_life(run: Run, first: Transition, payload: Payload) -> Run:
    """The run with what unrecorded signs of life have left on the step of this transition."""
    step = run.steps.get(first.step or "")
    if step is None or step.stage not in (StepStatus.DISPATCHED, StepStatus.RUNNING):
        return run
    alive = step
    if bytes(payload.progress):
        alive = replace(alive, progress=bytes(payload.progress))
    if payload.heartbeat_deadline_at is not None:
        until = parse_instant(payload.heartbeat_deadline_at, "heartbeat_deadline_at")
        alive = replace(alive, heartbeat_deadline_at=until)
    if first.cause.kind == "step-released" and alive.worker_id is not None:
        # Only the worker that has the attempt may give it back, so it was this one.
        alive = replace(alive, worker_id=first.cause.worker_id)
    return run if alive is step else with_rows(run, [alive])


def with_rows(run: Run, rows: Iterable[Step]) -> Run:
    """The run with these rows as they are given."""
    return replace(run, steps=StepMap.of(run.steps).derive(rows))


def _event_of(  # noqa: PLR0911 - one per cause
    run: Run, recorded: Sequence[Transition], payload: Payload, outputs: Outputs
) -> Event:
    first = recorded[0]
    seed, cause = first.cause.seed or "", replace(first.cause, seed=None)
    if first.what == RunChange.SIGNALLED:
        return SignalReceived(seed=seed, cause=cause, signal=_signal_of(first, payload))
    match cause.type:
        case "start":
            return RunBegun(seed=seed, cause=cause)
        case "timer":
            return TimerDue(seed=seed, cause=cause, path=_timer_path(run, first))
        case "cancel":
            return _cancel_of(recorded, payload)
        case "child":
            return _child_of(run, recorded, payload, outputs)
        case "engine" | "pause" | "resume" | "admitted" | "retry" | "redrive":
            return _event_of_the_shell(first, payload)
        case "report" | "delivered" | "lost" | "withdrawn":
            return _event_of_attempt(run, recorded, payload, outputs)
        case other:
            raise _give_up(first, f"a cause of type {other!r} is not known")


def _event_of_the_shell(first: Transition, payload: Payload) -> Event:
    seed, cause = first.cause.seed or "", replace(first.cause, seed=None)
    match cause.type:
        case "engine":
            return DecisionContinued(seed=seed, cause=cause)
        case "pause":
            return PauseRequested(seed=seed, cause=cause)
        case "resume":
            return ResumeRequested(seed=seed, cause=cause)
        case "retry":
            step = None if first.data is None else first.data.get("step")
            return RetryRequested(seed=seed, cause=cause, step=step, input=_given_input(payload))
        case "redrive":
            return RedriveRequested(
                seed=seed, cause=cause, step=_text(first, "step"), input=_given_input(payload)
            )
        case _:
            return StepAdmitted(seed=seed, cause=cause, path=first.step)


def _given_input(payload: Payload) -> bytes | None:
    """What an operator gave instead of the step's own input."""
    return bytes(payload.input) or None


def _event_of_attempt(
    run: Run, recorded: Sequence[Transition], payload: Payload, outputs: Outputs
) -> Event:
    first = recorded[0]
    seed, cause, token = first.cause.seed or "", replace(first.cause, seed=None), _token_of(first)
    if cause.type == "delivered":
        return DispatchDelivered(seed=seed, cause=cause, token=token)
    if cause.type == "withdrawn":
        return DispatchWithdrawn(seed=seed, cause=cause, token=token)
    if cause.type == "lost" and _has_vanished(first):
        return DispatchVanished(seed=seed, cause=cause, token=token)
    if cause.type == "lost":
        return AttemptLost(seed=seed, cause=cause, token=token, reason=_why_lost(first))
    # The report itself may have changed nothing, and what a split decision had left came after it.
    step = StepMap.of(run.steps).of_token(token)
    return ReportReceived(
        seed=seed,
        cause=cause,
        token=token,
        queue="" if step is None or step.queue is None else step.queue,
        report=report_of(recorded, payload, outputs),
    )


def _signal_of(first: Transition, payload: Payload) -> KeptSignal:
    if payload.signal is None or payload.received_at is None:
        raise _give_up(first, "the signal is not in the history: it must be read with its payloads")
    sent_by = None if first.data is None else first.data.get("sent_by")
    return KeptSignal(
        number=0,
        name=_text(first, "signal"),
        payload=bytes(payload.signal),
        message_id=_text(first, "message_id"),
        sent_by=sent_by,
        received_at=parse_instant(payload.received_at, "received_at"),
    )


def _timer_path(run: Run, first: Transition) -> str | None:
    """Whose instant it was: the step's that changed first, if it was open and due, else the run's
    own (which may enter a step, when a decision was split). The run's deadline goes before all."""
    step = run.steps.get(first.step or "")
    is_over = run.deadline_at is not None and run.deadline_at <= first.at
    if step is None or step.status not in OPEN_STEP or (is_over and run.ending is None):
        return None
    reason = None if first.data is None else first.data.get("reason")
    ended_by_another = first.what == StepChange.CANCELLED and reason != NO_OUTPUT
    if ended_by_another or first.what == StepChange.CANCELLING:
        return None
    # A step that is held back has no instant but its timeout: it was let go, or held again.
    failed = (StepChange.FAILED, StepChange.COMPENSATION_FAILED)
    if step.stage is StepStatus.READY and first.what not in failed:
        return None
    return step.path if step.due_at is not None and step.due_at <= first.at else None


def _cancel_of(recorded: Sequence[Transition], payload: Payload) -> CancelRequested:
    first = recorded[0]
    seed, cause, given = first.cause.seed or "", replace(first.cause, seed=None), payload.cancel
    if given is None:
        # As engines wrote it that could not undo: with the end of the run, which came at once.
        by, reason = _who_cancelled(recorded)
        return CancelRequested(seed=seed, cause=cause, by=by, reason=reason)
    return CancelRequested(
        seed=seed, cause=cause, by=given.by, reason=given.reason, compensate=given.compensate
    )


def _child_of(
    run: Run, recorded: Sequence[Transition], payload: Payload, outputs: Outputs
) -> ChildSettled:
    first, end = recorded[0], payload.child
    seed, cause = first.cause.seed or "", replace(first.cause, seed=None)
    if end is not None:
        return ChildSettled(
            seed=seed,
            cause=cause,
            child_run_id=end.child_run_id,
            status=end.status,
            failure=end.failure,
        )
    step = run.steps.get(first.step or "")
    if step is None or step.child_run_id is None:
        raise _give_up(first, "no step waited for the child")
    output = outputs.of(first)
    if output is None:
        raise _give_up(first, "the output of the child is not in it")
    return ChildSettled(
        seed=seed,
        cause=cause,
        child_run_id=step.child_run_id,
        status=RunStatus.COMPLETED,
        output=bytes(output),
    )


def _who_cancelled(recorded: Sequence[Transition]) -> tuple[str | None, str | None]:
    end = next((row for row in recorded if row.what == RunChange.CANCELLED), None)
    data: Mapping[str, object] = {} if end is None or end.data is None else end.data
    by, reason = data.get("by"), data.get("reason")
    return (by if isinstance(by, str) else None, reason if isinstance(reason, str) else None)


def _token_of(first: Transition) -> str:
    """The token of the attempt that the event was about."""
    token = first.cause.token or first.token
    if token is None and first.data is not None:
        token = first.data.get("token")
    if token is None:
        raise _give_up(first, "it does not say which attempt it was about")
    return token


def _has_vanished(first: Transition) -> bool:
    """Whether the dispatch was lost, and not the attempt: that would have failed."""
    return first.what in (StepChange.REDISPATCHED, StepChange.STARTED)


def _why_lost(first: Transition) -> str:
    error: object = None if first.data is None else first.data.get("error")
    message = ""
    if isinstance(error, Mapping):
        message = str(error.get("message"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - JSON
    return message.removeprefix(_LOST)


def _text(row: Transition, name: str) -> str:
    value: object = None if row.data is None else row.data.get(name)
    if not isinstance(value, str):
        raise _give_up(row, f"its data has no {name}")
    return value


def _give_up(row: Transition, reason: str) -> Unreplayable:
    return Unreplayable(f"transition {row.seq} ({row.what}): {reason}")
