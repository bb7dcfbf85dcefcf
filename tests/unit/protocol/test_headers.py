"""PROTOCOL.md §3, "Headers": text, JSON and tags in header values; sizes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towpath_protocol import headers
from towpath_protocol.codec import dumps, loads
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.limits import WireLimits
from towpath_protocol.priorities import Priority

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts)
def test_any_text_travels_as_printable_ascii_without_outer_blanks(text: str) -> None:
    value = headers.encode_text(text)
    assert value.isascii()
    assert value.isprintable()
    assert value == value.strip()
    assert headers.decode_text(value, "h") == text


def test_plain_text_stays_readable() -> None:
    assert headers.encode_text("order 1001/a") == "order 1001/a"
    assert headers.encode_text("50% é") == "50%25 %C3%A9"
    assert headers.decode_text("100%", "h") == "100%"
    assert headers.decode_text("%zz", "h") == "%zz"


@pytest.mark.parametrize("value", ["%ff", "%C3", "a%ED%A0%80"])
def test_what_is_no_utf8_is_a_bad_header(value: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        headers.decode_text(value, headers.KEY)
    assert (refused.value.code, refused.value.field) == (ErrorCode.BAD_HEADER, "Towpath-Key")


def test_half_a_surrogate_pair_is_not_sent() -> None:
    with pytest.raises(ProtocolError):
        headers.encode_text("\ud800")


@given(st.dictionaries(texts.filter(lambda text: "\x00" not in text), st.integers() | st.none()))
def test_json_travels_as_ascii(value: dict[str, object]) -> None:
    text = headers.encode_json(dumps(value))
    assert text.isascii()
    assert text.isprintable()
    assert loads(headers.decode_json(text, "h", bytes_max=1 << 20)) == value


@given(st.lists(texts.filter(lambda text: "\x00" not in text)))
def test_tags_come_back(tags: list[str]) -> None:
    assert headers.decode_tags(headers.encode_tags(tags)) == tuple(tags)


def test_tags_may_be_texts_between_commas() -> None:
    assert headers.decode_tags("a, b%2C ,%C3%A9,,") == ("a", "b,", "é")
    assert headers.decode_tags("") == ()


@pytest.mark.parametrize("value", ["[1]", "[", '["a"', '["\\u0000"]', "%ff", "[NaN]"])
def test_what_is_no_list_of_texts_is_refused(value: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        headers.decode_tags(value)
    assert refused.value.field.startswith("Towpath-Tags")
    assert refused.value.status == 400


def test_absent_headers_are_none() -> None:
    assert headers.get_text({}, headers.KEY) is None
    assert headers.get_priority({}) is None
    assert headers.get_tags({}) == ()
    assert headers.get_context({}, 100) is None
    assert headers.decode_traceparent(None) is None


def test_names_of_headers_have_no_case() -> None:
    sent = {"towpath-key": "%C3%A9", "TOWPATH-PRIORITY": "High", "Towpath-tags": "a"}
    assert headers.get_text(sent, headers.KEY) == "é"
    assert headers.get_priority(sent) is Priority.HIGH
    assert headers.get_tags(sent) == ("a",)


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({headers.PRIORITY: "urgent"}, headers.PRIORITY),
        ({headers.TAGS: json.dumps(["t"] * 33)}, headers.TAGS),
        ({headers.TAGS: json.dumps(["t" * 129])}, headers.TAGS),
        ({headers.TAGS: '[""]'}, headers.TAGS),
        ({headers.CONTEXT: "[]"}, headers.CONTEXT),
        ({headers.CONTEXT: "{"}, headers.CONTEXT),
        ({headers.CONTEXT: '{"a":1e999}'}, headers.CONTEXT + ".a"),
        ({headers.CONTEXT: '{"a":"' + "x" * 100 + '"}'}, headers.CONTEXT),
    ],
)
def test_a_header_that_means_nothing_is_named(sent: dict[str, str], field: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        read_all(sent)
    assert refused.value.field == field


def read_all(sent: dict[str, str]) -> object:
    return (
        headers.get_priority(sent),
        headers.get_tags(sent),
        headers.get_context(sent, 100),
    )


def test_a_broken_traceparent_is_dropped() -> None:
    good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert headers.decode_traceparent(good) == good
    for broken in ("", good.upper(), good[:-1], good + "\n", "00-" + "g" * 32 + good[35:]):
        assert headers.decode_traceparent(broken) is None


def test_headers_are_limited_as_a_whole() -> None:
    # The server counts `NATS/1.0`, and a colon, a blank and a line end for each.
    limits = WireLimits(headers_bytes_max=12 + 2 * (1 + 4 + 1))
    headers.check_headers({"a": "1", "b": "2"}, limits)
    with pytest.raises(ProtocolError) as refused:
        headers.check_headers({"a": "1", "b": "22"}, limits)
    assert refused.value.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize("value", ["é", "a\nb", "a\x00", "\ud800"])
def test_a_value_that_cannot_travel_is_named(value: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        headers.check_headers({"towpath-key": value}, WireLimits())
    assert (refused.value.code, refused.value.field) == (ErrorCode.BAD_HEADER, "towpath-key")
    headers.check_headers({"Other": value}, WireLimits())
