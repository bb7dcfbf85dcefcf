"""Given, when, then over `core.decide`: a run that a test tells what happens to it.

    story = given(a_task("reserve"), a_task("charge"))
    story.completes("reserve", {"id": 1})
    assert story.status("charge") == "dispatched"

Every decision is held to what is true of all decisions: the same arguments give the same decision,
`seq` has no gaps, every change of a status is in the tables and has a cause, and one that was not
applied leaves the very same run and nothing else.

Rows that a decision asks for come from all that was ever written. With `Story.reloads` (the fixture
`loading` of tests/unit/core runs a test both ways) each event finds the run as an engine loads it
that has just started: with the open steps and few others.
"""

import textwrap
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.support.builders import (
    BEGIN,
    Json,
    a_cause,
    a_definition,
    a_run,
    a_signal,
    json_of,
    raw,
)
from towpath_engine.core.changes import StepsNeeded
from towpath_engine.core.decide import decide
from towpath_engine.core.effects import Announce, Decision, DispatchStep, Effect, Verdict
from towpath_engine.core.events import (
    AttemptLost,
    CancelRequested,
    DecisionContinued,
    DispatchDelivered,
    DispatchVanished,
    Event,
    RedriveRequested,
    ReportReceived,
    RetryRequested,
    RunBegun,
    SignalReceived,
    TimerDue,
)
from towpath_engine.core.gate import OPEN
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Failure, Run, Step, Transition
from towpath_engine.core.parse import parse_definition
from towpath_engine.core.paths import ROOT, owner_of, whole_of_item
from towpath_engine.core.states import (
    OPEN_STEP,
    PART,
    SETTLED_RUN,
    RunStatus,
    StepKind,
    StepStatus,
)
from towpath_engine.core.transitions import RunChange, StepChange, run_after, step_after
from towpath_engine.core.yaml_text import read_yaml
from towpath_protocol.dispatch import StepDispatch
from towpath_protocol.failures import Failure as WireFailure
from towpath_protocol.reports import (
    Again,
    CustomEvent,
    LogLine,
    ReleaseReason,
    Report,
    StepCompleted,
    StepFailed,
    StepHeartbeat,
    StepReleased,
    StepStarted,
)

ROUNDS_MAX = 64
"""How often a decision may ask for rows."""


def decide_checked(
    run: Run, event: Event, now: datetime, rows: Mapping[str, Step] | None = None
) -> Decision:
    """`decide`, held to the laws of every decision; `rows` are those that it may ask for."""
    for _ in range(ROUNDS_MAX):
        try:
            decision = decide(run, event, now)
            break
        except StepsNeeded as needed:
            run = replace(run, steps={**run.steps, **rows_for(needed, rows or {})})
    else:
        raise AssertionError("a decision asks for ever more rows")
    assert decide(run, event, now) == decision, "the same arguments give the same decision"
    if decision.verdict is not Verdict.APPLIED:
        assert decision.run is run
        assert not decision.transitions
        assert not decision.effects
        assert not decision.changed
    seqs = [transition.seq for transition in decision.transitions]
    assert seqs == list(range(run.seq + 1, run.seq + 1 + len(seqs))), "seq has no gaps"
    assert decision.run.seq == run.seq + len(seqs)
    for transition in decision.transitions:
        check_legal(transition)
    return decision


def rows_for(needed: StepsNeeded, rows: Mapping[str, Step]) -> dict[str, Step]:
    """The rows that a decision has asked for."""
    return {
        path: step
        for path, step in rows.items()
        if path in needed.paths
        or step.status in needed.statuses
        or (step.kind in PART and _begin_of(step) in needed.parts_of)
    }


def _begin_of(part: Step) -> str:
    return whole_of_item(part.path) if part.kind is StepKind.ITEM else owner_of(part.path)


def as_loaded(run: Run, rows: Mapping[str, Step]) -> Run:
    """The run as it is loaded: with its open steps, what it came from last and, of its own list,
    what is referenced."""
    wanted = {path for path in run.definition.referenced if owner_of(path) == ROOT}
    wanted.add(run.last_step or "")
    steps = {
        path: step for path, step in rows.items() if path in wanted or step.status in OPEN_STEP
    }
    return replace(run, steps=steps)


def check_legal(transition: Transition) -> None:
    """The transition is in the tables and has a cause."""
    assert transition.cause.type
    assert transition.before is not None
    if transition.step is None:
        after = run_after(RunStatus(transition.before), RunChange(transition.what)).value
    else:
        after = step_after(StepStatus(transition.before), StepChange(transition.what)).value
    assert transition.after == after


