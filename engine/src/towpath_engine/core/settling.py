"""How steps and runs come to their end."""

from typing import Final

from msgspec.structs import replace

from towpath_engine.core import failures
from towpath_engine.core.changes import Changes, Facts
from towpath_engine.core.expressions.interface import ExpressionFailed
from towpath_engine.core.model import Failure, Step
from towpath_engine.core.scope import Scope
from towpath_engine.core.states import StepStatus, WaitReason
from towpath_engine.core.transitions import RunChange, StepChange

NULL: Final = b"null"

_REASONS: Final = {
    RunChange.COMPLETED: "run completed",
    RunChange.FAILED: "run failed",
    RunChange.CANCELLED: "run cancelled",
    RunChange.TIMED_OUT: "run timed out",
}


def closed(changes: Changes, step: Step) -> Step:
    """The step without anything that only an open one has: token, instants, what it waits for.

    One that waited for its next iteration is closed before that one: the iteration behind it is
    done, and whoever has the step go on must not give its idempotency key out again.
    """
    if step.waiting_for is WaitReason.REPEAT:
        step = replace(step, iteration=step.iteration + 1, attempt=0, input=None, progress=None)
    return replace(
        step,
        token=None,
        waiting_for=None,
        held_by=None,
        wake_at=None,
        dispatch_deadline_at=None,
        attempt_deadline_at=None,
        heartbeat_deadline_at=None,
        step_deadline_at=None,
        # A short attempt is over before anybody saw it start.
        started_at=step.started_at or step.dispatched_at or step.ready_at,
        settled_at=changes.now,
    )


def complete_step(
    changes: Changes, step: Step, output: bytes, facts: Facts | None = None
) -> str | None:
    """Complete the step; returns the path of the step that follows, None at the list's end."""
    changes.move(
        replace(closed(changes, step), output=output, error=None), StepChange.COMPLETED, facts
    )
    changes.run = replace(changes.run, last_step=step.path)
    return changes.definition_of(step.path).successor


def fail_step(changes: Changes, step: Step, failure: Failure) -> Failure:
    """The step fails for good; the caller decides what that means for the run."""
    named = replace(failure, step=step.path, attempt=step.attempt or None)
    kept = failures.bounded(named, changes.run.limits.error_bytes_max)
    changes.move(
        replace(closed(changes, step), output=None, error=kept),
        StepChange.FAILED,
        failures.to_facts(kept),
    )
    changes.run = replace(changes.run, last_step=step.path)
    return kept


def fail_step_and_run(changes: Changes, step: Step, failure: Failure) -> None:
    """The step fails and nothing catches it, so the run fails with the same error."""
    fail_run(changes, fail_step(changes, step, failure))


def fail_run(changes: Changes, failure: Failure) -> None:
    """The run fails. Nothing is to be undone, whatever its `on_failure` says."""
    settle_run(changes, RunChange.FAILED, failure=failure, facts=failures.to_facts(failure))


def finish_list(changes: Changes) -> None:
    """The list came to its end: the run is completed, unless its output can't be made."""
    try:
        output = _run_output(changes)
    except ExpressionFailed as failed:
        fail_run(changes, failures.from_expression(failed))
        return
    size_max = changes.run.limits.payload_bytes_max
    if len(output) > size_max:
        fail_run(changes, failures.too_large("the output of the run", len(output), size_max))
        return
    changes.run = replace(changes.run, output=output)
    settle_run(changes, RunChange.COMPLETED)


def _run_output(changes: Changes) -> bytes:
    """The `output` template, else the output of the last step that ran. Raises ExpressionFailed."""
    template = changes.run.definition.output
    if template is not None:
        return template.render(Scope(changes))
    last = None if changes.run.last_step is None else changes.step(changes.run.last_step)
    if last is None or last.status is not StepStatus.COMPLETED or last.output is None:
        return NULL
    return last.output


def settle_run(
    changes: Changes,
    change: RunChange,
    *,
    failure: Failure | None = None,
    facts: Facts | None = None,
) -> None:
    """Settle the run: end its open steps and tell their workers, skip what was never reached."""
    reason = _REASONS[change]
    for step in changes.open_steps():
        changes.revoke(step, reason=reason)
        changes.move(closed(changes, step), StepChange.CANCELLED, {"reason": reason})
    changes.skip_unreached(changes.run.definition.steps.items())
    changes.run = replace(
        changes.run,
        error=failure,
        settled_at=changes.now,
        start_at=None,
        held_by=None,
        paused_at=None,
        paused_by=None,
        pause_reason=None,
    )
    changes.move_run(change, facts)
