"""Unfinished steps over dictionaries."""

from collections.abc import Callable, Sequence

from towpath_engine.core.states import SETTLED_RUN, StepStatus
from towpath_engine.store.derive import OpenStep
from towpath_engine.store.memory_state import MemoryState
from towpath_engine.store.records import OpenDispatch
from towpath_engine.store.unfinished import AwaitedChild, OrphanedChild


class MemoryUnfinished:
    """See `store.unfinished.UnfinishedTable`. `state` is what is committed."""

    def __init__(self, state: Callable[[], MemoryState]) -> None:
        self._state = state

    async def cancelling(self, after: tuple[str, str] | None, limit: int) -> Sequence[OpenDispatch]:
        """See UnfinishedTable."""
        rows = [
            row
            for row in self._rows(after)
            if row.cancelling and row.status == StepStatus.DISPATCHED
        ]
        return [self._state().dispatch_of(row) for row in rows[:limit]]

    async def awaited_children(
        self, after: tuple[str, str] | None, limit: int
    ) -> Sequence[AwaitedChild]:
        """See UnfinishedTable."""
        runs = self._state().runs
        return [
            AwaitedChild(
                run_id=row.run_id,
                path=row.path,
                child_run_id=row.child_run_id,
                exists=row.child_run_id in runs,
                settled=row.child_run_id in runs and runs[row.child_run_id].status in SETTLED_RUN,
                detached=row.child_run_id in runs and runs[row.child_run_id].parent_step is None,
            )
            for row in self._rows(after)
            if row.child_run_id is not None
        ][:limit]

    async def orphaned_children(self, after: str | None, limit: int) -> Sequence[OrphanedChild]:
        """See UnfinishedTable."""
        awaited = {(row.run_id, row.path, row.child_run_id) for row in self._rows(None)}
        found = [
            OrphanedChild(
                run_id=run.id, parent_run_id=run.parent_run_id, parent_step=run.parent_step
            )
            for run_id, run in sorted(self._state().runs.items())
            if run.parent_run_id is not None
            and run.parent_step is not None
            and run.status not in SETTLED_RUN
            and run.ending is None
            and run.revival_count == 0
            and (after is None or run_id > after)
            and (run.parent_run_id, run.parent_step, run_id) not in awaited
        ]
        return found[:limit]

    def _rows(self, after: tuple[str, str] | None) -> list[OpenStep]:
        rows = [row for rows in self._state().open_steps.values() for row in rows.values()]
        rows.sort(key=lambda row: (row.run_id, row.path))
        return [row for row in rows if after is None or (row.run_id, row.path) > after]
