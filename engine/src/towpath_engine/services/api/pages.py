"""Pages of answers: what fits into one message, and cursors that came back malformed."""

from collections.abc import Iterable
from typing import Final, NoReturn

from msgspec import Raw

from towpath_engine.store.errors import CursorError
from towpath_protocol.errors import ErrorCode, ProtocolError

REPLY_BYTES_MAX: Final = 768 * 1024
"""Values of one page, together: what does not fit goes to the next page."""
_ROW_BYTES: Final = 300
"""What a row of a page has besides its values: names, ids, instants."""


def fitting_count(sizes: Iterable[int]) -> int:
    """How many leading values of these sizes fit into one answer; the first always does."""
    room = REPLY_BYTES_MAX
    count = 0
    for size in sizes:
        room -= size + _ROW_BYTES
        if room < 0 and count:
            break
        count += 1
    return count


def size_of(value: Raw | None) -> int:
    """Bytes of a value that may be absent."""
    return 0 if value is None else len(value)


def bad_cursor(error: CursorError) -> NoReturn:
    """Raise what a malformed cursor is answered with."""
    raise ProtocolError(
        ErrorCode.MALFORMED,
        str(error),
        field="cursor",
        fix="use the next_cursor of an earlier answer with the same filters",
    ) from error
