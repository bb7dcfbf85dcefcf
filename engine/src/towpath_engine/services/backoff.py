"""How long to wait before what has failed is tried again, however often it has failed."""

from typing import Final

_DOUBLINGS_MAX: Final = 32
"""More are of no use, and a power of two of some thousand no float can hold."""


def backoff_seconds(failures: int, *, initial: float, longest: float) -> float:
    """Seconds after `failures` in a row (from 1): `initial`, doubled for each, up to `longest`."""
    return min(longest, initial * 2 ** min(failures - 1, _DOUBLINGS_MAX))
