"""Handing an attempt to a queue: the dispatch message and what the step remembers of it."""

from datetime import datetime
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from towpath_engine.core import failures, outcomes
from towpath_engine.core.changes import Changes
from towpath_engine.core.definition import TaskSpec
from towpath_engine.core.effects import DispatchStep
from towpath_engine.core.gate import HELD_BY_FACT, holder_of_step
from towpath_engine.core.instants import earliest, plus_ms, seconds_until
from towpath_engine.core.model import Run, Step
from towpath_engine.core.paths import live_path, place_of, told_path
from towpath_engine.core.states import StepStatus
from towpath_engine.core.transitions import StepChange
from towpath_protocol import codec
from towpath_protocol.dispatch import CompensationOf, StepDispatch
from towpath_protocol.priorities import PRIORITIES
from towpath_protocol.times import format_instant

TTL_GRACE_SECONDS: Final = 60
"""A dispatch outlives its own end in the stream by this much, never the other way round."""


class NotDispatched(Exception):  # noqa: N818 - named for what happened
    """Asked for the dispatch of a step that has no live attempt: a bug of the caller."""


def task_spec(run: Run, step: Step) -> TaskSpec:
    """What the definition says of the task that the row runs: that of its step, or the one that
    undoes it. Raises NotDispatched for a row that runs none."""
    step_def = run.definition.steps[place_of(step.path)]
    spec = step_def.compensate if is_undo(step) else step_def.spec
    if not isinstance(spec, TaskSpec):
        raise NotDispatched(f"step {step.path} is a {step_def.kind}, not a task")
    return spec


def is_undo(step: Step) -> bool:
    """Whether the attempts of the row undo its step."""
    return step.status is StepStatus.COMPENSATING


def idempotency_key(run: Run, step: Step) -> str:
    """The same for every attempt of one iteration of one visit; the undo of a visit has one of its
    own."""
    visit = f"{run.id}/{live_path(step.path)}/{step.visit}"
    if not is_undo(step):
        return f"{visit}/{step.iteration}"
    return f"{visit}/undo" if step.iteration == 0 else f"{visit}/undo/{step.iteration}"


def attempt_end(run: Run, step: Step) -> datetime | None:
    """The `deadline` of a dispatch: the earlier of step timeout and run deadline; None: none. An
    undo comes after the deadline of the run, so that does not count for it."""
    return earliest(step.step_deadline_at, None if is_undo(step) else run.deadline_at)


def _compensation_of(run: Run, step: Step) -> CompensationOf | None:
    """What an undo is told of the step. An output over the limit of a payload, as the joined one of
    a large map may be, is null: the input can be made of parts of it."""
    if not is_undo(step):
        return None
    output = step.output
    if output is None or len(output) > run.limits.payload_bytes_max:
        output = b"null"
    error = None if run.error is None else Raw(codec.dumps(failures.to_value(run.error)))
    return CompensationOf(step=told_path(step.path), output=Raw(output), error=error)


def dispatch_body(run: Run, step: Step) -> bytes:
    """The whole dispatch message of the step's live attempt, as JSON text.

    It needs nothing but the stored state, so that a lost dispatch can be written again. Raises
    NotDispatched when there is no live attempt.
    """
    spec = task_spec(run, step)
    if step.token is None or step.dispatched_at is None:
        raise NotDispatched(f"step {step.path} of run {run.id} has no live attempt")
    end = attempt_end(run, step)
    message = StepDispatch(
        run_id=run.id,
        workflow=run.workflow,
        version=run.workflow_version,
        key=run.key,
        step=told_path(step.path),
        task=spec.task,
        queue=spec.queue,
        priority=PRIORITIES[run.priority],
        token=step.token,
        attempt=step.attempt,
        max_attempts=spec.retry.max_attempts,
        iteration=step.iteration,
        input=Raw(run.input if step.input is None else step.input),
        context=Raw(run.context),
        metadata=Raw(run.metadata),
        idempotency_key=idempotency_key(run, step),
        dispatched_at=format_instant(step.dispatched_at),
        attempt_timeout_ms=spec.timeouts.attempt_ms,
        heartbeat_timeout_ms=spec.timeouts.heartbeat_ms,
        ack_wait_ms=run.limits.ack_wait_ms,
        deadline=None if end is None else format_instant(end),
        last_error=None if step.last_error is None else failures.to_wire(step.last_error),
        last_progress=None if step.progress is None else Raw(step.progress),
        compensation=_compensation_of(run, step),
        reply=run.limits.reply,
    )
    return codec.encode(message)


def ttl_seconds(run: Run, step: Step, now: datetime) -> int | None:
    """Whole seconds until the dispatch's own end plus a minute; None when it has no end."""
    end = earliest(step.dispatch_deadline_at, attempt_end(run, step))
    return None if end is None else seconds_until(end, now) + TTL_GRACE_SECONDS


def dispatch(changes: Changes, step: Step, attempt: int) -> None:
    """Begin `attempt` (from 1) of the step with a new token, or hold it back while a pause or a
    full queue wants it so.

    A message over the limit fails the step with TooLarge, before anything was published.
    """
    spec = task_spec(changes.run, step)
    held_by = holder_of_step(changes.run, step, changes.gate)
    if held_by is not None:
        _hold(changes, replace(step, attempt=attempt), held_by)
        return
    timeout_ms = spec.timeouts.dispatch_ms
    fresh = replace(
        step,
        attempt=attempt,
        token=changes.new_token(step),
        dispatch_no=1,
        worker_id=None,
        waiting_for=None,
        held_by=None,
        wake_at=None,
        dispatched_at=changes.now,
        started_at=None,
        dispatch_deadline_at=None if timeout_ms is None else plus_ms(changes.now, timeout_ms),
        attempt_deadline_at=None,
        heartbeat_deadline_at=None,
    )
    body = dispatch_body(changes.run, fresh)
    size_max = changes.run.limits.dispatch_bytes_max
    if len(body) > size_max:
        too_large = failures.too_large("the dispatch", len(body), size_max)
        outcomes.fail(changes, step, too_large)
        return
    moved = changes.move(fresh, StepChange.DISPATCHED)
    _emit(changes, moved, body)


def _hold(changes: Changes, step: Step, held_by: str) -> None:
    """The step is ready and waits for `held_by`. Its step timeout counts; nothing else does."""
    ready = replace(step, waiting_for=None, wake_at=None, held_by=held_by)
    changes.move(ready, StepChange.READIED, {HELD_BY_FACT: held_by})


def redispatch(changes: Changes, step: Step) -> None:
    """Publish the live attempt again under its own token: its message has vanished."""
    again = replace(step, dispatch_no=step.dispatch_no + 1)
    moved = changes.move(again, StepChange.REDISPATCHED, {"dispatch_no": again.dispatch_no})
    _emit(changes, moved, dispatch_body(changes.run, moved))


def _emit(changes: Changes, step: Step, body: bytes) -> None:
    if step.token is None or step.queue is None:
        raise NotDispatched(f"step {step.path} has no token or no queue")
    changes.emit(
        DispatchStep(
            path=step.path,
            queue=step.queue,
            level=changes.run.priority,
            token=step.token,
            dispatch_no=step.dispatch_no,
            body=body,
            ttl_seconds=ttl_seconds(changes.run, step, changes.now),
        )
    )
