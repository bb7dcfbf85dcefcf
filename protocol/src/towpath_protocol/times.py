"""Instants as text: RFC 3339 in UTC with microseconds, years 1 to 9999."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from towpath_protocol.errors import ErrorCode, ProtocolError

_INSTANT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_EXAMPLE: Final = "2026-03-01T08:30:00.000000Z"


def format_instant(at: datetime) -> str:
    """`2026-03-01T08:30:00.000000Z`: always UTC, always six digits.

    Raises ValueError for a naive datetime, which is a fault of the caller.
    """
    if at.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def parse_instant(text: str, field: str = "at") -> datetime:
    """The instant in UTC; digits beyond microseconds are cut.

    Any offset is accepted. Raises ProtocolError (`malformed`) for any other text, for a date that
    does not exist and for years outside 1 to 9999.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise _refusal(text, field, "is no RFC 3339 instant")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, offset_hours, offset_minutes = match.groups()[6:]
    microsecond = int((fraction or "0")[:6].ljust(6, "0"))
    try:
        local = datetime(year, month, day, hour, minute, second, microsecond, tzinfo=UTC)
        if sign is None:
            return local
        if int(offset_hours) > 23 or int(offset_minutes) > 59:
            raise _refusal(text, field, "has an impossible offset")
        offset = timedelta(hours=int(offset_hours), minutes=int(offset_minutes))
        return local - offset if sign == "+" else local + offset
    except ProtocolError:
        raise
    except (ValueError, OverflowError) as error:
        raise _refusal(text, field, f"does not exist ({error})") from error


def _refusal(text: str, field: str, reason: str) -> ProtocolError:
    return ProtocolError(
        ErrorCode.MALFORMED,
        f"{text[:60]!a} {reason}",
        field=field,
        fix=f"write it as {_EXAMPLE}",
    )
