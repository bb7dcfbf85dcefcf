"""The reasons of `core.explain` in words: one sentence each, for a person at a terminal."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, assert_never

from msgspec import Struct

from towpath_engine.core.advice import what_helps
from towpath_engine.core.definition import TaskSpec, WaitMode
from towpath_engine.core.explain import Reason, ReasonKind
from towpath_engine.core.gate import HELD_BY_RUN, Scope
from towpath_engine.core.model import Failure, Run
from towpath_engine.core.operations import Operation, refusal_of
from towpath_engine.core.paths import place_of
from towpath_engine.core.states import SETTLED_RUN, RunStatus, StepStatus, WaitReason
from towpath_protocol.times import format_instant

_ERROR_LENGTH_MAX: Final = 200
_STRAYS_MAX: Final = 3
"""Names of signals that nobody takes, in one sentence."""
_ENDINGS: Final[Mapping[StepStatus | None, str]] = {
    StepStatus.CANCELLING: " (being cancelled)",
    StepStatus.COMPENSATING: " (being undone)",
}
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
STUCK: Final = (
    "nothing moves this run, which is a fault of the engine: its log and the dead letters say more"
)


class PauseFacts(Struct, frozen=True, kw_only=True):
    """Who paused something, when and why."""

    at: datetime
    by: str | None = None
    reason: str | None = None


class Outbox(StrEnum):
    """Where a dispatch is on its way to the stream."""

    DONE = "done"
    """Published, as far as is known."""
    FRESH = "fresh"
    """Just written; its confirmation is not noted yet."""
    LATE = "late"
    """Written some time ago and not confirmed since."""


class ReasonFacts(Struct, frozen=True, kw_only=True):
    """What the servers know about a reason; None and False where it was not asked for.

    `ahead` is how many come before this one, `ahead_is_bound` that there may be more of them.
    """

    ahead: int | None = None
    ahead_is_bound: bool = False
    asked_at: datetime | None = None
    """Now, for what is told as an age."""
    workers: int | None = None
    """Workers that take from the queue, by their heartbeats."""
    workers_able: int | None = None
    """Those of them that have the task, or did not say which ones they have."""
    pulls: int | None = None
    """Pull requests that wait at its consumers."""
    nobody_pulls_since: datetime | None = None
    last_heartbeat_at: datetime | None = None
    """Of the worker that runs the attempt; for one that waits, of any that may take it."""
    draining: bool = False
    """The worker that runs the attempt takes no more: it is about to stop."""
    silent: bool = False
    """That was too long ago for a worker that is alive."""
    pause: PauseFacts | None = None
    outbox: Outbox = Outbox.DONE
    stray_signals: tuple[tuple[str, int], ...] = ()
    """Names and numbers of kept signals that no step of the workflow ever waits for."""
    dead_letter_id: str | None = None
    child_status: str | None = None
    """Of the awaited child; None: there is no such run (yet)."""

    @property
    def unknown_task(self) -> bool:
        """Workers take from the queue, and none of them has the task."""
        return bool(self.workers) and self.workers_able == 0


NO_FACTS: Final = ReasonFacts()


def sentence(reason: Reason, facts: ReasonFacts = NO_FACTS) -> str:
    """One reason in words, beginning with the step's path where there is one."""
    text = _body(reason, facts)
    if reason.path is not None:
        text = f"{reason.path}{_ENDINGS.get(reason.ending, '')} {text}"
    if facts.dead_letter_id is not None:
        is_signal = reason.kind is ReasonKind.SIGNAL
        why = "a signal for it was refused" if is_signal else "a report of it could not be applied"
        text += f"; {why}: dead letter {facts.dead_letter_id}"
    return text


def summary(run: Run, sentences: Sequence[str], omitted: int = 0) -> str:
    """The run in one line: its only reason, or how many there are and the first."""
    if run.status in SETTLED_RUN:
        return ending(run)
    if not sentences:
        return STUCK
    more = len(sentences) + omitted - 1
    first = f"{_why_undone(run)}{sentences[0]}"
    return first if not more else f"{first} (and {more} more)"


def _why_undone(run: Run) -> str:
    """Of a run that is undoing its steps: why, before what it waits for."""
    if run.status is not RunStatus.COMPENSATING or run.ending is None:
        return ""
    if run.ending is RunStatus.CANCELLED:
        return f"{_cancelled(run)}, its steps are being undone: "
    error = run.error
    why = "" if error is None else f" ({_failure_line(error)})"
    return f"{run.ending.value}{why}, its steps are being undone: "


def ending(run: Run) -> str:
    """How a settled run ended: where and why, and what has it go on or begin anew."""
    text = f"the run has settled: {_ended_as(run)}"
    error = run.error
    if error is not None:
        place = "" if error.step is None else f" at step {error.step!r}{_of_attempts(run, error)}"
        text += f"{place}, {_failure_line(error)}"
    text += _undoing(run)
    if refusal_of(Operation.RETRY, run.status, run.compensation) is not None:
        return text
    return f"{text}; {what_helps(run)}"


