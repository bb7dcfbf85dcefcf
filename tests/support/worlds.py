"""A world that carries out what the core decides: stream, workers, children, a store of rows.

Each decision is held to all invariants (tests/support/invariants.py). The run is loaded anew every
now and then, with only what a load gives; rows that a decision asks for come out of the store.
"""

import hashlib
from typing import Final

from msgspec.structs import replace

from tests.support.builders import a_cause
from tests.support.drawn_reports import reports_of
from tests.support.invariants import REVIVALS, Watcher
from tests.support.meanings import check_meaning
from tests.support.scenario import Story, check_legal
from tests.support.tallies import Tally
from towpath_engine.core.changes import StepsNeeded
from towpath_engine.core.decide import decide
from towpath_engine.core.definition import Definition, RunSpec
from towpath_engine.core.effects import (
    CancelChild,
    Decision,
    DispatchStep,
    RevokeToken,
    StartChild,
    Verdict,
)
from towpath_engine.core.events import ChildSettled, Event, ReportReceived
from towpath_engine.core.gate import gate_of_history
from towpath_engine.core.model import Failure, Run, Step
from towpath_engine.core.paths import ROOT, owner_of, place_of, whole_of_item
from towpath_engine.core.states import OPEN_STEP, PART, RunStatus, StepKind
from towpath_protocol.reports import Report, StepCompleted, StepFailed, StepReleased

ROUNDS_MAX: Final = 64
"""How often a decision may ask for rows."""
_CHILD_ENDS: Final = (
    RunStatus.COMPLETED,
    RunStatus.COMPLETED,
    RunStatus.COMPLETED,
    RunStatus.FAILED,
    RunStatus.COMPENSATED,
    RunStatus.TIMED_OUT,
    RunStatus.CANCELLED,
    RunStatus.COMPENSATING,
)
"""The last one stands for a child that can't be started."""
_FINAL_REPORTS: Final = (StepCompleted, StepFailed, StepReleased)


