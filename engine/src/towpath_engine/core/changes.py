"""The working set of one decision: the run as it becomes, and what is to be told about it.

The only mutable object of the core. It lives for one call of `decide` and is turned into a
`Decision` at the end. Every change of a status goes through `move` and `move_run`, which look it
up in the transition tables and write the history.
"""

import heapq
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from towpath_engine.core import chance
from towpath_engine.core.decoding import decoded
from towpath_engine.core.definition import StepDef
from towpath_engine.core.effects import (
    Announce,
    CancelAttempt,
    Decision,
    DispatchStep,
    Effect,
    RevokeToken,
)
from towpath_engine.core.forgetting import forgettable
from towpath_engine.core.gate import OPEN, Gate
from towpath_engine.core.model import Cause, Run, Step, Transition
from towpath_engine.core.paths import ROOT, name_of, place_of, told_path, upper_of, within
from towpath_engine.core.states import (
    BEGUN_RUN,
    OPEN_STEP,
    OUTLIVING_STEP,
    PART,
    SETTLED_RUN,
    StepStatus,
    WaitReason,
)
from towpath_engine.core.stepmap import Counts, StepMap, counts_of
from towpath_engine.core.transitions import RunChange, StepChange, run_after, step_after
from towpath_protocol.events import EventName

Facts = Mapping[str, object]
"""Small facts of a transition for a reader; JSON-able, never payloads."""

NOT_REACHED: Final = "not reached"
"""Reason of steps that are skipped because the run settled."""

_ANNOUNCED: Final = frozenset(name.value for name in EventName)
# These can happen more than once to one token. The history names it among the facts, so that
# (step, token, what) stays unique.
_REPEATABLE: Final = frozenset({StepChange.ANNOUNCED, StepChange.REDISPATCHED})


class StepsNeeded(Exception):  # noqa: N818 - named for what it asks
    """The decision needs rows that are not loaded: of these paths, all parts of these wholes, all
    that have one of these statuses. Nothing has changed; decide again with them."""

    def __init__(
        self,
        *,
        paths: Iterable[str] = (),
        parts_of: Iterable[str] = (),
        statuses: Iterable[StepStatus] = (),
    ) -> None:
        self.paths = frozenset(paths)
        self.parts_of = frozenset(parts_of)
        self.statuses = frozenset(statuses)
        wanted = sorted({*self.paths, *self.parts_of, *self.statuses})
        super().__init__(f"rows are needed: {', '.join(wanted[:10])}")