def _undoing(run: Run) -> str:
    """What became of the undoing; a status that says it needs no words."""
    match run.compensation:
        case RunStatus.COMPENSATED if run.status is not RunStatus.COMPENSATED:
            return ", and its steps were undone"
        case RunStatus.COMPENSATION_FAILED:
            return f", and then {_failed_undo(run)}"
        case _:
            return ""


def _failed_undo(run: Run) -> str:
    """Which undo failed and of what, if its row is loaded."""
    for step in run.steps.values():
        if step.status is StepStatus.COMPENSATION_FAILED and step.error is not None:
            return f"the undo of step {step.path!r} failed, {_failure_line(step.error)}"
    return "an undo failed"


def _ended_as(run: Run) -> str:
    match run.status:
        case RunStatus.CANCELLED:
            return _cancelled(run)
        case RunStatus.TIMED_OUT if run.deadline_at is not None:
            return f"timed_out, its deadline was {_short(run.deadline_at)}"
        case status:
            return status.value


def _cancelled(run: Run) -> str:
    who = "" if run.cancelled_by is None else f" by {run.cancelled_by}"
    return f"cancelled{who}" + ("" if run.cancel_reason is None else f" ({run.cancel_reason})")


def _of_attempts(run: Run, error: Failure) -> str:
    step = run.definition.steps.get(place_of(error.step or ""))
    if step is None or error.attempt is None or not isinstance(step.spec, TaskSpec):
        return ""
    return f" (attempt {error.attempt} of {step.spec.retry.max_attempts})"


def error_line(reason: Reason) -> str | None:
    """Type and message of the failure that the step is recovering from, cut to a line."""
    return None if reason.last_error is None else _failure_line(reason.last_error)


def _failure_line(failure: Failure) -> str:
    """Type and message of a failure, cut to a line."""
    text = f"{failure.type}: {failure.message}"
    first = text.splitlines()[0]
    return first if len(first) <= _ERROR_LENGTH_MAX else f"{first[: _ERROR_LENGTH_MAX - 1]}…"


def _body(reason: Reason, facts: ReasonFacts) -> str:  # noqa: PLR0911 - one per kind
    match reason.kind:
        case ReasonKind.START:
            return f"the run begins {_until(reason.wake_at, 'at')}"
        case ReasonKind.CONTINUATION:
            subject = "it" if reason.path is None else "is where the engine"
            return f"{subject} goes on at once: one decision had grown too large"
        case ReasonKind.READY:
            return _ready(reason, facts)
        case ReasonKind.DISPATCH:
            return _dispatch(reason, facts)
        case ReasonKind.ATTEMPT:
            return _attempt(reason, facts)
        case ReasonKind.INSTANT:
            return _instant(reason, facts)
        case ReasonKind.SIGNAL:
            return f"waits for {_signals(reason)}{_limit(reason.wake_at)}{_strays(facts)}"
        case ReasonKind.CHILD:
            return f"waits for its child run {reason.child_run_id}{_child(facts)}"
        case ReasonKind.PAUSE:
            return f"the run is paused{_pause(_own_pause(reason))}; resume it to go on"
        case _:
            assert_never(reason.kind)


def _signals(reason: Reason) -> str:
    names = (reason.signal or "").split(",")
    named = f"signal{'s' * (len(names) > 1)} {_listed(names)}"
    lacking = reason.missing
    if lacking is None or lacking.mode is WaitMode.ANY:
        return named
    if lacking.mode is WaitMode.ALL:
        return f"all of {named}, lacks {_listed(lacking.names)}"
    return f"{lacking.held + lacking.count} of {named}, has {lacking.held}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _child(facts: ReasonFacts) -> str:
    if facts.child_status is None:
        return ", which has not been started yet"
    return f", which is {facts.child_status}"


def _ready(reason: Reason, facts: ReasonFacts) -> str:
    what = "is held back" if reason.path is not None else "the run has not begun"
    scope, _, name = (reason.held_by or "").partition(":")
    if reason.held_by == HELD_BY_RUN:
        return f"{what}: the run is paused"
    if scope == Scope.WINDOW:
        ahead = f" behind {_ahead(facts)}" if facts.ahead else ""
        pulling = _pulling(reason, facts)
        return f"{what}{ahead}: queue {name!r} has as many dispatches as it may{pulling}"
    return f"{what}: {scope} {name!r} is paused{_pause(facts.pause)}"


