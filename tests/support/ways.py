"""Which way each list takes: a model of its own of what may follow what, as the history tells it.

A sequence goes on from the step that settled last to where its definition leads from there; a DAG
begins each step once. A list ends only where nothing follows.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from towpath_engine.core.definition import ChoiceSpec, Definition, ListDef, StepDef, WaitSpec
from towpath_engine.core.model import Step, Transition
from towpath_engine.core.paths import ROOT, live_path, name_of, place_of, upper_of, within
from towpath_engine.core.states import PART, StepStatus
from towpath_engine.core.transitions import RunChange, StepChange

_SETTLED: Final = frozenset({StepChange.COMPLETED, StepChange.FAILED, StepChange.SKIPPED})
_DONE: Final = frozenset({
    StepStatus.COMPLETED, StepStatus.SKIPPED, StepStatus.COMPENSATING, StepStatus.COMPENSATED,
    StepStatus.COMPENSATION_FAILED,
})  # fmt: skip


class _Last(Struct, frozen=True):
    """The step of a list that settled last, and how."""

    step_def: StepDef
    what: str
    chosen: object


class Ways:
    """Follows the lists of one run."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._last: dict[str, _Last] = {}
        self._entered: set[tuple[str, int]] = set()
        self._redriven: object = None

    def see(self, transition: Transition, rows: Mapping[str, Step]) -> None:
        """Follow the history by one transition; `rows` are those at the end of its decision."""
        path = transition.step
        if path is None:
            if transition.what == RunChange.REDRIVEN:
                self._redriven = (transition.data or {}).get("step")
            elif transition.what == RunChange.COMPLETED:
                self._check_end(ROOT, rows)
            return
        row = rows[path]
        if path != live_path(path) or transition.before == StepStatus.CANCELLING:
            return
        if row.kind in PART:
            if transition.what == StepChange.COMPLETED:
                self._check_end(path, rows)
            return
        self._see_step(path, transition)

    def _see_step(self, path: str, transition: Transition) -> None:
        step_def = self._definition.steps[place_of(path)]
        visit = (path, transition.visit or 0)
        data = transition.data or {}
        never_reached = transition.what == StepChange.SKIPPED and data.get("reason") != "when"
        if transition.what == StepChange.RESET or never_reached:
            return
        if transition.what == StepChange.REVIVED:
            self._entered.add(visit)
        elif transition.what == StepChange.REVISITED or transition.before == StepStatus.PENDING:
            self._check_entry(path, visit, is_new=transition.what == StepChange.REVISITED)
        if transition.what in _SETTLED:
            chosen = data.get("chosen")
            self._last[upper_of(path)] = _Last(step_def, transition.what, chosen)

    def _check_entry(self, path: str, visit: tuple[str, int], *, is_new: bool) -> None:
        """A visit begins only where the list has come to."""
        if visit in self._entered:
            assert not is_new, f"{path} is visited twice as {visit}"
            return
        self._entered.add(visit)
        owner = upper_of(path)
        listed = self._list_of(owner)
        if self._redriven == path:
            self._redriven = None
        elif not listed.is_dag:
            names = self._names_next(owner, listed)
            assert name_of(path) in names, f"{path} is entered, but {owner} goes on with {names}"

    def _check_end(self, owner: str, rows: Mapping[str, Step]) -> None:
        """A list ends only where nothing follows; a DAG when all of it is done."""
        listed = self._list_of(owner)
        if not listed.is_dag:
            names = self._names_next(owner, listed)
            assert None in names, f"{owner or 'the run'} has ended, but goes on with {names}"
            return
        found = {name: rows[within(owner, name)].status for name in listed.steps}
        # One that failed may have been caught: by the step that its `catch` names.
        left = {
            name: status
            for name, status in found.items()
            if status not in _DONE and not self._definition.steps[within(listed.place, name)].catch
        }
        assert not left, f"{owner or 'the run'} has ended with {left}"

    def _list_of(self, owner: str) -> ListDef:
        return self._definition.lists[place_of(owner)]

    def _names_next(self, owner: str, listed: ListDef) -> set[str | None]:
        """What may come next in a sequence; None: its end."""
        last = self._last.get(owner)
        if last is None:
            return set(listed.first)
        step_def, spec = last.step_def, last.step_def.spec
        if last.what == StepChange.FAILED:
            names: set[str | None] = {row.next for row in step_def.catch}
            if isinstance(spec, WaitSpec) and spec.on_timeout_next is not None:
                names.add(spec.on_timeout_next)
            return names
        if isinstance(spec, ChoiceSpec) and last.what == StepChange.COMPLETED:
            assert isinstance(last.chosen, str)
            return {last.chosen}
        return {step_def.successor}
