"""What can happen to a run. Every event carries the seed from which `decide` derives chance.

`seed` is 16 or more random bytes as hex, made by the shell when the event is first handled and
recorded with the transitions' cause, so that a history replays exactly.
"""

from msgspec import Struct

from towpath_engine.core.model import Cause, KeptSignal
from towpath_protocol.reports import Report


class RunBegun(Struct, frozen=True, kw_only=True):
    """A run was just created; it begins now, or arms its delayed start."""

    seed: str
    cause: Cause


class ReportReceived(Struct, frozen=True, kw_only=True):
    """A worker reported on an attempt. The shell has checked the body against the subject."""

    seed: str
    cause: Cause
    token: str
    queue: str
    report: Report


class SignalReceived(Struct, frozen=True, kw_only=True):
    """A signal that is new to the run (the shell has dropped repeats of its message id).

    `signal.number` is 0; `decide` numbers it.
    """

    seed: str
    cause: Cause
    signal: KeptSignal


class TimerDue(Struct, frozen=True, kw_only=True):
    """The instant stored for a step (or, with `path` None, for the run) has come, or may have.

    Everything of that step whose instant is not after `now` fires, the earliest first. Nothing
    due is no error: the shell arms the timer again.
    """

    seed: str
    cause: Cause
    path: str | None


class CancelRequested(Struct, frozen=True, kw_only=True):
    """Somebody wants the run cancelled."""

    seed: str
    cause: Cause
    by: str | None = None
    reason: str | None = None


class DispatchDelivered(Struct, frozen=True, kw_only=True):
    """The queue's consumer was seen to have delivered past this dispatch: the clock starts."""

    seed: str
    cause: Cause
    token: str


class AttemptLost(Struct, frozen=True, kw_only=True):
    """The broker gave the dispatch up (deliveries exhausted or terminated): WorkerLost."""

    seed: str
    cause: Cause
    token: str
    reason: str


class DispatchVanished(Struct, frozen=True, kw_only=True):
    """The dispatch is no longer in the stream and was never delivered: publish it again.

    The token stays, `dispatch_no` grows. Ignored unless the step is still dispatched, or running
    without a worker that said so.
    """

    seed: str
    cause: Cause
    token: str


class DecisionContinued(Struct, frozen=True, kw_only=True):
    """The rest of a decision that was split at its limit of transitions."""

    seed: str
    cause: Cause


Event = (
    RunBegun
    | ReportReceived
    | SignalReceived
    | TimerDue
    | CancelRequested
    | DispatchDelivered
    | AttemptLost
    | DispatchVanished
    | DecisionContinued
)
