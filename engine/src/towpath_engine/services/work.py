"""What goes into the pipeline: one piece of work for one run, and what became of it."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from towpath_engine.core.create import Parentage
from towpath_engine.core.events import Event
from towpath_engine.core.model import Cause
from towpath_protocol.requests import OnConflict


class StartSpec(Struct, frozen=True, kw_only=True):
    """A wish to start a run, decoded and checked, but not yet against the workflow's schema.

    `context` and `input` are JSON text. `start_at` wins over `delay_ms`; both None: at once.
    """

    run_id: str
    workflow: str
    input: bytes
    key: str | None = None
    request_id: str | None = None
    version: int | None = None
    delay_ms: int | None = None
    start_at: datetime | None = None
    priority: int | None = None
    tags: tuple[str, ...] | None = None
    context: bytes = b"{}"
    triggered_by: str | None = None
    traceparent: str | None = None
    on_conflict: OnConflict = OnConflict.EXISTING
    """What is done when a live run holds the key."""
    restarted_from: str | None = None
    """The settled run that this one repeats."""
    parent: Parentage | None = None
    """The run whose child this one is."""


class SignalSpec(Struct, frozen=True, kw_only=True):
    """A signal as its sender gave it."""

    name: str
    payload: bytes
    message_id: str
    sent_by: str | None
    received_at: datetime
    by_message: bool
    """True: nobody waits for an answer, so an unknown run parks it instead of failing it."""


class Revival(Struct, frozen=True, kw_only=True):
    """What a retry or redrive needs beside its event: the (workflow, key) that the run has to take
    again, whether it is only to be said what would be done, and the (workflow, name) under which it
    is remembered that it was done: a repeat does nothing."""

    key: tuple[str, str] | None = None
    dry_run: bool = False
    request: tuple[str, str] | None = None


class OutcomeKind(StrEnum):
    """How a piece of work ended, as its sender must be told."""

    APPLIED = "applied"
    STALE = "stale"
    IGNORED = "ignored"
    REFUSED = "refused"
    DUPLICATE = "duplicate"
    UNKNOWN_RUN = "unknown_run"
    UNKNOWN_WORKFLOW = "unknown_workflow"
    INVALID = "invalid"
    PARKED = "parked"
    MISMATCH = "mismatch"
    BROKEN = "broken"
    """A deterministic fault: the work can't ever be applied."""


class SignalFate(Struct, frozen=True, kw_only=True):
    """What became of a signal that its run has. `taken_by` is the step whose wait took it; None:
    it is kept, for one of `awaited_by` (steps of the definition), or for nobody if there are none.
    """

    taken_by: str | None
    awaited_by: tuple[str, ...] = ()


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a piece of work, after the commit. `fate` is that of a signal, for a sender
    that waits for an answer."""

    kind: OutcomeKind
    run_id: str | None = None
    deduplicated: bool = False
    code: str | None = None
    message: str = ""
    details: object = None
    fate: SignalFate | None = None


class Work:
    """One piece of work. Mutable, alive from submission to `settle`.

    Exactly one of `run_id` (known target), `start` and `key` (a live run looked up in the
    transaction) says which run it is for; a start may carry a signal (signal-with-start).
    `event` is what `decide` gets; a signal's event is made once duplicates are ruled out.
    """

    __slots__ = (
        "cause",
        "claim_count",
        "event",
        "key",
        "lane",
        "parked_id",
        "revival",
        "run_id",
        "same_request",
        "settle",
        "signal",
        "start",
        "target",
    )

    def __init__(  # noqa: PLR0913 - one keyword per fact of the work
        self,
        *,
        settle: Callable[[Outcome], None],
        run_id: str | None = None,
        key: tuple[str, str] | None = None,
        start: StartSpec | None = None,
        signal: SignalSpec | None = None,
        event: Event | None = None,
        cause: Cause | None = None,
        parked_id: str | None = None,
        revival: Revival | None = None,
    ) -> None:
        self.lane = _lane(run_id, key, start)
        self.settle = settle
        self.run_id = run_id
        self.key = key
        self.start = start
        self.signal = signal
        self.event = event
        self.cause = cause
        self.parked_id = parked_id
        self.revival = revival
        self.target = run_id
        self.same_request = False
        self.claim_count = 0
        """How often a start has claimed in vain a key whose holder had just settled."""

    def reset(self) -> None:
        """Forget what an attempt that was rolled back found out about the target."""
        self.run_id = self.target
        self.same_request = False


def _lane(run_id: str | None, key: tuple[str, str] | None, start: StartSpec | None) -> str:
    """All work that is addressed by the same run id, or by the same key, shares a lane: it is
    applied in order, never twice at once."""
    if start is not None and start.key is not None:
        key = (start.workflow, start.key)
    if key is not None:
        return "\x00".join(key)
    if start is not None:
        return start.run_id
    assert run_id is not None, "work without a target"
    return run_id


def ignore_outcome(outcome: Outcome) -> None:
    """For work whose sender needs no answer."""
    del outcome
