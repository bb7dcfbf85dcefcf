"""The life of an attempt after its dispatch: its clock, its failure, its repetition, its return."""

from msgspec.structs import replace

from towpath_engine.core import failures, outcomes
from towpath_engine.core.changes import Changes
from towpath_engine.core.definition import Repeat
from towpath_engine.core.dispatching import dispatch, is_undo, task_spec
from towpath_engine.core.expressions.interface import ExpressionFailed
from towpath_engine.core.instants import plus_ms
from towpath_engine.core.model import Failure, Step
from towpath_engine.core.paths import live_path
from towpath_engine.core.payloads import remember_signs
from towpath_engine.core.retry import NoRetry, RetryIn, decide_retry
from towpath_engine.core.scope import Scope
from towpath_engine.core.states import StepStatus, WaitReason
from towpath_engine.core.transitions import StepChange


def begin_iteration(changes: Changes, step: Step) -> None:
    """Render the input, once for all attempts of the iteration, and dispatch the first.

    A step that has its input keeps it: one that is retried, or that an operator gave another. By
    default a step gets the input of the run, and an undo the output of its step.
    """
    rendered = step.input
    if rendered is None:
        try:
            rendered = _input_of(changes, step)
        except ExpressionFailed as failed:
            outcomes.fail(changes, step, failures.from_expression(failed))
            return
        size_max = changes.run.limits.payload_bytes_max
        if rendered is not None and len(rendered) > size_max:
            too_large = failures.too_large("the input", len(rendered), size_max)
            outcomes.fail(changes, step, too_large)
            return
    dispatch(changes, replace(step, input=rendered), 1)


def _input_of(changes: Changes, step: Step) -> bytes | None:
    """The input of the step or undo; None: that of the run. Raises ExpressionFailed."""
    template = task_spec(changes.run, step).input
    if not is_undo(step):
        return None if template is None else template.render(Scope(changes, step))
    if template is None:
        return step.output
    scope = Scope(changes, step, error=changes.run.error, output=step.output)
    return template.render(scope)


def start_clock(changes: Changes, step: Step, worker_id: str | None) -> Step:
    """The attempt was seen to run: from now on its own timeouts count, not the dispatch's.

    A second sight of it, from a redelivery, restarts no clock; it may name another worker.
    """
    known = step.worker_id if worker_id is None else worker_id
    if step.stage is StepStatus.RUNNING:
        if known != step.worker_id:
            step = replace(step, worker_id=known)
            changes.put(step)
        return step
    timeouts = task_spec(changes.run, step).timeouts
    heartbeat_ms = timeouts.heartbeat_ms
    started = replace(
        step,
        worker_id=known,
        started_at=changes.now,
        dispatch_deadline_at=None,
        attempt_deadline_at=plus_ms(changes.now, timeouts.attempt_ms),
        heartbeat_deadline_at=None if heartbeat_ms is None else plus_ms(changes.now, heartbeat_ms),
    )
    facts = None if known is None else {"worker_id": known}
    return changes.move(started, StepChange.STARTED, facts)


def fail_attempt(
    changes: Changes,
    step: Step,
    failure: Failure,
    *,
    retry_after_ms: int | None = None,
    stop_reason: str | None = None,
) -> None:
    """The live attempt failed: another one follows, or the step fails.

    `stop_reason` is given when the engine ended the attempt, so that its worker must be told.
    """
    named = replace(failure, step=live_path(step.path), attempt=step.attempt)
    kept = failures.bounded(named, changes.run.limits.error_bytes_max)
    remember_signs(changes, step, task_spec(changes.run, step).timeouts.heartbeat_ms)
    changes.revoke(step, reason=stop_reason)
    if step.status is StepStatus.CANCELLING:
        outcomes.fail(changes, step, kept)
        return
    outcome = decide_retry(
        task_spec(changes.run, step).retry,
        kept,
        Scope(changes, step, error=kept),
        attempt=step.attempt,
        share=changes.new_share(step),
        retry_after_ms=retry_after_ms,
    )
    match outcome:
        case NoRetry(failure=final):
            outcomes.fail(changes, step, final)
        case RetryIn(wait_ms=wait_ms):
            facts = {**failures.to_facts(kept), "wait_ms": wait_ms}
            parked = replace(_parked(step), last_error=kept, release_count=0)
            _park(changes, parked, StepChange.RETRYING, facts)


def fail_at_step_timeout(changes: Changes, step: Step, timeout_ms: int | None) -> None:
    """The step timeout has passed: no retry, whatever the step is doing."""
    changes.revoke(step, reason="step timeout")
    outcomes.fail(changes, step, failures.timed_out("step", timeout_ms))


def repeat(changes: Changes, step: Step, output: bytes, after_ms: int | None) -> None:
    """The worker answered "again", or `while` says so: the next iteration follows, with a fresh
    budget. None follows in a step that is being cancelled: it has not completed."""
    if step.status is StepStatus.CANCELLING:
        outcomes.give_up(changes, step, "it wanted another iteration")
        return
    rule = task_spec(changes.run, step).repeat or Repeat()
    if step.iteration + 1 >= rule.limit:
        failure = Failure(
            type=failures.REPEAT_LIMIT,
            message=f"the step has run {rule.limit} iterations and wants another one",
            retryable=False,
        )
        outcomes.fail(changes, step, failure)
        return
    wait_ms = rule.delay_ms if after_ms is None else after_ms
    parked = replace(_parked(step), last_output=output, last_error=None, release_count=0)
    _park(changes, parked, StepChange.REPEATED, {"wait_ms": wait_ms})


def release(changes: Changes, step: Step, wait_ms: int, reason: str) -> None:
    """The attempt was given back: the same attempt is dispatched again with a new token."""
    remember_signs(changes, step, task_spec(changes.run, step).timeouts.heartbeat_ms)
    if step.status is StepStatus.CANCELLING:
        outcomes.give_up(changes, step, "its attempt was given back")
        return
    parked = replace(_parked(step), release_count=step.release_count + 1)
    _park(changes, parked, StepChange.RELEASED, {"reason": reason, "wait_ms": wait_ms})


def _parked(step: Step) -> Step:
    return replace(
        step,
        worker_id=None,
        started_at=None,
        dispatch_deadline_at=None,
        attempt_deadline_at=None,
        heartbeat_deadline_at=None,
    )


def _park(changes: Changes, step: Step, change: StepChange, facts: dict[str, object]) -> None:
    """Wait as long as `facts` say, as an instant; go on at once when that is no time at all."""
    wait_ms = facts["wait_ms"]
    assert isinstance(wait_ms, int)
    reason = {
        StepChange.RETRYING: WaitReason.BACKOFF,
        StepChange.REPEATED: WaitReason.REPEAT,
        StepChange.RELEASED: WaitReason.RELEASED,
    }[change]
    waiting = replace(step, token=None, waiting_for=reason, wake_at=plus_ms(changes.now, wait_ms))
    moved = changes.move(waiting, change, facts)
    if wait_ms == 0:
        wake_attempt(changes, moved)


def wake_attempt(changes: Changes, step: Step) -> None:
    """A task step's wait is over: the next attempt, iteration or dispatch begins."""
    match step.waiting_for:
        case WaitReason.BACKOFF:
            dispatch(changes, step, step.attempt + 1)
        case WaitReason.RELEASED:
            dispatch(changes, step, step.attempt)
        case WaitReason.REPEAT:
            following = replace(
                step, iteration=step.iteration + 1, attempt=0, input=None, progress=None
            )
            begin_iteration(changes, following)
        case _:
            raise AssertionError(f"step {step.path} waits for {step.waiting_for}")
