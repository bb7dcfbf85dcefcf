"""Texts of a picture: cleaned, cut, measured, and durations in words.

Whatever a definition says ends up in files that browsers open, so no control, format or surrogate
character leaves this module.
"""

import unicodedata
from datetime import datetime
from typing import Final

from towpath_protocol.errors import ProtocolError
from towpath_protocol.times import parse_instant

LINE_CHARACTERS_MAX: Final = 44
"""A longer line is cut."""
LABEL_CHARACTERS_MAX: Final = 36
"""The same for what stands at an edge."""
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def clean(text: str) -> str:
    """One line without characters that are not seen: blanks for white space, `?` for the others."""
    spaced = " ".join(text.split())
    return "".join("?" if unicodedata.category(char)[0] == "C" else char for char in spaced)


def cut(text: str, characters_max: int = LINE_CHARACTERS_MAX) -> str:
    """Clean, and not longer than this. Only so much of a text is looked at as can be shown."""
    found = clean(text[: characters_max * 8])
    whole = len(found) <= characters_max and len(text) <= characters_max * 8
    return found if whole else found[: characters_max - 1].rstrip() + "…"


def columns(text: str) -> int:
    """How many columns of a fixed-width font the text takes."""
    return sum(_width(char) for char in text)


def duration(ms: int) -> str:
    """As a definition writes it: `1h30m`, `500ms`."""
    parts: list[str] = []
    for unit, size in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0ms"


def span(started_at: str | None, settled_at: str | None) -> str | None:
    """The time between two instants in its two largest units, or None where one is missing."""
    if started_at is None or settled_at is None:
        return None
    try:
        passed = parse_instant(settled_at) - parse_instant(started_at)
    except ProtocolError:
        return None
    ms = max(0, round(passed.total_seconds() * 1_000))
    sizes = [size for _, size in _UNITS if ms >= size]
    # A minute more or less is no news after three days.
    coarse = sizes[1] if len(sizes) > 1 and sizes[0] > 1_000 else 1
    return duration(ms - ms % coarse)


def instant(text: str | None) -> str | None:
    """An instant to the second in UTC, or None where it is none."""
    if text is None:
        return None
    try:
        at: datetime = parse_instant(text)
    except ProtocolError:
        return None
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
