"""How steps and runs come to their end.

A step that settles says so on the agenda: who comes next in its list, or that it has failed. A run
ends in two moves: from `end_run` on nothing begins any more and what is open is cancelled, in as
many decisions as that takes; then it is undone or settles.
"""

from typing import Final

from msgspec.structs import replace

from towpath_engine.core import agenda, failures, undo_stack
from towpath_engine.core.agenda import Verb
from towpath_engine.core.changes import Changes, Facts
from towpath_engine.core.dropping import cancel_rest, closed, drop_below
from towpath_engine.core.effects import TellParent
from towpath_engine.core.expressions.interface import ExpressionFailed
from towpath_engine.core.model import Failure, Step
from towpath_engine.core.paths import ROOT, place_of, upper_of, within
from towpath_engine.core.scope import Scope
from towpath_engine.core.states import PART, WHOLE, RunStatus, StepStatus
from towpath_engine.core.transitions import RunChange, StepChange

NULL: Final = b"null"

ENDS: Final = {
    RunStatus.FAILED: RunChange.FAILED,
    RunStatus.CANCELLED: RunChange.CANCELLED,
    RunStatus.TIMED_OUT: RunChange.TIMED_OUT,
}
_REASONS: Final = {
    RunChange.COMPLETED: "run completed",
    RunChange.FAILED: "run failed",
    RunChange.CANCELLED: "run cancelled",
    RunChange.TIMED_OUT: "run timed out",
}
"""Why steps that were open are cancelled."""


# Steps


def complete_step(
    changes: Changes,
    step: Step,
    output: bytes,
    facts: Facts | None = None,
    *,
    chosen: str | None = None,
) -> None:
    """Complete the step. What follows it in its list is next, or the step that was `chosen`."""
    done = replace(closed(changes, step), output=output, error=None)
    changes.move(undo_stack.completed(changes, done), StepChange.COMPLETED, facts)
    if not changes.is_owner_open(upper_of(step.path)):
        # It was to be cancelled, but its effect was done before: there is nothing to go on with.
        return
    changes.settle_last(step.path)
    go_on(changes, step, chosen or changes.definition_of(step.path).successor)


def skip_step(changes: Changes, step: Step) -> None:
    """The step's `when` was false."""
    skipped = replace(step, settled_at=changes.now)
    changes.move(skipped, StepChange.SKIPPED, {"reason": "when"})
    changes.settle_last(step.path)
    go_on(changes, step, changes.definition_of(step.path).successor)


def fail_step(
    changes: Changes, step: Step, failure: Failure, *, goes_on: str | None = None
) -> Failure:
    """The step fails for good. Whoever catches it comes next, or the step that `goes_on` names in
    the same list; without either its list fails. Returns the failure as it is kept."""
    if step.kind in WHOLE | PART and failure.step is not None:
        named = failure
    else:
        named = replace(failure, step=step.path, attempt=step.attempt or None)
    kept = failures.bounded(named, changes.run.limits.error_bytes_max)
    changes.move(
        replace(closed(changes, step), output=None, error=kept),
        StepChange.FAILED,
        failures.to_facts(kept),
    )
    changes.settle_last(step.path)
    if goes_on is None:
        agenda.push(changes, Verb.FAIL, step.path)
    else:
        go_on(changes, step, goes_on)
    return kept


def go_on(changes: Changes, step: Step, name: str | None) -> None:
    """What follows a step that is settled: the step `name` of its list; None: its end. In a DAG
    it is whatever has waited for it."""
    owner = upper_of(step.path)
    if changes.run.definition.lists[place_of(owner)].is_dag:
        agenda.push(changes, Verb.FOLLOW, step.path)
    elif name is None:
        agenda.push(changes, Verb.END, owner)
    else:
        agenda.push(changes, Verb.ENTER, within(owner, name))


# Runs


def fail_run(changes: Changes, failure: Failure) -> None:
    """The run fails, and what it has done is undone if its definition wants it so."""
    end_run(changes, RunStatus.FAILED, failure)


