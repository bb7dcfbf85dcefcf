"""What may be dispatched now, as one decision sees it: the pauses, and the queues that are full.

A gate is read by the shell and comes in with the event, so that a decision stays a function of its
arguments. What is held back says by what, as `SCOPE:NAME`; the same text names the rows among
which the shell finds it again.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.core.states import RunStatus

HELD_BY_RUN: Final = "run"
"""Held by the pause of the run itself: only its resume finds it, so it needs no name."""
HELD_BY_FACT: Final = "held_by"
"""Among the data of `step-readied` and `run-held`: by what."""


class Scope(StrEnum):
    """What holds a dispatch back: the pause of one of these, or the window of a queue."""

    WORKFLOW = "workflow"
    VERSION = "version"
    TASK = "task"
    QUEUE = "queue"
    WINDOW = "window"
    """The queue has as many undone dispatches as it may, or others come first."""


class Gate(Struct, frozen=True, kw_only=True):
    """`paused` are holders (`queue:mail`, `version:order@3`); `full` says of a queue from which
    level on it takes no more (0: none at all, 2: normal and low have to wait)."""

    paused: frozenset[str] = frozenset()
    full: Mapping[str, int] = {}


OPEN: Final = Gate()
"""Nothing is held back."""


def holder(scope: Scope, name: str) -> str:
    """The text for a pause or a window, as it stands in `held_by`."""
    return f"{scope.value}:{name}"


def scope_of_holder(held_by: str) -> str:
    """What kind of holder it is, as run.get and run.explain name it."""
    return held_by.partition(":")[0]


def version_name(workflow: str, version: int) -> str:
    """How a version is named where a pause names one."""
    return f"{workflow}@{version}"


def holder_of_run(run: Run, gate: Gate) -> str | None:
    """What keeps the run from beginning; None: nothing."""
    if run.paused_at is not None:
        return HELD_BY_RUN
    if not gate.paused:
        return None
    version = version_name(run.workflow, run.workflow_version)
    wanted = (holder(Scope.WORKFLOW, run.workflow), holder(Scope.VERSION, version))
    return next((one for one in wanted if one in gate.paused), None)


def holder_of_step(run: Run, step: Step, gate: Gate) -> str | None:
    """What keeps the task step from being dispatched; None: nothing.

    A run that is undoing its steps goes on although its workflow or version is paused.
    """
    if gate is OPEN and run.paused_at is None:
        return None
    if run.status is not RunStatus.COMPENSATING or run.paused_at is not None:
        held_by = holder_of_run(run, gate)
        if held_by is not None:
            return held_by
    if gate.paused:
        wanted = (holder(Scope.TASK, step.task or ""), holder(Scope.QUEUE, step.queue or ""))
        paused = next((one for one in wanted if one in gate.paused), None)
        if paused is not None:
            return paused
    full_from = gate.full.get(step.queue or "")
    if full_from is not None and run.priority >= full_from:
        return holder(Scope.WINDOW, step.queue or "")
    return None


def gate_of_history(transitions: Iterable[Transition]) -> Gate:
    """A gate under which the decision that wrote these transitions is made again.

    Only what was held shows what was closed; what else was closed then changed nothing.
    """
    held = {
        str(transition.data[HELD_BY_FACT])
        for transition in transitions
        if transition.data is not None and HELD_BY_FACT in transition.data
    } - {HELD_BY_RUN}
    if not held:
        return OPEN
    windows = {name for name in held if name.startswith(holder(Scope.WINDOW, ""))}
    full = {name.partition(":")[2]: 0 for name in windows}
    return Gate(paused=frozenset(held - windows), full=full)
