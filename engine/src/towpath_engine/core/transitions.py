"""The two state machines, whole: which change leads from which status to which.

Both tables are total: every status has a row, even an empty one. A change that is not in the row
is a bug of the engine; it raises `IllegalTransition` and nothing has changed. The value of a
change is the `what` of the history, `run-…` and `step-…`. docs/state-machines.md is generated
from this module, the store repeats `RUN_PAIRS` and `STEP_PAIRS` as constraints.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from towpath_engine.core.states import SETTLED_RUN, SETTLED_STEP, RunStatus, StepStatus


class RunChange(StrEnum):
    """What can happen to a run's status."""

    DELAYED = "run-delayed"
    HELD = "run-held"
    STARTED = "run-started"
    SIGNALLED = "run-signalled"
    WAITING = "run-waiting"
    WOKEN = "run-woken"
    PAUSED = "run-paused"
    RESUMED = "run-resumed"
    COMPLETED = "run-completed"
    FAILED = "run-failed"
    CANCELLED = "run-cancelled"
    TIMED_OUT = "run-timed-out"
    RETRIED = "run-retried"
    REDRIVEN = "run-redriven"
    COMPENSATING = "run-compensating"
    COMPENSATED = "run-compensated"
    COMPENSATION_FAILED = "run-compensation-failed"


class StepChange(StrEnum):
    """What can happen to a step's status."""

    REVISITED = "step-revisited"
    SKIPPED = "step-skipped"
    READIED = "step-readied"
    WAITING = "step-waiting"
    DISPATCHED = "step-dispatched"
    REDISPATCHED = "step-redispatched"
    STARTED = "step-started"
    ANNOUNCED = "step-announced"
    RETRYING = "step-retrying"
    REPEATED = "step-repeated"
    RELEASED = "step-released"
    COMPLETED = "step-completed"
    FAILED = "step-failed"
    CANCELLING = "step-cancelling"
    CANCELLED = "step-cancelled"
    REVIVED = "step-revived"
    RESET = "step-reset"
    COMPENSATING = "step-compensating"
    COMPENSATED = "step-compensated"
    COMPENSATION_FAILED = "step-compensation-failed"


class IllegalTransition(Exception):  # noqa: N818 - named for what happened
    """This change is not possible in this status: a bug of the engine, nothing was changed."""

    def __init__(self, state: RunStatus | StepStatus, change: RunChange | StepChange) -> None:
        self.state = state
        self.change = change
        super().__init__(f"{change} is not possible for one that is {state}")


RUN_CAUSES: Final[Mapping[RunChange, str]] = {
    RunChange.DELAYED: "A start was accepted for a later instant.",
    RunChange.HELD: "It would begin, but it or its workflow is paused.",
    RunChange.STARTED: "The run began; its deadline counts from here.",
    RunChange.SIGNALLED: "A signal was accepted, for a wait or to be kept.",
    RunChange.WAITING: "Every open step waits: no worker is needed.",
    RunChange.WOKEN: "A step is being worked on again.",
    RunChange.PAUSED: "An operator wants nothing new of it dispatched.",
    RunChange.RESUMED: "An operator lifted its pause.",
    RunChange.COMPLETED: "The list of steps came to its end.",
    RunChange.FAILED: "A step failed and nothing caught it, or the run grew too big.",
    RunChange.CANCELLED: "Somebody asked for it.",
    RunChange.TIMED_OUT: "The run's deadline passed.",
    RunChange.RETRIED: "An operator had it go on where it ended; deadline and budgets are fresh.",
    RunChange.REDRIVEN: "An operator had it go on from a step that it had come to before.",
    RunChange.COMPENSATING: "Completed steps are being undone.",
    RunChange.COMPENSATED: "All that had to be undone is undone.",
    RunChange.COMPENSATION_FAILED: "An undo failed for good.",
}
"""What makes each change of a run happen, for readers."""

STEP_CAUSES: Final[Mapping[StepChange, str]] = {
    StepChange.REVISITED: "The run came to the step again: a new visit with a fresh budget.",
    StepChange.SKIPPED: "Its `when` was false, or the run settled without having reached it.",
    StepChange.READIED: "Its dispatch is wanted, but held back: a pause, or a full queue.",
    StepChange.WAITING: "It waits for its delay, its sleep or a signal.",
    StepChange.DISPATCHED: "A new attempt, with a new token, was handed to the queue.",
    StepChange.REDISPATCHED: "The same attempt was published again: its message had vanished.",
    StepChange.STARTED: "A worker has the attempt, as it said or as was seen: its clock runs.",
    StepChange.ANNOUNCED: "The worker wanted an event announced.",
    StepChange.RETRYING: "The attempt failed; another one follows after the backoff.",
    StepChange.REPEATED: 'The worker answered "again": another iteration follows.',
    StepChange.RELEASED: "The worker gave the attempt back, which spends nothing.",
    StepChange.COMPLETED: "It has an output.",
    StepChange.FAILED: "It is out of attempts, or could not be entered.",
    StepChange.CANCELLING: "It is to end, but what its attempt still completes will be undone.",
    StepChange.CANCELLED: "What it belongs to settled while it was open.",
    StepChange.REVIVED: "A retry goes on with it: the same visit, with a fresh budget.",
    StepChange.RESET: "A retry or redrive took it back: as if the run had not come to it yet.",
    StepChange.COMPENSATING: "It is being undone.",
    StepChange.COMPENSATED: "It was undone.",
    StepChange.COMPENSATION_FAILED: "Its undo failed for good.",
}
"""The same for a step."""

