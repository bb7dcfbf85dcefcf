"""The states of a run and of a step, and what each means."""

from enum import StrEnum
from typing import Final


class RunStatus(StrEnum):
    """Where a run stands. `SETTLED_RUN` lists the final ones."""

    PENDING = "pending"
    """Accepted, not begun: a start delay, or an operator's pause."""
    RUNNING = "running"
    """At least one step is being worked on."""
    WAITING = "waiting"
    """Every open step waits for a signal, an instant or a child; no worker is needed."""
    COMPENSATING = "compensating"
    """Completed steps are being undone; not settled, holds its key."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"


class StepStatus(StrEnum):
    """Where a step stands within its current visit. `SETTLED_STEP` lists the final ones."""

    PENDING = "pending"
    """Not reached yet, or just being entered."""
    READY = "ready"
    """Its dispatch is wanted, but not written yet (window full, paused)."""
    DISPATCHED = "dispatched"
    """Its dispatch is in the outbox or the stream; no sign of a worker yet."""
    RUNNING = "running"
    """A worker reported the start, or the queue's consumer delivered the dispatch."""
    WAITING = "waiting"
    """It waits for an instant, a signal or a child run; `Step.waiting_for` says which."""
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    CANCELLING = "cancelling"
    """Its attempt is to end, but its token stays valid: an effect that it still reports can be
    undone. No attempt follows."""
    COMPENSATING = "compensating"
    """It is being undone: `Step.stage` says where its undo stands."""
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"


class WaitReason(StrEnum):
    """Why a step is `waiting`; stored, and shown by explain."""

    DELAY = "delay"
    SLEEP = "sleep"
    SIGNAL = "signal"
    BACKOFF = "backoff"
    REPEAT = "repeat"
    RELEASED = "released"
    CHILD = "child"
    """For the end of its child run."""


class StepKind(StrEnum):
    """The kinds of step that this version of the engine runs."""

    TASK = "task"
    WAIT = "wait"
    SLEEP = "sleep"
    CHOICE = "choice"
    PASS = "pass"  # noqa: S105 - a kind of step, no password
    PARALLEL = "parallel"
    MAP = "map"
    RUN = "run"
    BRANCH = "branch"
    """Not in a definition: the row of one branch of a parallel step, the owner of its list."""
    ITEM = "item"
    """The same for one item of a map."""


WHOLE: Final = frozenset({StepKind.PARALLEL, StepKind.MAP})
"""Steps that have parts."""
PART: Final = frozenset({StepKind.BRANCH, StepKind.ITEM})
"""Rows that own a list of steps."""


SETTLED_RUN: Final = frozenset({
    RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TIMED_OUT,
    RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED,
})  # fmt: skip
LIVE_RUN: Final = frozenset(RunStatus) - SETTLED_RUN
BEGUN_RUN: Final = frozenset({RunStatus.RUNNING, RunStatus.WAITING})
"""The run goes from step to step."""

SETTLED_STEP: Final = frozenset({
    StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.SKIPPED, StepStatus.CANCELLED,
    StepStatus.COMPENSATED, StepStatus.COMPENSATION_FAILED,
})  # fmt: skip
OPEN_STEP: Final = frozenset(StepStatus) - SETTLED_STEP - {StepStatus.PENDING}
DONE_STEP: Final = frozenset({StepStatus.COMPLETED, StepStatus.SKIPPED})
"""What follows the step in its list may begin."""
COMPLETED_ONCE: Final = frozenset({
    StepStatus.COMPLETED, StepStatus.COMPENSATING, StepStatus.COMPENSATED,
    StepStatus.COMPENSATION_FAILED,
})  # fmt: skip
"""The visit was completed. Undoing it takes nothing from what it said."""
OUTLIVING_STEP: Final = frozenset({StepStatus.CANCELLING, StepStatus.COMPENSATING})
"""Open, even if all that the step belongs to has ended."""
