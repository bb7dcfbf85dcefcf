"""The reasons of `core.explain` in words: one sentence each, for a person at a terminal."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, assert_never

from msgspec import Struct

from towpath_engine.core.explain import Reason, ReasonKind
from towpath_engine.core.gate import HELD_BY_RUN, Scope
from towpath_engine.core.model import Run
from towpath_engine.core.states import SETTLED_RUN, WaitReason
from towpath_protocol.times import format_instant

_ERROR_LENGTH_MAX: Final = 200
STUCK: Final = (
    "nothing moves this run, which is a fault of the engine: its log and the dead letters say more"
)


class PauseFacts(Struct, frozen=True, kw_only=True):
    """Who paused something, when and why."""

    at: datetime
    by: str | None = None
    reason: str | None = None


class ReasonFacts(Struct, frozen=True, kw_only=True):
    """What the servers know about a reason; None and False where it was not asked for.

    `ahead` is how many come before this one, `ahead_is_bound` that there may be more of them.
    """

    ahead: int | None = None
    ahead_is_bound: bool = False
    workers: int | None = None
    """Live workers of the queue."""
    pulls: int | None = None
    """Pull requests that wait at its consumers."""
    nobody_pulls_since: datetime | None = None
    last_heartbeat_at: datetime | None = None
    pause: PauseFacts | None = None
    in_outbox: bool = False
    """The dispatch is not in the stream yet."""
    dead_letter_id: str | None = None


NO_FACTS: Final = ReasonFacts()


def sentence(reason: Reason, facts: ReasonFacts = NO_FACTS) -> str:
    """One reason in words, beginning with the step's path where there is one."""
    text = _body(reason, facts)
    if reason.path is not None:
        text = f"{reason.path} {text}"
    if facts.dead_letter_id is not None:
        text += f"; a report of it could not be applied: dead letter {facts.dead_letter_id}"
    return text


def summary(run: Run, sentences: Sequence[str], omitted: int = 0) -> str:
    """The run in one line: its only reason, or how many there are and the first."""
    if run.status in SETTLED_RUN:
        return f"the run has settled: {run.status.value}"
    if not sentences:
        return STUCK
    more = len(sentences) + omitted - 1
    return sentences[0] if not more else f"{sentences[0]} (and {more} more)"


def error_line(reason: Reason) -> str | None:
    """Type and message of the failure that the step is recovering from, cut to a line."""
    if reason.last_error is None:
        return None
    text = f"{reason.last_error.type}: {reason.last_error.message}"
    first = text.splitlines()[0]
    return first if len(first) <= _ERROR_LENGTH_MAX else f"{first[: _ERROR_LENGTH_MAX - 1]}…"


def _body(reason: Reason, facts: ReasonFacts) -> str:  # noqa: PLR0911 - one per kind
    match reason.kind:
        case ReasonKind.START:
            return f"the run begins {_until(reason.wake_at, 'at')}"
        case ReasonKind.CONTINUATION:
            return "is where the engine goes on at once: one decision had grown too large"
        case ReasonKind.READY:
            return _ready(reason, facts)
        case ReasonKind.DISPATCH:
            return _dispatch(reason, facts)
        case ReasonKind.ATTEMPT:
            return _attempt(reason, facts)
        case ReasonKind.INSTANT:
            return _instant(reason)
        case ReasonKind.SIGNAL:
            return f"waits for signal {reason.signal!r}{_limit(reason.wake_at)}"
        case ReasonKind.PAUSE:
            return f"the run is paused{_pause(_own_pause(reason))}; resume it to go on"
        case _:
            assert_never(reason.kind)


def _ready(reason: Reason, facts: ReasonFacts) -> str:
    what = "is held back" if reason.path is not None else "the run has not begun"
    scope, _, name = (reason.held_by or "").partition(":")
    if reason.held_by == HELD_BY_RUN:
        return f"{what}: the run is paused"
    if scope == Scope.WINDOW:
        ahead = "" if facts.ahead is None else f" behind {_ahead(facts)}"
        return f"{what}{ahead}: queue {name!r} has as many dispatches as it may{_pulling(facts)}"
    return f"{what}: {scope} {name!r} is paused{_pause(facts.pause)}"


