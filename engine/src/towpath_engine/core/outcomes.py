"""What becomes of a row when the task that it runs has come to its end.

The task is that of a step, that of a step which is being cancelled, or the one that undoes a step:
attempts, timeouts and retries are the same for all three, what follows is not.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from towpath_engine.core import agenda, failures, settling
from towpath_engine.core.agenda import Verb
from towpath_engine.core.changes import Changes, Facts
from towpath_engine.core.dropping import cancel_step, closed
from towpath_engine.core.model import Failure, Step
from towpath_engine.core.paths import ROOT, live_path
from towpath_engine.core.states import RunStatus, StepStatus
from towpath_engine.core.transitions import RunChange, StepChange

NO_OUTPUT: Final = "its attempt ended without an output"
"""Reason of the end of a step that was being cancelled, when its attempt has failed."""
_UNDONE: Final[Mapping[RunStatus, RunChange]] = {
    RunStatus.COMPENSATED: RunChange.COMPENSATED,
    RunStatus.COMPENSATION_FAILED: RunChange.COMPENSATION_FAILED,
}
"""How a run ends that failed and was undone. One that was cancelled or timed out ends so, whatever
became of its undoing."""


def complete(changes: Changes, step: Step, output: bytes) -> None:
    """The task is done. What an undo says is not kept: the row's output is that of its step."""
    if step.status is StepStatus.COMPENSATING:
        changes.move(closed(changes, step), StepChange.COMPENSATED)
        if changes.run.undo_top is None:
            end_undoing(changes, RunStatus.COMPENSATED)
        else:
            agenda.push(changes, Verb.UNDO, ROOT)
        return
    was_cancelling = step.status is StepStatus.CANCELLING
    settling.complete_step(changes, step, output)
    if was_cancelling:
        _go_on_undoing(changes)


def fail(changes: Changes, step: Step, failure: Failure) -> None:
    """The task has failed, and no attempt follows. Its live attempt is over already."""
    if step.status is StepStatus.COMPENSATING:
        _fail_undo(changes, step, failure)
    elif step.status is StepStatus.CANCELLING:
        give_up(changes, step, NO_OUTPUT, failures.to_facts(failure))
    else:
        settling.fail_step(changes, step, failure)


def give_up(changes: Changes, step: Step, reason: str, facts: Facts | None = None) -> None:
    """The attempt of a step that was being cancelled is over, and nothing was completed."""
    changes.move(closed(changes, step), StepChange.CANCELLED, {"reason": reason, **(facts or {})})
    _go_on_undoing(changes)


def withdraw(changes: Changes, step: Step) -> None:
    """The dispatch of a step that is being cancelled was taken back before anybody had it."""
    cancel_step(changes, step, "its dispatch was taken back")
    _go_on_undoing(changes)


def _go_on_undoing(changes: Changes) -> None:
    """Undoing starts when nothing is being cancelled any more. While a run still cancels what is
    open, that comes first, and finds by itself that there is something to undo."""
    if changes.run.status is RunStatus.COMPENSATING:
        agenda.push(changes, Verb.UNDO, ROOT)


def _fail_undo(changes: Changes, step: Step, failure: Failure) -> None:
    """An undo failed for good: undoing stops here, until an operator has it go on."""
    named = replace(failure, step=live_path(step.path), attempt=step.attempt or None)
    kept = failures.bounded(named, changes.run.limits.error_bytes_max)
    failed = replace(closed(changes, step), error=kept)
    changes.move(failed, StepChange.COMPENSATION_FAILED, failures.to_facts(kept))
    end_undoing(changes, RunStatus.COMPENSATION_FAILED)


def end_undoing(changes: Changes, compensation: RunStatus | None) -> None:
    """The run settles. `compensation` is what became of its undoing; None: nothing was undone."""
    ending = changes.run.ending
    assert ending is not None, "a run is undone because it ends"
    changes.run = replace(changes.run, compensation=compensation)
    change = settling.ENDS[ending]
    if ending is RunStatus.FAILED and compensation is not None:
        change = _UNDONE[compensation]
    facts = dict(settling.facts_of_end(changes) or {})
    if compensation is not None:
        facts["compensation"] = compensation.value
    settling.settle_run(changes, change, facts)
