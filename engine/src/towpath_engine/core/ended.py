"""Where a settled run has ended: the rows at which a retry goes on, from the outside to the inside.

A list (of the run, a branch or an item) has ended at the step whose failure nothing caught, and
at those that were open then. Of a whole that has ended, its failed and cancelled parts have; the
others are done. So a retry comes from the run's own list to the innermost steps, and all that lies
beside this way (a failure that was caught, an item that was tolerated) stays as it is.

Rows that are not loaded are asked for (StepsNeeded), those of many lists at once.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from towpath_engine.core.changes import Changes, StepsNeeded
from towpath_engine.core.definition import ParallelSpec
from towpath_engine.core.forgetting import part_paths
from towpath_engine.core.model import Failure, Step
from towpath_engine.core.paths import (
    ROOT,
    index_of_item,
    name_of,
    parts_path,
    place_of,
    told_path,
    upper_of,
    within,
)
from towpath_engine.core.states import WHOLE, StepStatus
from towpath_engine.core.wholes import all_parts

OWNERS_AT_ONCE: Final = 500
"""Of so many branches and items at a time rows are asked for."""

_ENDED: Final = frozenset({StepStatus.FAILED, StepStatus.CANCELLED})


def is_ended(changes: Changes, row: Step) -> bool:
    """Whether the row ended and was not revived since the run goes on, even if it failed anew."""
    return row.status in _ENDED and row.revival_count < changes.run.revival_count


def has_parts(step: Step) -> bool:
    """Whether the row is that of a whole which came as far as to have parts."""
    return step.kind in WHOLE and step.parts is not None


def ended_steps(changes: Changes, owner: str) -> list[Step]:
    """The steps at which the list of this owner has ended, in the order of the list."""
    error = _error_of(changes, owner)
    rows = changes.need_all(_reached_paths(changes, owner))
    # Nothing is caught in a DAG. A failure that is not of now is left there when a list that goes
    # on ends again before it has come to all at which it had ended.
    is_dag = changes.run.definition.lists[place_of(owner)].is_dag
    return [
        row
        for row in rows
        if is_ended(changes, row)
        and (is_dag or row.status is StepStatus.CANCELLED or _failed_at(error, row.path))
    ]


def ended_parts(changes: Changes, whole: Step) -> list[Step]:
    """The branches or items of a whole at which it has ended, in their order."""
    return [part for part in all_parts(changes, whole) if is_ended(changes, part)]


def next_ended_part(changes: Changes, part: Step) -> Step | None:
    """The one after this, or None: it was the last."""
    return next(_ended_after(changes, part), None)


def ended_leaves(changes: Changes, owners: Sequence[str] = (ROOT,), *, enough: int) -> list[Step]:
    """The steps that are begun again in the lists of these owners, in order of path: all, or as
    soon as there are `enough`, at least so many.

    Asks for the rows of all lists of a depth at once: whoever comes to them one after another then
    finds them.
    """
    found: list[Step] = []
    level = list(owners)
    while level and len(found) < enough:
        now, later = level[:OWNERS_AT_ONCE], level[OWNERS_AT_ONCE:]
        changes.need_all(path for owner in now for path in _reached_paths(changes, owner))
        steps = [step for owner in now for step in ended_steps(changes, owner)]
        found += [step for step in steps if not has_parts(step)]
        wholes = [step for step in steps if has_parts(step)]
        missing = [_begin_of_parts(one) for one in wholes if not _has_all_parts(changes, one)]
        if missing:
            raise StepsNeeded(parts_of=missing)
        level = [part.path for whole in wholes for part in ended_parts(changes, whole)] + later
    return sorted(found, key=lambda step: step.path)


def has_ended_at(changes: Changes, path: str) -> bool:
    """Whether the run has ended at this step, so that a retry comes to it."""
    owner = upper_of(path)
    if owner != ROOT and not _part_has_ended(changes, owner):
        return False
    return any(step.path == path for step in ended_steps(changes, owner))


def _part_has_ended(changes: Changes, part: str) -> bool:
    whole_path = upper_of(part)
    if not has_ended_at(changes, whole_path):
        return False
    whole = changes.step(whole_path)
    if whole is None or part not in part_paths(changes.run, whole):
        return False
    return is_ended(changes, changes.need(part))


def load_ahead(changes: Changes, part: Step) -> None:
    """Have the rows below the part, and below those that come after it in its whole, loaded."""
    if not any(changes.step(path) is None for path in _reached_paths(changes, part.path)):
        return
    owners = [part.path]
    for one in _ended_after(changes, part):
        if len(owners) >= OWNERS_AT_ONCE:
            break
        owners.append(one.path)
    ended_leaves(changes, owners, enough=OWNERS_AT_ONCE)


# What there is


def _ended_after(changes: Changes, part: Step) -> Iterator[Step]:
    whole = changes.need(upper_of(part.path))
    for path in part_paths(changes.run, whole, first=_number_of(changes, part) + 1):
        row = changes.step(path)
        if row is None:
            raise StepsNeeded(parts_of=[_begin_of_parts(whole)])
        if is_ended(changes, row):
            yield row


def _number_of(changes: Changes, part: Step) -> int:
    """Which part of its whole it is, from 0."""
    spec = changes.definition_of(upper_of(part.path)).spec
    if isinstance(spec, ParallelSpec):
        return spec.branches.index(name_of(part.path))
    return index_of_item(part.path)


def _begin_of_parts(whole: Step) -> str:
    return parts_path(whole.path, whole.visit)


def _has_all_parts(changes: Changes, whole: Step) -> bool:
    return all(changes.step(path) is not None for path in part_paths(changes.run, whole))


def _reached_paths(changes: Changes, owner: str) -> list[str]:
    """The paths of the steps of the owner's list that were ever entered, in its order."""
    listed = changes.run.definition.lists[place_of(owner)]
    return [
        within(owner, name)
        for index, name in enumerate(listed.steps)
        if changes.reached(owner, index)
    ]


def _error_of(changes: Changes, owner: str) -> Failure | None:
    """With what the list of this owner failed."""
    if owner == ROOT:
        return changes.run.error
    row = changes.step(owner)
    return None if row is None else row.error


def _failed_at(error: Failure | None, path: str) -> bool:
    """Whether the error is that of this step, or of one below it."""
    if error is None or error.step is None:
        return False
    at, path = told_path(error.step), told_path(path)
    return at == path or at.startswith((f"{path}/", f"{path}["))
