"""Timestamps and durations: their text forms and calendar fields, to the nanosecond, in UTC."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from towpath_engine.core.expressions.operators import checked_duration, checked_timestamp
from towpath_engine.core.expressions.values import (
    EPOCH,
    NANOS,
    Duration,
    EvaluationError,
    Timestamp,
)

MINUTE: Final = 60 * NANOS
HOUR: Final = 3_600 * NANOS

_INSTANT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_UNITS: Final = {
    "h": HOUR,
    "m": MINUTE,
    "s": NANOS,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ns": 1,
}
_PART: Final = re.compile(r"(\d{0,20})(?:\.(\d{0,20}))?(ns|us|µs|μs|ms|h|m|s)", re.ASCII)
_OFFSET: Final = re.compile(r"([+-]?)(\d{1,2}):(\d\d)", re.ASCII)


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339, as in `2026-01-31T12:00:00.5Z`. Raises EvaluationError."""
    found = _INSTANT.fullmatch(text)
    msg = "not an RFC 3339 timestamp"
    if found is None:
        raise EvaluationError(msg)
    date, clock, fraction, _, sign, hours, minutes = found.groups()
    try:
        whole = datetime.fromisoformat(f"{date}T{clock}").replace(tzinfo=UTC)
    except ValueError as error:
        raise EvaluationError(msg) from error
    nanos = _seconds(whole) * NANOS + int((fraction or "0").ljust(9, "0"))
    if sign is not None:
        if int(hours) > 23 or int(minutes) > 59:
            raise EvaluationError(msg)
        offset = int(hours) * HOUR + int(minutes) * MINUTE
        nanos -= offset if sign == "+" else -offset
    return checked_timestamp(nanos)


def _seconds(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(seconds=1)


def format_timestamp(value: Timestamp) -> str:
    """RFC 3339 with a `Z`; the fraction has 0, 3, 6 or 9 digits."""
    seconds, nanos = divmod(value.nanos, NANOS)
    instant = EPOCH + timedelta(seconds=seconds)
    return f"{instant.replace(tzinfo=None).isoformat()}{_fraction(nanos)}Z"


def _fraction(nanos: int) -> str:
    if nanos == 0:
        return ""
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}"


def parse_duration(text: str) -> Duration:
    """A duration such as `1h30m`, `1.5s`, `-250ms`. Raises EvaluationError."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0)
    at = nanos = 0
    if len(rest) > 200:
        rest = ""
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or not (part[1] or part[2]):
            break
        unit = _UNITS[part[3]]
        nanos += int(part[1] or "0") * unit
        if part[2]:
            nanos += int(part[2]) * unit // 10 ** len(part[2])
        at = part.end()
    if at < len(rest) or not rest:
        msg = "not a duration such as 1h30m or 1.5s"
        raise EvaluationError(msg)
    return checked_duration(sign * nanos)


def format_duration(value: Duration) -> str:
    """In seconds, as in `3600s` or `-0.250s`."""
    seconds, nanos = divmod(abs(value.nanos), NANOS)
    sign = "-" if value.nanos < 0 else ""
    return f"{sign}{seconds}{_fraction(nanos)}s"


def parse_offset(text: str) -> int | None:
    """The offset from UTC in nanoseconds of `UTC`, `+02:00`, `-8:00`; None for other text."""
    if text in ("UTC", "Z", ""):
        return 0
    found = _OFFSET.fullmatch(text)
    if found is None or int(found[2]) > 23 or int(found[3]) > 59:
        return None
    offset = int(found[2]) * HOUR + int(found[3]) * MINUTE
    return -offset if found[1] == "-" else offset


def _calendar(field: Callable[[datetime], int]) -> Callable[[int], int]:
    def read(nanos: int) -> int:
        try:
            return field(EPOCH + timedelta(seconds=nanos // NANOS))
        except OverflowError as error:
            msg = "timestamp out of range"
            raise EvaluationError(msg) from error

    return read


def _truncated(unit: int, modulus: int | None = None) -> Callable[[Duration], int]:
    def read(value: Duration) -> int:
        whole = abs(value.nanos) // unit
        if modulus is not None:
            whole %= modulus
        return whole if value.nanos >= 0 else -whole

    return read


Getter = tuple[Callable[[int], int], Callable[[Duration], int] | None]

# For each method: of a timestamp's nanoseconds, shifted to the zone; and of a duration.
GETTERS: Final[Mapping[str, Getter]] = {
    "getFullYear": (_calendar(lambda d: d.year), None),
    "getMonth": (_calendar(lambda d: d.month - 1), None),
    "getDate": (_calendar(lambda d: d.day), None),
    "getDayOfMonth": (_calendar(lambda d: d.day - 1), None),
    "getDayOfWeek": (_calendar(lambda d: d.isoweekday() % 7), None),
    "getDayOfYear": (_calendar(lambda d: d.timetuple().tm_yday - 1), None),
    "getHours": (_calendar(lambda d: d.hour), _truncated(HOUR)),
    "getMinutes": (_calendar(lambda d: d.minute), _truncated(MINUTE)),
    "getSeconds": (_calendar(lambda d: d.second), _truncated(NANOS)),
    "getMilliseconds": (
        lambda nanos: nanos % NANOS // 1_000_000,
        _truncated(1_000_000, 1_000),
    ),
}
