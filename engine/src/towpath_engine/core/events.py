"""What can happen to a run. Every event carries the seed from which `decide` derives chance.

`seed` is 16 or more random bytes as hex, made by the shell when the event is first handled and
recorded with the transitions' cause, so that a history replays exactly. `gate` is what was closed
to dispatches when the event was handled.
"""

from msgspec import Struct

from towpath_engine.core.gate import OPEN, Gate
from towpath_engine.core.model import Cause, Failure, KeptSignal
from towpath_engine.core.states import RunStatus
from towpath_protocol.reports import Report


class Happening(Struct, frozen=True, kw_only=True):
    """What every event carries."""

    seed: str
    cause: Cause
    gate: Gate = OPEN


class RunBegun(Happening, frozen=True, kw_only=True):
    """A run was just created; it begins now, or arms its delayed start."""


class ReportReceived(Happening, frozen=True, kw_only=True):
    """A worker reported on an attempt. The shell has checked the body against the subject."""

    token: str
    queue: str
    report: Report


class SignalReceived(Happening, frozen=True, kw_only=True):
    """A signal that is new to the run (the shell has dropped repeats of its message id).

    `signal.number` is 0; `decide` numbers it.
    """

    signal: KeptSignal


class TimerDue(Happening, frozen=True, kw_only=True):
    """The instant stored for a step (or, with `path` None, for the run) has come, or may have.

    Everything of that step whose instant is not after `now` fires, the earliest first. Nothing
    due is no error: the shell arms the timer again.
    """

    path: str | None


class CancelRequested(Happening, frozen=True, kw_only=True):
    """Somebody wants the run cancelled; with `compensate` its completed steps are undone. None: as
    the workflow's `on_failure` says."""

    by: str | None = None
    reason: str | None = None
    compensate: bool | None = False


class ChildSettled(Happening, frozen=True, kw_only=True):
    """What the step of a child run waits for has happened: the child has settled.

    `output` is that of a completed child, `failure` the error of any other that has one. `status`
    pending says instead that it was created, which is all that the step of a detached child waits
    for, or, with a `failure`, why it can't be started.
    """

    child_run_id: str
    status: RunStatus
    output: bytes | None = None
    failure: Failure | None = None


class DispatchWithdrawn(Happening, frozen=True, kw_only=True):
    """The dispatch of a step that is being cancelled was taken back before anybody had it. Ignored
    for one that a worker said to have."""

    token: str


class DispatchDelivered(Happening, frozen=True, kw_only=True):
    """The queue's consumer was seen to have delivered past this dispatch: the clock starts."""

    token: str


class AttemptLost(Happening, frozen=True, kw_only=True):
    """The broker gave the dispatch up (deliveries exhausted or terminated): WorkerLost."""

    token: str
    reason: str


class DispatchVanished(Happening, frozen=True, kw_only=True):
    """The dispatch is no longer in the stream and was never delivered: publish it again.

    The token stays, `dispatch_no` grows. Ignored unless the step is still dispatched, or running
    without a worker that said so. One that is being cancelled is not published again: its clock
    starts, since somebody may have got it before the stream lost it.
    """

    token: str


class PauseRequested(Happening, frozen=True, kw_only=True):
    """An operator wants nothing new of the run dispatched; who and why are in the cause."""


class ResumeRequested(Happening, frozen=True, kw_only=True):
    """An operator lifts the pause of the run; who and why are in the cause."""


class StepAdmitted(Happening, frozen=True, kw_only=True):
    """What held this step back (or, with `path` None, the beginning of the run) may be gone."""

    path: str | None


class RetryRequested(Happening, frozen=True, kw_only=True):
    """An operator wants the settled run to go on where it ended; who and why are in the cause.

    `input` (JSON text) replaces that of the step that failed; `step` says of which.
    """

    step: str | None = None
    input: bytes | None = None


class RedriveRequested(Happening, frozen=True, kw_only=True):
    """An operator wants the settled run to go on from `step`, with all after it done again.

    `input` (JSON text) takes the place of what the step's template would make.
    """

    step: str
    input: bytes | None = None


class DecisionContinued(Happening, frozen=True, kw_only=True):
    """The rest of a decision that was split at its limit of transitions."""


Event = (
    RunBegun
    | ReportReceived
    | SignalReceived
    | TimerDue
    | CancelRequested
    | DispatchDelivered
    | AttemptLost
    | DispatchVanished
    | PauseRequested
    | ResumeRequested
    | StepAdmitted
    | RetryRequested
    | RedriveRequested
    | ChildSettled
    | DispatchWithdrawn
    | DecisionContinued
)
