"""The leases of one worker: pure, facts in and actions out. The shell (`worker`) does them.

Laws:

- A token runs at most once here, however often it is delivered; a repeat only brings a newer
  acknowledgement subject.
- A slot is taken from the start of an attempt until its report is stored or given up.
- An attempt ends here when its timeout is over, whether or not its task has noticed.
- Drain: nothing new starts; what still runs at the end is given back.

Times are milliseconds of a monotonic clock.
"""

from collections import OrderedDict
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from towpath_protocol.dispatch import StepDispatch
from towpath_protocol.reports import ReleaseReason

CLOSED_TOKENS_MAX: Final = 4_096
"""Tokens remembered after their report was stored: a lost ack brings them back."""


class LeaseState(Enum):
    """Where a lease is. `HELD` has no slot yet; `REPORTING` has an outcome on its way."""

    HELD = auto()
    RUNNING = auto()
    REPORTING = auto()


class Lease(Struct):
    """One attempt that this worker holds. Only `Session` changes it."""

    dispatch: StepDispatch
    ack_subject: str
    received_ms: int
    state: LeaseState
    traceparent: str | None = None
    cancel_reason: str | None = None
    stale: bool = False
    expired: bool = False

    @property
    def token(self) -> str:
        """The fence of this attempt."""
        return self.dispatch.token

    @property
    def ends_ms(self) -> int:
        """When the attempt timeout is over."""
        return self.received_ms + self.dispatch.attempt_timeout_ms


class Start(Struct, frozen=True):
    """Run the attempt; it has a slot now."""

    lease: Lease


class GiveBack(Struct, frozen=True):
    """Report `step-released`, then acknowledge. The lease is over when that is done."""

    lease: Lease
    reason: ReleaseReason


class Acknowledge(Struct, frozen=True):
    """Acknowledge a delivery whose report was stored before."""

    ack_subject: str


class Renew(Struct, frozen=True):
    """The same attempt was delivered again: in-progress acks go to its new subject."""

    lease: Lease


class Interrupt(Struct, frozen=True):
    """Tell the running task to stop; `lease.cancel_reason` says why."""

    lease: Lease


class Expire(Struct, frozen=True):
    """The attempt timeout is over: no more in-progress acks, no report."""

    lease: Lease


Action = Start | GiveBack | Acknowledge | Renew | Interrupt | Expire