class Servers(Story):
    """A story whose messages travel. `harmless` keeps out whatever may change the outcome: a world
    of pure chaos ends as a calm one does. `thorough`: decisions are made several times over."""

    def __init__(
        self, run: Run, tally: Tally, *, harmless: bool = False, thorough: bool = True
    ) -> None:
        super().__init__(run)
        self.first = run
        """The run as it was created."""
        self.tally = tally
        self.harmless = harmless
        self.thorough = thorough
        self.watcher = Watcher(run)
        self.stream: list[DispatchStep] = []
        self.reports_sent: list[ReportReceived] = []
        self.seen: list[Event] = []
        self.tokens_ever: list[str] = []
        self.children: dict[str, str] = {}
        """Child runs that were asked for and have not settled, with the step that did."""
        self.children_cancelled: list[str] = []
        self.happened = 0

    # Events

    def happens(self, event: Event) -> Decision:
        """Decide, check, write the rows, send what is to be sent."""
        self.happened += 1
        event = replace(event, gate=self.gate)
        before, decision = self._decided(event)
        self.tally.add(before, event, decision)
        for transition in decision.transitions:
            check_legal(transition)
        self.last = decision
        self.run = decision.run
        self.history += decision.transitions
        self.effects += decision.effects
        self.steps.update({step.path: step for step in decision.changed})
        self.watcher.check(before, event, decision, self.steps)
        check_meaning(self.run.definition, decision, self.steps)
        for effect in decision.effects:
            self._carry_out(effect)
        return decision

    def _decided(self, event: Event) -> tuple[Run, Decision]:
        """The decision, made of the run as it is in memory or as it would be loaded."""
        if isinstance(event, REVIVALS) and self.happened % 2:
            # A run of few steps is loaded whole for an operator.
            self.run = replace(self.run, steps=dict(self.steps))
        turn = self.happened % 3
        if turn == 0:
            kept = self._asked(self.run, event)[1] if self.thorough else None
            self.run = self.as_loaded()
            loaded, decision = self._asked(self.run, event)
            if kept is not None:
                assert decision.transitions == kept.transitions, "a cached run and a loaded one"
                assert decision.effects == kept.effects
                assert decision.changed == kept.changed
        else:
            loaded, decision = self._asked(self.run, event)
        if self.thorough and turn == 1:
            assert decide(loaded, event, self.now) == decision, "the same arguments, another end"
        if self.thorough and turn == 2 and decision.verdict is Verdict.APPLIED:
            rebuilt = replace(event, gate=gate_of_history(decision.transitions))
            assert decide(loaded, rebuilt, self.now) == decision, "a history replays"
        if decision.verdict is not Verdict.APPLIED:
            assert decision.run is loaded
            assert not decision.transitions
            assert not decision.effects
            assert not decision.changed
        seqs = [transition.seq for transition in decision.transitions]
        assert seqs == list(range(loaded.seq + 1, loaded.seq + 1 + len(seqs))), "seq has gaps"
        assert decision.run.seq == loaded.seq + len(seqs)
        return loaded, decision

    def _asked(self, run: Run, event: Event) -> tuple[Run, Decision]:
        """Decide, with the rows that the decision asks for."""
        for _ in range(ROUNDS_MAX):
            try:
                return run, decide(run, event, self.now)
            except StepsNeeded as needed:
                self.tally.loads[type(event).__name__] += 1
                found = self._rows_for(needed)
                run = replace(run, steps={**run.steps, **found})
        raise AssertionError("a decision asks for ever more rows")

    def _rows_for(self, needed: StepsNeeded) -> dict[str, Step]:
        """The rows as a store finds them."""
        return {
            path: step
            for path, step in self.steps.items()
            if path in needed.paths
            or step.status in needed.statuses
            or (step.kind in PART and begin_of(step) in needed.parts_of)
        }

    def as_loaded(self) -> Run:
        """The run as an engine that has just started loads it: without most settled steps."""
        wanted = {path for path in self.run.definition.referenced if owner_of(path) == ROOT}
        wanted |= {self.run.last_step or ""}
        steps = {
            path: step
            for path, step in self.steps.items()
            if path in wanted or step.status in OPEN_STEP
        }
        return replace(self.run, steps=steps)

    def _carry_out(self, effect: object) -> None:
        match effect:
            case DispatchStep():
                self.stream.append(effect)
                self.tokens_ever.append(effect.token)
                self.tally.dispatches += 1
            case RevokeToken():
                self.stream = [d for d in self.stream if d.token != effect.token]
            case StartChild():
                self.children[effect.child_run_id] = effect.path
            case CancelChild():
                # One that has settled already has nothing to say any more.
                if effect.child_run_id in self.children:
                    self.children_cancelled.append(effect.child_run_id)
            case _:
                pass

    # What workers and children do

    def row_of_token(self, token: str) -> Step | None:
        """The row whose attempt has the token; None: the attempt is over."""
        return next((step for step in self.run.steps.values() if step.token == token), None)

    def work(self, dispatch: DispatchStep, choice: int) -> None:
        """A worker takes the dispatch from the stream and sends its reports."""
        self.stream.remove(dispatch)
        step = self.row_of_token(dispatch.token)
        assert step is not None, f"a dispatch of {dispatch.path} is in the stream, but is over"
        salt = self.run.definition.fingerprint
        for report in reports_of(step, choice, salt, harmless=self.harmless):
            self._send(dispatch, report)

    def reports_at_once(self, row: Step, choice: int) -> None:
        """A worker that has the attempt reports on it, and each report arrives at once."""
        salt = self.run.definition.fingerprint
        assert row.token is not None
        assert row.queue is not None
        for report in reports_of(row, choice, salt, harmless=self.harmless):
            cause = a_cause("report", report=report, token=row.token)
            event = ReportReceived(
                seed=self.seed(), cause=cause, token=row.token, queue=row.queue, report=report
            )
            self.seen.append(event)
            self.happens(event)

    def _send(self, dispatch: DispatchStep, report: Report) -> None:
        cause = a_cause("report", report=report, token=dispatch.token)
        self.reports_sent.append(
            ReportReceived(
                seed=self.seed(),
                cause=cause,
                token=dispatch.token,
                queue=dispatch.queue,
                report=report,
            )
        )

    def deliver(self, index: int, *, twice: bool = False) -> None:
        """A report that was sent arrives; now and then it arrives twice."""
        event = self.reports_sent[index % len(self.reports_sent)]
        if self.harmless:
            # What one worker says of an attempt comes in order, or a release could count for
            # nothing: it would come before the start of another worker, and that one's after it.
            said = (event.token, event.report.worker_id)
            event = next(e for e in self.reports_sent if (e.token, e.report.worker_id) == said)
        self.reports_sent.remove(event)
        self.seen.append(event)
        self.happens(replace(event, seed=self.seed()))
        if twice:
            decision = self.happens(replace(event, seed=self.seed()))
            if isinstance(event.report, _FINAL_REPORTS):
                assert decision.verdict is not Verdict.APPLIED, "a duplicate changes nothing"

    def settles(self, child_run_id: str, *, cancelled: bool = False) -> None:
        """A child run has settled, or is there, or can't be started; its parent is told, now and
        then first of what does not end its wait."""
        path = self.children.pop(child_run_id, None)
        row = None if path is None else self.steps.get(path)
        identity = "" if row is None else f"{row.path}/{row.visit}/{row.revival_count}"
        digest = hashlib.blake2b((self.run.definition.fingerprint + identity).encode()).digest()
        is_detached = path is not None and is_of_detached(self.run.definition, path)
        if is_detached or digest[1] % 4 == 0:
            self._is_told(child_run_id, RunStatus.PENDING)
            if is_detached and not cancelled:
                return
        status = RunStatus.CANCELLED if cancelled else _CHILD_ENDS[digest[0] % len(_CHILD_ENDS)]
        self._is_told(child_run_id, status)
        again = self._is_told(child_run_id, status)
        assert again.verdict is not Verdict.APPLIED, "a child settles once"

    def _is_told(self, child_run_id: str, status: RunStatus) -> Decision:
        fails = status not in (RunStatus.COMPLETED, RunStatus.PENDING)
        event = ChildSettled(
            seed=self.seed(),
            cause=a_cause("child"),
            child_run_id=child_run_id,
            # One that can't be started is still pending, and its parent is told why.
            status=RunStatus.PENDING if status is RunStatus.COMPENSATING else status,
            output=b'"child"' if status is RunStatus.COMPLETED else None,
            failure=Failure(type="Boom", message="the child failed") if fails else None,
        )
        self.seen.append(event)
        return self.happens(event)

    def outcome(self) -> object:
        """What must not depend on the order of messages."""
        steps = {
            path: (step.status, step.output, step.visit, step.iteration, step.attempt)
            for path, step in self.steps.items()
        }
        error = None if self.run.error is None else (self.run.error.type, self.run.error.step)
        ends = (self.run.status, self.run.compensation, self.run.output, self.run.metadata, error)
        return ends, steps


def begin_of(part: Step) -> str:
    """What the paths of a part and of its siblings begin with."""
    return whole_of_item(part.path) if part.kind is StepKind.ITEM else owner_of(part.path)


def is_of_detached(definition: Definition, path: str) -> bool:
    """Whether the step starts a child for which nobody waits."""
    spec = definition.steps[place_of(path)].spec
    return isinstance(spec, RunSpec) and spec.detached
