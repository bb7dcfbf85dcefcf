"""What events are aimed at: which event found which row in which state, and which of these there
are to be met."""

from collections.abc import Iterator
from typing import Final, get_args

from towpath_engine.core.events import (
    AttemptLost,
    ChildSettled,
    DispatchDelivered,
    DispatchVanished,
    DispatchWithdrawn,
    Event,
    ReportReceived,
    SignalReceived,
    StepAdmitted,
    TimerDue,
)
from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import PART, WHOLE, RunStatus, StepStatus, WaitReason

Aim = tuple[str, str]
"""The state of what an event is aimed at, and the event."""

EVENTS: Final = tuple(event.__name__ for event in get_args(Event))
_REPORTS: Final = (
    "StepStarted", "StepHeartbeat", "StepCompleted", "StepFailed", "StepReleased",
)  # fmt: skip
_OF_DISPATCHES: Final = (
    ReportReceived, AttemptLost, DispatchDelivered, DispatchVanished, DispatchWithdrawn,
)  # fmt: skip


def aim_of(run: Run, event: Event) -> Aim | None:
    """What the event is aimed at, as it stood before; None: at no row, or at none that is open."""
    name = type(event).__name__
    match event:
        case ReportReceived():
            row, name = _of_token(run, event.token), type(event.report).__name__
        case AttemptLost() | DispatchDelivered() | DispatchVanished() | DispatchWithdrawn():
            row = _of_token(run, event.token)
        case TimerDue() | StepAdmitted() if event.path is not None:
            row = run.steps.get(event.path)
        case ChildSettled():
            row = next((s for s in _open(run) if s.child_run_id == event.child_run_id), None)
        case SignalReceived():
            named = (s for s in _open(run) if event.signal.name in (s.signal or "").split(","))
            row = next(named, None)
        case _:
            row = None
    return None if row is None else (state_of(row), name)


def _open(run: Run) -> Iterator[Step]:
    return (step for step in run.steps.values() if step.waiting_for is not None)


def _of_token(run: Run, token: str) -> Step | None:
    return next((step for step in run.steps.values() if step.token == token), None)


def state_of(step: Step) -> str:
    """The status of a row, with what it waits for, or with the stage of its undo."""
    if step.kind in PART | WHOLE and step.status is StepStatus.RUNNING:
        return "running part" if step.kind in PART else "running whole"
    if step.status in (StepStatus.CANCELLING, StepStatus.COMPENSATING):
        waits = "" if step.waiting_for is None else f" {step.waiting_for.value}"
        return f"{step.status.value} {step.stage.value}{waits}"
    return step.status.value if step.waiting_for is None else f"waiting {step.waiting_for.value}"


def run_aims() -> set[Aim]:
    """Every status of a run with every event; but nothing was dispatched of one that is pending."""
    every = {(status.value, event) for status in RunStatus for event in EVENTS}
    return every - {(RunStatus.PENDING.value, event.__name__) for event in _OF_DISPATCHES}


def step_aims() -> set[Aim]:
    """Every state of a row with every event that may find it so and change it."""
    undo = f"{StepStatus.COMPENSATING.value} "
    dispatched = ["dispatched", "cancelling dispatched", f"{undo}dispatched"]
    running = ["running", "cancelling running", f"{undo}running"]
    live = dispatched + running
    found = {(state, event) for state in live for event in _REPORTS}
    found |= {(state, AttemptLost.__name__) for state in live}
    found |= {(state, DispatchVanished.__name__) for state in live}
    found |= {(state, DispatchDelivered.__name__) for state in dispatched}
    found |= {(state, DispatchWithdrawn.__name__) for state in live if "cancelling" in state}
    ready = ["ready", f"{undo}ready"]
    found |= {(state, StepAdmitted.__name__) for state in ready}
    parked = [WaitReason.BACKOFF, WaitReason.REPEAT, WaitReason.RELEASED]
    waiting = [f"waiting {reason.value}" for reason in WaitReason]
    waiting += [f"{undo}waiting {reason.value}" for reason in parked]
    found |= {(state, TimerDue.__name__) for state in [*live, *ready, *waiting]}
    found.add((f"waiting {WaitReason.SIGNAL.value}", SignalReceived.__name__))
    found.add((f"waiting {WaitReason.CHILD.value}", ChildSettled.__name__))
    return found
