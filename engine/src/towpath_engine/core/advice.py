"""What has a failed run go on, by what it failed with. Pure, as all of the core.

A worker's failure may be over the next time. What the engine itself finds in a definition and the
values of the run is the same at every retry: there only other values or another definition help.
"""

from typing import Final

from towpath_engine.core import failures
from towpath_engine.core.definition import TaskSpec
from towpath_engine.core.model import Failure, Run
from towpath_engine.core.paths import place_of
from towpath_engine.core.states import RunStatus
from towpath_protocol import codec

_ALWAYS_THE_SAME: Final = frozenset({failures.EXPRESSION_ERROR, failures.NO_CHOICE})


def what_helps(run: Run) -> str:
    """A clause for an operator: which verb has this settled run go on, or begin anew.

    `run.error` says what it failed with; without one it was a deadline, or nobody's fault.
    """
    if run.compensation is RunStatus.COMPENSATION_FAILED:
        return f"when the cause is mended, `towpath retry {run.id}` goes on undoing"
    error = run.error
    if error is None or not _found_by_the_engine(run, error):
        return f"when the cause is mended, `towpath retry {run.id}` goes on from there"
    if error.type == failures.RUN_TOO_BIG:
        return f"`towpath restart {run.id}` starts it anew"
    if error.type == failures.VISIT_LIMIT:
        return f"`towpath redrive {run.id} STEP` goes back to a step and counts its visits anew"
    edited = (
        f"`towpath retry {run.id} --input JSON` gives the step another input, "
        if _is_about_the_input(run, error)
        else ""
    )
    return (
        f"a retry alone meets the same again: {edited}"
        f"`towpath redrive {run.id} STEP` does an earlier step again that may give another value, "
        f"or deploy a mended version N and `towpath restart {run.id} --version N`"
    )


def _found_by_the_engine(run: Run, error: Failure) -> bool:
    """Types are words, and a worker may use any of them: but its failures name an attempt."""
    match error.type:
        case failures.RUN_TOO_BIG | failures.VISIT_LIMIT:
            return error.attempt is None
        case failures.TOO_LARGE:
            return error.attempt is None or not _is_task(run, error)
        case kind:
            return kind in _ALWAYS_THE_SAME and not error.retryable


def _is_about_the_input(run: Run, error: Failure) -> bool:
    """Whether an edited input takes the place of what failed: a task's own, and no condition."""
    if not _is_task(run, error):
        return False
    if error.type == failures.TOO_LARGE:
        return True
    details = None if error.details is None else codec.loads(error.details)
    field = details.get("field") if isinstance(details, dict) else None
    return isinstance(field, str) and ".input" in field


def _is_task(run: Run, error: Failure) -> bool:
    step = run.definition.steps.get(place_of(error.step or ""))
    return step is not None and isinstance(step.spec, TaskSpec)
