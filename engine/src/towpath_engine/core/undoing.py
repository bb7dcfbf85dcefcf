"""Undoing the steps of a run, one at a time, in the reverse order of their completion.

An undo is a task like any other: it is dispatched from the row of the step that it undoes, with
retries and timeouts of its own, and ends in core.outcomes. Each is taken off the undo stack when it
begins, so that a crash at any point neither loses one nor does one twice.
"""

from msgspec.structs import replace

from towpath_engine.core import undo_stack
from towpath_engine.core.attempts import begin_iteration
from towpath_engine.core.changes import Changes, StepsNeeded
from towpath_engine.core.definition import TaskSpec
from towpath_engine.core.dispatching import task_spec
from towpath_engine.core.instants import plus_ms
from towpath_engine.core.model import Step
from towpath_engine.core.outcomes import end_undoing
from towpath_engine.core.paths import ROOT, live_path, place_of, upper_of, within
from towpath_engine.core.settling import facts_of_end
from towpath_engine.core.states import RunStatus, StepStatus
from towpath_engine.core.transitions import RunChange, StepChange


def begin(changes: Changes) -> None:
    """Undo what is on top of the undo stack; the run settles when there is nothing left.

    While an attempt is being cancelled the run waits for its end: it may have to be undone first.
    """
    run = changes.run
    if run.ending is None or changes.settled:
        return
    if run.status is not RunStatus.COMPENSATING:
        _turn(changes)
    if changes.counts.open:
        return
    if run.undo_top is None:
        end_undoing(changes, None)
        return
    top = run.undo_top
    row = undo_stack.top_row(changes, top, also=_rows_named(changes, top))
    changes.run = replace(changes.run, undo_top=row.undo_below or None)
    fresh = replace(
        row,
        undo_below=None,
        iteration=0,
        dispatch_no=0,
        input=None,
        progress=None,
        last_error=None,
        signal=None,
        dispatched_at=None,
    )
    _begin_undo(changes, fresh)


def resume(changes: Changes) -> None:
    """Go on undoing a run of which an undo failed, with that one, on an operator's behalf. It has a
    fresh budget, and the same input and idempotency key: its effect may have happened."""
    failed = next(
        (
            step
            for step in changes.run.steps.values()
            if step.status is StepStatus.COMPENSATION_FAILED
        ),
        None,
    )
    if failed is None:
        raise StepsNeeded(statuses=(StepStatus.COMPENSATION_FAILED,))
    count = changes.run.revival_count + 1
    changes.run = replace(changes.run, revival_count=count, settled_at=None)
    _turn(changes)
    again = replace(
        failed,
        revival_count=count,
        last_error=failed.error or failed.last_error,
        error=None,
    )
    _begin_undo(changes, again)


def _turn(changes: Changes) -> None:
    """The run is being undone from here on."""
    ending = changes.run.ending
    assert ending is not None, "a run is undone because it ends"
    changes.run = replace(changes.run, compensation=RunStatus.COMPENSATING)
    facts = {**(facts_of_end(changes) or {}), "ending": ending.value}
    changes.move_run(RunChange.COMPENSATING, facts)


def _begin_undo(changes: Changes, row: Step) -> None:
    """The row turns to its undo, with a whole budget, and the first attempt is dispatched."""
    spec = changes.definition_of(row.path).compensate
    assert isinstance(spec, TaskSpec), f"{row.path} can't be undone"
    undone = replace(
        row,
        attempt=0,
        release_count=0,
        queue=spec.queue,
        task=spec.task,
        worker_id=None,
        started_at=None,
        settled_at=None,
        ready_at=changes.now,
    )
    moved = changes.move(undone, StepChange.COMPENSATING)
    step_ms = task_spec(changes.run, moved).timeouts.step_ms
    end = None if step_ms is None else plus_ms(changes.now, step_ms)
    begin_iteration(changes, replace(moved, step_deadline_at=end))


def _rows_named(changes: Changes, top: str) -> frozenset[str]:
    """The rows that the undo's expressions name, as far as that can be told before any row is
    loaded: so that they come with the row to be undone."""
    spec = changes.definition_of(top).compensate
    if spec is None:
        return frozenset()
    names = set[str]() if spec.input is None else set(spec.input.references)
    if spec.retry.when is not None:
        names |= spec.retry.when.references
    steps = {name.split(".")[1] for name in names if name.startswith("steps.")}
    if not names - {"output", "error", "input"}:
        return frozenset()
    known = changes.run.definition.steps
    paths: set[str] = set()
    owner = upper_of(live_path(top))
    while True:
        place = place_of(owner)
        paths |= {within(owner, name) for name in steps if within(place, name) in known}
        if owner == ROOT:
            return frozenset(paths)
        paths.add(owner)
        owner = upper_of(upper_of(owner))
