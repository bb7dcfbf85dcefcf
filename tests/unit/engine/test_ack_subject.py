"""The facts of a delivery are read from its ack subject, in both forms that servers write."""

from datetime import UTC, datetime

import pytest

from towpath_engine.bus.jetstream import parse_headers, time_of_nanoseconds, time_of_text
from towpath_engine.bus.pull import AckMetadata, Verdict, judge_status, parse_ack_subject

FACTS = AckMetadata(deliveries=2, stream_seq=17, stored_at_ns=1_700_000_000_123_456_789, pending=4)


def test_the_short_form_has_nine_tokens() -> None:
    subject = "$JS.ACK.T_IN.partition_3.2.17.9.1700000000123456789.4"
    assert parse_ack_subject(subject) == FACTS


@pytest.mark.parametrize("tail", ["", ".Rnd0m"])
def test_the_long_form_has_domain_and_account_and_maybe_a_random_token(tail: str) -> None:
    subject = f"$JS.ACK._.ACCHASH.T_IN.partition_3.2.17.9.1700000000123456789.4{tail}"
    assert parse_ack_subject(subject) == FACTS


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "_INBOX.x",
        "$JS.ACK.T_IN.p.2.17.9.1700000000123456789",
        "$JS.ACK.T_IN.p.2.17.9.1700000000123456789.4.5",
        "$JS.ACK.T_IN.p.two.17.9.1700000000123456789.4",
        "$JS.NAK.T_IN.p.2.17.9.1700000000123456789.4",
    ],
)
def test_anything_else_is_refused(subject: str) -> None:
    with pytest.raises(ValueError, match=r"ack subject|invalid literal"):
        parse_ack_subject(subject)


def test_times_keep_their_microseconds_exactly() -> None:
    expected = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert time_of_nanoseconds(FACTS.stored_at_ns) == expected
    assert time_of_text("2023-11-14T22:13:20.123456789Z") == expected
    assert time_of_text("2023-11-15T00:13:20.123456+02:00") == expected
    assert time_of_text("2023-11-14T22:13:20Z") == expected.replace(microsecond=0)
    assert time_of_text("2023-11-14T22:13:20.5Z") == expected.replace(microsecond=500_000)
    with pytest.raises(ValueError, match="not a time"):
        time_of_text("yesterday")


def test_stored_headers_are_read_line_by_line() -> None:
    raw = b"NATS/1.0\r\nA: 1\r\nB:two\r\nnonsense\r\nA: last\r\n\r\n"
    assert parse_headers(raw) == {"A": "last", "B": "two"}


@pytest.mark.parametrize(
    ("status", "description", "verdict"),
    [
        ("100", "Idle Heartbeat", Verdict.ALIVE),
        ("404", "No Messages", Verdict.ENDED),
        ("408", "Request Timeout", Verdict.ENDED),
        ("409", "Batch Completed", Verdict.ENDED),
        ("409", "Message Size Exceeds MaxBytes", Verdict.ENDED),
        ("409", "Consumer Deleted", Verdict.BROKEN),
        ("409", "Exceeded MaxWaiting", Verdict.BROKEN),
        ("409", "Leadership Change", Verdict.BROKEN),
        ("400", "Bad Request", Verdict.BROKEN),
        ("503", "", Verdict.BROKEN),
    ],
)
def test_a_status_ends_a_pull_or_breaks_it(status: str, description: str, verdict: Verdict) -> None:
    assert judge_status(status, description) is verdict