class Changes:
    """What one decision has changed so far. `now` never goes back behind the last transition."""

    def __init__(
        self, run: Run, *, seed: str, cause: Cause, now: datetime, gate: Gate = OPEN
    ) -> None:
        self.run = run
        self.gate = gate
        self.now = now if run.last_at is None or now > run.last_at else run.last_at
        self.effects: list[Effect] = []
        self.transitions: list[Transition] = []
        self._base = run
        self._before = StepMap.of(run.steps)
        self._cause = cause
        self._seed = seed
        self._steps: dict[str, Step] = {}
        self.agenda: list[str] = []
        """What is to be done, the next entry last: see core.agenda."""
        self._counts = self._before.counts
        self._opened: dict[str, dict[str, bool]] = {}
        self._waiting: dict[str, set[str]] = {}
        """Paths of the steps that began to wait for signals in this decision, by place."""
        self._token_count = 0
        self._decoded: dict[str, tuple[bytes, object]] = {}
        self._payloads: dict[int, dict[str, object]] = {}

    # What is there

    @property
    def settled(self) -> bool:
        """Whether the run has settled."""
        return self.run.status in SETTLED_RUN

    @property
    def full(self) -> bool:
        """Whether this decision has as many transitions as one may have."""
        return len(self.transitions) >= self.run.limits.transitions_per_decision_max

    def step(self, path: str) -> Step | None:
        """The step as it is now, or None when it has no row, or none that is loaded."""
        return self._steps.get(path) or self._before.find(path)

    def need(self, path: str) -> Step:
        """The row at this path, which there is. Raises StepsNeeded when it is not loaded."""
        row = self.step(path)
        if row is None:
            raise StepsNeeded(paths=(path,))
        return row

    def need_all(self, paths: Iterable[str]) -> list[Step]:
        """The rows at these paths, which there are. Raises StepsNeeded for all that are not
        loaded."""
        rows = {path: self.step(path) for path in paths}
        missing = [path for path, row in rows.items() if row is None]
        if missing:
            raise StepsNeeded(paths=missing)
        return [row for row in rows.values() if row is not None]

    def definition_of(self, path: str) -> StepDef:
        """What the definition says about the step."""
        return self.run.definition.steps[place_of(path)]

    def open_steps(self) -> list[Step]:
        """The steps that are open now, in path order. Costs as much as is open."""
        opened = {**self._before.open, **self._steps}
        return [opened[path] for path in sorted(opened) if opened[path].status in OPEN_STEP]

    @property
    def counts(self) -> Counts:
        """How many steps are open now, and how they stand."""
        return self._counts

    def open_below(self, path: str, count_max: int | None = None) -> list[str]:
        """The paths of the open steps right below an owner or a whole: the first `count_max`, in
        order of path."""
        before = self._before.below(path)
        now = self._opened.get(path)
        if now is None:
            found = before.keys()
        else:
            found = {one for one in before if now.get(one, True)}
            found |= {one for one, is_open in now.items() if is_open}
        if count_max is not None and len(found) > count_max:
            return heapq.nsmallest(count_max, found)
        return sorted(found)

    def is_empty(self, owner: str) -> bool:
        """Whether no step of this owner's list is open."""
        now = self._opened.get(owner, {})
        left = len(self._before.below(owner)) + sum(
            is_open - (path in self._before.below(owner)) for path, is_open in now.items()
        )
        return left == 0

    def first_wait(self, place: str) -> Step | None:
        """Of the steps of this place that wait for signals and may take one, the one that has
        waited longest; of those that began at the same instant, the first in order of path."""
        for path in chain(self._before.waits(place), sorted(self._waiting.get(place, ()))):
            step = self.step(path)
            if step is not None and step.waiting_for is WaitReason.SIGNAL and self.is_live(step):
                return step
        return None

    def is_live(self, step: Step) -> bool:
        """Whether something may still happen to the step: it is open and so is all that it belongs
        to, in a run that is not ending. What is being cancelled or undone outlives these."""
        if step.status in OUTLIVING_STEP:
            return True
        if self.run.ending is not None or step.status not in OPEN_STEP:
            return False
        return self.is_owner_open(upper_of(step.path))

    def is_owner_open(self, path: str) -> bool:
        """Whether a row to which others belong is open, and all that it belongs to."""
        while path != ROOT:
            row = self.step(path)
            if row is None or row.status is not StepStatus.RUNNING:
                return False
            path = upper_of(path)
        return self.run.status in BEGUN_RUN and self.run.ending is None

    def step_of_token(self, token: str) -> Step | None:
        """The step whose live attempt has this token, if something may still happen to it."""
        step = self._before.of_token(token)
        return step if step is not None and self.is_live(step) else None

    def step_of_child(self, run_id: str) -> Step | None:
        """The step that waits for this child run, if something may still happen to it."""
        step = self._before.of_child(run_id)
        return step if step is not None and self.is_live(step) else None

    def decode(self, name: str, value: bytes) -> object:
        """The value of JSON text; decoded once a decision for each `name` while it is the same."""
        known = self._decoded.get(name)
        if known is not None and known[0] is value:
            return known[1]
        found = decoded(value)
        self._decoded[name] = (value, found)
        return found

    # What an owner knows of its list

    def reached(self, owner: str, index: int) -> bool:
        """Whether the step with this index in the list of the owner was ever entered."""
        place, bit = divmod(index, 8)
        bitmap = self._reached_of(owner)
        return place < len(bitmap) and bool(bitmap[place] >> bit & 1)

    def reached_count(self, owner: str) -> int:
        """How many of them were."""
        return int.from_bytes(self._reached_of(owner), "little").bit_count()

    def reach(self, owner: str, index: int) -> None:
        """Remember that it was."""
        bitmap = int.from_bytes(self._reached_of(owner), "little") | 1 << index
        self._set_reached(owner, bitmap)

    def unreach(self, owner: str, index: int) -> None:
        """Forget that it was: a redrive takes the step back."""
        bitmap = int.from_bytes(self._reached_of(owner), "little") & ~(1 << index)
        self._set_reached(owner, bitmap)

    def _reached_of(self, owner: str) -> bytes:
        return self.run.reached if owner == ROOT else self.need(owner).reached

    def _set_reached(self, owner: str, bitmap: int) -> None:
        reached = bitmap.to_bytes((bitmap.bit_length() + 7) // 8, "little")
        if owner == ROOT:
            self.run = replace(self.run, reached=reached)
        else:
            self.put(replace(self.need(owner), reached=reached))

    def owner_last_step(self, owner: str) -> str | None:
        """Path of the step of the owner's list that settled last; None: it has just begun."""
        return self.run.last_step if owner == ROOT else self.need(owner).last_step

    def owner_came_from(self, owner: str) -> str | None:
        """Path of the step of the owner's list that ran last: as `owner_last_step`, but what was
        skipped is passed over."""
        path = self.owner_last_step(owner)
        row = None if path is None else self.need(path)
        return row.came_from if row is not None and row.status is StepStatus.SKIPPED else path

    def settle_last(self, path: str) -> None:
        """Remember with its owner that this step settled last."""
        owner = upper_of(path)
        if owner == ROOT:
            self.run = replace(self.run, last_step=path)
        else:
            self.put(replace(self.need(owner), last_step=path))

    def unreached(self, step_def: StepDef, owner: str = ROOT) -> Step:
        """A step that the run has not come to, or not since a redrive took it back. Its next visit
        has a number that none before had, whether or not its row is loaded."""
        path = within(owner, name_of(step_def.path))
        row = self.step(path)
        return Step(
            path=path,
            kind=step_def.kind,
            visit=(self.run.visit_base if owner == ROOT else 0) + 1,
            revival_count=self.run.revival_count,
            last_output=None if row is None else row.last_output,
        )

    # Changing it

    def put(self, step: Step) -> None:
        """Keep a step whose status did not change."""
        before = self.step(step.path)
        self._steps[step.path] = step
        was_open = before is not None and before.status in OPEN_STEP
        is_open = step.status in OPEN_STEP
        if was_open or is_open:
            self._counts = self._counts.changed(counts_of(before), counts_of(step))
        if was_open != is_open:
            self._opened.setdefault(upper_of(step.path), {})[step.path] = is_open
        if step.waiting_for is WaitReason.SIGNAL:
            self._waiting.setdefault(place_of(step.path), set()).add(step.path)

    def move(self, step: Step, change: StepChange, facts: Facts | None = None) -> Step:
        """Write `step` with the status after `change`, and the transition; announce it if the
        change is one that is announced. Raises IllegalTransition."""
        after = step_after(step.status, change)
        # The token of an attempt that just ended is gone from the step, but belongs to its history.
        prior = self.step(step.path)
        token = step.token or (None if prior is None else prior.token)
        moved = replace(step, status=after)
        if change in _REPEATABLE and token is not None:
            facts = {**(facts or {}), "token": token}
            token = None
        self._record(
            Transition(
                seq=self.run.seq + 1,
                at=self.now,
                what=change.value,
                step=step.path,
                before=step.status.value,
                after=after.value,
                attempt=step.attempt or None,
                iteration=step.iteration,
                visit=step.visit,
                token=token,
                cause=self._next_cause(),
                data=None if facts is None else dict(facts),
            )
        )
        self.put(moved)
        self._announce(change.value, step=moved, facts=facts)
        return moved

    def move_run(self, change: RunChange, facts: Facts | None = None) -> None:
        """The same for the run itself. Raises IllegalTransition."""
        after = run_after(self.run.status, change)
        self._record(
            Transition(
                seq=self.run.seq + 1,
                at=self.now,
                what=change.value,
                before=self.run.status.value,
                after=after.value,
                cause=self._next_cause(),
                data=None if facts is None else dict(facts),
            )
        )
        self.run = replace(self.run, status=after)
        self._announce(change.value, step=None, facts=facts)

    def skip_unreached(self) -> None:
        """End the steps of the workflow's own list that a settling run never reached as skipped.
        They are in the history, but nobody is told of each."""
        told = len(self.effects)
        definition = self.run.definition
        for path in definition.root.steps:
            step_def = definition.steps[path]
            step = self.step(path)
            if not self.reached(ROOT, step_def.index) and (
                step is None or step.status is StepStatus.PENDING
            ):
                ended = replace(self.unreached(step_def), settled_at=self.now)
                self.move(ended, StepChange.SKIPPED, {"reason": NOT_REACHED})
        del self.effects[told:]

    def remember(self, **values: object) -> None:
        """Keep values of the event with the first transition of this decision, for a replay of the
        history: what no other row keeps (core.payloads)."""
        self._payloads.setdefault(0, {}).update(values)

    def remember_here(self, **values: object) -> None:
        """The same with the transition that was just recorded."""
        self._payloads.setdefault(len(self.transitions) - 1, {}).update(values)

    def _record(self, transition: Transition) -> None:
        self.transitions.append(transition)
        self.run = replace(self.run, seq=transition.seq, last_at=self.now)

    def _next_cause(self) -> Cause:
        if self.transitions:
            return self._cause
        return replace(self._cause, seed=self._seed)

    # Telling others

    def emit(self, effect: Effect) -> None:
        """Add an effect; effects are carried out in the order in which they were emitted."""
        self.effects.append(effect)

    def _announce(self, what: str, *, step: Step | None, facts: Facts | None) -> None:
        # A branch or an item is no step: what becomes of it is told by its steps and its whole.
        if what in _ANNOUNCED and (step is None or step.kind not in PART):
            self.emit(
                Announce(
                    event=what,
                    seq=self.run.seq,
                    step=None if step is None else told_path(step.path),
                    attempt=None if step is None else step.attempt or None,
                    data={} if facts is None else dict(facts),
                )
            )

    def announce_custom(self, step: Step, name: str, data: Raw) -> None:
        """Announce an event of the worker's own. It has a transition of its own, and so a `seq`."""
        self.move(step, StepChange.ANNOUNCED, {"name": name})
        self.emit(
            Announce(
                event=EventName.CUSTOM.value,
                seq=self.run.seq,
                step=told_path(step.path),
                attempt=step.attempt,
                data={"name": name, "data": data},
            )
        )

    def revoke(self, step: Step, *, reason: str | None) -> None:
        """End the live attempt of the step, if there is one. `reason` None: a report ended it
        itself; else its worker is told to stop, and why."""
        if step.token is None or step.queue is None:
            return
        level = self.run.priority
        self.emit(
            RevokeToken(queue=step.queue, level=level, token=step.token, purge=reason is not None)
        )
        if reason is not None:
            self.emit(
                CancelAttempt(
                    queue=step.queue, path=told_path(step.path), token=step.token, reason=reason
                )
            )

    def new_token(self, step: Step) -> str:
        """A token that no attempt of any run has or had."""
        self._token_count += 1
        counters = (step.visit, step.iteration, step.attempt, self.run.seq, self._token_count)
        return chance.new_token(self._seed, self.run.id, step.path, *counters)

    def new_child(self, step: Step) -> str:
        """The id of a run that no run has or had."""
        self._token_count += 1
        counters = (step.visit, self.run.seq, self._token_count)
        return chance.new_run_id(self._seed, self.now, self.run.id, step.path, *counters)

    def new_share(self, step: Step) -> float:
        """A number in [0, 1) for the jitter of this attempt's backoff."""
        return chance.new_share(
            self._seed, self.run.id, step.path, step.visit, step.iteration, step.attempt
        )

    # The outcome

    def decision(self) -> Decision:
        """Everything as a value. With nothing changed, the run is the very one that was given."""
        if self.run is self._base and not self._steps:
            return Decision(run=self._base, effects=tuple(self.effects))
        changed = tuple(self._steps[path] for path in sorted(self._steps))
        run = replace(
            self.run,
            version=self._base.version + 1,
            steps=self._before.derive(
                changed, forgettable(self.run, self._base, self._before, self._steps)
            ),
        )
        return Decision(
            run=run,
            transitions=self._with_payloads(),
            effects=_without_dead_dispatches(self.effects),
            changed=changed,
        )

    def _with_payloads(self) -> tuple[Transition, ...]:
        for index, values in self._payloads.items():
            if index < len(self.transitions):
                payload = msgspec.json.encode(values)
                self.transitions[index] = replace(self.transitions[index], payload=payload)
        return tuple(self.transitions)


def _without_dead_dispatches(effects: list[Effect]) -> tuple[Effect, ...]:
    """Leave out dispatches whose token was revoked later in the same decision."""
    revoked = {effect.token for effect in effects if isinstance(effect, RevokeToken)}
    if not revoked:
        return tuple(effects)
    return tuple(
        effect
        for effect in effects
        if not (isinstance(effect, DispatchStep) and effect.token in revoked)
    )
