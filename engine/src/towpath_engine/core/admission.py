"""Pauses of a run, and the second try of what was held back.

A pause is one of the reasons for which a run is alive: it keeps its instants, its deadline counts
on, attempts that run finish and what follows from them is decided. Only dispatches wait.
"""

from typing import assert_never

from msgspec.structs import replace

from towpath_engine.core import agenda
from towpath_engine.core.agenda import Verb
from towpath_engine.core.changes import Changes
from towpath_engine.core.dispatching import dispatch
from towpath_engine.core.effects import Verdict
from towpath_engine.core.events import PauseRequested, ResumeRequested, StepAdmitted
from towpath_engine.core.gate import HELD_BY_RUN, holder_of_run, holder_of_step
from towpath_engine.core.paths import ROOT
from towpath_engine.core.states import RunStatus, StepStatus
from towpath_engine.core.timers import begin_run
from towpath_engine.core.transitions import RunChange


def apply_admission(
    changes: Changes, event: PauseRequested | ResumeRequested | StepAdmitted
) -> Verdict:
    """Apply one of the events of this module."""
    match event:
        case PauseRequested():
            return _pause(changes, event)
        case ResumeRequested():
            return _resume(changes)
        case StepAdmitted(path=path):
            return _admit_run(changes) if path is None else _admit_step(changes, path)
        case _:
            assert_never(event)


def _pause(changes: Changes, event: PauseRequested) -> Verdict:
    """Hold every dispatch of the run from now on. IGNORED when it is paused already."""
    if changes.run.paused_at is not None:
        return Verdict.IGNORED
    by, reason = event.cause.by, event.cause.reason
    changes.run = replace(changes.run, paused_at=changes.now, paused_by=by, pause_reason=reason)
    changes.move_run(RunChange.PAUSED, {"by": by, "reason": reason})
    return Verdict.APPLIED


def _resume(changes: Changes) -> Verdict:
    """Lift the pause of the run and go on with what it held. IGNORED when it is not paused.

    What something else holds, too, stays held, by that.
    """
    if changes.run.paused_at is None:
        return Verdict.IGNORED
    changes.run = replace(changes.run, paused_at=None, paused_by=None, pause_reason=None)
    changes.move_run(RunChange.RESUMED)
    if changes.run.held_by == HELD_BY_RUN:
        begin_run(changes)
        return Verdict.APPLIED
    agenda.push(changes, Verb.RESUME, ROOT)
    return Verdict.APPLIED


def let_go(changes: Changes) -> None:
    """Agenda: dispatch what the pause of the run has held, in as many decisions as it takes. If the
    run was paused again meanwhile, the rest stays held."""
    if changes.run.paused_at is not None:
        return
    for step in changes.open_steps():
        if step.stage is not StepStatus.READY or step.held_by != HELD_BY_RUN:
            continue
        if changes.full:
            agenda.push(changes, Verb.RESUME, ROOT)
            return
        if changes.is_live(step):
            dispatch(changes, step, step.attempt)


def _admit_step(changes: Changes, path: str) -> Verdict:
    """Try again to dispatch a ready step. IGNORED when it is not held any more, or still by the
    same. What something else holds now says so, and is found among that one's rows."""
    step = changes.step(path)
    if step is None or step.stage is not StepStatus.READY or not changes.is_live(step):
        return Verdict.IGNORED
    if holder_of_step(changes.run, step, changes.gate) == step.held_by:
        return Verdict.IGNORED
    dispatch(changes, step, step.attempt)
    return Verdict.APPLIED


def _admit_run(changes: Changes) -> Verdict:
    """The same for the beginning of the run."""
    run = changes.run
    if run.status is not RunStatus.PENDING or run.held_by is None:
        return Verdict.IGNORED
    if holder_of_run(run, changes.gate) == run.held_by:
        return Verdict.IGNORED
    begin_run(changes)
    return Verdict.APPLIED
