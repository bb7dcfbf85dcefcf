"""Durations as definitions write them.

One grammar: whole numbers with units, the larger unit first, each at most once, no blanks:
`500ms`, `1s`, `90m`, `1h30m`, `7d`. A day is 24 hours. Longer than zero, at most a hundred years.
"""

import re
from typing import Final

from towpath_protocol.failures import DURATION_MS_MAX

_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION: Final = re.compile(
    r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m(?!s))?(?:(\d{1,9})s)?(?:(\d{1,15})ms)?", re.ASCII
)
DURATION_PATTERN: Final = r"^(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?(\d{1,9}s)?(\d{1,15}ms)?$"
"""The grammar as a regular expression for JSON Schema."""
RULE: Final = 'write it with units, the largest first, as "500ms", "1s", "1h30m" or "7d"'


class BadDuration(ValueError):  # noqa: N818 - named for what it is, as its siblings
    """The text is no duration; the message says why and how to write one."""


def parse_duration(text: str) -> int:
    """Milliseconds of a duration. Raises BadDuration."""
    if text.startswith("-"):
        raise BadDuration(f"{text!r} is negative; a duration is longer than zero")
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise BadDuration(f"{text[:40]!r} is no duration: {RULE}")
    counts = (int(count) if count else 0 for count in match.groups())
    total = sum(count * unit for count, unit in zip(counts, _UNITS_MS.values(), strict=True))
    if total == 0:
        raise BadDuration(f"{text!r} is zero; a duration is longer than zero")
    if total > DURATION_MS_MAX:
        raise BadDuration(f"{text!r} is longer than a hundred years")
    return total
