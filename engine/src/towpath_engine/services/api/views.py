"""Core and store structs → the reply structs of the wire. Large values are left out with a mark."""

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, UnsetType

from towpath_engine.core.definition import StepDef
from towpath_engine.core.gate import scope_of_holder
from towpath_engine.core.model import Failure, Run, Step, Transition
from towpath_engine.core.states import SETTLED_RUN, RunStatus, StepStatus, WaitReason
from towpath_protocol import codec
from towpath_protocol.priorities import PRIORITIES
from towpath_protocol.replies import (
    ErrorView,
    PartsView,
    PauseInfo,
    RunResult,
    RunSummary,
    RunView,
    StepView,
    TransitionView,
)
from towpath_protocol.times import format_instant

VALUE_BYTES_MAX = 256 * 1024
"""A larger input or output of a run (its limit is a setting) is not in run.get and run.result."""
STEP_OUTPUT_BYTES_MAX = 64 * 1024
"""Larger outputs of steps are not in run.get; run.output has them."""
STEPS_BYTES_MAX = 256 * 1024
"""Outputs and errors of one page of steps, together."""
_MESSAGE_IN_LIST_MAX = 500
_NULL = Raw(b"null")


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
    value, input_omitted = _value(run.input, VALUE_BYTES_MAX)
    output, output_omitted = _value(run.output, VALUE_BYTES_MAX)
    return RunView(
        run_id=run.id,
        workflow=run.workflow,
        version=run.workflow_version,
        key=run.key,
        status=run.status.value,
        compensation=None if run.compensation is None else run.compensation.value,
        input=_NULL if value is None else value,
        output=output,
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
        cancelled_by=_present(run.cancelled_by),
        cancel_reason=_present(run.cancel_reason),
        ending=_ending(run),
        parent_step=_present(run.parent_step),
        pause=_pause_info(run),
        steps=steps,
        steps_cursor=cursor,
        input_omitted=input_omitted,
        output_omitted=output_omitted,
    )


def _ending(run: Run) -> str | UnsetType:
    """How a run that is undoing its steps ends then: its status does not tell yet."""
    return UNSET if run.ending is None or run.status in SETTLED_RUN else run.ending.value


def _compensation(run: Run) -> str | UnsetType:
    return UNSET if run.compensation is None else run.compensation.value


def _present(text: str | None) -> str | UnsetType:
    """A field that is absent where there is nothing to say."""
    return UNSET if text is None else text


def _pause_info(run: Run) -> PauseInfo | UnsetType:
    if run.paused_at is None:
        return UNSET
    return PauseInfo(at=format_instant(run.paused_at), by=run.paused_by, reason=run.pause_reason)


def _value(text: bytes | None, bytes_max: int) -> tuple[Raw | None, int | UnsetType]:
    """The value, or None with its size when it is too large for the answer."""
    if text is None:
        return None, UNSET
    if len(text) > bytes_max:
        return None, len(text)
    return Raw(text), UNSET


def run_summary(run: Run) -> RunSummary:
    """A line of run.list"""
    return RunSummary(
        run_id=run.id,
        workflow=run.workflow,
        version=run.workflow_version,
        key=run.key,
        status=run.status.value,
        error=_short_error_view(run.error),
        priority=PRIORITIES[run.priority],
        tags=run.tags,
        created_at=format_instant(run.created_at),
        started_at=instant(run.started_at),
        settled_at=instant(run.settled_at),
        paused=UNSET if run.paused_at is None else True,
        compensation=_compensation(run),
    )


def _short_error_view(failure: Failure | None) -> ErrorView | None:
    """The error in a line: a page has many of them, and run.get has each whole."""
    if failure is None:
        return None
    return ErrorView(
        type=failure.type,
        message=failure.message[:_MESSAGE_IN_LIST_MAX],
        retryable=failure.retryable,
        step=failure.step,
        attempt=failure.attempt,
    )


def run_result(run: Run) -> RunResult:
    """run.result"""
    completed = run.status is RunStatus.COMPLETED
    output, omitted = _value(run.output if completed else None, VALUE_BYTES_MAX)
    return RunResult(
        run_id=run.id,
        status=run.status.value,
        settled=run.status in SETTLED_RUN,
        output=output,
        error=error_view(run.error),
        output_omitted=omitted,
        compensation=_compensation(run),
    )


def step_view(step: Step, room: int) -> tuple[StepView, int]:
    """A step of run.get, and how many bytes of outputs and errors still fit on the page.

    When nothing fits any more, outputs are left out with their size, and errors are cut short.
    """
    output, omitted = _value(step.output, min(STEP_OUTPUT_BYTES_MAX, room))
    if output is not None:
        room -= len(output)
    failure = _failure_of(step)
    error = error_view(failure) if _failure_bytes(failure) <= room else _short_error_view(failure)
    room -= min(room, _failure_bytes(failure))
    errors, errors_omitted = _value(step.errors, min(STEP_OUTPUT_BYTES_MAX, room))
    room -= 0 if errors is None else len(errors)
    view = StepView(
        step=step.path,
        kind=step.kind.value,
        status=step.status.value,
        attempt=step.attempt,
        iteration=step.iteration,
        output=output,
        error=error,
        worker_id=step.worker_id,
        started_at=instant(step.started_at),
        settled_at=instant(step.settled_at),
        wake_at=instant(step.wake_at),
        task=_present(step.task),
        queue=_present(step.queue),
        waiting_for=UNSET if step.waiting_for is None else step.waiting_for.value,
        signal=_present(step.signal if step.waiting_for is WaitReason.SIGNAL else None),
        held_by=_present(None if step.held_by is None else scope_of_holder(step.held_by)),
        output_omitted=omitted,
        visit=UNSET if step.visit == 1 else step.visit,
        child_run_id=_present(step.child_run_id),
        parts=_parts(step),
        errors=UNSET if errors is None else errors,
        errors_omitted=errors_omitted,
    )
    return view, room


def _parts(step: Step) -> PartsView | UnsetType:
    parts = step.parts
    if parts is None:
        return UNSET
    return PartsView(total=parts.total, started=parts.started, open=parts.open, failed=parts.failed)


def _failure_of(step: Step) -> Failure | None:
    """Why the step failed, or what its last attempt failed with. That of a step which was done in
    a later attempt is told by the history alone: as its error it would be a lie."""
    done = step.status in {StepStatus.COMPLETED, StepStatus.SKIPPED, StepStatus.COMPENSATED}
    return step.error or (None if done else step.last_error)


def _failure_bytes(failure: Failure | None) -> int:
    """About how much of an answer the whole failure takes."""
    if failure is None:
        return 0
    texts = (failure.message, failure.stack or "", failure.attached or "")
    return sum(len(text) for text in texts) + len(failure.details or b"")


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
