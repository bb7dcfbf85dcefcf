"""What standard output can show: colours, width, and text that does no harm to a terminal.

On a terminal there are colours and tables as wide as it is; in a pipe plain aligned text that is
never cut, so that `grep` finds what is there. `NO_COLOR` and `TERM=dumb` turn colours off,
`COLUMNS` sets the width.
"""

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from msgspec import Struct


class Stream(Protocol):
    """What we ask of standard output."""

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        ...


class Terminal(Struct, frozen=True, kw_only=True):
    """`width` in columns; None: nothing is ever cut. `colours`: whether escapes may be sent.
    `today`: the date (UTC) that instants on a terminal need not say."""

    width: int | None = None
    colours: bool = False
    today: str | None = None

    @property
    def interactive(self) -> bool:
        """Whether a person looks at it."""
        return self.width is not None


def terminal(stream: Stream | None = None, environ: Mapping[str, str] | None = None) -> Terminal:
    """What standard output is now."""
    source = os.environ if environ is None else environ
    if not (sys.stdout if stream is None else stream).isatty():
        return Terminal()
    dumb = source.get("TERM", "") == "dumb"
    return Terminal(
        width=max(20, shutil.get_terminal_size().columns),
        colours=not dumb and not source.get("NO_COLOR"),
        today=datetime.now(UTC).date().isoformat(),
    )


LINES_MAX: Final = 6
"""A value that is shown whole has no more lines than this."""
ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")
"""What `painted` puts around a text."""

RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"
BLUE: Final = "34"
MAGENTA: Final = "35"
CYAN: Final = "36"
BOLD: Final = "1"
DIM: Final = "2"

_BY_STATUS: Final[Mapping[str, str]] = {
    "completed": GREEN,
    "failed": RED,
    "timed_out": RED,
    "compensation_failed": RED,
    "compensating": MAGENTA,
    "compensated": YELLOW,
    "cancelled": YELLOW,
    "skipped": DIM,
    "pending": DIM,
    "ready": CYAN,
    "dispatched": CYAN,
    "running": CYAN,
    "waiting": BLUE,
}


def colour_of_status(status: str) -> str | None:
    """The colour of a run's or step's status; None for a word that has none."""
    return _BY_STATUS.get(status)


def painted(text: str, colour: str | None) -> str:
    """The text in a colour; None leaves it."""
    return text if colour is None or not text else f"\x1b[{colour}m{text}\x1b[0m"


def width_of(text: str) -> int:
    """Columns that a terminal needs for the text: wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns, with a mark where something is missing."""
    if width_of(text) <= width:
        return text
    room = width - 1
    kept: list[str] = []
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + "…"


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, between its words where that can be; where it
    needs more than `LINES_MAX`, it is cut."""
    lines: list[str] = []
    line = ""
    for word in text[: width * (LINES_MAX + 1)].split(" "):
        rest = word
        if line and width_of(line) + 1 + width_of(rest) <= width:
            line = f"{line} {rest}"
            continue
        if line:
            lines.append(line)
        while width_of(rest) > width:
            piece = cut(rest, width)[:-1]
            if not piece:
                break
            lines.append(piece)
            rest = rest[len(piece) :]
        line = rest
        if len(lines) > LINES_MAX:
            break
    lines.append(line)
    if len(lines) <= LINES_MAX:
        return lines
    return [*lines[: LINES_MAX - 1], cut(f"{lines[LINES_MAX - 1]}…", width)]


def harmless(text: str, *, lines: bool = False) -> str:
    """The text without control characters, which a terminal would obey: they are shown escaped.

    With `lines`, line ends and tabs stay.
    """
    if text.isprintable():
        return text
    allowed = "\n\t" if lines else ""
    return "".join(
        each
        if each.isprintable() or each in allowed
        else each.encode("unicode_escape").decode("ascii")
        for each in text
    )
