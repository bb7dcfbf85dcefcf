"""The data of a run as the core sees it. Frozen; derive with `msgspec.structs.replace`.

JSON values of users (`input`, `output`, `context`, ...) are UTF-8 JSON text as `bytes`; `None`
means "there is none", which is not the same as the JSON value `null` (`b"null"`).
Instants are aware datetimes in UTC with microseconds.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from towpath_engine.core.definition import Definition
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.states import RunStatus, StepKind, StepStatus, WaitReason


class Failure(Struct, frozen=True, kw_only=True):
    """Why an attempt, a step or a run failed. The shape of `error` in expressions and answers.

    `details` is JSON text; `attached` carries a second failure that must not hide the first (an
    ExpressionError in `retry.when`).
    """

    type: str
    message: str
    retryable: bool = True
    details: bytes | None = None
    stack: str | None = None
    step: str | None = None
    attempt: int | None = None
    attached: str | None = None


class Cause(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What made a transition happen. Stored with it as JSON, shown in the history.

    `type` is one of start, report, timer, signal, cancel, child, delivered, withdrawn, lost, pause,
    resume, admitted, retry, redrive, engine.
    """

    type: str
    kind: str | None = None
    token: str | None = None
    worker_id: str | None = None
    message_id: str | None = None
    by: str | None = None
    reason: str | None = None
    traceparent: str | None = None
    seed: str | None = None
    """The event's seed, on the first transition of its decision: so that a history replays."""


class KeptSignal(Struct, frozen=True, kw_only=True):
    """A signal that the run has and no wait has consumed yet. `number` orders them, from 1."""

    number: int
    name: str
    payload: bytes
    message_id: str
    sent_by: str | None
    received_at: datetime


class Parts(Struct, frozen=True, kw_only=True, array_like=True):
    """How far a whole has come: counters, so that one more part costs the same as the first.

    `total` parts there are, the first `started` of them were started, `open` of these have not
    settled, `failed` have failed. `size` are the bytes of the outputs of those that are completed.
    """

    total: int
    started: int = 0
    open: int = 0
    failed: int = 0
    size: int = 0


class Step(Struct, frozen=True, kw_only=True):
    """One step of a run, as its current (or last) visit stands; also a branch or an item.

    `attempt` counts from 1 within the current budget and is 0 before the first dispatch;
    `iteration` counts from 0 within a visit; `visit` counts from 1. `token` is the fence of the
    live attempt and None when there is no live attempt. `dispatch_no` counts how often the same
    token was published. The four `*_deadline_at` and `wake_at` are the step's stored instants: the
    earliest one is its timer.
    """

    path: str
    kind: StepKind
    status: StepStatus = StepStatus.PENDING
    visit: int = 1
    attempt: int = 0
    iteration: int = 0
    release_count: int = 0
    revival_count: int = 0
    """How often an operator had the settled step go on within this run."""
    came_from: str | None = None
    """Path of the step from which the run came to this visit; None: it is where the run began."""
    token: str | None = None
    dispatch_no: int = 0
    queue: str | None = None
    task: str | None = None
    input: bytes | None = None
    output: bytes | None = None
    last_output: bytes | None = None
    """Output of the last completed visit or iteration: what a loop's expressions see."""
    error: Failure | None = None
    last_error: Failure | None = None
    """Error of the last failed attempt of the current budget; handed to the next attempt."""
    progress: bytes | None = None
    worker_id: str | None = None
    waiting_for: WaitReason | None = None
    held_by: str | None = None
    """While the step is `ready`: what holds its dispatch back (core.gate)."""
    signal: str | None = None
    """Of a wait: the names of its signals, joined by commas."""
    wake_at: datetime | None = None
    ready_at: datetime | None = None
    dispatched_at: datetime | None = None
    started_at: datetime | None = None
    settled_at: datetime | None = None
    dispatch_deadline_at: datetime | None = None
    attempt_deadline_at: datetime | None = None
    heartbeat_deadline_at: datetime | None = None
    step_deadline_at: datetime | None = None
    parts: Parts | None = None
    """Of a whole: its counters."""
    errors: bytes | None = None
    """Of a settled whole: JSON object of the errors of its failed parts, by branch or index."""
    last_step: str | None = None
    """Of a part: path of the step of its list that settled last, as `Run.last_step`."""
    reached: bytes = b""
    """Of a part: which steps of its list were ever entered, as `Run.reached`."""
    undo_below: str | None = None
    """Of a completed step that may have to be undone: which one is undone after it, as
    `PATH#VISIT`; empty: none. None: it is not to be undone (any more)."""
    child_run_id: str | None = None
    """Of a `run` step: the run that it started."""
    child_key: str | None = None
    """The key which that run is to have."""

    @property
    def stage(self) -> StepStatus:
        """Where the attempt of the step stands: its status, but for one that is being cancelled or
        undone, which is ready, dispatched, running or waiting beside that."""
        if self.status is StepStatus.CANCELLING:
            return StepStatus.DISPATCHED if self.started_at is None else StepStatus.RUNNING
        if self.status is not StepStatus.COMPENSATING:
            return self.status
        if self.held_by is not None:
            return StepStatus.READY
        if self.waiting_for is not None:
            return StepStatus.WAITING
        return StepStatus.DISPATCHED if self.started_at is None else StepStatus.RUNNING

    @property
    def due_at(self) -> datetime | None:
        """The earliest instant at which something must happen to this step, or None."""
        instants = (
            self.wake_at,
            self.dispatch_deadline_at,
            self.attempt_deadline_at,
            self.heartbeat_deadline_at,
            self.step_deadline_at,
        )
        return min((at for at in instants if at is not None), default=None)


