"""The census over dictionaries, as `run_census.sql` has it."""

from collections.abc import Callable

from towpath_engine.core.states import StepStatus
from towpath_engine.store.census import CensusPage, CensusPlace, place_after
from towpath_engine.store.memory_state import MemoryState


class MemoryCensus:
    """See `store.census.Census`. `state` is what is committed."""

    def __init__(self, state: Callable[[], MemoryState]) -> None:
        self._state = state

    async def page(self, place: CensusPlace, limit: int) -> CensusPage:
        """See Census."""
        state = self._state()
        behind = (place.created_at, place.run_id)
        runs = sorted(
            (
                run
                for run in state.runs.values()
                if run.status == place.status and (run.created_at, run.id) < behind
            ),
            key=lambda run: (run.created_at, run.id),
            reverse=True,
        )[:limit]
        timed = {run_id for run_id, _ in state.timers}
        orphans = [
            run
            for run in runs
            if run.paused_at is None
            and run.held_by is None
            and run.id not in timed
            and not any(
                row.token or row.signal or row.child_run_id or row.status == StepStatus.READY
                for row in state.open_of(run.id).values()
            )
        ]
        last = (runs[-1].created_at, runs[-1].id) if len(runs) == limit else None
        return CensusPage(
            status=place.status, runs=len(runs), orphans=len(orphans), next=place_after(place, last)
        )
