"""What a run made of its definition, gathered row by row: so much as a picture shows, however many
items a map has.

Rows are gathered by place, so that ten thousand items are one entry. The way that a run took comes
from its history, as far as that was read; the picture adds what follows from the rows alone.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from towpath_engine.core import paths
from towpath_engine.core.model import Parts
from towpath_engine.core.states import (
    COMPLETED_ONCE,
    SETTLED_RUN,
    SETTLED_STEP,
    StepKind,
    StepStatus,
)
from towpath_engine.core.transitions import StepChange

_SETTLED: Final = frozenset(status.value for status in SETTLED_STEP)
_SETTLED_RUN: Final = frozenset(status.value for status in SETTLED_RUN)
_LEFT: Final = frozenset(status.value for status in COMPLETED_ONCE)
"""From a step in one of these the run went on in its list, if that was not its end."""
_STANDING: Final = (
    "compensation_failed", "failed", "compensating", "cancelling", "running", "dispatched",
    "ready", "waiting", "cancelled", "completed", "compensated", "skipped",
)  # fmt: skip
"""Of many rows at one place, the first of these that any has colours the place."""


class StepRow(Struct, frozen=True, kw_only=True):
    """What is drawn of a row of a run. `visit` is that of the row; `chosen` is the output of a
    choice; `parts` are of a whole."""

    path: str
    kind: str
    status: str
    visit: int = 1
    attempt: int = 0
    iteration: int = 0
    waiting_for: str | None = None
    started_at: str | None = None
    settled_at: str | None = None
    error_type: str | None = None
    chosen: str | None = None
    child_run_id: str | None = None
    parts: Parts | None = None


class PlaceSeen(Struct, kw_only=True):
    """All rows at one place. Of a single row `only` is that row."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    only: StepRow | None = None
    attempts_max: int = 0
    chosen: set[str] = field(default_factory=set[str])
    parts: Parts = Parts(total=0)
    """The sums of the parts of wholes."""

    @property
    def state(self) -> str | None:
        """The status by which the place is coloured."""
        return next((status for status in _STANDING if status in self.counts), None)

    @property
    def left(self) -> bool:
        """Whether the run went on from here, as far as a row can tell. One that is skipped may have
        been so only because the run settled."""
        return not _LEFT.isdisjoint(self.counts)

    def add(self, row: StepRow) -> None:
        """One more row."""
        self.only = row if not self.counts else None
        self.counts[row.status] = self.counts.get(row.status, 0) + 1
        self.attempts_max = max(self.attempts_max, row.attempt)
        if row.chosen is not None:
            self.chosen.add(row.chosen)
        if row.parts is not None:
            mine = self.parts
            self.parts = Parts(
                total=mine.total + row.parts.total,
                started=mine.started + row.parts.started,
                open=mine.open + row.parts.open,
                failed=mine.failed + row.parts.failed,
            )


class RunSeen:
    """A run as a picture shows it. Feed it rows and transitions, in any number."""

    def __init__(self, *, status: str) -> None:
        self.status = status
        self.places: dict[str, PlaceSeen] = {}
        self.ways: set[tuple[str, str]] = set()
        """From place to place, within a list; the first is empty where the list begins."""
        self.last: str | None = None
        """Place of the step of the workflow's list that settled last, of those in the history and
        not skipped: that happens to all that a run did not reach, when it settles."""
        self._last: dict[str, str] = {}
        self._failed: set[str] = set()
        self._visits: dict[str, int] = {}
        """Of wholes that were visited again."""
        self.caught: set[tuple[str, str]] = set()
        """Those of `ways` that lead away from a failure."""

    @property
    def settled(self) -> bool:
        """Whether the run has ended."""
        return self.status in _SETTLED_RUN

    def add_row(self, row: StepRow) -> None:
        """A row of the run, a whole before what lies below it. What was never reached, is an item
        or belongs to an earlier visit shows nothing."""
        if row.status == StepStatus.PENDING or "#" in row.path:
            return
        if row.visit > 1 and row.parts is not None:
            self._visits[row.path] = row.visit
        if row.kind != StepKind.ITEM and self._is_current(row.path):
            self.places.setdefault(paths.place_of(row.path), PlaceSeen()).add(row)

    def _is_current(self, path: str) -> bool:
        """Whether all wholes above are in the visit to which the row belongs."""
        while self._visits or "~" in path:
            upper, whole = path.rpartition("/")[0], paths.upper_of(path)
            if path.endswith("]"):
                upper = path.rpartition("[")[0]
            if not whole:
                return True
            if upper != paths.parts_path(whole, self._visits.get(whole, 1)):
                return False
            path = whole
        return True

    def add_transition(
        self, *, path: str, what: str, before: str | None, after: str | None
    ) -> None:
        """A transition of a step, in order of `seq`."""
        if path.endswith("]") or "#" in path:
            return
        owner, place = paths.owner_of(path), paths.place_of(path)
        if before == StepStatus.PENDING or what == StepChange.REVISITED:
            source = self._last.get(owner, "")
            ways = self.caught if owner in self._failed else self.ways
            ways.add((source, place))
        if after in _SETTLED and before not in _SETTLED:
            self._last[owner] = place
            (self._failed.add if after == StepStatus.FAILED else self._failed.discard)(owner)
            if owner == paths.ROOT and after != StepStatus.SKIPPED:
                self.last = place


def counted(counts: Mapping[str, int]) -> str:
    """`9,950 completed, 3 failed`, in a fixed order."""
    known = [status for status in reversed(_STANDING) if status in counts]
    return ", ".join(f"{counts[status]:,} {status.replace('_', ' ')}" for status in known)