class Run(Struct, frozen=True, kw_only=True):
    """One execution of a workflow version.

    `version` counts the committed decisions and guards every write; `seq` is the number of the
    last transition. `steps` holds the loaded steps by path: at least every open one, the one the
    run came from (`last_step`), and those of `Definition.referenced`. A step that has no row yet is
    absent, which means `pending`; a settled step that none of these names may be absent, too.
    """

    id: str
    workflow: str
    workflow_version: int
    definition: Definition
    limits: CoreLimits
    status: RunStatus = RunStatus.PENDING
    version: int = 0
    seq: int = 0
    key: str | None = None
    request_id: str | None = None
    priority: int = 2
    """0 critical, 1 high, 2 normal, 3 low: also the level in the dispatch subject."""
    tags: tuple[str, ...] = ()
    input: bytes = b"null"
    context: bytes = b"{}"
    metadata: bytes = b"{}"
    output: bytes | None = None
    error: Failure | None = None
    triggered_by: str | None = None
    traceparent: str | None = None
    restarted_from: str | None = None
    parent_run_id: str | None = None
    parent_step: str | None = None
    """Path of the step of the parent that waits for this run; None: nobody does (detached)."""
    depth: int = 0
    """How many awaiting parents the run has above it."""
    ending: RunStatus | None = None
    """How the run is ending, or has ended but for its compensation: failed, cancelled or timed_out.
    From here on no step but an undo begins anything."""
    compensation: RunStatus | None = None
    """What became of the undoing, once it began: compensating, compensated or
    compensation_failed. The status keeps it for a failure; a cancelled or timed out run has it
    here alone."""
    undo_top: str | None = None
    """The completed step that would be undone first, as `PATH#VISIT`; the others hang below it by
    `Step.undo_below`. None: there is none."""
    cancelled_by: str | None = None
    cancel_reason: str | None = None
    paused_at: datetime | None = None
    """Since when an operator's pause holds the run; None: it is not paused."""
    paused_by: str | None = None
    pause_reason: str | None = None
    held_by: str | None = None
    """While the run is `pending` although its time has come: what keeps it from beginning
    (core.gate)."""
    revival_count: int = 0
    """How often an operator had the settled run go on (retry, redrive)."""
    visit_base: int = 0
    """The highest visit that a redrive has taken back. Visits of steps that it reset count on from
    here, so that no idempotency key comes twice, while the rows of these need not be loaded."""
    created_at: datetime
    start_at: datetime | None = None
    """When a delayed run begins; None once it has begun."""
    started_at: datetime | None = None
    settled_at: datetime | None = None
    deadline_at: datetime | None = None
    """When the run is over, once it has begun. Of a child that has not: its parent's."""
    last_at: datetime | None = None
    """Instant of the last transition: `now` never goes back behind it."""
    cursor: str | None = None
    """What is left to do when a decision was split, as `core.agenda` writes it; else None. It
    stays when the run settles instead: a retry goes on there."""
    last_step: str | None = None
    """Path of the step of the workflow's own list that settled last: where the list goes on. `prev`
    in expressions is that step, or, if it was skipped, the one it was come to from."""
    signal_count: int = 0
    """Signals ever received: numbers the next one."""
    reached: bytes = b""
    """Which steps of the definition were ever entered: bit `StepDef.index`, lowest bit first. It
    is stored with the run, because a run is loaded without most of its settled steps, and those
    never reached must be known when it settles."""
    steps: Mapping[str, Step] = field(default_factory=dict[str, Step])
    kept: tuple[KeptSignal, ...] = ()
    """Unconsumed signals in order of arrival. A settled run keeps them for a retry."""

    @property
    def due_at(self) -> datetime | None:
        """The run's own next instant: at once when a decision was split (so that a sweep goes on
        with it after a crash), else its delayed start, or its deadline, which ends nothing before
        the run has begun, nor once it is ending."""
        if self.cursor is not None:
            return self.last_at
        if self.ending is not None:
            return None
        return self.start_at if self.status is RunStatus.PENDING else self.deadline_at


class Transition(Struct, frozen=True, kw_only=True):
    """One line of a run's history. (run, seq) is its identity; seq has no gaps, from 1.

    `what` is `run-…` or `step-…` plus a past participle; `before` and `after` are statuses.
    """

    seq: int
    at: datetime
    what: str
    step: str | None = None
    before: str | None = None
    after: str | None = None
    attempt: int | None = None
    iteration: int | None = None
    visit: int | None = None
    token: str | None = None
    cause: Cause
    data: dict[str, Any] | None = None
    """Small facts for a reader (error type, chosen name, wake_at); JSON-able, never payloads."""
    payload: bytes | None = None
    """JSON text of the values of the event that no other row keeps: what a replay of the history
    needs beside the rows of the run, its steps and its signals."""
