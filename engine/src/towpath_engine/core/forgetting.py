"""Which steps a run in memory lets go of, so that it stays small however many have run.

In memory are the open rows, what each open owner came from last, the steps that an expression or
`after` names as long as their list goes on, and the parts of small wholes until they are joined.
Whatever else a decision needs it asks for (core.changes.StepsNeeded).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from towpath_engine.core.definition import ParallelSpec
from towpath_engine.core.model import Run, Step
from towpath_engine.core.paths import (
    ROOT,
    item_path,
    parts_path,
    place_of,
    upper_of,
    within,
)
from towpath_engine.core.states import PART, SETTLED_STEP, WHOLE, StepStatus
from towpath_engine.core.stepmap import StepMap

PARTS_KEPT_MAX: Final = 64
"""The settled parts of a whole of at most so many stay in memory until they are joined."""


def part_paths(run: Run, whole: Step, *, first: int = 0) -> Iterator[str]:
    """The paths of the parts of a whole that were started, in order, from the one with this number
    on."""
    if whole.parts is None:
        return
    begin = parts_path(whole.path, whole.visit)
    spec = run.definition.steps[place_of(whole.path)].spec
    if isinstance(spec, ParallelSpec):
        yield from (within(begin, name) for name in spec.branches[first : whole.parts.started])
    else:
        yield from (item_path(begin, index) for index in range(first, whole.parts.started))


def forgettable(run: Run, base: Run, before: StepMap, changed: Mapping[str, Step]) -> list[str]:
    """The settled steps that nothing will ask for again, or seldom enough to be loaded then."""
    memory = _Memory(run, before, changed)
    gone: list[str] = []
    for step in changed.values():
        if step.status in SETTLED_STEP:
            gone += memory.left_by(step)
        elif step.kind in PART:
            earlier = before.find(step.path)
            if earlier is not None and earlier.last_step != step.last_step:
                gone += memory.unneeded(earlier.last_step)
    if base.last_step != run.last_step:
        gone += memory.unneeded(base.last_step)
    return list(dict.fromkeys(gone))


class _Memory:
    """The steps of a run at the end of a decision."""

    def __init__(self, run: Run, before: StepMap, changed: Mapping[str, Step]) -> None:
        self._run = run
        self._before = before
        self._changed = changed

    def _find(self, path: str) -> Step | None:
        return self._changed.get(path) or self._before.find(path)

    def left_by(self, step: Step) -> Iterator[str]:
        """What goes with a step that was settled: perhaps itself, and what lies below it."""
        if step.kind in PART:
            if not self._is_to_be_joined(step):
                yield step.path
            yield from self._settled(self._list_of(step))
            return
        if not self._is_needed(step.path):
            yield step.path
        if step.kind in WHOLE:
            yield from self._settled(part_paths(self._run, step))

    def unneeded(self, path: str | None) -> Iterator[str]:
        """The path, if there is a settled step there that is not needed any more."""
        if path is not None and not self._is_needed(path):
            yield from self._settled((path,))

    def _settled(self, paths: "Iterator[str] | tuple[str, ...]") -> Iterator[str]:
        for path in paths:
            step = self._find(path)
            if step is not None and step.status in SETTLED_STEP:
                yield path

    def _list_of(self, part: Step) -> Iterator[str]:
        definition = self._run.definition
        place = place_of(part.path)
        for name in definition.lists[place].steps:
            if within(place, name) in definition.referenced:
                yield within(part.path, name)
        if part.last_step is not None:
            yield part.last_step

    def _is_needed(self, path: str) -> bool:
        if "#" in path:
            return False
        owner = upper_of(path)
        if owner == ROOT:
            last_step = self._run.last_step
        else:
            row = self._find(owner)
            if row is None or row.status is not StepStatus.RUNNING:
                return False
            last_step = row.last_step
        return path == last_step or place_of(path) in self._run.definition.referenced

    def _is_to_be_joined(self, part: Step) -> bool:
        whole = self._find(upper_of(part.path))
        return (
            whole is not None
            and whole.status is StepStatus.RUNNING
            and whole.parts is not None
            and whole.parts.total <= PARTS_KEPT_MAX
        )
