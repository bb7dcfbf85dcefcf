"""The versions of the wire that this package speaks, and what each one added.

Version 1: everything. A later version adds a line here, a note "Since v2" in PROTOCOL.md, golden
files of its own, and never edits those of an earlier one.
"""

from typing import Final

CURRENT: Final = 1
"""The version that this package writes into `v`."""

OLDEST_SUPPORTED: Final = 1
"""The oldest version that this package still reads."""


def current_version() -> int:
    """`CURRENT`, as a factory: msgspec leaves plain defaults out, and `v` is always written."""
    return CURRENT