def end_run(changes: Changes, ending: RunStatus, failure: Failure | None = None) -> None:
    """The run is going to fail, be cancelled or time out: nothing begins any more. The first to
    say so decides."""
    if changes.run.ending is not None or changes.settled:
        return
    changes.run = replace(changes.run, ending=ending, error=failure)
    drops = agenda.put_off(changes)
    agenda.push(changes, Verb.SETTLE, ROOT)
    changes.agenda += drops


def settle(changes: Changes) -> None:
    """Go on with the end of the run: cancel what is open; once that is done, undo or settle."""
    ending = changes.run.ending
    if ending is None:
        return
    reason = _REASONS[ENDS[ending]]
    if not drop_below(changes, ROOT, reason):
        agenda.push(changes, Verb.SETTLE, ROOT)
        return
    if undo_stack.will_undo(changes):
        # Nothing is reached any more. An undo that failed may go on later, and settle once more.
        changes.skip_unreached()
        agenda.forget(changes)
        agenda.push(changes, Verb.UNDO, ROOT)
        return
    if not cancel_rest(changes, reason):
        agenda.push(changes, Verb.SETTLE, ROOT)
        return
    # A cancel wanted it undone, but there was nothing to undo.
    changes.run = replace(changes.run, compensation=None)
    changes.skip_unreached()
    settle_run(changes, ENDS[ending], facts_of_end(changes))


def facts_of_end(changes: Changes) -> Facts | None:
    """What the history says of how the run ended: its error, or who wanted it and why."""
    run = changes.run
    if run.ending is RunStatus.CANCELLED:
        return {"by": run.cancelled_by, "reason": run.cancel_reason}
    return None if run.error is None else failures.to_facts(run.error)


def finish_run(changes: Changes) -> None:
    """The workflow's own list came to its end: the run is completed, unless its output can't be
    made. What was still being cancelled is cancelled with it."""
    if not cancel_rest(changes, _REASONS[RunChange.COMPLETED]):
        agenda.push(changes, Verb.END, ROOT)
        return
    try:
        output = _run_output(changes)
    except ExpressionFailed as failed:
        _fail_at_the_end(changes, failures.from_expression(failed))
        return
    size_max = changes.run.limits.payload_bytes_max
    if len(output) > size_max:
        too_large = failures.too_large("the output of the run", len(output), size_max)
        _fail_at_the_end(changes, too_large)
        return
    changes.run = replace(changes.run, output=output)
    changes.skip_unreached()
    settle_run(changes, RunChange.COMPLETED)


def _fail_at_the_end(changes: Changes, failure: Failure) -> None:
    """No step has failed, so a retry comes to the end of the list again."""
    agenda.push(changes, Verb.END, ROOT)
    fail_run(changes, failure)


def _run_output(changes: Changes) -> bytes:
    """The `output` template, else the output of the last step that ran. Raises ExpressionFailed."""
    template = changes.run.definition.output
    if template is not None:
        return template.render(Scope(changes))
    return last_output(changes, ROOT)


def last_output(changes: Changes, owner: str) -> bytes:
    """The output of the step of the owner's list that ran last; null if it has none."""
    path = changes.owner_came_from(owner)
    last = None if path is None else changes.need(path)
    if last is None or last.status is not StepStatus.COMPLETED or last.output is None:
        return NULL
    return last.output


def settle_run(changes: Changes, change: RunChange, facts: Facts | None = None) -> None:
    """Settle the run, of which nothing is open any more and what was never reached is skipped; tell
    the parent that waits for it."""
    changes.run = replace(
        changes.run,
        settled_at=changes.now,
        start_at=None,
        held_by=None,
        paused_at=None,
        paused_by=None,
        pause_reason=None,
    )
    changes.move_run(change, facts)
    agenda.close(changes)
    if changes.run.parent_run_id is not None and changes.run.parent_step is not None:
        changes.emit(TellParent(parent_run_id=changes.run.parent_run_id))
