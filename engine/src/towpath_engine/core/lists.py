"""How a list of steps goes on, whoever owns it: the run, a branch or an item."""

from msgspec.structs import replace

from towpath_engine.core import agenda, failures, wholes
from towpath_engine.core.agenda import Verb
from towpath_engine.core.changes import Changes, StepsNeeded
from towpath_engine.core.definition import ListDef
from towpath_engine.core.expressions.interface import ExpressionFailed
from towpath_engine.core.model import Failure, Step
from towpath_engine.core.paths import ROOT, place_of, upper_of, within
from towpath_engine.core.scope import Scope, missing
from towpath_engine.core.settling import fail_run, finish_run
from towpath_engine.core.states import DONE_STEP, StepStatus


def list_of(changes: Changes, owner: str) -> ListDef:
    """The list that the owner runs."""
    return changes.run.definition.lists[place_of(owner)]


def end_list(changes: Changes, owner: str) -> None:
    """The list came to its end: so has its owner."""
    if not changes.is_owner_open(owner):
        return
    if owner == ROOT:
        finish_run(changes)
    else:
        wholes.complete_part(changes, changes.need(owner))


def follow(changes: Changes, path: str) -> None:
    """A step of a DAG is completed or skipped: enter what has waited for it and for nothing else
    that is not. The list ends when all its steps are settled for good."""
    owner = upper_of(path)
    if not changes.is_owner_open(owner):
        return
    step_def = changes.definition_of(path)
    ready = [name for name in step_def.followers if _may_begin(changes, owner, name)]
    for name in reversed(ready):
        agenda.push(changes, Verb.ENTER, within(owner, name))
    count = len(list_of(changes, owner).steps)
    is_over = changes.reached_count(owner) == count and changes.is_empty(owner)
    if is_over and not _is_to_go_on(changes, owner):
        agenda.push(changes, Verb.END, owner)


def _is_to_go_on(changes: Changes, owner: str) -> bool:
    """Whether the agenda still has a failed step of the list: the list fails with it, or a retry
    has it go on."""
    entries = (agenda.split(entry) for entry in changes.agenda)
    unsettled = (Verb.FAIL, Verb.REVIVE)
    return any(verb in unsettled and upper_of(path) == owner for verb, path in entries)


def _may_begin(changes: Changes, owner: str, name: str) -> bool:
    """Whether the step has not been entered yet, and all that it names are done."""
    steps = changes.run.definition.steps
    place = place_of(owner)
    step_def = steps[within(place, name)]
    if changes.reached(owner, step_def.index):
        return False
    for earlier in step_def.after:
        if not changes.reached(owner, steps[within(place, earlier)].index):
            return False
        row = changes.step(within(owner, earlier))
        if row is None:
            raise StepsNeeded(paths=missing(changes, owner))
        if row.status not in DONE_STEP:
            return False
    return True


def fail(changes: Changes, path: str) -> None:
    """A step has failed: a row of its `catch` takes the list on, else the list fails with it."""
    step = changes.need(path)
    owner = upper_of(path)
    if step.status is not StepStatus.FAILED or not changes.is_owner_open(owner):
        return
    assert step.error is not None, f"step {path} has failed without an error"
    caught_by, failure = _caught_by(changes, step, step.error)
    if caught_by is not None:
        agenda.push(changes, Verb.ENTER, within(owner, caught_by))
    elif owner == ROOT:
        fail_run(changes, failure)
    else:
        wholes.fail_part(changes, changes.need(owner), failure)


def _caught_by(changes: Changes, step: Step, failure: Failure) -> tuple[str | None, Failure]:
    """The step that the first matching row of `catch` names, if any. A condition that can't be
    evaluated catches nothing, and its error is attached to the one that it was asked about."""
    for row in changes.definition_of(step.path).catch:
        if failure.type == failures.RUN_TOO_BIG:
            break
        if row.errors is not None and failure.type not in row.errors:
            continue
        try:
            if row.when is None or row.when.evaluate(Scope(changes, step, error=failure)):
                return row.next, failure
        except ExpressionFailed as failed:
            attached = replace(failure, attached=f"ExpressionError: {failed}")
            kept = failures.bounded(attached, changes.run.limits.error_bytes_max)
            changes.put(replace(step, error=kept))
            return None, kept
    return None, failure