class Session:
    """What one worker holds. Every method is a fact and returns what to do about it."""

    def __init__(self, *, slots: int, hold_ms: int) -> None:
        self._slots = slots
        self._hold_ms = hold_ms
        self._leases: dict[str, Lease] = {}
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._occupied = 0
        self._held = 0
        self._drain_ends_ms: int | None = None

    @property
    def free(self) -> int:
        """Slots that a new delivery could take; 0 while draining."""
        if self._drain_ends_ms is not None:
            return 0
        return max(0, self._slots - self._occupied - self._held)

    @property
    def idle(self) -> bool:
        """True when nothing is held."""
        return not self._leases

    @property
    def draining(self) -> bool:
        """True once `drain` was called."""
        return self._drain_ends_ms is not None

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens held, oldest first."""
        return tuple(self._leases)

    def delivered(
        self,
        dispatch: StepDispatch,
        ack_subject: str,
        *,
        known_task: bool,
        now_ms: int,
        traceparent: str | None = None,
    ) -> list[Action]:
        """A dispatch was delivered to this worker."""
        token = dispatch.token
        if token in self._closed:
            return [Acknowledge(ack_subject)]
        lease = self._leases.get(token)
        if lease is not None:
            lease.ack_subject = ack_subject
            return [Renew(lease)]
        lease = Lease(dispatch, ack_subject, now_ms, LeaseState.HELD, traceparent)
        self._leases[token] = lease
        self._held += 1
        if not known_task:
            return [self._give_back(lease, ReleaseReason.UNKNOWN_TASK)]
        if self.draining:
            return [self._give_back(lease, ReleaseReason.DRAIN)]
        if self._occupied < self._slots:
            return [self._start(lease)]
        return [Renew(lease)]

    def ended(self, token: str) -> None:
        """The task of this attempt has returned; its report is on its way."""
        lease = self._leases.get(token)
        if lease is not None:
            lease.state = LeaseState.REPORTING

    def closed(self, token: str, *, reported: bool) -> list[Action]:
        """The attempt is over here; `reported` when the broker has stored its report."""
        lease = self._leases.pop(token, None)
        if lease is None:
            return []
        if lease.state is LeaseState.HELD:
            self._held -= 1
        else:
            self._occupied -= 1
        if reported:
            self._remember(token)
        return self._start_held()

    def cancelled(self, token: str, reason: str) -> list[Action]:
        """The engine wants this attempt stopped. Its token may still be good for a report."""
        lease = self._leases.get(token)
        if lease is None or lease.cancel_reason is not None:
            return []
        return [self._stop(lease, reason)]

    def stale(self, token: str) -> list[Action]:
        """The engine says that this token is closed: nothing about it can change anything."""
        lease = self._leases.get(token)
        if lease is None or lease.stale:
            return []
        lease.stale = True
        if lease.cancel_reason is not None:
            return []
        return [self._stop(lease, "stale")]

    def drain(self, *, timeout_ms: int, now_ms: int) -> list[Action]:
        """Start nothing any more; what is held without a slot is given back at once."""
        ends_ms = now_ms + timeout_ms
        if self._drain_ends_ms is not None:
            ends_ms = min(ends_ms, self._drain_ends_ms)
        self._drain_ends_ms = ends_ms
        return [
            self._give_back(lease, ReleaseReason.DRAIN)
            for lease in self._leases.values()
            if lease.state is LeaseState.HELD
        ]

    def tick(self, now_ms: int) -> list[Action]:
        """What the passing of time asks for."""
        actions: list[Action] = []
        drain_over = self._drain_ends_ms is not None and now_ms >= self._drain_ends_ms
        for lease in list(self._leases.values()):
            match lease.state:
                case LeaseState.HELD:
                    if now_ms >= lease.received_ms + self._hold_ms:
                        actions.append(self._give_back(lease, ReleaseReason.INTERRUPTED))
                case LeaseState.RUNNING:
                    if now_ms >= lease.ends_ms:
                        actions += self._expire(lease)
                    elif drain_over:
                        give_back = self._give_back(lease, ReleaseReason.DRAIN)
                        actions += [give_back, self._interrupt(lease, "drain")]
                case LeaseState.REPORTING:
                    pass  # the report's own deadline ends it
        return actions

    def _start(self, lease: Lease) -> Start:
        lease.state = LeaseState.RUNNING
        self._held -= 1
        self._occupied += 1
        return Start(lease)

    def _start_held(self) -> list[Action]:
        if self._held == 0 or self.draining:
            return []
        actions: list[Action] = []
        for lease in self._leases.values():
            if self._occupied >= self._slots:
                break
            if lease.state is LeaseState.HELD:
                actions.append(self._start(lease))
        return actions

    def _give_back(self, lease: Lease, reason: ReleaseReason) -> GiveBack:
        if lease.state is LeaseState.HELD:
            self._held -= 1
            self._occupied += 1
        lease.state = LeaseState.REPORTING
        return GiveBack(lease, reason)

    def _expire(self, lease: Lease) -> list[Action]:
        if lease.expired:
            return []
        lease.expired = True
        if lease.cancel_reason is not None:
            return [Expire(lease)]
        return [Expire(lease), self._interrupt(lease, "attempt_timeout")]

    def _stop(self, lease: Lease, reason: str) -> Interrupt | GiveBack:
        """Interrupt what runs. What has not begun never does, and whoever waits for it is told."""
        if lease.state is not LeaseState.HELD:
            return self._interrupt(lease, reason)
        lease.cancel_reason = reason
        return self._give_back(lease, ReleaseReason.INTERRUPTED)

    def _interrupt(self, lease: Lease, reason: str) -> Interrupt:
        lease.cancel_reason = reason
        return Interrupt(lease)

    def _remember(self, token: str) -> None:
        self._closed[token] = None
        if len(self._closed) > CLOSED_TOKENS_MAX:
            self._closed.popitem(last=False)
