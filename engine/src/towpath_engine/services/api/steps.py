"""The steps of run.get, a page at a time: all, those of the workflow's own list, or those below
one step. However many items a map has, a page costs the same."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from towpath_engine.core.definition import Definition
from towpath_engine.core.model import Run, Step
from towpath_engine.core.paths import ROOT, place_of
from towpath_engine.services.api import views
from towpath_engine.store.interface import Store
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.replies import StepView
from towpath_protocol.requests import GetRun

PAGE: Final = 200
_LAST: Final = "\U0010ffff"
"""Sorts behind all that a path may have."""
_BELOW: Final = ("/", "[", "~")
"""What follows the path of a step in the paths of the steps below it, in order."""


class StepPage(Struct, frozen=True):
    """Views in order of path; `cursor` gets the next page, None: this is the last."""

    steps: tuple[StepView, ...]
    cursor: str | None


async def read_steps(store: Store, run: Run, body: GetRun) -> StepPage:
    """The page that was asked for. Raises ProtocolError for a step that has none below it."""
    if body.under is not None:
        rows, cursor = await _rows_under(store, run, body.under, body.steps_cursor)
        return _page(run, rows, cursor, {})
    after = body.steps_cursor
    if body.inner:
        rows = await store.get_steps(run.id, after, PAGE)
        last = rows[-1].path if len(rows) == PAGE else None
    else:
        rows, last = await _rows_of_root(store, run, after)
    by_path: dict[str, Step | None] = {row.path: row for row in rows}
    for name in run.definition.root.steps:
        if (after is None or name > after) and (last is None or name < last):
            by_path.setdefault(name, None)
    page = sorted(by_path)[:PAGE]
    more = len(by_path) > len(page) or last is not None
    known = {path: row for path in page if (row := by_path[path]) is not None}
    return _page(run, page, page[-1] if more and page else None, known)


def is_path(definition: Definition, path: str) -> bool:
    """Whether a run of this definition may have a row with this path: a step, or a part of one."""
    place = place_of(path)
    return place in definition.steps or (place != ROOT and place in definition.lists)


def _page(
    run: Run, page: list[Step] | list[str], cursor: str | None, known: Mapping[str, Step]
) -> StepPage:
    room = views.STEPS_BYTES_MAX
    found: list[StepView] = []
    for one in page:
        row = known.get(one) if isinstance(one, str) else one
        if row is None:
            found.append(views.unreached_view(run.definition.steps[str(one)], run))
        else:
            view, room = views.step_view(row, room)
            found.append(view)
    return StepPage(steps=tuple(found), cursor=cursor)


async def _rows_of_root(store: Store, run: Run, after: str | None) -> tuple[list[Step], str | None]:
    """The rows of the workflow's own list after a path, and the last one's path if there may be
    more. What lies below a step is leapt over."""
    found: list[Step] = []
    while len(found) < PAGE:
        rows = await store.get_steps(run.id, after, PAGE)
        found += [row for row in rows if _name_in_root(row.path) is None]
        if len(rows) < PAGE:
            return found, None
        after = _name_in_root(rows[-1].path) or rows[-1].path
    found = found[:PAGE]
    return found, found[-1].path


def _name_in_root(path: str) -> str | None:
    """Behind which text the rows end that lie below the same step of the workflow's list as this
    one; None for a row of that list itself."""
    ends = [at for mark in _BELOW if (at := path.find(mark)) >= 0]
    return path[: min(ends) + 1] + _LAST if ends else None


async def _rows_under(
    store: Store, run: Run, under: str, after: str | None
) -> tuple[list[Step], str | None]:
    """A page of the rows below a step, and the cursor of the next."""
    if not is_path(run.definition, under):
        raise ProtocolError(
            ErrorCode.STEP_NOT_FOUND, f"run {run.id} has no step {under!r}", field="under"
        )
    found: list[Step] = []
    for mark in _BELOW:
        begin, end = f"{under}{mark}", f"{under}{mark}{_LAST}"
        if after is not None and after >= end:
            continue
        rows = await store.get_steps(run.id, max(begin, after or ""), PAGE + 1 - len(found))
        found += [row for row in rows if row.path < end]
        if len(found) > PAGE:
            page = found[:PAGE]
            return page, page[-1].path
    return found, None