class Story:
    """A run, its clock, and all that was decided about it."""

    reloads = False
    """Whether each event finds the run as it is loaded."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.now = BEGIN
        self.gate = OPEN
        """What is closed to dispatches from now on."""
        self.history: list[Transition] = []
        self.effects: list[Effect] = []
        self.last = Decision(run=run)
        self.dispatches: list[DispatchStep] = []
        self.steps: dict[str, Step] = {}
        """Every step as it was last written, as a store would have it."""
        self._events = 0

    # When

    def happens(self, event: Event) -> Decision:
        """Any event, at the story's instant; through the story's gate unless it has its own."""
        if event.gate is OPEN:
            event = replace(event, gate=self.gate)
        if self.reloads and not isinstance(event, RetryRequested | RedriveRequested):
            self.run = as_loaded(self.run, self.steps)
        decision = decide_checked(self.run, event, self.now, self.steps)
        self.last = decision
        self.run = decision.run
        self.history += decision.transitions
        self.effects += decision.effects
        self.dispatches += [e for e in decision.effects if isinstance(e, DispatchStep)]
        self.steps.update({step.path: step for step in decision.changed})
        return decision

    def seed(self) -> str:
        """The seed of the next event."""
        self._events += 1
        return f"{self._events:032x}"

    def begins(self) -> Decision:
        """The run begins."""
        return self.happens(RunBegun(seed=self.seed(), cause=a_cause("start")))

    def token(self, step: str) -> str:
        """The token of the step's live attempt."""
        known = self.run.steps if step in self.run.steps else self.steps
        token = known[step].token
        assert token is not None, f"step {step} has no live attempt"
        return token

    def reports(self, step: str, report: Report, *, token: str | None = None) -> Decision:
        """A worker reports on the step's live attempt, or on the one with `token`."""
        token = token or self.token(step)
        return self.happens(
            ReportReceived(
                seed=self.seed(),
                cause=a_cause("report", report=report, token=token),
                token=token,
                queue="default",
                report=report,
            )
        )

    def completes(
        self,
        step: str,
        output: object = None,
        *,
        metadata: object = msgspec.UNSET,
        again: Again | None = None,
        events: tuple[CustomEvent, ...] = (),
        logs: tuple[LogLine, ...] = (),
        token: str | None = None,
    ) -> Decision:
        """The attempt succeeds."""
        patch = None if metadata is msgspec.UNSET else raw(metadata)
        report = StepCompleted(
            output=raw(output), metadata=patch, again=again, events=events, logs=logs
        )
        return self.reports(step, report, token=token)

    def fails(
        self,
        step: str,
        error_type: str = "Boom",
        *,
        message: str = "it failed",
        retryable: bool = True,
        retry_after_ms: int | None = None,
        details: object = None,
        token: str | None = None,
    ) -> Decision:
        """The attempt fails."""
        error = WireFailure(
            type=error_type,
            message=message,
            retryable=retryable,
            retry_after_ms=retry_after_ms,
            details=raw(details),
        )
        return self.reports(step, StepFailed(error=error), token=token)

    def is_started(self, step: str, worker: str = "w1", *, token: str | None = None) -> Decision:
        """A worker says that it runs the attempt."""
        return self.reports(step, StepStarted(worker_id=worker), token=token)

    def beats(self, step: str, *, worker: str = "w1", progress: object = None) -> Decision:
        """A heartbeat."""
        return self.reports(step, StepHeartbeat(worker_id=worker, progress=raw(progress)))

    def is_released(
        self,
        step: str,
        reason: ReleaseReason = ReleaseReason.DRAIN,
        *,
        worker: str = "w1",
        after_ms: int | None = None,
        progress: object = None,
    ) -> Decision:
        """A worker gives the attempt back."""
        report = StepReleased(
            worker_id=worker, reason=reason, after_ms=after_ms, progress=raw(progress)
        )
        return self.reports(step, report)

    def is_delivered(self, step: str) -> Decision:
        """The queue's consumer was seen to have delivered the dispatch."""
        token = self.token(step)
        cause = a_cause("delivered", token=token)
        return self.happens(DispatchDelivered(seed=self.seed(), cause=cause, token=token))

    def is_lost(self, step: str) -> Decision:
        """The broker gave the dispatch up."""
        token = self.token(step)
        cause = a_cause("lost", token=token, reason="5 deliveries")
        event = AttemptLost(seed=self.seed(), cause=cause, token=token, reason="5 deliveries")
        return self.happens(event)

    def vanishes(self, step: str) -> Decision:
        """The dispatch is not in the stream any more."""
        token = self.token(step)
        cause = a_cause("lost", token=token)
        return self.happens(DispatchVanished(seed=self.seed(), cause=cause, token=token))

    def is_signalled(
        self, name: str = "go", payload: object = None, *, at: datetime | None = None
    ) -> Decision:
        """A signal comes, received now or `at`."""
        signal = a_signal(name, payload, message_id=f"m{self._events}", at=at or self.now)
        event = SignalReceived(seed=self.seed(), cause=a_cause("signal"), signal=signal)
        return self.happens(event)

    def is_cancelled(
        self,
        by: str | None = "me",
        reason: str | None = "why",
        *,
        compensate: bool | None = False,
    ) -> Decision:
        """Somebody cancels the run."""
        event = CancelRequested(
            seed=self.seed(), cause=a_cause("cancel"), by=by, reason=reason, compensate=compensate
        )
        return self.happens(event)

    def is_retried(self, step: str | None = None, *, edited: object = msgspec.UNSET) -> Decision:
        """An operator has the run go on where it ended."""
        self.loads_all()
        given = None if edited is msgspec.UNSET else json_of(edited)
        cause = a_cause("retry", reason="mended")
        return self.happens(RetryRequested(seed=self.seed(), cause=cause, step=step, input=given))

    def is_redriven(self, step: str, *, edited: object = msgspec.UNSET) -> Decision:
        """An operator has the run go on from a step."""
        self.loads_all()
        given = None if edited is msgspec.UNSET else json_of(edited)
        cause = a_cause("redrive", reason="mended")
        return self.happens(RedriveRequested(seed=self.seed(), cause=cause, step=step, input=given))

    def loads_all(self) -> None:
        """The run as it is loaded for an operator: with all its steps."""
        self.run = replace(self.run, steps=dict(self.steps))

    def goes_on(self) -> "Story":
        """The rest of what was split, to its end."""
        while self.run.cursor is not None and self.run.status not in SETTLED_RUN:
            self.continues()
        return self

    def continues(self) -> Decision:
        """The rest of a split decision."""
        return self.happens(DecisionContinued(seed=self.seed(), cause=a_cause()))

    def after(self, **duration: float) -> "Story":
        """Time passes; nothing fires by itself."""
        self.now += timedelta(**duration)
        return self

    def timer_fires(self, path: str | None) -> Decision:
        """The timer of a step (or of the run) fires now, due or not."""
        return self.happens(TimerDue(seed=self.seed(), cause=a_cause("timer"), path=path))

    def time_passes_until_due(self, path: str | None) -> Decision:
        """The clock goes to the stored instant of the step (or the run), and its timer fires."""
        due = self.run.due_at if path is None else self.steps[path].due_at
        assert due is not None, f"{path} waits for no instant"
        self.now = max(self.now, due)
        return self.timer_fires(path)

    # Then

    def message(self, index: int = -1) -> StepDispatch:
        """A dispatch that was emitted, decoded."""
        return msgspec.json.decode(self.dispatches[index].body, type=StepDispatch)

    def sent(self, index: int = -1) -> object:
        """The input of a dispatch that was emitted, decoded."""
        return msgspec.json.decode(self.message(index).input)

    def whats(self, step: str | None = None) -> list[str]:
        """The history's `what`s, of one step if given."""
        return [t.what for t in self.history if step is None or t.step == step]

    def announced(self) -> list[str]:
        """The events that were announced."""
        return [effect.event for effect in self.effects if isinstance(effect, Announce)]

    def output(self) -> object:
        """The run's output, decoded."""
        assert self.run.output is not None
        return msgspec.json.decode(self.run.output)

    def output_of(self, step: str) -> object:
        """The step's output, decoded."""
        output = self.steps[step].output
        assert output is not None, f"step {step} has no output"
        return msgspec.json.decode(output)

    def error(self) -> Failure:
        """The run's error."""
        assert self.run.error is not None, f"the run is {self.run.status} without an error"
        return self.run.error

    def open_paths(self) -> list[str]:
        """The paths of the rows that are open."""
        return sorted(p for p, step in self.run.steps.items() if step.status in OPEN_STEP)

    def errors_of(self, step: str) -> dict[str, dict[str, Any]]:
        """The errors of the parts of a whole, decoded."""
        errors = self.steps[step].errors
        assert errors is not None, f"step {step} has no errors"
        return msgspec.json.decode(errors, type=dict[str, dict[str, Any]])

    def status(self, step: str | None = None) -> str:
        """The status of the run, or of a step; one without a row is pending."""
        if step is None:
            return self.run.status.value
        return self.steps[step].status.value if step in self.steps else "pending"


def given(
    *steps: Json,
    run_input: object = None,
    limits: CoreLimits | None = None,
    start_at: datetime | None = None,
    **fields: object,
) -> Story:
    """A story of a run of these steps that has begun."""
    story = Story(
        a_run(a_definition(*steps, **fields), run_input=run_input, limits=limits, start_at=start_at)
    )
    story.begins()
    return story


def given_yaml(text: str, *, run_input: object = None, limits: CoreLimits | None = None) -> Story:
    """A story of a run of this definition that has begun. `workflow` need not be given."""
    read: Any = read_yaml(textwrap.dedent(text))
    fields: dict[str, Any] = {"steps": read} if isinstance(read, list) else read
    definition = parse_definition({"workflow": "order", **fields})
    story = Story(a_run(definition, run_input=run_input, limits=limits))
    story.begins()
    return story
