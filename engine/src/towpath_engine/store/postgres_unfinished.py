"""Unfinished steps on Postgres: a statement a page, by partial indexes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from towpath_engine.store.cursors import FIRST_ID
from towpath_engine.store.records import OpenDispatch
from towpath_engine.store.rows import dispatch_from_row
from towpath_engine.store.session import Connection, fetch
from towpath_engine.store.unfinished import AwaitedChild, OrphanedChild


class PostgresUnfinished:
    """See `store.unfinished.UnfinishedTable`."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._connect = connect

    async def cancelling(self, after: tuple[str, str] | None, limit: int) -> Sequence[OpenDispatch]:
        """See UnfinishedTable."""
        run_id, path = (FIRST_ID, "") if after is None else after
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "open_step_cancelling",
                after_run_id=run_id,
                after_path=path,
                limit=limit,
            )
        return [dispatch_from_row(row) for row in rows]

    async def awaited_children(
        self, after: tuple[str, str] | None, limit: int
    ) -> Sequence[AwaitedChild]:
        """See UnfinishedTable."""
        run_id, path = (FIRST_ID, "") if after is None else after
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "open_step_children",
                after_run_id=run_id,
                after_path=path,
                limit=limit,
            )
        return [AwaitedChild(**dict(row.items())) for row in rows]

    async def orphaned_children(self, after: str | None, limit: int) -> Sequence[OrphanedChild]:
        """See UnfinishedTable."""
        async with self._connect() as connection:
            rows = await fetch(
                connection, "run_orphaned_children", after_run_id=after or FIRST_ID, limit=limit
            )
        return [OrphanedChild(**dict(row.items())) for row in rows]
