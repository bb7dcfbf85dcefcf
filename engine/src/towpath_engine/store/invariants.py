"""The named CHECKs of the schema once more, for the store that has no schema. A test compares."""

from typing import Final

from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.core.states import (
    PART,
    SETTLED_RUN,
    SETTLED_STEP,
    WHOLE,
    RunStatus,
    StepKind,
    StepStatus,
    WaitReason,
)
from towpath_engine.store.errors import StoreRejected

LIVE_ATTEMPT: Final = frozenset({StepStatus.DISPATCHED, StepStatus.CANCELLING})
"""Not without a token. A whole or a part is running without one."""
MAY_HOLD_TOKEN: Final = LIVE_ATTEMPT | {StepStatus.RUNNING, StepStatus.COMPENSATING}
ENDINGS: Final = frozenset({RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TIMED_OUT})
UNDOINGS: Final = frozenset({
    RunStatus.COMPENSATING, RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED,
})  # fmt: skip
UNDONE_LATER: Final = frozenset({
    RunStatus.CANCELLED, RunStatus.TIMED_OUT, RunStatus.COMPENSATION_FAILED,
})  # fmt: skip
_UNDO_BEGUN: Final = frozenset({StepStatus.COMPENSATING, StepStatus.COMPENSATION_FAILED})
"""An undo whose input can't be made fails in the decision that began it."""
BEGUN_RUN: Final = frozenset({RunStatus.RUNNING, RunStatus.WAITING, RunStatus.COMPENSATING})

_WITHOUT: Final[frozenset[StepKind]] = WHOLE | PART
_ALL_BUT_ONE: Final = 2


def may_go_on(before: Run, after: Run) -> bool:
    """Whether a settled run may change so: by an operator's will, or to be undone."""
    return after.revival_count > before.revival_count or (
        after.status is RunStatus.COMPENSATING and before.status in UNDONE_LATER
    )


def may_change(before: Step, after: Step) -> bool:
    """The same for a settled step; it may also be visited anew."""
    return (
        after.visit > before.visit
        or after.revival_count > before.revival_count
        or (
            after.status in _UNDO_BEGUN
            and before.status in {StepStatus.COMPLETED, StepStatus.COMPENSATION_FAILED}
        )
    )


def check_run(run: Run) -> None:
    """Raises StoreRejected with the name of the violated constraint."""
    _require(
        "run_settled_at_with_status", (run.settled_at is not None) == (run.status in SETTLED_RUN)
    )
    _require("run_begun_has_started_at", run.status not in BEGUN_RUN or run.started_at is not None)
    _require(
        "run_pending_has_not_started",
        run.status is not RunStatus.PENDING or run.started_at is None,
    )
    _require("run_output_only_completed", run.output is None or run.status is RunStatus.COMPLETED)
    _require(
        "run_pause_has_an_instant",
        run.paused_at is not None or (run.paused_by is None and run.pause_reason is None),
    )
    _require("run_held_by_while_pending", run.held_by is None or run.status is RunStatus.PENDING)
    _require("run_revival_count_not_negative", run.revival_count >= 0)
    _require("run_visit_base_not_negative", run.visit_base >= 0)
    _require("run_priority_known", 0 <= run.priority <= 3)
    _require("run_depth_not_negative", run.depth >= 0)
    _require(
        "run_parent_step_of_a_parent", run.parent_step is None or run.parent_run_id is not None
    )
    _require("run_ending_known", run.ending is None or run.ending in ENDINGS)
    _require("run_compensation_known", run.compensation is None or run.compensation in UNDOINGS)
    _require("run_counters_not_negative", min(run.version, run.seq, run.signal_count) >= 0)


def check_step(step: Step) -> None:
    """Raises StoreRejected with the name of the violated constraint."""
    _require(
        "step_settled_at_with_status",
        (step.settled_at is not None) == (step.status in SETTLED_STEP),
    )
    _require(
        "step_token_with_live_attempt",
        step.status not in LIVE_ATTEMPT if step.token is None else step.status in MAY_HOLD_TOKEN,
    )
    _require("step_live_attempt_has_queue", step.token is None or step.queue is not None)
    _require(
        "step_runs_an_attempt_or_parts",
        step.status is not StepStatus.RUNNING or (step.token is None) == (step.kind in _WITHOUT),
    )
    undoing = step.status is StepStatus.COMPENSATING
    _require(
        "step_waiting_for_with_status",
        (step.waiting_for is not None) == (step.status is StepStatus.WAITING) or undoing,
    )
    _require(
        "step_awaited_child_named",
        step.waiting_for is not WaitReason.CHILD or step.child_run_id is not None,
    )
    _require(
        "step_undo_has_a_stage",
        not undoing or [step.held_by, step.waiting_for, step.token].count(None) == _ALL_BUT_ONE,
    )
    _require(
        "step_awaited_signal_named",
        step.waiting_for is not WaitReason.SIGNAL or step.signal is not None,
    )
    _require(
        "step_wait_has_an_instant",
        step.waiting_for in {None, WaitReason.SIGNAL, WaitReason.CHILD} or step.wake_at is not None,
    )
    _require(
        "step_held_by_with_status",
        (step.held_by is not None) == (step.status is StepStatus.READY) or undoing,
    )
    _require("step_revival_count_not_negative", step.revival_count >= 0)
    counters = (step.attempt, step.iteration, step.release_count, step.dispatch_no)
    _require("step_counters_not_negative", step.visit >= 1 and min(counters) >= 0)


def check_transition(row: Transition) -> None:
    """Raises StoreRejected with the name of the violated constraint."""
    _require("transition_seq_positive", row.seq >= 1)
    prefix = "run-" if row.step is None else "step-"
    _require("transition_what_named", row.what.startswith(prefix))


def _require(constraint: str, holds: bool) -> None:  # noqa: FBT001 - the fact itself
    if not holds:
        message = f"the data violates {constraint}"
        raise StoreRejected(message, constraint=constraint)
