"""What must be undone in which order: a model of its own, as the history tells it."""

from collections.abc import Iterator, Mapping
from typing import Final

from towpath_engine.core.definition import StepDef
from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.core.paths import live_path
from towpath_engine.core.states import RunStatus, StepStatus
from towpath_engine.core.transitions import StepChange

Visit = tuple[str, int]
"""A path and the number of a visit."""
_WITH_BOTH: Final = {RunStatus.CANCELLED, RunStatus.TIMED_OUT}


class UndoModel:
    """What was completed and must be undone, the last first, as the history tells it."""

    def __init__(self) -> None:
        self.stack: list[Visit] = []
        self.current: Visit | None = None
        self.undone: set[Visit] = set()
        self.cancel_compensates = False

    def see(self, transition: Transition, step_def: StepDef | None) -> None:
        """Follow the history by one transition."""
        if step_def is None or transition.step is None:
            return
        visit = (live_path(transition.step), transition.visit or 0)
        match transition.what:
            case StepChange.COMPLETED if step_def.compensate is not None:
                self.stack.append(visit)
            case StepChange.COMPENSATING if transition.before == StepStatus.COMPLETED:
                assert self.current is None, f"{visit} and {self.current} are undone at once"
                assert self.stack, f"{visit} is undone, but was not completed"
                top = self.stack.pop()
                assert visit == top, f"{visit} is undone before {top}"
                self.current = visit
            case StepChange.COMPENSATING:
                assert self.current == visit, f"{visit} goes on, but {self.current} had failed"
            case StepChange.COMPENSATED:
                assert self.current == visit
                assert visit not in self.undone, f"{visit} is undone twice"
                self.undone.add(visit)
                self.current = None
            case _:
                pass

    def check_chain(self, run: Run, rows: Mapping[str, Step]) -> None:
        """The stack that is stored is the one that the history tells."""
        found = list(_chain_of(run, rows))
        expected = self.stack[::-1]
        begun = expected if self.current is None else [self.current, *expected]
        assert found in (expected, begun), f"to be undone: {found}, not {begun}"

    def check_end(self, run: Run) -> None:
        """The final status and `compensation` say what became of the undoing."""
        undone = run.compensation is not None
        assert undone == bool(self.undone or self.current is not None), (
            f"{run.status} with {run.compensation}: {len(self.undone)} undone, {self.current}"
        )
        match run.compensation:
            case None:
                assert run.status not in (RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED)
                wanted = {
                    RunStatus.FAILED: run.definition.undo_on_failure,
                    RunStatus.TIMED_OUT: run.definition.undo_on_failure,
                    RunStatus.CANCELLED: self.cancel_compensates,
                }.get(run.status, False)
                assert not (wanted and self.stack), f"{run.status}, not undone: {self.stack}"
            case RunStatus.COMPENSATED:
                assert not self.stack
                assert self.current is None
                assert run.status in _WITH_BOTH | {RunStatus.COMPENSATED}
            case RunStatus.COMPENSATION_FAILED:
                assert self.current is not None
                assert run.status in _WITH_BOTH | {RunStatus.COMPENSATION_FAILED}
            case _:
                raise AssertionError(f"a settled run is {run.compensation}")


def _chain_of(run: Run, rows: Mapping[str, Step]) -> Iterator[Visit]:
    """The stored undo stack, the top first."""
    top = run.undo_top
    while top:
        path, _, number = top.rpartition("#")
        row = rows.get(top)
        if row is None:
            row = rows[path]
            assert row.visit == int(number), f"{top} is on the stack, the row is {row.visit}"
        assert row.undo_below is not None, f"{top} is on the stack and says not what is below"
        assert row.status in (StepStatus.COMPLETED, StepStatus.COMPENSATING), f"{top}: {row.status}"
        yield (path, int(number))
        top = row.undo_below