def _dispatch(reason: Reason, facts: ReasonFacts) -> str:
    which = _which_attempt(reason)
    if facts.in_outbox:
        since = "" if reason.since is None else f" since {_short(reason.since)}"
        return (
            f"waits{since} to be put into queue {reason.queue!r} ({which}): "
            "NATS is away, or its stream is full"
        )
    ahead = "" if facts.ahead is None else f" behind {_ahead(facts)}"
    return f"is queued{ahead} in queue {reason.queue!r} ({which}){_pulling(facts)}{_after(reason)}"


def _pulling(facts: ReasonFacts) -> str:
    if facts.nobody_pulls_since is not None:
        return f", from which nobody pulls since {_short(facts.nobody_pulls_since)}"
    if facts.workers:
        who = "1 worker pulls" if facts.workers == 1 else f"{facts.workers} workers pull"
        return f", from which {who}"
    return ", from which somebody pulls" if facts.pulls else ""


def _attempt(reason: Reason, facts: ReasonFacts) -> str:
    who = "a worker that did not say its name" if reason.worker_id is None else reason.worker_id
    since = "" if reason.since is None else f" since {_short(reason.since)}"
    heard = facts.last_heartbeat_at
    beat = "" if heard is None else f", last heard of at {_short(heard)}"
    return f"runs on {who}{since} ({_which_attempt(reason)}){beat}{_limit(reason.wake_at)}"


def _instant(reason: Reason) -> str:
    until = _until(reason.wake_at, "until")
    match reason.waiting_for:
        case WaitReason.BACKOFF:
            attempt = reason.attempt or 0
            left = "" if reason.attempts_max is None else f" of {reason.attempts_max}"
            error = error_line(reason)
            after = "" if error is None else f" after {error}"
            return f"backs off {until}{after} (attempt {attempt}{left} failed)"
        case WaitReason.SLEEP:
            return f"sleeps {until}"
        case WaitReason.DELAY:
            return f"waits for its delay {until}"
        case WaitReason.REPEAT:
            return f"waits for its next iteration {until}"
        case WaitReason.RELEASED:
            again = _until(reason.wake_at, "at")
            return f"was given back by its worker and is dispatched again {again}"
        case WaitReason.SIGNAL | None:
            raise AssertionError("a reason of kind instant waits for one")
        case _:
            assert_never(reason.waiting_for)


def _which_attempt(reason: Reason) -> str:
    limit = "" if reason.attempts_max is None else f" of {reason.attempts_max}"
    return f"attempt {reason.attempt or 1}{limit}"


def _after(reason: Reason) -> str:
    error = error_line(reason)
    return "" if error is None else f", after {error}"


def _ahead(facts: ReasonFacts) -> str:
    return f"{facts.ahead} or more" if facts.ahead_is_bound else f"{facts.ahead}"


def _pause(facts: PauseFacts | None) -> str:
    if facts is None:
        return ""
    who = "" if facts.by is None else f" by {facts.by}"
    why = "" if facts.reason is None else f" ({facts.reason})"
    return f"{who} since {_short(facts.at)}{why}"


def _own_pause(reason: Reason) -> PauseFacts | None:
    if reason.since is None:
        return None
    return PauseFacts(at=reason.since, by=reason.by, reason=reason.why)


def _limit(at: datetime | None) -> str:
    return ", without a limit" if at is None else f", at the latest until {_short(at)}"


def _until(at: datetime | None, word: str) -> str:
    return "at once" if at is None else f"{word} {_short(at)}"


def _short(at: datetime) -> str:
    """To the second: what a person wants to compare with a clock."""
    return format_instant(at.replace(microsecond=0)).replace(".000000", "")
