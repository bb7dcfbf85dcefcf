"""Why a run that has not settled is still alive (ARCHITECTURE, invariant 1), as a pure function."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import OPEN_STEP, SETTLED_RUN, RunStatus, StepStatus, WaitReason


class ReasonKind(StrEnum):
    """What keeps a run alive."""

    START = "start"
    """Its delayed start has not come."""
    CONTINUATION = "continuation"
    """A decision was split; the engine goes on with it at once."""
    DISPATCH = "dispatch"
    """An attempt is on its way to a worker."""
    ATTEMPT = "attempt"
    """A worker runs an attempt; its clock is finite."""
    INSTANT = "instant"
    """A step waits for an instant: delay, sleep, backoff, repeat, release."""
    SIGNAL = "signal"
    """A step waits for a signal."""
    READY = "ready"
    """A dispatch (or, without a path, the beginning of the run) is held back."""
    PAUSE = "pause"
    """An operator paused the run itself."""


class Reason(Struct, frozen=True, kw_only=True):
    """One reason. `at` is when it wakes by itself, None if only a message can wake it."""

    kind: ReasonKind
    path: str | None = None
    at: datetime | None = None
    detail: str | None = None
    """The queue, the signal's name, or what the instant is for."""


def reasons_of(run: Run) -> list[Reason]:
    """Every reason that keeps the run alive, in path order; empty for a settled run, and for one
    that is stuck, which is a bug."""
    if run.status in SETTLED_RUN:
        return []
    reasons: list[Reason] = []
    if run.paused_at is not None:
        reasons.append(Reason(kind=ReasonKind.PAUSE, detail=run.paused_by))
    if run.status is RunStatus.PENDING:
        if run.start_at is not None:
            reasons.append(Reason(kind=ReasonKind.START, at=run.start_at))
        if run.held_by is not None:
            reasons.append(Reason(kind=ReasonKind.READY, detail=run.held_by))
        return reasons
    if run.cursor is not None:
        reasons.append(Reason(kind=ReasonKind.CONTINUATION, path=run.cursor, at=run.last_at))
    opened = sorted(path for path, step in run.steps.items() if step.status in OPEN_STEP)
    found = (_reason_of(run.steps[path]) for path in opened)
    return reasons + [reason for reason in found if reason is not None]


def _reason_of(step: Step) -> Reason | None:
    match step.status:
        case StepStatus.READY if step.held_by is not None:
            return _reason(step, ReasonKind.READY, step.held_by)
        case StepStatus.DISPATCHED if step.token is not None:
            return _reason(step, ReasonKind.DISPATCH, step.queue)
        case StepStatus.RUNNING if step.token is not None and step.attempt_deadline_at is not None:
            return _reason(step, ReasonKind.ATTEMPT, step.worker_id)
        case StepStatus.WAITING if step.waiting_for is WaitReason.SIGNAL:
            return _reason(step, ReasonKind.SIGNAL, step.signal)
        case StepStatus.WAITING if step.wake_at is not None and step.waiting_for is not None:
            return _reason(step, ReasonKind.INSTANT, step.waiting_for.value)
        case _:
            return None


def _reason(step: Step, kind: ReasonKind, detail: str | None) -> Reason:
    return Reason(kind=kind, path=step.path, at=step.due_at, detail=detail)
