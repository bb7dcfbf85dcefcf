"""Why a run that has not settled is still alive (ARCHITECTURE, invariant 1), as pure functions.

`reasons_of` reads the run alone. What only the servers know (who pulls, how many come first) is
added by the shell; `core.sentences` puts both into words.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core.definition import TaskSpec
from towpath_engine.core.gate import HELD_BY_RUN
from towpath_engine.core.instants import earliest
from towpath_engine.core.kept import Kept
from towpath_engine.core.model import Failure, Run, Step
from towpath_engine.core.paths import place_of
from towpath_engine.core.states import OPEN_STEP, SETTLED_RUN, RunStatus, StepStatus, WaitReason
from towpath_engine.core.waits import Missing, missing


class ReasonKind(StrEnum):
    """What keeps a run alive."""

    START = "start"
    """Its delayed start has not come."""
    CONTINUATION = "continuation"
    """A decision was split; the engine goes on with it at once."""
    READY = "ready"
    """A dispatch (or, without a path, the beginning of the run) is held back: see `held_by`."""
    DISPATCH = "dispatch"
    """An attempt is on its way to a worker."""
    ATTEMPT = "attempt"
    """A worker runs an attempt; its clock is finite."""
    INSTANT = "instant"
    """A step waits for an instant: delay, sleep, backoff, repeat, release."""
    SIGNAL = "signal"
    """A step waits for a signal, or for several."""
    CHILD = "child"
    """A step waits for the end of its child run."""
    PAUSE = "pause"
    """An operator paused the run itself."""


class Reason(Struct, frozen=True, kw_only=True):
    """One reason. `wake_at` is when it ends by itself, None if only a message can end it."""

    kind: ReasonKind
    path: str | None = None
    since: datetime | None = None
    wake_at: datetime | None = None
    waiting_for: WaitReason | None = None
    signal: str | None = None
    """The awaited signals, joined by commas."""
    missing: Missing | None = None
    """Of a wait for signals: what it has and what it lacks."""
    child_run_id: str | None = None
    ending: StepStatus | None = None
    """Cancelling or compensating: the attempt is not the step's own work any more."""
    queue: str | None = None
    task: str | None = None
    level: int | None = None
    token: str | None = None
    attempt: int | None = None
    attempts_max: int | None = None
    release_count: int | None = None
    """How often in a row workers gave the attempt back."""
    held_by: str | None = None
    """As in `Step.held_by`."""
    worker_id: str | None = None
    heartbeat_due_at: datetime | None = None
    last_error: Failure | None = None
    by: str | None = None
    why: str | None = None


def reasons_of(run: Run) -> list[Reason]:
    """Every reason that keeps the run alive, in path order; empty for a settled run, and for one
    that is stuck, which is a bug. `run.steps` must hold the open steps. A whole, a branch or an
    item is open because of the steps in it, which say why."""
    if run.status in SETTLED_RUN:
        return []
    reasons: list[Reason] = []
    if run.paused_at is not None:
        paused = Reason(
            kind=ReasonKind.PAUSE, since=run.paused_at, by=run.paused_by, why=run.pause_reason
        )
        reasons.append(paused)
    if run.status is RunStatus.PENDING:
        return reasons + _reasons_to_be_pending(run)
    if run.cursor is not None:
        reasons.append(
            Reason(kind=ReasonKind.CONTINUATION, path=_next_path(run.cursor), wake_at=run.last_at)
        )
    run = replace(run, kept=Kept.of(run.kept))
    opened = sorted(path for path, step in run.steps.items() if step.status in OPEN_STEP)
    found = (_reason_of(run, run.steps[path]) for path in opened)
    return reasons + [reason for reason in found if reason is not None]


def wake_at_of(run: Run, reasons: list[Reason]) -> datetime | None:
    """When the run goes on by itself at the latest; None: only a message wakes it."""
    if not reasons:
        return None
    return earliest(run.deadline_at, *(reason.wake_at for reason in reasons))


def _reasons_to_be_pending(run: Run) -> list[Reason]:
    if run.held_by is not None and run.held_by != HELD_BY_RUN:
        return [Reason(kind=ReasonKind.READY, held_by=run.held_by, since=run.last_at)]
    if run.start_at is not None:
        return [Reason(kind=ReasonKind.START, since=run.created_at, wake_at=run.start_at)]
    return []


def _next_path(cursor: str) -> str | None:
    """Where a split decision goes on (core.agenda); None: with the run itself."""
    return cursor.rpartition("\n")[2].rpartition(" ")[2] or None


def _reason_of(run: Run, step: Step) -> Reason | None:  # noqa: PLR0911 - one per stage and wait
    match step.stage:
        case StepStatus.READY if step.held_by is not None:
            reason = _reason(run, step, ReasonKind.READY)
            return replace(reason, held_by=step.held_by, since=step.ready_at)
        case StepStatus.DISPATCHED if step.token is not None:
            return replace(_reason(run, step, ReasonKind.DISPATCH), since=step.dispatched_at)
        case StepStatus.RUNNING if step.token is not None and step.attempt_deadline_at is not None:
            return replace(
                _reason(run, step, ReasonKind.ATTEMPT),
                since=step.started_at,
                worker_id=step.worker_id,
                heartbeat_due_at=step.heartbeat_deadline_at,
            )
        case StepStatus.WAITING if step.waiting_for is WaitReason.SIGNAL:
            reason = _reason(run, step, ReasonKind.SIGNAL)
            lacking = missing(run, step.path)
            return replace(reason, signal=step.signal, missing=lacking, since=step.ready_at)
        case StepStatus.WAITING if step.waiting_for is WaitReason.CHILD:
            reason = _reason(run, step, ReasonKind.CHILD)
            return replace(reason, child_run_id=step.child_run_id, since=step.ready_at)
        case StepStatus.WAITING if step.wake_at is not None and step.waiting_for is not None:
            return replace(_reason(run, step, ReasonKind.INSTANT), since=step.ready_at)
        case _:
            return None


def _task_of(run: Run, step: Step) -> TaskSpec | None:
    """The task whose attempts the row has: of its undo while it is being undone, else its own."""
    step_def = run.definition.steps.get(place_of(step.path))
    if step_def is None:
        return None
    if step.status in {StepStatus.COMPENSATING, StepStatus.COMPENSATION_FAILED}:
        return step_def.compensate
    return step_def.spec if isinstance(step_def.spec, TaskSpec) else None


def _reason(run: Run, step: Step, kind: ReasonKind) -> Reason:
    spec = _task_of(run, step)
    return Reason(
        kind=kind,
        path=step.path,
        wake_at=step.due_at,
        waiting_for=step.waiting_for,
        ending=step.status
        if step.status in {StepStatus.CANCELLING, StepStatus.COMPENSATING}
        else None,
        queue=step.queue,
        task=step.task,
        level=run.priority,
        token=step.token,
        attempt=step.attempt or None,
        attempts_max=None if spec is None else spec.retry.max_attempts,
        release_count=step.release_count or None,
        last_error=step.last_error,
    )
