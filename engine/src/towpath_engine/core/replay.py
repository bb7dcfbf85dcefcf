"""Decides a recorded history again: each event is rebuilt from its transitions, for `decide`.

Pure. A history that replays differently was written by another version of the engine, under other
limits, or by a fault; the first difference says where to look. Signs of life that changed nothing
(heartbeats, a second `step-started`) are no events of a history: what they left behind comes with
the payload of the transition that ended their attempt.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core.changes import StepsNeeded
from towpath_engine.core.decide import decide
from towpath_engine.core.dispatching import NotDispatched
from towpath_engine.core.effects import Decision, Verdict
from towpath_engine.core.events import DecisionContinued, Event
from towpath_engine.core.model import Cause, Run, Step, Transition
from towpath_engine.core.paths import owner_of, whole_of_item
from towpath_engine.core.replayed_events import rebuild, with_rows
from towpath_engine.core.replayed_reports import Outputs, Unreplayable
from towpath_engine.core.states import PART, SETTLED_RUN, StepKind
from towpath_engine.core.transitions import IllegalTransition, RunChange
from towpath_protocol.errors import ProtocolError
from towpath_protocol.times import parse_instant

_COMPARED: Final = (
    "seq", "at", "what", "step", "before", "after", "attempt", "iteration", "visit", "token",
    "data",
)  # fmt: skip
_ROUNDS_MAX: Final = 1_000
# What `decide` raises for a state that no engine could have come to: a history that was edited.
_FAULTS: Final = (
    IllegalTransition, NotDispatched, AssertionError, LookupError, ValueError,
)  # fmt: skip


class Difference(Struct, frozen=True, kw_only=True):
    """Where a replay parts from the record. None: there is no such transition on that side."""

    seq: int
    fields: tuple[str, ...]
    recorded: Transition | None
    replayed: Transition | None
    reason: str = ""
    """Set when the decision could not be made at all."""


class Turn(Struct, frozen=True, kw_only=True):
    """One decision: what was recorded, the event it was rebuilt as, and what `decide` says now."""

    number: int
    recorded: Sequence[Transition]
    event: Event | None
    before: Run
    after: Run
    changed: Sequence[Step] = ()
    difference: Difference | None = None


def replay(run: Run, history: Sequence[Transition]) -> Iterator[Turn]:
    """Each decision of the history in order; the last one has the difference, if there is one.

    `run` has the facts of the start (core.create; when a delayed one begins, the history says),
    `history` all transitions from seq 1, with whole payloads. Nothing is raised for a history that
    can't be: that is a difference, too.
    """
    run = _as_started(run, history)
    outputs = Outputs(history)
    rows: dict[str, Step] = {}
    for number, recorded in enumerate(decisions_of(history), start=1):
        began = Turn(number=number, recorded=recorded, event=None, before=run, after=run)
        turn = _decide_again(began, outputs, rows)
        if turn.difference is not None:
            turn = _with_no_idle_rest(began, outputs, rows) or turn
        yield turn
        if turn.difference is not None:
            return
        run = turn.after
        rows.update((step.path, step) for step in turn.changed)


def decisions_of(history: Iterable[Transition]) -> Iterator[Sequence[Transition]]:
    """The transitions of each decision: the first one of each has the seed."""
    group: list[Transition] = []
    for transition in history:
        if transition.cause.seed is not None and group:
            yield group
            group = []
        group.append(transition)
    if group:
        yield group


def _as_started(run: Run, history: Sequence[Transition]) -> Run:
    first = history[0] if history else None
    if first is None or first.what != RunChange.DELAYED or first.data is None:
        return run
    try:
        start_at = parse_instant(str(first.data.get("start_at")), "start_at")
    except ProtocolError:
        return run  # the first decision will differ
    return replace(run, start_at=start_at)


# One decision


def _decide_again(turn: Turn, outputs: Outputs, rows: Mapping[str, Step]) -> Turn:
    recorded = turn.recorded
    try:
        alive, event = rebuild(turn.before, recorded, outputs)
        turn = replace(turn, event=event)
        decision = _decide(alive, event, recorded[0].at, rows)
    except Unreplayable as fault:
        return _failed(turn, str(fault))
    except msgspec.MsgspecError as fault:
        return _failed(turn, f"its data or payload can't be read: {fault}")
    except _FAULTS as fault:
        return _failed(turn, f"the decision fails: {type(fault).__name__}: {fault}")
    return replace(
        turn,
        after=decision.run,
        changed=decision.changed,
        difference=_compare(recorded, decision),
    )


def _decide(run: Run, event: Event, now: datetime, rows: Mapping[str, Step]) -> Decision:
    """The decision, with the rows that it asks for, as the replay has come to them."""
    for _ in range(_ROUNDS_MAX):
        try:
            return decide(run, event, now)
        except StepsNeeded as needed:
            run = with_rows(run, _wanted(needed, rows))
    raise LookupError("it asks for rows for ever")


def _with_no_idle_rest(turn: Turn, outputs: Outputs, rows: Mapping[str, Step]) -> Turn | None:
    """The same turn, as it is if the rest of a split decision was gone on with before it and that
    changed nothing: then it is no event of the history. None: there was no such rest."""
    run = turn.before
    if run.cursor is None or run.status in SETTLED_RUN or run.last_at is None:
        return None
    event = DecisionContinued(seed="", cause=Cause(type="engine"))
    try:
        idle = _decide(run, event, run.last_at, rows)
    except _FAULTS:
        return None
    if idle.transitions:
        return None
    again = _decide_again(replace(turn, before=idle.run), outputs, rows)
    return again if again.difference is None else None


def _wanted(needed: StepsNeeded, rows: Mapping[str, Step]) -> list[Step]:
    """Those of the rows that are asked for."""
    found = [rows[path] for path in needed.paths if path in rows]
    if needed.parts_of or needed.statuses:
        found += [
            row
            for row in rows.values()
            if row.status in needed.statuses
            or (row.kind in PART and _begin_of(row) in needed.parts_of)
        ]
    return found


def _begin_of(part: Step) -> str:
    """What the paths of a part and of those beside it begin with."""
    return whole_of_item(part.path) if part.kind is StepKind.ITEM else owner_of(part.path)


def _failed(turn: Turn, reason: str) -> Turn:
    first = turn.recorded[0]
    difference = Difference(seq=first.seq, fields=(), recorded=first, replayed=None, reason=reason)
    return replace(turn, difference=difference)


def _compare(recorded: Sequence[Transition], decision: Decision) -> Difference | None:
    replayed = decision.transitions
    for index in range(max(len(recorded), len(replayed))):
        was = recorded[index] if index < len(recorded) else None
        now = replayed[index] if index < len(replayed) else None
        fields = _different_fields(was, now)
        if fields or was is None or now is None:
            verdict = decision.verdict
            return Difference(
                seq=recorded[0].seq + index,
                fields=fields,
                recorded=was,
                replayed=now,
                reason="" if verdict is Verdict.APPLIED else f"the event is {verdict.value} now",
            )
    return None


def _different_fields(was: Transition | None, now: Transition | None) -> tuple[str, ...]:
    if was is None or now is None:
        return ()
    return tuple(
        name for name in _COMPARED if _plain(getattr(was, name)) != _plain(getattr(now, name))
    )


def _plain(value: object) -> object:
    """As it comes back from JSON, which is how the record has it."""
    return msgspec.json.decode(msgspec.json.encode(value)) if isinstance(value, dict) else value
