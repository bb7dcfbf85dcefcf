"""The working set of one decision: the run as it becomes, and what is to be told about it.

The only mutable object of the core. It lives for one call of `decide` and is turned into a
`Decision` at the end. Every change of a status goes through `move` and `move_run`, which look it
up in the transition tables and write the history.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from towpath_engine.core import chance
from towpath_engine.core.definition import StepDef
from towpath_engine.core.effects import (
    Announce,
    CancelAttempt,
    Decision,
    DispatchStep,
    Effect,
    RevokeToken,
)
from towpath_engine.core.gate import OPEN, Gate
from towpath_engine.core.model import Cause, Run, Step, Transition
from towpath_engine.core.states import OPEN_STEP, SETTLED_RUN, SETTLED_STEP, StepStatus
from towpath_engine.core.stepmap import StepMap
from towpath_engine.core.transitions import RunChange, StepChange, run_after, step_after
from towpath_protocol import codec
from towpath_protocol.events import EventName

Facts = Mapping[str, object]
"""Small facts of a transition for a reader; JSON-able, never payloads."""

NOT_REACHED: Final = "not reached"
"""Reason of steps that are skipped because the run settled."""

_ANNOUNCED: Final = frozenset(name.value for name in EventName)
# These can happen more than once to one token. The history names it among the facts, so that
# (step, token, what) stays unique.
_REPEATABLE: Final = frozenset({StepChange.ANNOUNCED, StepChange.REDISPATCHED})


class StepNotLoaded(Exception):  # noqa: N818 - named for what happened
    """The run was loaded without a step that the decision needs: a bug of the loader."""


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
        self._reached = bytearray(run.reached)
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
        """The step as it is now, or None when it has no row (yet)."""
        return self._steps.get(path) or self._before.find(path)

    def definition_of(self, path: str) -> StepDef:
        """What the definition says about the step."""
        return self.run.definition.steps[path]

    def open_steps(self) -> list[Step]:
        """The steps that are open now, in path order."""
        opened = {**self._before.open, **self._steps}
        return [opened[path] for path in sorted(opened) if opened[path].status in OPEN_STEP]

    @property
    def open_count(self) -> int:
        """How many steps are open now; costs what the decision has changed, not what is open."""
        opened = self._before.open
        return len(opened) + sum(
            (step.status in OPEN_STEP) - (path in opened) for path, step in self._steps.items()
        )

    def step_of_token(self, token: str) -> Step | None:
        """The open step whose live attempt has this token."""
        return next((step for step in self.open_steps() if step.token == token), None)

    def decode(self, name: str, value: bytes) -> object:
        """The value of JSON text; decoded once a decision for each `name` while it is the same."""
        known = self._decoded.get(name)
        if known is not None and known[0] is value:
            return known[1]
        decoded: object = codec.loads(value)
        self._decoded[name] = (value, decoded)
        return decoded

    # Which steps were reached

    def reached(self, index: int) -> bool:
        """Whether the step with this index of the definition was ever entered."""
        place, bit = divmod(index, 8)
        return place < len(self._reached) and bool(self._reached[place] >> bit & 1)

    def reach(self, index: int) -> None:
        """Remember that it was."""
        place, bit = divmod(index, 8)
        if place >= len(self._reached):
            self._reached.extend(bytes(place + 1 - len(self._reached)))
        self._reached[place] |= 1 << bit

    def unreach(self, index: int) -> None:
        """Forget that it was: a redrive takes the step back."""
        place, bit = divmod(index, 8)
        if place < len(self._reached):
            self._reached[place] &= ~(1 << bit)

    def unreached(self, step_def: StepDef) -> Step:
        """A step that the run has not come to, or not since a redrive took it back. Its next visit
        has a number that none before had, whether or not its row is loaded."""
        row = self.step(step_def.path)
        return Step(
            path=step_def.path,
            kind=step_def.kind,
            visit=self.run.visit_base + 1,
            revival_count=self.run.revival_count,
            last_output=None if row is None else row.last_output,
        )

    # Changing it

    def put(self, step: Step) -> None:
        """Keep a step whose status did not change."""
        self._steps[step.path] = step

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

    def skip_unreached(self, paths: Iterable[tuple[str, StepDef]]) -> None:
        """End the steps that a settling run never reached as skipped. They are in the history,
        but nobody is told of each."""
        told = len(self.effects)
        for path, step_def in paths:
            step = self.step(path)
            if not self.reached(step_def.index) and (
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
        if what in _ANNOUNCED:
            self.emit(
                Announce(
                    event=what,
                    seq=self.run.seq,
                    step=None if step is None else step.path,
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
                step=step.path,
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
                CancelAttempt(queue=step.queue, path=step.path, token=step.token, reason=reason)
            )

    def new_token(self, step: Step) -> str:
        """A token that no attempt of any run has or had."""
        self._token_count += 1
        counters = (step.visit, step.iteration, step.attempt, self.run.seq, self._token_count)
        return chance.new_token(self._seed, self.run.id, step.path, *counters)

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
            reached=bytes(self._reached),
            steps=self._before.derive(changed, self._forgettable(changed)),
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

    def _forgettable(self, changed: tuple[Step, ...]) -> list[str]:
        """Settled steps that nothing will ask for again: a run in memory stays small."""
        needed = self.run.definition.referenced
        gone = [
            step.path
            for step in changed
            if step.status in SETTLED_STEP
            and step.path not in needed
            and step.path != self.run.last_step
        ]
        previous = self._base.last_step
        if previous is not None and previous != self.run.last_step and previous not in needed:
            step = self.step(previous)
            if step is not None and step.status is not StepStatus.PENDING:
                gone.append(previous)
        return [path for path in dict.fromkeys(gone) if not self._is_open(path)]

    def _is_open(self, path: str) -> bool:
        step = self.step(path)
        return step is not None and step.status in OPEN_STEP


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
