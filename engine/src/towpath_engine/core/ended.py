"""Where a settled run has ended: the rows at which a retry goes on, from the outside to the inside.

A list (of the run, a branch or an item) has ended at the step whose failure nothing caught, and
at those that were open then. Of a whole that has ended, its failed and cancelled parts have; the
others are done. So a retry comes from the run's own list to the innermost steps, and all that lies
beside this way (a failure that was caught, an item that was tolerated) stays as it is.
"""

from collections.abc import Iterable, Iterator

from towpath_engine.core.model import Failure, Run, Step
from towpath_engine.core.paths import ROOT, owner_of, whole_of_item
from towpath_engine.core.states import PART, WHOLE, StepKind, StepStatus

ENDED = frozenset({StepStatus.FAILED, StepStatus.CANCELLED})
"""The statuses of all rows that are asked for."""


def is_below(path: str, above: str) -> bool:
    """Whether the row lies below another one."""
    return path.startswith((f"{above}/", f"{above}["))


class EndedRows:
    """The rows of a run in the statuses `ENDED`, found by what they belong to.

    Rows that the same retry has revived already are none of them, even if they have failed anew.
    """

    def __init__(self, run: Run, rows: Iterable[Step]) -> None:
        self._run = run
        self._rows: dict[str, Step] = {}
        self._steps: dict[str, list[Step]] = {}
        self._parts: dict[str, list[Step]] = {}
        for row in sorted(rows, key=lambda one: one.path):
            if row.status not in ENDED or "#" in row.path:
                continue
            self._rows[row.path] = row
            if row.kind in PART:
                self._parts.setdefault(whole_of(row), []).append(row)
            else:
                self._steps.setdefault(owner_of(row.path), []).append(row)

    def parts_of(self, whole: str) -> list[Step]:
        """The branches or items of a whole that have to go on."""
        return self._parts.get(whole, [])

    def steps_of(self, owner: str) -> list[Step]:
        """The steps at which the list of this owner has ended."""
        error = self._run.error if owner == ROOT else self._error_of(owner)
        return [
            row
            for row in self._steps.get(owner, [])
            if row.status is StepStatus.CANCELLED or _failed_at(error, row.path)
        ]

    def leaves(self, owner: str = ROOT) -> Iterator[Step]:
        """The steps that are begun again, in no wider a way than they stand in the run."""
        for step in self.steps_of(owner):
            if not has_parts(step):
                yield step
                continue
            for part in self.parts_of(step.path):
                yield from self.leaves(part.path)

    def _error_of(self, owner: str) -> Failure | None:
        row = self._rows.get(owner)
        return None if row is None else row.error


def whole_of(part: Step) -> str:
    """The path of the whole that a part belongs to."""
    return whole_of_item(part.path) if part.kind is StepKind.ITEM else owner_of(part.path)


def has_parts(step: Step) -> bool:
    """Whether the row is that of a whole which came as far as to have parts."""
    return step.kind in WHOLE and step.parts is not None


def _failed_at(error: Failure | None, path: str) -> bool:
    """Whether the error is that of this step, or of one below it."""
    return (
        error is not None
        and error.step is not None
        and (error.step == path or is_below(error.step, path))
    )
