"""Pauses and full queues, as the core sees them: what is held, by what, and how it goes on."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.support.builders import (
    a_cause,
    a_definition,
    a_pass,
    a_run,
    a_sleep,
    a_task,
    a_wait,
)
from tests.support.scenario import Story, given
from towpath_engine.core.effects import Decision, DispatchStep, Verdict
from towpath_engine.core.events import PauseRequested, ResumeRequested, RunBegun, StepAdmitted
from towpath_engine.core.explain import reasons_of
from towpath_engine.core.gate import OPEN, Gate, gate_of_history, holder_of_run, holder_of_step
from towpath_engine.core.model import Cause, Run, Step
from towpath_engine.core.states import RunStatus, StepStatus

CLOSED = Gate(paused=frozenset({"queue:default"}))


def paused(*holders: str) -> Gate:
    return Gate(paused=frozenset(holders))


def admitted(story: Story, path: str | None, gate: Gate = OPEN) -> Decision:
    event = StepAdmitted(seed=story.seed(), cause=a_cause("admitted"), path=path, gate=gate)
    return story.happens(event)


def is_paused(story: Story, by: str | None = None, reason: str | None = None) -> Decision:
    cause = Cause(type="pause", by=by, reason=reason)
    return story.happens(PauseRequested(seed=story.seed(), cause=cause))


def is_resumed(story: Story, gate: Gate = OPEN) -> Decision:
    return story.happens(ResumeRequested(seed=story.seed(), cause=a_cause("resume"), gate=gate))


def completes(story: Story, step: str, gate: Gate) -> Decision:
    """The attempt succeeds while this is closed."""
    story.gate = gate
    decision = story.completes(step)
    story.gate = OPEN
    return decision


def a_held_step(gate: Gate = CLOSED, **fields: object) -> Story:
    """A run whose second step is held back."""
    story = given(a_task("first"), a_task("second", **fields))
    completes(story, "first", gate)
    assert story.status("second") == "ready"
    return story


# What holds


@pytest.mark.parametrize(
    ("gate", "held_by"),
    [
        (paused("queue:default"), "queue:default"),
        (paused("task:second"), "task:second"),
        (paused("workflow:order"), "workflow:order"),
        (paused("version:order@1"), "version:order@1"),
        (Gate(full={"default": 0}), "window:default"),
        (Gate(full={"default": 2}), "window:default"),
        (paused("queue:default", "task:second"), "task:second"),
        (paused("queue:default", "workflow:order", "version:order@1"), "workflow:order"),
        (replace(CLOSED, full={"default": 0}), "queue:default"),
    ],
)
def test_a_closed_gate_holds_the_dispatch_and_says_by_what(gate: Gate, held_by: str) -> None:
    story = given(a_task("first"), a_task("second"))
    completes(story, "first", gate)
    step = story.steps["second"]
    assert (step.status, step.held_by, step.token) == (StepStatus.READY, held_by, None)
    assert step.attempt == 1
    assert story.run.status is RunStatus.RUNNING
    assert story.history[-1].data == {"held_by": held_by}
    assert len(story.dispatches) == 1


@pytest.mark.parametrize(
    "gate",
    [
        paused("queue:other", "task:third", "workflow:mail", "version:order@2"),
        Gate(full={"default": 3}),
        Gate(full={"other": 0}),
        OPEN,
    ],
)
def test_what_is_closed_to_others_holds_nothing(gate: Gate) -> None:
    story = given(a_task("first"), a_task("second"))
    completes(story, "first", gate)
    assert story.status("second") == "dispatched"


def test_a_run_that_is_undoing_goes_on_although_its_workflow_is_paused() -> None:
    story = given(a_task("first"))
    step = story.steps["first"]
    undoing = replace(story.run, status=RunStatus.COMPENSATING)
    gate = paused("workflow:order", "version:order@1")
    assert holder_of_step(undoing, step, gate) is None
    assert holder_of_step(undoing, step, CLOSED) == "queue:default"
    assert holder_of_step(replace(undoing, paused_at=story.now), step, gate) == "run"


def test_steps_without_a_worker_are_held_by_nothing() -> None:
    story = given(a_task("first"), a_pass("between"), a_sleep("nap"))
    completes(story, "first", paused("workflow:order", "queue:default"))
    assert story.status("between") == "completed"
    assert story.status("nap") == "waiting"


# Going on


def test_an_admitted_step_is_dispatched_as_it_would_have_been() -> None:
    story = a_held_step()
    before = story.steps["second"]
    decision = admitted(story, "second")
    step = story.steps["second"]
    assert decision.verdict is Verdict.APPLIED
    assert (step.status, step.held_by, step.attempt) == (StepStatus.DISPATCHED, None, 1)
    assert step.ready_at == before.ready_at
    assert bytes(story.message().input) == b"null"
    story.completes("second", "done")
    assert story.output() == "done"


def test_the_dispatch_timeout_runs_from_the_dispatch_and_not_from_before() -> None:
    story = a_held_step(timeouts={"dispatch": "1m"})
    assert story.steps["second"].due_at is None
    story.after(hours=1)
    admitted(story, "second")
    assert story.steps["second"].dispatch_deadline_at == story.now + timedelta(minutes=1)


def test_the_step_timeout_runs_while_the_step_is_held() -> None:
    story = a_held_step(timeouts={"step": "10m", "attempt": "1m"})
    story.time_passes_until_due("second")
    assert story.status("second") == "failed"
    assert story.error().type == "Timeout"


def test_a_step_that_is_still_held_is_left_as_it_is() -> None:
    story = a_held_step()
    assert admitted(story, "second", CLOSED).verdict is Verdict.IGNORED


def test_a_step_that_something_else_holds_now_says_so() -> None:
    story = a_held_step()
    admitted(story, "second", Gate(full={"default": 0}))
    assert story.steps["second"].held_by == "window:default"
    assert story.whats("second") == ["step-readied", "step-readied"]


@pytest.mark.parametrize("path", ["first", "second", "nobody", None])
def test_what_is_not_held_can_not_be_admitted(path: str | None) -> None:
    story = given(a_task("first"), a_task("second"))
    assert admitted(story, path).verdict is Verdict.IGNORED


def test_a_report_for_the_attempt_before_does_nothing_to_a_held_retry() -> None:
    retry = {"max_attempts": 3, "backoff": {"initial": "1s", "jitter": 0}}
    story = given(a_task("work", retry=retry))
    token = story.token("work")
    story.fails("work")
    story.gate = CLOSED
    story.time_passes_until_due("work")
    assert (story.status("work"), story.steps["work"].attempt) == ("ready", 2)
    assert story.completes("work", token=token).verdict is Verdict.STALE
    story.gate = OPEN
    admitted(story, "work")
    assert story.message().attempt == 2
    assert story.token("work") != token


def test_a_cancel_ends_a_held_step() -> None:
    story = a_held_step()
    story.is_cancelled()
    assert (story.status(), story.status("second")) == ("cancelled", "cancelled")
    assert story.steps["second"].held_by is None
    assert admitted(story, "second").verdict is Verdict.IGNORED


# The pause of a run


def test_a_paused_run_finishes_what_runs_and_dispatches_nothing() -> None:
    story = given(a_task("first"), a_pass("between"), a_task("second"))
    is_paused(story, by="ops", reason="why")
    assert (story.run.paused_at, story.run.paused_by, story.run.pause_reason) == (
        story.now, "ops", "why",
    )  # fmt: skip
    story.completes("first")
    assert story.status("between") == "completed"
    assert story.steps["second"].held_by == "run"
    is_resumed(story)
    assert story.status("second") == "dispatched"
    assert story.run.paused_at is None


def test_timers_keep_their_instants_in_a_pause() -> None:
    story = given(a_sleep("nap", "1h"), a_task("work"))
    wake_at = story.steps["nap"].wake_at
    is_paused(story)
    assert story.steps["nap"].wake_at == wake_at
    story.time_passes_until_due("nap")
    assert (story.status("nap"), story.steps["work"].held_by) == ("completed", "run")


def test_a_signal_ends_a_wait_in_a_pause() -> None:
    story = given(a_wait("approval"), a_task("work"))
    is_paused(story)
    story.is_signalled("go", 1)
    assert (story.status("approval"), story.steps["work"].held_by) == ("completed", "run")


def test_the_deadline_of_the_run_does_not_stop_in_a_pause() -> None:
    story = given(a_task("work"), timeout="1h")
    is_paused(story)
    story.time_passes_until_due(None)
    assert story.status() == "timed_out"
    assert story.run.paused_at is None, "a settled run is not paused"


def test_pause_and_resume_may_be_repeated_and_change_nothing_then() -> None:
    story = given(a_task("work"))
    assert is_resumed(story).verdict is Verdict.IGNORED
    is_paused(story, by="first")
    assert is_paused(story, by="second").verdict is Verdict.IGNORED
    assert story.run.paused_by == "first"


def test_a_settled_run_refuses_pause_and_resume() -> None:
    story = given(a_pass("only"))
    assert is_paused(story).refusal == "run_settled"
    assert is_resumed(story).refusal == "run_settled"


def test_what_a_resume_can_not_dispatch_is_held_by_what_is_left() -> None:
    story = given(a_task("first"), a_task("second"))
    is_paused(story)
    story.completes("first")
    is_resumed(story, CLOSED)
    assert story.steps["second"].held_by == "queue:default"


def test_an_admission_does_not_get_through_the_pause_of_the_run() -> None:
    story = a_held_step()
    is_paused(story)
    admitted(story, "second")
    assert story.steps["second"].held_by == "run"
    is_resumed(story)
    assert story.status("second") == "dispatched"


# Runs that may not begin


def a_held_run(gate: Gate, **fields: object) -> Story:
    story = Story(a_run(a_definition(a_task("work"), **fields)))
    story.happens(RunBegun(seed=story.seed(), cause=a_cause("start"), gate=gate))
    return story


@pytest.mark.parametrize("holder", ["workflow:order", "version:order@1"])
def test_a_start_on_a_paused_workflow_stays_pending(holder: str) -> None:
    story = a_held_run(paused(holder), timeout="1h")
    assert (story.status(), story.run.held_by, story.run.due_at) == ("pending", holder, None)
    assert story.whats() == ["run-held"]
    assert story.begins().verdict is Verdict.IGNORED, "it was begun once"
    story.after(hours=2)
    admitted(story, None)
    assert (story.status(), story.run.held_by) == ("running", None)
    assert story.run.deadline_at == story.now + timedelta(hours=1), "it counts from the beginning"


def test_a_start_on_a_paused_queue_begins_and_holds_its_step() -> None:
    story = a_held_run(CLOSED)
    assert (story.status(), story.status("work")) == ("running", "ready")


def test_a_run_held_twice_begins_when_both_have_let_go() -> None:
    story = a_held_run(paused("workflow:order"))
    is_paused(story)
    admitted(story, None)
    assert story.run.held_by == "run"
    is_resumed(story, paused("version:order@1"))
    assert (story.status(), story.run.held_by) == ("pending", "version:order@1")
    admitted(story, None)
    assert story.status() == "running"


def test_a_held_run_keeps_its_signals_and_can_be_cancelled() -> None:
    story = a_held_run(paused("workflow:order"))
    story.is_signalled("go", 1)
    assert len(story.run.kept) == 1
    story.is_cancelled()
    assert (story.status(), story.run.held_by) == ("cancelled", None)


# The history


@pytest.mark.parametrize(
    "gate", [OPEN, CLOSED, paused("version:order@1"), Gate(full={"default": 1})]
)
def test_the_history_tells_what_was_closed(gate: Gate) -> None:
    story = given(a_task("first"), a_task("second"))
    decision = completes(story, "first", gate)
    rebuilt = gate_of_history(decision.transitions)
    second = replace(story.steps["second"], status=StepStatus.PENDING)
    assert holder_of_step(story.run, second, rebuilt) == holder_of_step(story.run, second, gate)


def test_every_held_run_and_step_is_a_reason_to_be_alive() -> None:
    for story in (a_held_step(), a_held_run(paused("workflow:order"))):
        assert reasons_of(story.run)
    story = given(a_wait("approval"))
    is_paused(story)
    assert reasons_of(story.run)


def test_a_run_that_nothing_closes_is_held_by_nothing() -> None:
    run: Run = given(a_task("work")).run
    step: Step = run.steps["work"]
    assert holder_of_run(run, CLOSED) is None
    assert holder_of_step(run, step, OPEN) is None
    assert not any(isinstance(effect, DispatchStep) for effect in a_held_step().last.effects)
