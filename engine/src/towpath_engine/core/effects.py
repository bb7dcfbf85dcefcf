"""What the core wants done: data, carried out by the shell in or after the same commit."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from towpath_engine.core.model import KeptSignal, Run, Step, Transition
from towpath_protocol.errors import ErrorCode


class DispatchStep(Struct, frozen=True, kw_only=True):
    """Write an outbox row for this dispatch. `body` is the whole message as JSON text."""

    path: str
    queue: str
    level: int
    token: str
    dispatch_no: int
    body: bytes
    ttl_seconds: int | None
    """For the Nats-TTL header: until the dispatch's own end plus a minute; None: no end."""


class RevokeToken(Struct, frozen=True, kw_only=True):
    """The token is dead: delete its outbox rows and, with `purge`, its subject in the background.

    `purge` is false when a report of this very token ended the attempt: its worker acknowledges
    the dispatch, so there is nothing to purge.
    """

    queue: str
    level: int
    token: str
    purge: bool = True


class CancelAttempt(Struct, frozen=True, kw_only=True):
    """Tell the workers of the queue to stop this attempt (a push; loss is caught up)."""

    queue: str
    path: str
    token: str
    reason: str


class Announce(Struct, frozen=True, kw_only=True):
    """Write an outbox row for P_EVENTS. `event` is the last token of the subject."""

    event: str
    seq: int
    step: str | None = None
    attempt: int | None = None
    data: Any = None


class KeepSignal(Struct, frozen=True, kw_only=True):
    """Store this signal; consumed at once when `consumed_by` names a step."""

    signal: KeptSignal
    consumed_by: str | None = None


class ConsumeSignal(Struct, frozen=True, kw_only=True):
    """A stored signal was taken by a wait."""

    number: int
    consumed_by: str


class AppendLogs(Struct, frozen=True, kw_only=True):
    """Log lines of an accepted report. `lines` is a JSON array as text."""

    path: str
    attempt: int
    token: str
    lines: bytes


class StartChild(Struct, frozen=True, kw_only=True):
    """Ask for the child run of the step `path`, by a message through the outbox. The receiver
    reads what to start from the step's row: `input`, `child_run_id`."""

    path: str
    child_run_id: str


class CancelChild(Struct, frozen=True, kw_only=True):
    """Ask for the end of a child that nobody waits for any more. `compensate` as in
    CancelRequested: what the cancel of this run says, else as the child's workflow does."""

    path: str
    child_run_id: str
    reason: str
    compensate: bool | None = None


class TellParent(Struct, frozen=True, kw_only=True):
    """The run has settled and a step of its parent waits for it: say so, through the outbox."""

    parent_run_id: str


class RefuseSignal(Struct, frozen=True, kw_only=True):
    """A kept signal that no wait can take (its payload is not what the wait wants): a dead letter.
    The row of the signal is consumed by `path`."""

    signal: KeptSignal
    path: str
    reason: str


class ContinueLater(Struct, frozen=True, kw_only=True):
    """The decision was split: feed DecisionContinued at once, in the next batch."""


Effect = (
    DispatchStep
    | RevokeToken
    | CancelAttempt
    | Announce
    | KeepSignal
    | ConsumeSignal
    | AppendLogs
    | StartChild
    | CancelChild
    | TellParent
    | RefuseSignal
    | ContinueLater
)


class Verdict(StrEnum):
    """What became of the event."""

    APPLIED = "applied"
    """It changed something (or legitimately needed no change, as a renewed heartbeat)."""
    STALE = "stale"
    """A report or observation for a token that is not the step's current one: counted."""
    IGNORED = "ignored"
    """Nothing to do: a timer that is not due, a second cancel of a cancelled run."""
    REFUSED = "refused"
    """Not allowed in this state; `Decision.refusal` is the API's error code."""


class Decision(Struct, frozen=True, kw_only=True):
    """The outcome of `decide`. With any verdict but APPLIED, `run` is the run as it was given.

    `changed` are the steps whose rows must be written, in path order. A caller must write the run
    whenever `changed` or `transitions` is non-empty or `run` is not the one passed in.
    """

    run: Run
    verdict: Verdict = Verdict.APPLIED
    transitions: tuple[Transition, ...] = ()
    effects: tuple[Effect, ...] = ()
    changed: tuple[Step, ...] = ()
    refusal: str | None = None
    message: str | None = None


def refused(run: Run, code: ErrorCode, message: str) -> Decision:
    """The decision that changes nothing and says why."""
    return Decision(run=run, verdict=Verdict.REFUSED, refusal=code.value, message=message)
