"""A world that carries out what the core decides, in any order.

The world holds what lies between engine and workers: dispatches in the stream, reports on their
way, instants. A list of numbers says what happens next; so Hypothesis can shrink a history like
any list. After the numbers the world is calm: everything is delivered once, in order, until the
run has settled.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from tests.support.builders import BEGIN, a_cause
from tests.support.definitions import SIGNALS, definitions
from tests.support.drawn_reports import reports_of
from tests.support.scenario import Story
from towpath_engine.core.decide import decide
from towpath_engine.core.effects import (
    ConsumeSignal,
    Decision,
    DispatchStep,
    KeepSignal,
    RevokeToken,
    Verdict,
)
from towpath_engine.core.events import (
    AttemptLost,
    DispatchDelivered,
    DispatchVanished,
    Event,
    PauseRequested,
    RedriveRequested,
    ReportReceived,
    ResumeRequested,
    RetryRequested,
    RunBegun,
    StepAdmitted,
)
from towpath_engine.core.explain import reasons_of
from towpath_engine.core.gate import OPEN, Gate, gate_of_history, holder_of_step
from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.core.states import (
    OPEN_STEP,
    SETTLED_RUN,
    SETTLED_STEP,
    StepStatus,
    WaitReason,
)
from towpath_engine.core.transitions import StepChange
from towpath_protocol.reports import Report

__all__ = ["Tally", "World", "definitions"]

ONE_ENTRY_MAX = 8
"""Transitions that may follow when a decision has reached its limit: one step, and the end."""
CALM_STEPS_MAX = 5_000
"""No generated run needs as many; one that does is not coming to its end."""


NOTHING_HELD = "-"
"""No path: nothing is held back."""
_GATES = (
    OPEN,
    OPEN,
    Gate(paused=frozenset({"queue:default"})),
    Gate(paused=frozenset({"workflow:random"}), full={"default": 0}),
    Gate(full={"default": 2}),
    Gate(paused=frozenset({"task:work"}), full={"default": 3, "other": 0}),
)
"""What can be closed in a history."""


class Tally:
    """How many histories there were, and how often each change happened in each status."""

    def __init__(self) -> None:
        self.histories = 0
        self.run_pairs: Counter[tuple[str, str]] = Counter()
        self.step_pairs: Counter[tuple[str, str]] = Counter()
        self.events: Counter[tuple[str, str, str]] = Counter()
        self.ends: Counter[str] = Counter()

    def add(self, run: Run, event: Event, decision: Decision) -> None:
        """Count a decision."""
        self.events[(run.status.value, type(event).__name__, decision.verdict.value)] += 1
        for transition in decision.transitions:
            pairs = self.run_pairs if transition.step is None else self.step_pairs
            pairs[(transition.before or "", transition.what)] += 1

    def lines(self) -> list[str]:
        """The report."""
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        lines = [f"{self.histories} histories: {ends}"]
        for title, counts in (("run", self.run_pairs), ("step", self.step_pairs)):
            lines += [f"  {title} {a:<12} {b:<22} {n}" for (a, b), n in sorted(counts.items())]
        lines += [f"  {a:<10} {b:<18} {c:<8} {n}" for (a, b, c), n in sorted(self.events.items())]
        return lines


class World(Story):
    """A story whose messages travel. `chaos` keeps out whatever may change the outcome: a world
    of pure chaos ends as a calm one does."""

    def __init__(self, run: Run, tally: Tally, *, harmless: bool = False) -> None:
        super().__init__(run)
        self.tally = tally
        self.harmless = harmless
        self.stream: list[DispatchStep] = []
        self.reports_sent: list[ReportReceived] = []
        self.reports_seen: list[ReportReceived] = []
        self.tokens_ever: set[str] = set()
        self.signals_sent = 0
        self.kept: set[int] = set()
        self.chain: dict[str | None, str] = {}
        self.facts: set[tuple[str | None, str | None, str]] = set()
        self.done: set[tuple[str, int, int]] = set()

    # Events

    def happens(self, event: Event) -> Decision:
        if self._events % 3 == 0 and not isinstance(event, _REVIVALS):
            kept = decide(self.run, event, self.now)
            self.run = self.reloaded()
            again = decide(self.run, event, self.now)
            assert again.transitions == kept.transitions, "a cached run and a loaded one are one"
            assert again.changed == kept.changed
        before = self.run
        event = replace(event, gate=self.gate)
        decision = super().happens(event)
        self.tally.add(before, event, decision)
        self._check(before, event, decision)
        for effect in decision.effects:
            if isinstance(effect, DispatchStep):
                self.stream.append(effect)
            elif isinstance(effect, RevokeToken):
                self.stream = [d for d in self.stream if d.token != effect.token]
        return decision

    def reloaded(self) -> Run:
        """The run as an engine that has just started loads it: without most settled steps."""
        wanted = self.run.definition.referenced | {self.run.last_step}
        steps = {
            path: step
            for path, step in self.steps.items()
            if path in wanted or step.status in OPEN_STEP
        }
        return replace(self.run, steps=steps)

    def _check(self, before: Run, event: Event, decision: Decision) -> None:
        """The invariants 1 to 5 of ARCHITECTURE."""
        run = decision.run
        if run.status in SETTLED_RUN:
            assert not any(step.status in OPEN_STEP for step in run.steps.values())
            assert run.settled_at is not None
            unsettled = [p for p in run.definition.steps if self.status(p) == "pending"]
            assert not unsettled, "steps never reached are skipped"
        elif not isinstance(event, RunBegun) or decision.verdict is Verdict.APPLIED:
            assert reasons_of(run), "a run that has not settled has a reason"
        if before.status in SETTLED_RUN and not isinstance(event, _REVIVALS):
            assert decision.run is before, "settled is settled"
        live = [step.token for step in run.steps.values() if step.token is not None]
        assert len(live) == len(set(live))
        for effect in decision.effects:
            if isinstance(effect, DispatchStep) and effect.dispatch_no == 1:
                assert effect.token not in self.tokens_ever, "a token belongs to one attempt"
                self.tokens_ever.add(effect.token)
        for step in decision.changed:
            _check_step(step)
        # A run that settles ends each step; one that goes on takes each back, and may settle then.
        times = 2 if isinstance(event, _REVIVALS) else 1
        bound = run.limits.transitions_per_decision_max + times * len(run.definition.steps)
        assert len(decision.transitions) <= bound + ONE_ENTRY_MAX, "a decision is bounded"
        self._check_history(decision)
        self._check_gate(before, event, decision)
        self._check_signals(decision)
        if isinstance(event, ReportReceived) and event.token not in _live_tokens(before):
            assert decision.verdict is Verdict.STALE

    def _check_gate(self, before: Run, event: Event, decision: Decision) -> None:
        """Nothing new is dispatched through a closed gate, and the history tells which it was."""
        for effect in decision.effects:
            if isinstance(effect, DispatchStep) and effect.dispatch_no == 1:
                step = self.steps[effect.path]
                assert holder_of_step(self.run, step, event.gate) is None
        rebuilt = replace(event, gate=gate_of_history(decision.transitions))
        if decision.verdict is Verdict.APPLIED:
            assert decide(before, rebuilt, self.now) == decision, "a history replays"

    def _check_history(self, decision: Decision) -> None:
        """The transitions of each step, and of the run, are a chain; nothing happens twice."""
        for transition in decision.transitions:
            before = self.chain.get(transition.step, "pending")
            assert transition.before == before, f"{transition.what}: it was {before}"
            assert transition.after is not None
            self.chain[transition.step] = transition.after
            fact = (transition.step, transition.token, transition.what)
            assert transition.token is None or fact not in self.facts, "nothing happens twice"
            self.facts.add(fact)
            self._check_key(transition)
        for step in decision.changed:
            assert step.status.value == self.chain.get(step.path), "the row is what was written"

    def _check_key(self, transition: Transition) -> None:
        """No attempt gets the idempotency key of an iteration that is done."""
        if transition.step is None:
            return
        key = (transition.step, transition.visit or 0, transition.iteration or 0)
        if transition.what == StepChange.DISPATCHED:
            assert key not in self.done, "an idempotency key comes twice"
        if transition.what in (StepChange.COMPLETED, StepChange.REPEATED):
            self.done.add(key)

    def _check_signals(self, decision: Decision) -> None:
        """Each signal is consumed once, and what was not is kept, after the end for a retry."""
        for effect in decision.effects:
            if isinstance(effect, KeepSignal):
                self.kept.add(effect.signal.number)
            if isinstance(effect, ConsumeSignal | KeepSignal) and effect.consumed_by is not None:
                number = (
                    effect.number if isinstance(effect, ConsumeSignal) else self.run.signal_count
                )
                self.kept.remove(number)
        assert {signal.number for signal in self.run.kept} == self.kept

    # What the workers do

    def work(self, dispatch: DispatchStep, choice: int) -> None:
        """A worker takes the dispatch from the stream and sends its reports."""
        self.stream.remove(dispatch)
        step = self.steps[dispatch.path]
        salt = self.run.definition.fingerprint
        for report in reports_of(step, choice, salt, harmless=self.harmless):
            self._send(dispatch.token, report)

    def _send(self, token: str, report: Report) -> None:
        self.reports_sent.append(
            ReportReceived(
                seed=self.seed(),
                cause=a_cause("report", report=report, token=token),
                token=token,
                queue="default",
                report=report,
            )
        )

    def deliver(self, index: int) -> None:
        """A report that was sent arrives."""
        event = self.reports_sent.pop(index % len(self.reports_sent))
        self.reports_seen.append(event)
        self.happens(replace(event, seed=self.seed()))

    # What may happen next

    def act(self, number: int) -> None:
        """One thing happens; `number` says which."""
        # Spread evenly: Hypothesis likes small numbers, and a world of small numbers is dull.
        digest = hashlib.blake2b(f"{len(self.history)}/{number}".encode(), digest_size=4).digest()
        which, detail = digest[0] % 18, int.from_bytes(digest[1:], "big")
        acts: tuple[tuple[range, Callable[[int], object]], ...] = (
            (range(3), self._act_on_stream),
            (range(3, 6), self._act_on_reports),
            (range(6, 7), self._replay),
            (range(7, 9), self._act_on_time),
            (range(9, 10), self._lose),
            (range(10, 12), self._see_delivery),
            (range(12, 13), self._signal),
            (range(13, 14), lambda _: self.continues()),
            (range(14, 15), lambda _: self.begins()),
            (range(15, 16), self._meddle),
            (range(16, 18), self._hold),
        )
        next(act for numbers, act in acts if which in numbers)(detail)

    def _act_on_reports(self, detail: int) -> None:
        if self.reports_sent:
            self.deliver(detail)

    def _act_on_stream(self, detail: int) -> None:
        if self.stream:
            dispatch = self.stream[detail % len(self.stream)]
            if detail % 5 == 4:
                # A redelivery: the same dispatch is worked on twice.
                self.stream.append(dispatch)
            self.work(dispatch, detail)

    def _replay(self, detail: int) -> None:
        if self.reports_seen:
            event = self.reports_seen[detail % len(self.reports_seen)]
            self.happens(event)

    def _act_on_time(self, detail: int) -> None:
        paths = [None, *sorted(self.run.steps), *sorted(self.run.steps)]
        path = paths[detail % len(paths)] if detail % 4 else None
        if self.harmless:
            self._pass_time()
        elif detail % 3 == 0:
            # Short jumps meet waits and timeouts in order, long ones find several due at once.
            self.now += timedelta(seconds=detail % 120 if detail % 2 else detail % 12)
        self.timer_fires(path)

    def _pass_time(self) -> None:
        """Time goes on as far as it may without a timeout: to the end of a plain wait."""
        waits = [s.wake_at for s in self.run.steps.values() if s.waiting_for in _PLAIN_WAITS]
        if self.run.status.value == "pending" and self.run.start_at is not None:
            waits.append(self.run.start_at)
        wakes = [at for at in waits if at is not None]
        if wakes:
            self.now = max(self.now, min(wakes))

    def _lose(self, detail: int) -> None:
        """The stream loses a dispatch; the engine finds out, or the broker gives it up."""
        if not self.stream:
            return
        dispatch = self.stream[detail % len(self.stream)]
        cause = a_cause("lost", token=dispatch.token)
        if detail % 2 or self.harmless:
            self.stream.remove(dispatch)
            self.happens(DispatchVanished(seed=self.seed(), cause=cause, token=dispatch.token))
        else:
            self.happens(
                AttemptLost(
                    seed=self.seed(), cause=cause, token=dispatch.token, reason="5 deliveries"
                )
            )

    def _see_delivery(self, detail: int) -> None:
        tokens = sorted(_live_tokens(self.run)) or sorted(self.tokens_ever)
        if tokens:
            token = tokens[detail % len(tokens)]
            cause = a_cause("delivered", token=token)
            self.happens(DispatchDelivered(seed=self.seed(), cause=cause, token=token))
            if detail % 3 == 0:
                # And then the stream was wiped.
                lost = a_cause("lost", token=token)
                self.happens(DispatchVanished(seed=self.seed(), cause=lost, token=token))

    def _signal(self, detail: int) -> None:
        if self.harmless and self.signals_sent >= len(SIGNALS) * 40:
            return
        name = SIGNALS[self.signals_sent % len(SIGNALS)]
        self.signals_sent += 1
        if not self.harmless:
            self.is_signalled(name, detail)
        else:
            # Which signal a wait takes depends on how many came; not on what they hold.
            self.is_signalled(name, "same", at=BEGIN)

    def _meddle(self, detail: int) -> None:
        if self.harmless:
            return
        match detail % 12:
            case 5 | 11:
                self.is_cancelled()
            case 0 | 1:
                self._operate(detail // 12, retry=True)
            case 2 | 3 | 4:
                self._operate(detail // 12, retry=False)
            case _:
                pass

    def _operate(self, detail: int, *, retry: bool) -> None:
        """An operator has the run go on, or is told why it does not; some edit the input."""
        paths = [*self.run.definition.steps, "nowhere"]
        step = paths[detail % len(paths)]
        edited = {"n": 1, "edited": detail % 100} if detail % 3 == 0 else msgspec.UNSET
        if retry:
            self.is_retried(step if detail % 4 == 0 else None, edited=edited)
        else:
            self.is_redriven(step, edited=edited)

    def _hold(self, detail: int) -> None:
        """An operator pauses or resumes, queues fill or empty, what is held is tried again."""
        held = self._held()
        step = self.run.steps.get(held or "")
        match detail % 6:
            case 0:
                self.happens(PauseRequested(seed=self.seed(), cause=a_cause("pause")))
            case 1:
                self.happens(ResumeRequested(seed=self.seed(), cause=a_cause("resume")))
            case 2 | 4 if not self.harmless and step is not None and step.due_at is not None:
                self.time_passes_until_due(step.path)
            case 2 | 3:
                self.closes(detail // 6)
            case _:
                self.closes(detail // 6)
                self.is_admitted(held)

    def closes(self, detail: int) -> None:
        """What is closed to dispatches changes."""
        self.gate = _GATES[detail % len(_GATES)]

    def is_admitted(self, path: str | None) -> Decision:
        """What was held back is tried again."""
        event = StepAdmitted(seed=self.seed(), cause=a_cause("admitted"), path=path)
        return self.happens(event)

    # To the end

    def calm(self) -> None:
        """Deliver everything, once, in order, until the run has settled."""
        self.gate = OPEN
        for _ in range(CALM_STEPS_MAX):
            if self.run.status in SETTLED_RUN:
                return
            if self.run.cursor is not None:
                self.continues()
            elif self.run.seq == 0:
                self.begins()
            elif self.run.paused_at is not None:
                self.happens(ResumeRequested(seed=self.seed(), cause=a_cause("resume")))
            elif self._held() != NOTHING_HELD:
                self.is_admitted(self._held())
            elif self.reports_sent:
                self.deliver(0)
            elif self.stream:
                self.work(self.stream[0], 0)
            else:
                self._calm_wait()
        raise AssertionError(f"the run does not settle: {reasons_of(self.run)}")

    def _held(self) -> str | None:
        """The path of a ready step; None when the run itself is held."""
        if self.run.held_by is not None:
            return None
        ready = (path for path, step in self.run.steps.items() if step.held_by is not None)
        return next(ready, NOTHING_HELD)

    def _calm_wait(self) -> None:
        awaited = [
            step.signal
            for step in self.run.steps.values()
            if step.waiting_for is WaitReason.SIGNAL and step.signal is not None
        ]
        if awaited and (self.harmless or len(self.history) % 2):
            self.is_signalled(awaited[0], "same", at=BEGIN)
            return
        lost = [s for s in self.run.steps.values() if s.token is not None and s.worker_id is None]
        due = [path for path, step in self.run.steps.items() if step.due_at is not None]
        if lost and (self.harmless or not due):
            token = lost[0].token
            assert token is not None
            cause = a_cause("lost", token=token)
            self.happens(DispatchVanished(seed=self.seed(), cause=cause, token=token))
            return
        path = min(due, key=lambda p: str(self.run.steps[p].due_at)) if due else None
        self.time_passes_until_due(path)

    def outcome(self) -> object:
        """What must not depend on the order of messages."""
        steps = {
            path: (step.status, step.output, step.visit, step.iteration, step.attempt)
            for path, step in self.steps.items()
        }
        error = None if self.run.error is None else (self.run.error.type, self.run.error.step)
        return (self.run.status, self.run.output, self.run.metadata, error, steps)


_REVIVALS = (RetryRequested, RedriveRequested)
_PLAIN_WAITS = {
    WaitReason.DELAY,
    WaitReason.SLEEP,
    WaitReason.BACKOFF,
    WaitReason.REPEAT,
    WaitReason.RELEASED,
}


def _live_tokens(run: Run) -> set[str]:
    return {step.token for step in run.steps.values() if step.token is not None}


def _check_step(step: Step) -> None:
    """A token exactly while an attempt lives, a wait exactly while it waits, one finite clock."""
    live = step.status in (StepStatus.DISPATCHED, StepStatus.RUNNING)
    assert (step.token is not None) == live
    assert (step.waiting_for is not None) == (step.status is StepStatus.WAITING)
    assert (step.held_by is not None) == (step.status is StepStatus.READY)
    if step.status is StepStatus.RUNNING:
        assert step.attempt_deadline_at is not None
    if step.waiting_for in _PLAIN_WAITS:
        assert step.wake_at is not None
    if step.status not in OPEN_STEP:
        assert step.due_at is None
    assert (step.settled_at is not None) == (step.status in SETTLED_STEP)
