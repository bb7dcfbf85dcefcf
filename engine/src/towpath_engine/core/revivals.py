"""What a retry does to the rows at which a run has ended: they are open again, from the outside to
the inside, each as an entry of the agenda, so that any number of them may go on."""

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core import agenda, failures, lists, settling
from towpath_engine.core.agenda import Verb
from towpath_engine.core.changes import Changes
from towpath_engine.core.definition import ChoiceSpec, ListDef, Repeat, TaskSpec, WaitSpec
from towpath_engine.core.ended import (
    ended_parts,
    ended_steps,
    has_parts,
    is_ended,
    load_ahead,
    next_ended_part,
)
from towpath_engine.core.entering import resume_step
from towpath_engine.core.model import Step
from towpath_engine.core.paths import upper_of, within
from towpath_engine.core.states import DONE_STEP, PART, StepStatus
from towpath_engine.core.transitions import StepChange

GOES_ON: Final = {"reason": "what is in it goes on"}
"""Facts of the revival of a whole, a branch or an item."""


class _Chosen(Struct, frozen=True):
    """The output of a choice."""

    chosen: str | None


def revive_row(changes: Changes, path: str) -> None:
    """Agenda: a step, branch or item at which the run had ended goes on, with what lies below it.

    Nothing is done where it has gone on already, or what it belongs to has ended once more.
    """
    row = changes.need(path)
    if not is_ended(changes, row) or not changes.is_owner_open(upper_of(path)):
        return
    if row.kind in PART:
        _revive_part(changes, row)
    elif has_parts(row):
        _revive_whole(changes, row)
    else:
        resume_step(changes, _revived(changes, row))


def _revive_whole(changes: Changes, whole: Step) -> None:
    """It is running again, and waits for the parts that go on, which are all that had ended."""
    assert whole.parts is not None, "only a whole with parts is revived as one"
    ended = ended_parts(changes, whole)
    parts = replace(whole.parts, open=len(ended), failed=0)
    fresh = replace(_again(changes, whole), parts=parts, errors=None)
    changes.move(changes.move(fresh, StepChange.REVIVED, GOES_ON), StepChange.STARTED)
    agenda.push(changes, Verb.START, whole.path)
    if ended:
        agenda.push(changes, Verb.REVIVE, ended[0].path)


def _revive_part(changes: Changes, part: Step) -> None:
    """It is running again, and so are the steps at which its list had ended; then the next part."""
    load_ahead(changes, part)
    following = next_ended_part(changes, part)
    steps = ended_steps(changes, part.path)
    fresh = _again(changes, part)
    changes.move(changes.move(fresh, StepChange.REVIVED, GOES_ON), StepChange.STARTED)
    if following is not None:
        agenda.push(changes, Verb.REVIVE, following.path)
    resume_list(changes, part.path, has_ended_steps=bool(steps))
    for step in reversed(steps):
        agenda.push(changes, Verb.REVIVE, step.path)


def _again(changes: Changes, owner: Step) -> Step:
    """A whole or part without its end."""
    return replace(
        owner,
        revival_count=changes.run.revival_count,
        output=None,
        error=None,
        settled_at=None,
    )


def _revived(changes: Changes, step: Step) -> Step:
    """The step in the same visit and iteration, with nothing left of the budget that it spent.

    The next attempt gets the input, the last error and the last progress of the one before.
    """
    fresh = replace(
        step,
        revival_count=changes.run.revival_count,
        attempt=0,
        release_count=0,
        output=None,
        error=None,
        last_error=step.error or step.last_error,
        worker_id=None,
        signal=None,
        child_run_id=None,
        child_key=None,
        dispatched_at=None,
        started_at=None,
        settled_at=None,
    )
    if _is_out_of_iterations(changes, step):
        fresh = _with_fresh_iterations(fresh)
    return changes.move(fresh, StepChange.REVIVED)


def _with_fresh_iterations(step: Step) -> Step:
    """The last iteration was done and asked for another one: that is no attempt to repeat."""
    return replace(
        step,
        visit=step.visit + 1,
        iteration=0,
        input=None,
        last_output=None,
        last_error=None,
        progress=None,
    )


def _is_out_of_iterations(changes: Changes, step: Step) -> bool:
    spec = changes.definition_of(step.path).spec
    if step.error is None or step.error.type != failures.REPEAT_LIMIT:
        return False
    return isinstance(spec, TaskSpec) and step.iteration + 1 >= (spec.repeat or Repeat()).limit


def edit_input(changes: Changes, path: str, value: bytes) -> None:
    """The step will begin with this input. One that is out of iterations begins them anew."""
    step = changes.need(path)
    if _is_out_of_iterations(changes, step):
        step = replace(_with_fresh_iterations(step), error=None)
    changes.put(replace(step, input=value))


# Where it was cut off between two steps


def resume_list(changes: Changes, owner: str, *, has_ended_steps: bool) -> None:
    """Do what the list of the owner was about to do when it was cut off: that was dropped with it,
    unless it is on the agenda still."""
    listed = lists.list_of(changes, owner)
    if listed.is_dag:
        _resume_dag(changes, owner, listed)
    elif not has_ended_steps and not _is_on_agenda(changes, owner):
        _resume_sequence(changes, owner)


def _resume_dag(changes: Changes, owner: str, listed: ListDef) -> None:
    """Whatever may begin does; it is found anew, so nothing else may have it begin, too."""
    paths = {within(owner, name): name for name in listed.steps}
    entries = {(Verb.ENTER, path) for path in paths}
    changes.agenda[:] = [entry for entry in changes.agenda if agenda.split(entry) not in entries]
    steps = changes.run.definition.steps
    for path, name in paths.items():
        step_def = steps[within(listed.place, name)]
        if not changes.reached(owner, step_def.index):
            if not step_def.after:
                agenda.push(changes, Verb.ENTER, path)
        elif changes.need(path).status in DONE_STEP:
            agenda.push(changes, Verb.FOLLOW, path)


def _resume_sequence(changes: Changes, owner: str) -> None:
    path = changes.owner_last_step(owner)
    if path is None:
        agenda.begin_list(changes, owner)
        return
    last = changes.need(path)
    step_def = changes.definition_of(path)
    spec, name = step_def.spec, step_def.successor
    if isinstance(spec, ChoiceSpec) and last.output is not None:
        name = msgspec.json.decode(last.output, type=_Chosen).chosen
    if last.status is StepStatus.FAILED:
        if not isinstance(spec, WaitSpec) or spec.on_timeout_next is None:
            agenda.push(changes, Verb.FAIL, path)  # somebody had caught it, and does so again
            return
        name = spec.on_timeout_next
    settling.go_on(changes, last, name)


def _is_on_agenda(changes: Changes, owner: str) -> bool:
    for entry in changes.agenda:
        verb, path = agenda.split(entry)
        if (path == owner and verb is Verb.END) or (path and upper_of(path) == owner):
            return True
    return False
