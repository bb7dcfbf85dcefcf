"""Reads of runs outside any batch: one run, pages of runs, counts. Committed data only."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from towpath_engine.core.definition import Definition
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run
from towpath_engine.core.states import RunStatus
from towpath_engine.store.cursors import (
    FIRST_ID,
    FIRST_INSTANT,
    RunPlace,
    format_run_cursor,
    parse_run_cursor,
)
from towpath_engine.store.definitions import DefinitionCache
from towpath_engine.store.errors import StoreUnavailable
from towpath_engine.store.interface import RunFilter, RunPage
from towpath_engine.store.rows import run_from_row
from towpath_engine.store.session import Connection, Record, fetch, fetch_row

SCAN_MAX: Final = 10_000
"""Runs that are looked at for one page: one with fewer hits ends early, with a cursor."""
_Row = Record | dict[str, Any]
_MARKS: Final = {"place", "fits"}
"""Columns of a filtered page that are not the run's."""


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
        at, run_id = _before(where, cursor)
        values: dict[str, Any] = {
            "at": at,
            "id": run_id,
            "created_from": where.created_from or FIRST_INSTANT,
            "limit": limit + 1,
        }
        rows: Sequence[_Row]
        end: _Row | None
        if where.key is None and where.tag is None:
            rows = await _fetch_by_status(connection, where, values)
            end = None
        else:
            found = await _fetch_filtered(connection, where, values)
            # The last that was looked at: behind it nobody knows what is there.
            end = found[-1] if found and found[-1]["place"] == SCAN_MAX else None
            rows = [_unmarked(row) for row in found if row["fits"]]
        if len(rows) > limit:
            rows = rows[:limit]
            end = rows[-1] if rows else None
        runs = await self._build(connection, rows)
        next_cursor = None if end is None else format_run_cursor((end["created_at"], end["id"]))
        return RunPage(runs=runs, next_cursor=next_cursor)

    async def _build(self, connection: Connection, rows: Iterable[_Row]) -> list[Run]:
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


def _unmarked(row: Record) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _MARKS}


def _before(where: RunFilter, cursor: str | None) -> RunPlace:
    """The place that all runs of the page are before.

    The end of the time that is asked for counts as one: an index scan can begin at one place only,
    and would read all that is newer than the other.
    """
    place = parse_run_cursor(cursor)
    return place if where.created_to is None else min(place, (where.created_to, FIRST_ID))


async def _fetch_by_status(
    connection: Connection, where: RunFilter, values: Mapping[str, Any]
) -> list[Record]:
    statuses = list(RunStatus) if where.status is None else [where.status]
    if where.workflow is None:
        return await fetch(connection, "run_list_by_status", statuses=statuses, **values)
    return await fetch(
        connection, "run_list_by_workflow", workflow=where.workflow, statuses=statuses, **values
    )


async def _fetch_filtered(
    connection: Connection, where: RunFilter, values: Mapping[str, Any]
) -> list[Record]:
    """By key or by tag, whatever else is asked for: no index has every combination."""
    rest: dict[str, Any] = {
        "workflow": where.workflow,
        "status": where.status,
        "tag": where.tag,
        "scan": SCAN_MAX,
        **values,
    }
    if where.key is None:
        return await fetch(connection, "run_list_by_tag", **rest)
    return await fetch(connection, "run_list_by_key", key=where.key, **rest)