_RUN_ENDS: Final = {
    RunChange.COMPLETED: RunStatus.COMPLETED,
    RunChange.FAILED: RunStatus.FAILED,
    RunChange.CANCELLED: RunStatus.CANCELLED,
    RunChange.TIMED_OUT: RunStatus.TIMED_OUT,
    RunChange.COMPENSATING: RunStatus.COMPENSATING,
}

_REVIVALS: Final = {
    RunChange.RETRIED: RunStatus.RUNNING,
    RunChange.REDRIVEN: RunStatus.RUNNING,
}
# What an operator has go on after its undo has failed goes on undoing.
_UNDOING_AGAIN: Final = {RunChange.COMPENSATING: RunStatus.COMPENSATING}

RUN_TRANSITIONS: Final[Mapping[RunStatus, Mapping[RunChange, RunStatus]]] = {
    RunStatus.PENDING: {
        RunChange.DELAYED: RunStatus.PENDING,
        RunChange.HELD: RunStatus.PENDING,
        RunChange.SIGNALLED: RunStatus.PENDING,
        RunChange.PAUSED: RunStatus.PENDING,
        RunChange.RESUMED: RunStatus.PENDING,
        RunChange.STARTED: RunStatus.RUNNING,
        RunChange.CANCELLED: RunStatus.CANCELLED,
    },
    RunStatus.RUNNING: {
        RunChange.SIGNALLED: RunStatus.RUNNING,
        RunChange.PAUSED: RunStatus.RUNNING,
        RunChange.RESUMED: RunStatus.RUNNING,
        RunChange.WAITING: RunStatus.WAITING,
        **_RUN_ENDS,
    },
    RunStatus.WAITING: {
        RunChange.SIGNALLED: RunStatus.WAITING,
        RunChange.PAUSED: RunStatus.WAITING,
        RunChange.RESUMED: RunStatus.WAITING,
        RunChange.WOKEN: RunStatus.RUNNING,
        **_RUN_ENDS,
    },
    RunStatus.COMPENSATING: {
        RunChange.SIGNALLED: RunStatus.COMPENSATING,
        RunChange.PAUSED: RunStatus.COMPENSATING,
        RunChange.RESUMED: RunStatus.COMPENSATING,
        RunChange.COMPENSATED: RunStatus.COMPENSATED,
        RunChange.COMPENSATION_FAILED: RunStatus.COMPENSATION_FAILED,
        RunChange.FAILED: RunStatus.FAILED,
        RunChange.CANCELLED: RunStatus.CANCELLED,
        RunChange.TIMED_OUT: RunStatus.TIMED_OUT,
    },
    RunStatus.COMPLETED: {},
    RunStatus.FAILED: _REVIVALS,
    RunStatus.CANCELLED: _UNDOING_AGAIN,
    RunStatus.TIMED_OUT: {**_REVIVALS, **_UNDOING_AGAIN},
    RunStatus.COMPENSATED: {},
    RunStatus.COMPENSATION_FAILED: _UNDOING_AGAIN,
}

_REVISIT: Final = {StepChange.REVISITED: StepStatus.PENDING}
_RESET: Final = {StepChange.RESET: StepStatus.PENDING}
_REVIVAL: Final = {StepChange.REVIVED: StepStatus.PENDING, **_RESET}
_ATTEMPT_ENDS: Final = {
    StepChange.RETRYING: StepStatus.WAITING,
    StepChange.REPEATED: StepStatus.WAITING,
    StepChange.RELEASED: StepStatus.WAITING,
    StepChange.COMPLETED: StepStatus.COMPLETED,
    StepChange.FAILED: StepStatus.FAILED,
    StepChange.CANCELLED: StepStatus.CANCELLED,
    StepChange.CANCELLING: StepStatus.CANCELLING,
}
# While a step is being undone its status says so, whatever its undo is doing.
_UNDO_STAGES: Final = (
    StepChange.READIED,
    StepChange.DISPATCHED,
    StepChange.REDISPATCHED,
    StepChange.STARTED,
    StepChange.ANNOUNCED,
    StepChange.RETRYING,
    StepChange.REPEATED,
    StepChange.RELEASED,
)

