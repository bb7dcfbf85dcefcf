"""Reads of runs outside any batch: one run, pages of runs, counts. Committed data only."""

from collections.abc import Iterable
from typing import Any

from towpath_engine.core.definition import Definition
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run
from towpath_engine.store.cursors import (
    FIRST_INSTANT,
    LAST_INSTANT,
    format_run_cursor,
    parse_run_cursor,
)
from towpath_engine.store.definitions import DefinitionCache
from towpath_engine.store.errors import StoreUnavailable
from towpath_engine.store.interface import RunFilter, RunPage
from towpath_engine.store.rows import run_from_row
from towpath_engine.store.session import Connection, Record, fetch, fetch_row

_FILTERS = ("workflow", "status", "key", "tag")


class RunReader:
    """Builds runs of rows, with the definition of their version."""

    def __init__(self, definitions: DefinitionCache, limits: CoreLimits) -> None:
        self._definitions = definitions
        self._limits = limits

    async def get(self, connection: Connection, run_id: str) -> Run | None:
        """See Store.get_run."""
        rows = await fetch(connection, "run_load", ids=[run_id])
        return (await self._build(connection, rows))[0] if rows else None

    async def page(
        self, connection: Connection, where: RunFilter, *, cursor: str | None, limit: int
    ) -> RunPage:
        """See Store.list_runs."""
        at, run_id = parse_run_cursor(cursor)
        values: dict[str, Any] = {
            "at": at,
            "id": run_id,
            "created_from": where.created_from or FIRST_INSTANT,
            "created_to": where.created_to or LAST_INSTANT,
            "limit": limit + 1,
            **{name: getattr(where, name) for name in _FILTERS},
        }
        rows = await _fetch_page(connection, where, values)
        runs = await self._build(connection, rows[:limit])
        more = len(rows) > limit and bool(runs)
        next_cursor = format_run_cursor((runs[-1].created_at, runs[-1].id)) if more else None
        return RunPage(runs=runs, next_cursor=next_cursor)

    async def _build(self, connection: Connection, rows: Iterable[Record]) -> list[Run]:
        return [
            run_from_row(
                row,
                await self._definition(connection, row["workflow"], row["workflow_version"]),
                self._limits,
            )
            for row in rows
        ]

    async def _definition(self, connection: Connection, workflow: str, version: int) -> Definition:
        kept = self._definitions.get(workflow, version)
        if kept is not None:
            return kept
        row = await fetch_row(
            connection, "workflow_version_get", workflow=workflow, version=version
        )
        if row is None:
            message = f"version {version} of workflow {workflow!r} is missing"
            raise StoreUnavailable(message)
        return self._definitions.add(workflow, version, row["document"])


async def _fetch_page(
    connection: Connection, where: RunFilter, values: dict[str, Any]
) -> list[Record]:
    """The statement whose index leads with the narrowest filter that is given."""
    if where.key is not None:
        return await fetch(connection, "run_list_by_key", **values)
    if where.tag is not None:
        return await fetch(connection, "run_list_by_tag", **values)
    if where.status is not None:
        return await fetch(connection, "run_list_by_status", **values)
    if where.workflow is not None:
        return await fetch(connection, "run_list_by_workflow", **values)
    return await fetch(connection, "run_list", **values)
