"""Arithmetic with instants that can't leave the years a store can keep."""

from datetime import UTC, datetime, timedelta
from typing import Final

LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""Nothing is ever later: a wait that would reach beyond it ends here."""


def plus_ms(at: datetime, duration_ms: int) -> datetime:
    """`at` plus a duration in milliseconds, not negative; capped at LATEST."""
    left = LATEST - at
    if duration_ms >= left // timedelta(milliseconds=1):
        return LATEST
    return at + timedelta(milliseconds=duration_ms)


def earliest(*instants: datetime | None) -> datetime | None:
    """The earliest of those that are given; None when none is."""
    return min((at for at in instants if at is not None), default=None)


def seconds_until(at: datetime, now: datetime) -> int:
    """Whole seconds from `now` to `at`, rounded up, never negative."""
    left = at - now
    return max(0, -(-left // timedelta(seconds=1)))