def _dispatch(reason: Reason, facts: ReasonFacts) -> str:
    which = _which_attempt(reason)
    if facts.outbox is Outbox.FRESH:
        return f"is on its way into queue {reason.queue!r} ({which}){_pulling(reason, facts)}"
    if facts.outbox is Outbox.LATE:
        since = "" if reason.since is None else f" since {_short(reason.since)}"
        return (
            f"waits{since} to be put into queue {reason.queue!r} ({which}): "
            "NATS is away, or its stream is full"
        )
    ahead = "" if facts.ahead is None else f" {_place(facts)}"
    pulling, after = _pulling(reason, facts), _after(reason)
    return f"is queued{ahead} in queue {reason.queue!r} ({which}){pulling}{after}"


def _pulling(reason: Reason, facts: ReasonFacts) -> str:
    if facts.nobody_pulls_since is not None:
        return f", from which nobody pulls since {_short(facts.nobody_pulls_since)}"
    if not facts.workers:
        if facts.pulls:
            return ", from which somebody pulls"
        return ", from which nobody pulls now" if facts.pulls == 0 else ""
    if facts.unknown_task:
        return f", but {_unable(reason, facts)}"
    many = facts.workers > 1
    if facts.pulls == 0:
        beat = "" if facts.last_heartbeat_at is None else f", last heartbeat {_ago(facts)}"
        who = f"{facts.workers} workers do" if many else "1 worker does"
        return f", whose {who} not pull now (busy, or gone{beat})"
    return f", from which {facts.workers} workers pull" if many else ", from which 1 worker pulls"


def _unable(reason: Reason, facts: ReasonFacts) -> str:
    """Said of a task that no worker has; with the fix."""
    who = (
        f"the only worker of queue {reason.queue!r} does not have"
        if facts.workers == 1
        else f"none of the {facts.workers} workers of queue {reason.queue!r} has"
    )
    fix = "start one that has it, or deploy the workflow with the right name and restart the run"
    return f"{who} task {reason.task!r}: {fix}"


def _attempt(reason: Reason, facts: ReasonFacts) -> str:
    who = "a worker that did not say its name" if reason.worker_id is None else reason.worker_id
    since = "" if reason.since is None else f" since {_short(reason.since)}"
    beat = "" if facts.last_heartbeat_at is None else f", last heartbeat {_ago(facts)}"
    limit = _limit(reason.wake_at)
    text = f"runs on {who}{since} ({_which_attempt(reason)})"
    # The limit is the attempt's, not that of what may become of it.
    if facts.silent:
        return f"{text}{limit}{beat}: if it is gone, NATS delivers the attempt again"
    if facts.draining:
        elsewhere = "what it does not end in time it gives back, to run elsewhere"
        return f"{text}{limit}{beat}; the worker drains: {elsewhere}"
    return f"{text}{beat}{limit}"


def _instant(reason: Reason, facts: ReasonFacts) -> str:
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
            count = reason.release_count or 1
            times = "" if count == 1 else f" {count} times in a row"
            why = f"; {_unable(reason, facts)}" if facts.unknown_task else ""
            return f"was given back by its worker{times} and is dispatched again {again}{why}"
        case WaitReason.SIGNAL | WaitReason.CHILD | None:
            raise AssertionError("a reason of kind instant waits for one")
        case _:
            assert_never(reason.waiting_for)


def _which_attempt(reason: Reason) -> str:
    limit = "" if reason.attempts_max is None else f" of {reason.attempts_max}"
    return f"attempt {reason.attempt or 1}{limit}"


def _after(reason: Reason) -> str:
    error = error_line(reason)
    return "" if error is None else f", after {error}"


def _place(facts: ReasonFacts) -> str:
    return f"behind {_ahead(facts)}" if facts.ahead else "first"


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


def _strays(facts: ReasonFacts) -> str:
    if not facts.stray_signals:
        return ""
    shown = ", ".join(
        f"{name!r}" if count == 1 else f"{name!r} ({count} times)"
        for name, count in facts.stray_signals[:_STRAYS_MAX]
    )
    more = "" if len(facts.stray_signals) <= _STRAYS_MAX else " and others"
    return f"; what came is {shown}{more}, for which no step of the workflow waits"


def _ago(facts: ReasonFacts) -> str:
    """The age of the heartbeat: it says at a glance what an instant does not."""
    heard, now = facts.last_heartbeat_at, facts.asked_at
    if heard is None:
        return "never"
    if now is None:
        return f"at {_short(heard)}"
    seconds = max(0, round((now - heard).total_seconds()))
    if seconds < 2 * _MINUTE:
        return f"{seconds} s ago"
    return f"{seconds // _MINUTE} min ago" if seconds < 2 * _HOUR else f"{seconds // _HOUR} h ago"


def _limit(at: datetime | None) -> str:
    return ", without a limit" if at is None else f", at the latest until {_short(at)}"


def _until(at: datetime | None, word: str) -> str:
    return "at once" if at is None else f"{word} {_short(at)}"


def _short(at: datetime) -> str:
    """To the second: what a person wants to compare with a clock."""
    return format_instant(at.replace(microsecond=0)).replace(".000000", "")
