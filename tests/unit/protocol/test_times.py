"""PROTOCOL.md §3: instants."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.times import format_instant, parse_instant


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_instant_comes_back_to_the_microsecond(at: datetime) -> None:
    text = format_instant(at)
    assert len(text) == 27
    assert text.endswith("Z")
    assert parse_instant(text) == at


@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)),  # noqa: DTZ001 -- the zone comes next
    st.integers(min_value=-23 * 60 - 59, max_value=23 * 60 + 59),
)
def test_any_offset_is_read_and_none_is_written(local: datetime, offset_minutes: int) -> None:
    zone = timezone(timedelta(minutes=offset_minutes))
    at = local.replace(tzinfo=zone)
    assert parse_instant(at.isoformat()) == at
    assert format_instant(at) == format_instant(at.astimezone(UTC))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01T08:30:00Z", "2026-03-01T08:30:00.000000Z"),
        ("2026-03-01t08:30:00.5z", "2026-03-01T08:30:00.500000Z"),
        ("2026-03-01T08:30:00.123456789Z", "2026-03-01T08:30:00.123456Z"),
        ("2026-03-01T00:30:00+01:00", "2026-02-28T23:30:00.000000Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_the_spellings_of_rfc_3339_are_read(text: str, expected: str) -> None:
    assert format_instant(parse_instant(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2026-03-01", "2026-03-01T08:30:00", "2026-03-01 08:30:00Z",
        "2026-03-01T08:30Z", "2026-02-30T00:00:00Z", "2026-03-01T24:00:00Z",
        "2026-03-01T08:30:60Z", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z",
        "2026-03-01T08:30:00+24:00", "2026-03-01T08:30:00+01:60", "2026-03-01T08:30:00+0100",
        "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "2026-03-01T08:30:00Z\n",
        "٢٠٢٦-03-01T08:30:00Z", "2026-03-01T08:30:00.Z", "1772353800",
    ],
)  # fmt: skip
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        parse_instant(text, "at")
    assert (refused.value.code, refused.value.field) == (ErrorCode.MALFORMED, "at")
    assert "2026-03-01T08:30:00.000000Z" in refused.value.fix


def test_an_instant_without_a_zone_is_the_caller_s_fault() -> None:
    with pytest.raises(ValueError, match="time zone"):
        format_instant(datetime(2026, 3, 1))  # noqa: DTZ001 -- what is tested
