"""What no history of a run may ever show, checked after each decision.

The watcher knows every row as a store would have it, and a model of its own of what must be undone
in which order: it takes nothing on trust from the run that it watches.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from tests.support.kin import Kin
from tests.support.undo_model import UndoModel
from tests.support.ways import Ways
from towpath_engine.core.agenda import Verb
from towpath_engine.core.definition import Definition, ParallelSpec, StepDef
from towpath_engine.core.effects import (
    ConsumeSignal,
    ContinueLater,
    Decision,
    DispatchStep,
    KeepSignal,
    RefuseSignal,
    Verdict,
)
from towpath_engine.core.events import (
    CancelRequested,
    Event,
    RedriveRequested,
    ReportReceived,
    RetryRequested,
    RunBegun,
)
from towpath_engine.core.gate import holder_of_step
from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.core.paths import (
    item_path,
    live_path,
    parts_path,
    place_of,
    told_path,
    upper_of,
    visit_path,
    within,
)
from towpath_engine.core.states import (
    OPEN_STEP,
    PART,
    SETTLED_RUN,
    SETTLED_STEP,
    WHOLE,
    RunStatus,
    StepKind,
    StepStatus,
    WaitReason,
)
from towpath_engine.core.transitions import StepChange
from towpath_protocol.dispatch import StepDispatch

REVIVALS: Final = (RetryRequested, RedriveRequested)
ENTRY_MAX: Final = 12
"""Transitions that may follow when a decision has reached its limit: one entry of the agenda."""
PLAIN_WAITS: Final = frozenset({
    WaitReason.DELAY, WaitReason.SLEEP, WaitReason.BACKOFF, WaitReason.REPEAT, WaitReason.RELEASED,
})  # fmt: skip
"""Waits that an instant ends, and nothing else."""
_ATTEMPT: Final = frozenset({StepStatus.DISPATCHED, StepStatus.RUNNING})
OUTLIVES: Final = frozenset({StepStatus.CANCELLING, StepStatus.COMPENSATING})
"""What may be open although the list that it belongs to is over."""
_BEGUN: Final = frozenset({RunStatus.RUNNING, RunStatus.WAITING})


class Watcher:
    """Everything that was ever true of one run, as far as it must stay so."""

    def __init__(self, run: Run) -> None:
        self._definition = run.definition
        self._chain: dict[str | None, str] = {}
        self._visits: dict[str, int] = {}
        self._facts: set[tuple[str | None, str | None, str]] = set()
        self._tokens: set[str] = set()
        self._keys: dict[str, tuple[str, int, int, bool]] = {}
        self._done: set[tuple[str, int, int]] = set()
        self._kept: set[int] = set()
        self._open: dict[str, Step] = {}
        self.undo = UndoModel()
        self.ways = Ways(run.definition)
        self.kin = Kin()

    def check(
        self, before: Run, event: Event, decision: Decision, rows: Mapping[str, Step]
    ) -> None:
        """Hold the decision, and the `rows` that there are after it, to all invariants."""
        run = decision.run
        if isinstance(event, CancelRequested) and decision.verdict is Verdict.APPLIED:
            wanted = event.compensate
            self.undo.cancel_compensates = (
                run.definition.undo_on_failure if wanted is None else wanted
            )
        for step in decision.changed:
            self._open.pop(step.path, None)
            if step.status in OPEN_STEP:
                self._open[step.path] = step
            check_step(step)
        self._check_history(decision, rows)
        self._check_dispatches(before, event, decision, rows)
        self._check_signals(decision)
        check_agenda(decision)
        self._check_size(before, event, decision)
        if decision.verdict is Verdict.APPLIED and decision.changed:
            self._check_open(run, rows)
        self._check_end(before, event, decision, rows)
        self.kin.check(before, event, decision, self._open.values())
        self.undo.check_chain(run, rows)
        if isinstance(event, ReportReceived) and event.token not in live_tokens(before):
            assert decision.verdict is Verdict.STALE

    # The history

    def _check_history(self, decision: Decision, rows: Mapping[str, Step]) -> None:
        """The transitions of each row, and of the run, are a chain; nothing happens twice."""
        for step in decision.changed:
            if step.path != live_path(step.path):
                # The row of an earlier visit begins where that visit ended.
                self._chain.setdefault(step.path, StepStatus.COMPLETED.value)
        for transition in decision.transitions:
            row = self._row_of(transition)
            before = self._chain.get(row, "pending")
            assert transition.before == before, f"{transition.what} of {row}: it was {before}"
            assert transition.after is not None
            self._chain[row] = transition.after
            if row is not None and row == live_path(row) and transition.visit is not None:
                self._visits[row] = transition.visit
            fact = (row, transition.token, transition.what)
            assert transition.token is None or fact not in self._facts, f"{fact} happens twice"
            self._facts.add(fact)
            self._check_key(transition)
            self.undo.see(transition, self._step_def(transition))
            self.ways.see(transition, rows)
            self._check_lost_effects(decision.run, transition)
        for step in decision.changed:
            written = self._chain.get(step.path, "pending")
            assert step.status.value == written, f"{step.path} is {step.status}, not {written}"
            assert rows[step.path] is step

    def _row_of(self, transition: Transition) -> str | None:
        """The path of the row that a transition is about."""
        step = transition.step
        if step is None or step != live_path(step) or transition.visit is None:
            return step
        kept = visit_path(step, transition.visit)
        is_old = kept in self._chain and self._visits.get(step, 0) > transition.visit
        is_new = transition.what in (StepChange.REVISITED, StepChange.RESET)
        return kept if is_old and not is_new else step

    def _step_def(self, transition: Transition) -> StepDef | None:
        if transition.step is None or transition.step.endswith("]"):
            return None
        return self._definition.steps.get(place_of(transition.step))

    def _check_key(self, transition: Transition) -> None:
        """No attempt begins an iteration that is done."""
        if transition.step is None or transition.before == StepStatus.COMPENSATING:
            return
        key = (live_path(transition.step), transition.visit or 0, transition.iteration or 0)
        if transition.what == StepChange.DISPATCHED:
            assert key not in self._done, "an iteration that is done is dispatched again"
        if transition.what in (StepChange.COMPLETED, StepChange.REPEATED):
            self._done.add(key)

    # What goes out

    def _check_dispatches(
        self, before: Run, event: Event, decision: Decision, rows: Mapping[str, Step]
    ) -> None:
        for effect in decision.effects:
            if not isinstance(effect, DispatchStep):
                continue
            step = next((s for s in decision.changed if s.token == effect.token), None)
            assert step is not None, f"a dispatch of {effect.path} with a token of nobody"
            assert rows[step.path].token == effect.token, "a dispatch is of the current attempt"
            assert (effect.queue, effect.dispatch_no) == (step.queue, step.dispatch_no)
            if effect.dispatch_no > 1:
                continue
            assert effect.token not in self._tokens, "a token belongs to one attempt"
            self._tokens.add(effect.token)
            assert holder_of_step(decision.run, step, event.gate) is None, "the gate is closed"
            self._check_message(step, effect, decision.run.limits.payload_bytes_max)
        if before.ending is not None and not isinstance(event, REVIVALS):
            begun = [t for t in decision.transitions if t.what == StepChange.DISPATCHED]
            assert all(t.before == StepStatus.COMPENSATING for t in begun), "only undos begin"

    def _check_message(self, step: Step, effect: DispatchStep, bytes_max: int) -> None:
        body = msgspec.json.decode(effect.body, type=StepDispatch)
        is_undo = step.status is StepStatus.COMPENSATING
        assert body.step == told_path(step.path)
        assert (body.attempt, body.token, body.task) == (step.attempt, step.token, step.task)
        assert (body.compensation is not None) == is_undo
        identity = (live_path(step.path), step.visit, step.iteration, is_undo)
        known = self._keys.setdefault(body.idempotency_key, identity)
        assert known == identity, f"{body.idempotency_key} is the key of {known} and of {identity}"
        assert step.task == ("undo" if is_undo else "work")
        if body.compensation is not None:
            assert body.compensation.step == body.step
            told = step.output if len(step.output or b"") <= bytes_max else b"null"
            assert bytes(body.compensation.output) == told, "it undoes another output"

    def _check_signals(self, decision: Decision) -> None:
        """Each signal is consumed once, and what was not is kept, after the end for a retry."""
        for effect in decision.effects:
            match effect:
                case KeepSignal():
                    assert effect.signal.number not in self._kept
                    if effect.consumed_by is None:
                        self._kept.add(effect.signal.number)
                case ConsumeSignal():
                    self._kept.remove(effect.number)
                case RefuseSignal():
                    self._kept.discard(effect.signal.number)
                case _:
                    pass
        kept = [signal.number for signal in decision.run.kept]
        assert kept == sorted(kept), "signals are kept in order of arrival"
        assert set(kept) == self._kept

    def _check_size(self, before: Run, event: Event, decision: Decision) -> None:
        """A decision is bounded by its limit, whatever the size of the run."""
        most = before.limits.transitions_per_decision_max
        root = len(self._definition.root.steps)
        # A run that settles ends each step of its own list; one that goes on takes each back.
        times = 2 if isinstance(event, REVIVALS) else 1
        count = len(decision.transitions)
        assert count <= most + ENTRY_MAX + times * root, f"{count} transitions in one decision"

    def _check_lost_effects(self, run: Run, transition: Transition) -> None:
        """An attempt whose effect would be undone is not given up while it may still succeed."""
        step_def = self._step_def(transition)
        attempts = {StepStatus.DISPATCHED.value, StepStatus.RUNNING.value}
        if step_def is None or step_def.compensate is None or step_def.kind is not StepKind.TASK:
            return
        if transition.what != StepChange.CANCELLED or transition.before not in attempts:
            return
        # While the run is not ending, a cancel may still want everything undone.
        wanted = run.ending is None or run.definition.undo_on_failure
        if run.ending is RunStatus.CANCELLED:
            wanted = self.undo.cancel_compensates
        assert not wanted, f"an effect of {transition.step} may be lost"

    # What is open

    def _check_open(self, run: Run, rows: Mapping[str, Step]) -> None:
        tokens = [step.token for step in self._open.values() if step.token is not None]
        assert len(tokens) == len(set(tokens)), "two steps with one token"
        loaded = {path for path, step in run.steps.items() if step.status in OPEN_STEP}
        assert loaded == set(self._open), f"open in the run, not in the rows: {loaded}"
        if not is_split(run) and run.status not in SETTLED_RUN:
            self._check_tree(run, rows)

    def _check_tree(self, run: Run, rows: Mapping[str, Step]) -> None:
        """Once an event is worked off: nothing is open without what it belongs to, and what has
        parts or steps is open only because of these."""
        owners: set[str] = set()
        for step in self._open.values():
            owner = upper_of(step.path)
            owners.add(owner)
            if step.status in OUTLIVES or owner == "":
                continue
            assert rows[owner].status in OPEN_STEP, f"{step.path} is open, {owner} is not"
        for step in self._open.values():
            if step.kind in WHOLE and _has_below(step):
                _check_parts(self._definition, step, rows)
            if step.kind in PART:
                self._check_list(step.path)
            assert not _has_below(step) or step.path in owners, (
                f"{step.path} is open without a reason"
            )
        self._check_list("")
        if run.status in _BEGUN:
            leaves = [s for s in self._open.values() if not _has_below(s)]
            assert leaves, "a run that has begun has an open step"
            waits = all(step.status is StepStatus.WAITING for step in leaves)
            assert (run.status is RunStatus.WAITING) == waits, f"{run.status}, waiting: {waits}"
        if run.status is RunStatus.COMPENSATING:
            assert all(s.status in OUTLIVES for s in self._open.values()), "nothing but undos"
            undos = [s for s in self._open.values() if s.status is StepStatus.COMPENSATING]
            cancelling = len(self._open) - len(undos)
            assert len(undos) <= 1, "one undo at a time"
            assert bool(undos) != bool(cancelling), "undoing waits for what is being cancelled"

    def _check_list(self, owner: str) -> None:
        """A sequence has one open step at a time."""
        if self._definition.lists[place_of(owner)].is_dag:
            return
        found = [
            step.path
            for step in self._open.values()
            if step.status not in OUTLIVES
            and step.kind not in PART
            and upper_of(step.path) == owner
        ]
        assert len(found) <= 1, f"{found} are open at once"

    def _check_end(
        self, before: Run, event: Event, decision: Decision, rows: Mapping[str, Step]
    ) -> None:
        run = decision.run
        if before.status in SETTLED_RUN and not isinstance(event, REVIVALS):
            assert decision.run is before, "settled is settled"
        if run.status not in SETTLED_RUN:
            is_begun = not isinstance(event, RunBegun) or decision.verdict is Verdict.APPLIED
            assert not is_begun or is_alive(run, self._open.values()), "a live run has a reason"
            return
        assert not self._open, f"open in a settled run: {sorted(self._open)}"
        assert run.settled_at is not None
        unsettled = [n for n in self._definition.root.steps if _status(rows, n) not in SETTLED_STEP]
        assert not unsettled, f"steps never reached are skipped: {unsettled}"
        if before.status not in SETTLED_RUN or isinstance(event, REVIVALS):
            self.undo.check_end(run)


def part_paths(definition: Definition, whole: Step) -> list[str]:
    """The paths of the parts of a whole that were started, in order."""
    assert whole.parts is not None, f"{whole.path} has no counters"
    started, begin = whole.parts.started, parts_path(whole.path, whole.visit)
    spec = definition.steps[place_of(whole.path)].spec
    if isinstance(spec, ParallelSpec):
        return [within(begin, name) for name in spec.branches[:started]]
    return [item_path(begin, index) for index in range(started)]


def _check_parts(definition: Definition, whole: Step, rows: Mapping[str, Step]) -> None:
    """The counters of an open whole are those of its rows."""
    started = [rows[path] for path in part_paths(definition, whole)]
    opened = sum(part.status in OPEN_STEP for part in started)
    failed = sum(part.status is StepStatus.FAILED for part in started)
    size = sum(len(one.output or b"") for one in started if one.status is StepStatus.COMPLETED)
    parts = whole.parts
    assert parts is not None
    assert parts.started <= parts.total
    assert parts.size == size, f"{whole.path} counts {parts.size} bytes of {size}"
    assert (parts.open, parts.failed) == (opened, failed), (
        f"{whole.path} counts {parts}, but {opened} are open and {failed} have failed"
    )


def _status(rows: Mapping[str, Step], path: str) -> StepStatus:
    return rows[path].status if path in rows else StepStatus.PENDING


def live_tokens(run: Run) -> set[str]:
    """The tokens of the attempts that live."""
    return {step.token for step in run.steps.values() if step.token is not None}


def is_split(run: Run) -> bool:
    """Whether something is left to be done at once; what only a retry may go on with is not."""
    return run.cursor is not None and not run.cursor.split("\n")[-1].startswith("later ")


def check_agenda(decision: Decision) -> None:
    """Between two decisions nothing is left to do, or the run goes on with it at once; a settled
    run has only what a retry may go on with."""
    run = decision.run
    for entry in (run.cursor or "").splitlines():
        verb, _, path = entry.removeprefix("later ").partition(" ")
        assert Verb(verb) is not Verb.LATER, f"{entry!r} is put off twice"
        assert not path or place_of(path) in {*run.definition.steps, *run.definition.lists}
        assert run.status not in SETTLED_RUN or entry.startswith("later "), f"{entry!r} is left"
    if decision.verdict is Verdict.APPLIED:
        goes_on = any(isinstance(effect, ContinueLater) for effect in decision.effects)
        assert goes_on == is_split(run), f"what is left: {run.cursor!r}, goes on: {goes_on}"
    assert run.status in SETTLED_RUN or run.cursor is None or is_split(run), run.cursor


def is_alive(run: Run, opened: Collection[Step]) -> bool:
    """Whether something will have the run go on: an instant, a message, an operator. An open step
    that is no whole and no part has one of these, see `check_step`."""
    if run.paused_at is not None or is_split(run):
        return True
    if run.status is RunStatus.PENDING:
        return run.start_at is not None or run.held_by is not None
    return any(not _has_below(step) for step in opened)


def _has_below(step: Step) -> bool:
    """Whether the open step is open because of others: a whole or a part that has begun."""
    return step.kind in WHOLE | PART and step.status is StepStatus.RUNNING


def check_step(step: Step) -> None:
    """A token exactly while an attempt lives, a wait exactly while it waits, one finite clock."""
    if step.kind in WHOLE | PART and step.status is not StepStatus.COMPENSATING:
        _check_whole(step)
        return
    live = step.stage in _ATTEMPT
    assert (step.token is not None) == live, f"{step.path} is {step.status}: token {step.token}"
    assert (step.waiting_for is not None) == (step.stage is StepStatus.WAITING)
    assert (step.held_by is not None) == (step.stage is StepStatus.READY)
    if step.stage is StepStatus.RUNNING or step.status is StepStatus.CANCELLING:
        assert step.attempt_deadline_at is not None, f"{step.path} has no clock"
    if step.waiting_for in PLAIN_WAITS:
        assert step.wake_at is not None
    if step.waiting_for is WaitReason.SIGNAL:
        assert step.signal
    if step.waiting_for is WaitReason.CHILD:
        assert step.child_run_id is not None
    if step.status in SETTLED_STEP:
        assert step.due_at is None
    if step.status is not StepStatus.COMPENSATING:
        assert (step.settled_at is not None) == (step.status in SETTLED_STEP)


def _check_whole(step: Step) -> None:
    """A whole or a part runs, waits for its delay, or has settled; it has no attempt."""
    assert step.token is None
    assert step.held_by is None
    assert step.status is not StepStatus.CANCELLING, "only an attempt is cancelled slowly"
    if step.kind in PART:
        assert step.status is not StepStatus.WAITING
    if step.status in SETTLED_STEP:
        assert step.due_at is None
    assert (step.settled_at is not None) == (step.status in SETTLED_STEP)
