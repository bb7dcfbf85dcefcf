"""Core and store structs → the reply structs of the wire. Large values are left out with a mark."""

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, UnsetType

from towpath_engine.core.definition import StepDef
from towpath_engine.core.model import Failure, Run, Step, Transition
from towpath_engine.core.states import SETTLED_RUN, RunStatus, StepStatus
from towpath_protocol import codec
from towpath_protocol.priorities import PRIORITIES
from towpath_protocol.replies import (
    ErrorView,
    RunResult,
    RunSummary,
    RunView,
    StepView,
    TransitionView,
)
from towpath_protocol.times import format_instant

STEP_OUTPUT_BYTES_MAX = 64 * 1024
"""Larger outputs of steps are not in run.get; run.output has them."""
STEPS_BYTES_MAX = 256 * 1024
"""Outputs of one page of steps, together."""


def instant(at: datetime | None) -> str | None:
    """RFC 3339 text, or None."""
    return None if at is None else format_instant(at)


def error_view(failure: Failure | None) -> ErrorView | None:
    """The error of a step or run as the wire shows it."""
    if failure is None:
        return None
    return ErrorView(
        type=failure.type,
        message=failure.message,
        retryable=failure.retryable,
        details=None if failure.details is None else Raw(failure.details),
        stack=failure.stack,
        step=failure.step,
        attempt=failure.attempt,
        attached=failure.attached,
    )


def run_view(run: Run, steps: tuple[StepView, ...], cursor: str | None) -> RunView:
    """run.get"""
    return RunView(
        run_id=run.id,
        workflow=run.workflow,
        version=run.workflow_version,
        key=run.key,
        status=run.status.value,
        input=Raw(run.input),
        output=None if run.output is None else Raw(run.output),
        error=error_view(run.error),
        priority=PRIORITIES[run.priority],
        tags=run.tags,
        context=Raw(run.context),
        metadata=Raw(run.metadata),
        created_at=format_instant(run.created_at),
        started_at=instant(run.started_at),
        settled_at=instant(run.settled_at),
        deadline_at=instant(run.deadline_at),
        parent_run_id=run.parent_run_id,
        restarted_from=run.restarted_from,
        triggered_by=run.triggered_by,
        steps=steps,
        steps_cursor=cursor,
    )


def run_summary(run: Run) -> RunSummary:
    """A line of run.list"""
    return RunSummary(
        run_id=run.id,
        workflow=run.workflow,
        version=run.workflow_version,
        key=run.key,
        status=run.status.value,
        error=error_view(run.error),
        priority=PRIORITIES[run.priority],
        tags=run.tags,
        created_at=format_instant(run.created_at),
        started_at=instant(run.started_at),
        settled_at=instant(run.settled_at),
    )


def run_result(run: Run) -> RunResult:
    """run.result"""
    completed = run.status is RunStatus.COMPLETED
    return RunResult(
        run_id=run.id,
        status=run.status.value,
        settled=run.status in SETTLED_RUN,
        output=Raw(run.output) if completed and run.output is not None else None,
        error=error_view(run.error),
    )


def step_view(step: Step, room: int) -> tuple[StepView, int]:
    """A step of run.get, and how many bytes of outputs still fit on the page."""
    output: Raw | None = None
    omitted: int | UnsetType = UNSET
    if step.output is not None:
        size = len(step.output)
        if size > min(STEP_OUTPUT_BYTES_MAX, room):
            omitted = size
        else:
            output, room = Raw(step.output), room - size
    view = StepView(
        step=step.path,
        kind=step.kind.value,
        status=step.status.value,
        attempt=step.attempt,
        iteration=step.iteration,
        output=output,
        error=error_view(step.error or step.last_error),
        worker_id=step.worker_id,
        started_at=instant(step.started_at),
        settled_at=instant(step.settled_at),
        wake_at=instant(step.wake_at),
        output_omitted=omitted,
    )
    return view, room


def unreached_view(step: StepDef, run: Run) -> StepView:
    """A step that has no row: pending, or skipped once the run has settled."""
    settled = run.status in SETTLED_RUN
    return StepView(
        step=step.path,
        kind=step.kind.value,
        status=(StepStatus.SKIPPED if settled else StepStatus.PENDING).value,
        attempt=0,
        iteration=0,
        settled_at=instant(run.settled_at) if settled else None,
    )


def transition_view(row: Transition) -> TransitionView:
    """A line of run.history"""
    return TransitionView(
        seq=row.seq,
        at=format_instant(row.at),
        what=row.what,
        step=row.step,
        from_=row.before,
        to=row.after,
        attempt=row.attempt,
        iteration=row.iteration,
        visit=row.visit,
        token=row.token,
        cause=Raw(msgspec.json.encode(row.cause)),
        data=None if row.data is None else Raw(codec.dumps(row.data)),
    )
