"""Tables: aligned columns that fit the terminal, whole in a pipe."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from towpath_engine.cli.terminal import (
    BOLD,
    DIM,
    ESCAPE,
    Terminal,
    colour_of_status,
    cut,
    harmless,
    painted,
    width_of,
    wrapped,
)

GAP: Final = "  "
COLUMN_MIN: Final = 8
"""A column is not cut below so many characters."""
INDENT: Final = "     "
"""Before a line that belongs to the row above it."""
_NAMED: Final = ("_at", "_since", "_id")
_IDS: Final = ("run_id", "id")
_INSTANT: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\.\d+Z")


class Layout(Struct, frozen=True, kw_only=True):
    """How a table gives way to a narrow terminal. `below`: columns that then stand together at the
    end of their row, or whole under it; `spare`: columns that are left out, the first one first;
    `whole`: columns that are cut last, as ids are."""

    below: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    on: Terminal,
    layout: Layout = Layout(),  # noqa: B008 -- frozen
) -> list[str]:
    """The rows under a line of titles.

    Where they are wider than the terminal, the layout gives way, and then the widest columns are
    cut, ids last.
    """
    cells = [{name: cell(row.get(name), on) for name in columns} for row in rows]
    whole = _natural(columns, cells)
    if on.width is None or _total(whole) <= on.width:
        return _grid(columns, cells, whole, on)
    kept = [name for name in columns if name not in layout.below]
    for name in layout.spare:
        if _total(_natural(kept, cells)) > on.width:
            kept = [each for each in kept if each != name]
    widths = _fitted(kept, _natural(kept, cells), on.width, whole=(*_IDS, *layout.whole))
    lines = _grid(kept, cells, widths, on)
    below = [name for name in columns if name in layout.below]
    if not below:
        return lines
    titles = ", ".join(name for name in below if any(row[name] for row in cells))
    tails = [titles, *(_tail(below, row) for row in cells)]
    return [
        text
        for number, (line, tail) in enumerate(zip(lines, tails, strict=True))
        for text in _with_tail(line, tail, _total(widths), on, title=number == 0)
    ]


def field_lines(
    fields: Mapping[str, object], on: Terminal, *, whole: Collection[str] = ()
) -> list[str]:
    """`name  value`, aligned, without what is None. Long values are cut on a terminal, those named
    in `whole` go on in further lines."""
    shown = {name: value for name, value in fields.items() if value is not None}
    width = max((len(name) for name in shown), default=0)
    found: list[str] = []
    for name, value in shown.items():
        text = cell(value, on)
        more: list[str] = []
        if on.width is not None:
            room = max(COLUMN_MIN, on.width - width - len(GAP))
            text, *more = wrapped(text, room) if name in whole else [cut(text, room)]
        title = painted(name, BOLD) if on.colours else name
        colour = _colour(name, text, title=False) if on.colours else None
        found.append(f"{title}{' ' * (width - len(name))}{GAP}{painted(text, colour)}".rstrip())
        found.extend(" " * (width + len(GAP)) + line for line in more)
    return found


def cell(value: object, on: Terminal) -> str:
    """One value in one line; instants are shorter for people."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if on.interactive:
        text = _INSTANT.sub(lambda found: _short_instant(found, on), text)
    return harmless(text)


def _short_instant(found: re.Match[str], on: Terminal) -> str:
    day, time = found[1], found[2]
    return f"{time}Z" if day == on.today else f"{day} {time}Z"


def _natural(columns: Sequence[str], cells: Sequence[Mapping[str, str]]) -> list[int]:
    """The widths in which nothing is cut."""
    return [max([len(name), *(width_of(row[name]) for row in cells)]) for name in columns]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _grid(
    columns: Sequence[str], cells: Sequence[Mapping[str, str]], widths: Sequence[int], on: Terminal
) -> list[str]:
    """Title and rows in columns of these widths."""
    found: list[str] = []
    for number, row in enumerate([{name: name for name in columns}, *cells]):
        parts: list[str] = []
        for name, width in zip(columns, widths, strict=True):
            shown = row[name] if on.width is None else cut(row[name], width)
            padding = " " * (width - width_of(shown))
            colour = _colour(name, row[name], title=number == 0) if on.colours else None
            parts.append(painted(shown, colour) + padding)
        found.append(GAP.join(parts).rstrip())
    return found


def _tail(below: Sequence[str], row: Mapping[str, str]) -> str:
    """What stands below of one row. An instant or an id alone would say nothing: it is named."""
    return GAP.join(
        f"{name.replace('_', ' ')} {row[name]}" if name.endswith(_NAMED) else row[name]
        for name in below
        if row[name]
    )


def _with_tail(line: str, tail: str, used: int, on: Terminal, *, title: bool) -> list[str]:
    """A line of the grid, which is `used` columns wide, and what belongs to it: behind it if that
    fits, else in lines of its own."""
    if not tail or on.width is None:
        return [line]
    room = on.width - used - len(GAP)
    padding = " " * (used + len(GAP) - width_of(ESCAPE.sub("", line)))
    if title:
        fitting = (each for each in (tail, tail.partition(",")[0], "") if width_of(each) <= room)
        shown = next(fitting, "")
        return [f"{line}{padding}{painted(shown, BOLD if on.colours else None)}".rstrip()]
    if width_of(tail) <= room:
        return [f"{line}{padding}{tail}"]
    return [line, *(INDENT + text for text in wrapped(tail, on.width - len(INDENT)))]


def _colour(column: str, text: str, *, title: bool) -> str | None:
    if title:
        return BOLD
    if column in ("status", "from", "to", "outcome"):
        return colour_of_status(text)
    return DIM if column.endswith("_at") or column == "at" else None


def _fitted(
    columns: Sequence[str], widths: Sequence[int], width: int, *, whole: Collection[str]
) -> list[int]:
    """Widths that together fit: the widest column gives first, below its title and the `whole` ones
    only where nothing else is left."""
    room = width - len(GAP) * (len(widths) - 1)
    ids = [widths[index] if column in whole else 0 for index, column in enumerate(columns)]
    titles = [max(COLUMN_MIN, len(column), kept) for column, kept in zip(columns, ids, strict=True)]
    fitted = list(widths)
    for least in (titles, [max(4, kept) for kept in ids], [1] * len(columns)):
        fitted = _shrunk(fitted, least, room)
    return fitted


def _shrunk(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widths taken down, the widest first, until they fit or all are as small as they may."""
    shrunk = list(widths)
    while (over := sum(shrunk) - room) > 0:
        free = [index for index, width in enumerate(shrunk) if width > least[index]]
        if not free:
            break
        widest = max(free, key=lambda index: shrunk[index])
        second = max((shrunk[index] for index in free if index != widest), default=0)
        step = min(over, shrunk[widest] - max(least[widest], second))
        shrunk[widest] -= max(1, step)
    return shrunk
