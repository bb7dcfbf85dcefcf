"""The runs around a run: what it asked its children for, and what it owes its parent."""

from collections.abc import Iterable

from towpath_engine.core.effects import CancelChild, Decision, StartChild, TellParent, Verdict
from towpath_engine.core.events import ChildSettled, Event
from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import SETTLED_RUN, WaitReason


class Kin:
    """Follows the children of one run. A child that was asked for is waited for, until it has
    settled or its end was asked for: none is forgotten."""

    def __init__(self) -> None:
        self._ever: set[str] = set()
        self._wanted: dict[str, str] = {}
        """Children that the run waits for, with the path of the step."""

    def check(self, before: Run, event: Event, decision: Decision, opened: Iterable[Step]) -> None:
        """Follow one decision; `opened` are the open rows after it."""
        if isinstance(event, ChildSettled):
            path = self._wanted.get(event.child_run_id)
            if decision.verdict is Verdict.APPLIED:
                assert path is not None, "nobody waits for this child"
                del self._wanted[event.child_run_id]
            elif path is not None and before.cursor is None:
                # With something left to do, the step may belong to what is over already.
                assert decision.verdict is Verdict.IGNORED, f"{path} waits for this child"
        for effect in decision.effects:
            match effect:
                case StartChild():
                    child = effect.child_run_id
                    assert child not in self._ever, "a child is asked for once"
                    self._ever.add(child)
                    self._wanted[child] = effect.path
                case CancelChild():
                    path = self._wanted.pop(effect.child_run_id, None)
                    assert path == effect.path, f"{effect.path} ends the child of {path}"
                case _:
                    pass
        waiting = {
            step.child_run_id: step.path
            for step in opened
            if step.waiting_for is WaitReason.CHILD and step.child_run_id is not None
        }
        assert waiting == self._wanted, f"waited for: {waiting}, asked for: {self._wanted}"
        self._check_parent(before, decision)

    def _check_parent(self, before: Run, decision: Decision) -> None:
        """The parent is told each time that the run settles, if a step of it waits."""
        told = [effect for effect in decision.effects if isinstance(effect, TellParent)]
        run = decision.run
        has_settled = run.status in SETTLED_RUN and decision.verdict is Verdict.APPLIED
        is_owed = has_settled and run.parent_run_id is not None and run.parent_step is not None
        assert len(told) == int(is_owed), f"{before.status} to {run.status}: told {len(told)} times"
