"""Cursors of pages: opaque to callers, checked when they come back."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from towpath_engine.store.errors import CursorError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RUN_CURSOR: Final = re.compile(
    r"(\d{1,18})\.([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

LAST_INSTANT: Final = datetime(9999, 12, 31, tzinfo=UTC)
FIRST_INSTANT: Final = datetime(1, 1, 2, tzinfo=UTC)
LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"

RunPlace = tuple[datetime, str]
"""(created_at, id) of a run: a page holds what is before it."""


def format_run_cursor(place: RunPlace) -> str:
    """Microseconds since 1970, and the id."""
    at, run_id = place
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}.{run_id}"


def parse_run_cursor(cursor: str | None) -> RunPlace:
    """The place again; after everything for None. Raises CursorError for anything malformed."""
    if cursor is None:
        return LAST_INSTANT, LAST_ID
    match = _RUN_CURSOR.fullmatch(cursor)
    if match is None:
        message = "malformed cursor"
        raise CursorError(message)
    try:
        at = _EPOCH + timedelta(microseconds=int(match[1]))
    except OverflowError as fault:
        message = "malformed cursor"
        raise CursorError(message) from fault
    return at, match[2]


def parse_id_cursor(cursor: str | None) -> str | None:
    """A cursor that is an id. Raises CursorError for anything else."""
    if cursor is not None and _UUID.fullmatch(cursor) is None:
        message = "malformed cursor"
        raise CursorError(message)
    return cursor


def is_id(text: str) -> bool:
    """True for the canonical text of a UUID: nothing else can name a row."""
    return _UUID.fullmatch(text) is not None
