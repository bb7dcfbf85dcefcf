"""Rows that a decision asks for: found among what the batch has written, else read for all at once.

A run is loaded without most of its settled steps, so a decision may raise `StepsNeeded`. Work whose
run lacks rows is put off, and all that comes after it for the same run or lane; when the others are
done, the rows of all that asked are read together, and what was put off is applied in its order.
"""

from collections.abc import Iterable
from typing import Final

from towpath_engine.core.changes import StepsNeeded
from towpath_engine.services.work import Outcome, OutcomeKind, Work
from towpath_engine.store.interface import RowsRequest
from towpath_protocol.errors import ErrorCode

ROUNDS_MAX: Final = 64
"""How often one work may ask before it counts as broken."""


class RowsMissing(Exception):  # noqa: N818 - named for what happened
    """A decision needs rows that have to be read."""

    def __init__(self, request: RowsRequest, needed: StepsNeeded) -> None:
        self.request = request
        super().__init__(str(needed))


def rows_request(run_id: str, needed: StepsNeeded) -> RowsRequest:
    """What is to be read of the run."""
    return RowsRequest(
        run_id=run_id, paths=needed.paths, parts_of=needed.parts_of, statuses=needed.statuses
    )


class Round:
    """One pass over the works of a batch: who asked for what, and what is put off for it."""

    def __init__(self) -> None:
        self.requests: dict[str, RowsRequest] = {}
        self.put_off: list[Work] = []
        self._lanes: set[str] = set()

    def must_wait(self, work: Work, run_ids: Iterable[str]) -> bool:
        """Whether something that was put off comes before it: then it is put off, too."""
        if work.lane not in self._lanes and self.requests.keys().isdisjoint(run_ids):
            return False
        self._put_off(work)
        return True

    def ask(self, work: Work, missing: RowsMissing) -> None:
        """Put the work off until its rows have been read."""
        self.requests[missing.request.run_id] = missing.request
        self._put_off(work)

    def _put_off(self, work: Work) -> None:
        self.put_off.append(work)
        self._lanes.add(work.lane)


class Patience:
    """Counts how often each work has asked: one that gets no further is broken."""

    def __init__(self) -> None:
        self._asked: dict[Work, list[RowsRequest]] = {}

    def is_over(self, work: Work, missing: RowsMissing) -> bool:
        """Whether the work asks for the same rows again, or has asked too often."""
        asked = self._asked.setdefault(work, [])
        over = missing.request in asked[-1:] or len(asked) >= ROUNDS_MAX
        asked.append(missing.request)
        return over


def broken(missing: RowsMissing) -> Outcome:
    """The outcome of a work that asks for rows for ever."""
    return Outcome(
        kind=OutcomeKind.BROKEN,
        run_id=missing.request.run_id,
        code=ErrorCode.POISON,
        message=f"the run lacks rows that a decision needs: {missing}",
    )