STEP_TRANSITIONS: Final[Mapping[StepStatus, Mapping[StepChange, StepStatus]]] = {
    StepStatus.PENDING: {
        StepChange.SKIPPED: StepStatus.SKIPPED,
        StepChange.READIED: StepStatus.READY,
        StepChange.WAITING: StepStatus.WAITING,
        StepChange.DISPATCHED: StepStatus.DISPATCHED,
        StepChange.STARTED: StepStatus.RUNNING,
        StepChange.COMPLETED: StepStatus.COMPLETED,
        StepChange.FAILED: StepStatus.FAILED,
    },
    StepStatus.READY: {
        StepChange.READIED: StepStatus.READY,
        StepChange.DISPATCHED: StepStatus.DISPATCHED,
        StepChange.FAILED: StepStatus.FAILED,
        StepChange.CANCELLED: StepStatus.CANCELLED,
    },
    StepStatus.DISPATCHED: {
        StepChange.REDISPATCHED: StepStatus.DISPATCHED,
        StepChange.STARTED: StepStatus.RUNNING,
        StepChange.ANNOUNCED: StepStatus.DISPATCHED,
        **_ATTEMPT_ENDS,
    },
    StepStatus.RUNNING: {
        StepChange.REDISPATCHED: StepStatus.RUNNING,
        StepChange.ANNOUNCED: StepStatus.RUNNING,
        **_ATTEMPT_ENDS,
    },
    StepStatus.WAITING: {
        StepChange.READIED: StepStatus.READY,
        # A whole whose delay is over.
        StepChange.STARTED: StepStatus.RUNNING,
        StepChange.WAITING: StepStatus.WAITING,
        StepChange.DISPATCHED: StepStatus.DISPATCHED,
        StepChange.COMPLETED: StepStatus.COMPLETED,
        StepChange.FAILED: StepStatus.FAILED,
        StepChange.CANCELLED: StepStatus.CANCELLED,
    },
    StepStatus.COMPLETED: {
        StepChange.COMPENSATING: StepStatus.COMPENSATING,
        **_REVISIT,
        **_RESET,
    },
    StepStatus.FAILED: {**_REVISIT, **_REVIVAL},
    StepStatus.SKIPPED: {**_REVISIT, **_RESET},
    # A list in which a step was cancelled is over, unless an operator has it go on with that step.
    StepStatus.CANCELLED: _REVIVAL,
    StepStatus.CANCELLING: {
        StepChange.STARTED: StepStatus.CANCELLING,
        StepChange.ANNOUNCED: StepStatus.CANCELLING,
        StepChange.COMPLETED: StepStatus.COMPLETED,
        StepChange.CANCELLED: StepStatus.CANCELLED,
    },
    StepStatus.COMPENSATING: {
        **dict.fromkeys(_UNDO_STAGES, StepStatus.COMPENSATING),
        StepChange.COMPENSATED: StepStatus.COMPENSATED,
        StepChange.COMPENSATION_FAILED: StepStatus.COMPENSATION_FAILED,
    },
    StepStatus.COMPENSATED: {},
    StepStatus.COMPENSATION_FAILED: {StepChange.COMPENSATING: StepStatus.COMPENSATING},
}

RUN_PAIRS: Final = frozenset(
    (before, after) for before, row in RUN_TRANSITIONS.items() for after in row.values()
)
"""Every legal (before, after) of a run's status; equal ones are changes that leave it as it is."""
STEP_PAIRS: Final = frozenset(
    (before, after) for before, row in STEP_TRANSITIONS.items() for after in row.values()
)
"""The same for a step. A settled step may only be left to be visited anew (or undone)."""

assert RUN_TRANSITIONS.keys() == set(RunStatus), "every status of a run has a row"
assert STEP_TRANSITIONS.keys() == set(StepStatus), "every status of a step has a row"
assert RUN_CAUSES.keys() == set(RunChange), "every change of a run is explained"
assert STEP_CAUSES.keys() == set(StepChange), "every change of a step is explained"
assert all(
    change in {**_REVIVALS, **_UNDOING_AGAIN}
    for status in SETTLED_RUN
    for change in RUN_TRANSITIONS[status]
), "settled is settled, but for an operator's will"
assert all(
    after is StepStatus.PENDING or after is StepStatus.COMPENSATING
    for status in SETTLED_STEP
    for after in STEP_TRANSITIONS[status].values()
), "a settled step changes only to be visited anew or undone"


def run_after(status: RunStatus, change: RunChange) -> RunStatus:
    """The status after `change`. Raises IllegalTransition."""
    after = RUN_TRANSITIONS[status].get(change)
    if after is None:
        raise IllegalTransition(status, change)
    return after


def step_after(status: StepStatus, change: StepChange) -> StepStatus:
    """The status after `change`. Raises IllegalTransition."""
    after = STEP_TRANSITIONS[status].get(change)
    if after is None:
        raise IllegalTransition(status, change)
    return after
