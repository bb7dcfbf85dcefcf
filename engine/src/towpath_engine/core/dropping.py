"""Ending what is open because nobody wants it any more, in as many decisions as it takes."""

from typing import Final

from msgspec.structs import replace

from towpath_engine.core import undo_stack
from towpath_engine.core.changes import Changes
from towpath_engine.core.effects import CancelChild
from towpath_engine.core.model import Step
from towpath_engine.core.states import OUTLIVING_STEP, RunStatus, StepStatus, WaitReason
from towpath_engine.core.transitions import StepChange

BATCH: Final = 1_000
"""Open rows below one row that are looked at together."""


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


def drop_below(changes: Changes, path: str, reason: str) -> bool:
    """Cancel what is open below a row, the innermost first, without the row itself. False when the
    decision is full before all is done: then this has to be called again.

    What is being cancelled slowly already stays as it is.
    """
    while True:
        count = BATCH + changes.counts.cancelling
        found = [one for one in changes.open_below(path, count) if _can_go(changes, one)]
        if not found:
            return True
        for one in found:
            if changes.full or not drop_below(changes, one, reason):
                return False
            _drop_step(changes, changes.need(one), reason)


def _can_go(changes: Changes, path: str) -> bool:
    return changes.need(path).status not in OUTLIVING_STEP


def _drop_step(changes: Changes, step: Step, reason: str) -> None:
    """Nobody waits for this open step any more, and nothing is open below it: it is cancelled.

    An attempt whose effect would have to be undone is not given up: see core.undo_stack.
    """
    if undo_stack.cancel_slowly(changes, step, reason):
        return
    cancel_step(changes, step, reason)


def cancel_step(changes: Changes, step: Step, reason: str) -> None:
    """Cancel the open step at once: its token is dead, its worker and its child run are told."""
    changes.revoke(step, reason=reason)
    if step.waiting_for is WaitReason.CHILD:
        assert step.child_run_id is not None, f"{step.path} waits for no child run"
        is_cancel = changes.run.ending is RunStatus.CANCELLED
        changes.emit(
            CancelChild(
                path=step.path,
                child_run_id=step.child_run_id,
                reason=reason,
                compensate=undo_stack.is_wanted(changes) if is_cancel else None,
            )
        )
    changes.move(closed(changes, step), StepChange.CANCELLED, {"reason": reason})


def cancel_rest(changes: Changes, reason: str) -> bool:
    """Cancel at once what was being cancelled slowly: nothing of the run will be undone. False when
    the decision is full before all is done."""
    if not changes.counts.cancelling:
        return True
    for step in changes.open_steps():
        if step.status is StepStatus.CANCELLING:
            if changes.full:
                return False
            cancel_step(changes, step, reason)
    return True
