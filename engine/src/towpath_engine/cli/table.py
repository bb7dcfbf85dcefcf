"""Tables: aligned columns that fit the terminal, whole in a pipe."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from towpath_engine.cli.terminal import (
    BOLD,
    DIM,
    Terminal,
    colour_of_status,
    cut,
    harmless,
    painted,
    width_of,
)

GAP: Final = "  "
COLUMN_MIN: Final = 8
"""A column is not cut below so many characters."""
_INSTANT: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\.\d+Z")


def table_lines(
    columns: Sequence[str], rows: Sequence[Mapping[str, object]], on: Terminal
) -> list[str]:
    """The rows under a line of titles. Where they are wider than the terminal, the widest columns
    are cut, ids last."""
    body = [[cell(row.get(column), on) for column in columns] for row in rows]
    lines = [list(columns), *body]
    widths = [max(width_of(line[index]) for line in lines) for index in range(len(columns))]
    if on.width is not None:
        widths = _fitted(columns, widths, on.width)
    found: list[str] = []
    for number, line in enumerate(lines):
        parts: list[str] = []
        for index, text in enumerate(line):
            shown = text if on.width is None else cut(text, widths[index])
            last = index == len(columns) - 1
            padding = "" if last else " " * (widths[index] - width_of(shown))
            colour = _colour(columns[index], text, title=number == 0) if on.colours else None
            parts.append(painted(shown, colour) + padding)
        found.append(GAP.join(parts).rstrip())
    return found


def field_lines(fields: Mapping[str, object], on: Terminal) -> list[str]:
    """`name  value`, aligned, without what is None."""
    shown = {name: value for name, value in fields.items() if value is not None}
    width = max((len(name) for name in shown), default=0)
    found: list[str] = []
    for name, value in shown.items():
        text = cell(value, on)
        if on.width is not None:
            text = cut(text, max(COLUMN_MIN, on.width - width - len(GAP)))
        title = painted(name, BOLD) if on.colours else name
        colour = _colour(name, text, title=False) if on.colours else None
        found.append(f"{title}{' ' * (width - len(name))}{GAP}{painted(text, colour)}".rstrip())
    return found


def cell(value: object, on: Terminal) -> str:
    """One value in one line; instants are shorter for people."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if on.interactive:
        text = _INSTANT.sub(r"\1 \2Z", text)
    return harmless(text)


def _colour(column: str, text: str, *, title: bool) -> str | None:
    if title:
        return BOLD
    if column in ("status", "from", "to", "outcome"):
        return colour_of_status(text)
    return DIM if column.endswith("_at") or column == "at" else None


def _fitted(columns: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Widths that together fit: the widest column gives first, below its title and ids only where
    nothing else is left."""
    room = width - len(GAP) * (len(widths) - 1)
    ids = [
        widths[index] if column in ("run_id", "id") else 0 for index, column in enumerate(columns)
    ]
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
