"""What would have to be undone, the last first: see `Run.undo_top` and `Step.undo_below`.

Every completed step that has a compensation is put on a stack when it completes, so that undoing
takes the steps in the reverse order of their completion, whatever list they stand in. The stack is
a chain through the rows; an entry names a row by its path and visit.
"""

from msgspec.structs import replace

from towpath_engine.core.changes import Changes, StepsNeeded
from towpath_engine.core.definition import TaskSpec
from towpath_engine.core.effects import CancelAttempt
from towpath_engine.core.instants import plus_ms
from towpath_engine.core.model import Step
from towpath_engine.core.paths import live_path, told_path, visit_path
from towpath_engine.core.states import RunStatus, StepStatus
from towpath_engine.core.transitions import StepChange


def completed(changes: Changes, step: Step) -> Step:
    """The step as it is completed: with its place on the undo stack, if it can be undone."""
    if changes.definition_of(step.path).compensate is None:
        return step
    below = changes.run.undo_top
    changes.run = replace(changes.run, undo_top=visit_path(step.path, step.visit))
    return replace(step, undo_below=below or "")


def archive(changes: Changes, row: Step) -> None:
    """Keep a completed row that may have to be undone, before another visit takes its place."""
    if row.status is StepStatus.COMPLETED and row.undo_below is not None:
        changes.put(replace(row, path=visit_path(row.path, row.visit)))


def top_row(changes: Changes, top: str, *, also: frozenset[str] = frozenset()) -> Step:
    """The row that an entry of the stack names: that of the step's current visit, or the one kept
    of an earlier. Raises StepsNeeded for it, and for the paths in `also` that are not loaded."""
    path = live_path(top)
    kept, live = changes.step(top), changes.step(path)
    if kept is not None:
        return kept
    lacking = {one for one in also if changes.step(one) is None}
    if live is None or live.undo_below is None:
        raise StepsNeeded(paths={top, path, *lacking})
    if visit_path(path, live.visit) != top:
        raise StepsNeeded(paths={top, *lacking})
    return live


def is_wanted(changes: Changes) -> bool:
    """Whether the run that is ending has its completed steps undone, if there are any."""
    run = changes.run
    if run.ending is RunStatus.CANCELLED:
        return run.compensation is RunStatus.COMPENSATING
    return run.definition.undo_on_failure


def will_undo(changes: Changes) -> bool:
    """Whether the run that is ending is going to be undone, or may have to be: an attempt that is
    being cancelled may complete."""
    has_cause = changes.run.undo_top is not None or changes.counts.cancelling > 0
    return has_cause and is_wanted(changes)


def cancel_slowly(changes: Changes, step: Step, reason: str) -> bool:
    """Let the attempt of a dropped step end by itself, if its effect would have to be undone;
    whether that is so.

    Its worker is told to stop, its token stays valid, and it has an end in any case.
    """
    if step.token is None or step.queue is None:
        return False
    step_def = changes.definition_of(step.path)
    if step_def.compensate is None or not isinstance(step_def.spec, TaskSpec):
        return False
    # A run that goes on may yet be cancelled with compensation, whatever its `on_failure` says.
    if changes.run.ending is not None and not is_wanted(changes):
        return False
    end = step.attempt_deadline_at
    if end is None:
        end = plus_ms(changes.now, step_def.spec.timeouts.attempt_ms)
    path = told_path(step.path)
    changes.emit(CancelAttempt(queue=step.queue, path=path, token=step.token, reason=reason))
    cancelling = replace(step, attempt_deadline_at=end)
    changes.move(cancelling, StepChange.CANCELLING, {"reason": reason})
    return True
