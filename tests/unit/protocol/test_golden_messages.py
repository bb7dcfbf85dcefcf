"""PROTOCOL.md, "Messages": one committed example of each, read and written unchanged."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towpath_protocol.catalogue import MESSAGES
from towpath_protocol.codec import check_json, decode, encode, encode_messagepack, loads
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.reports import REPORT_TYPES

# Optional fields that are younger than the examples, which stay as they are: what was a message of
# version 1 once is one for ever.
ADDED = {
    "taken_by", "awaited_by", "draining", "kept_signals", "request_id", "deduplicated", "cut",
    "cursor", "next_cursor", "inner", "under", "ending", "parent_step", "compensation",
}  # fmt: skip
GOLDEN = Path(__file__).parents[3] / "protocol" / "golden" / "v1"


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


def test_every_message_has_exactly_one_golden_example() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(MESSAGES)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_golden_message_is_written_as_it_was_read(name: str) -> None:
    message = decode(golden(name), MESSAGES[name])
    assert loads(encode(message)) == loads(golden(name))


@pytest.mark.parametrize("name", MESSAGES)
def test_an_example_shows_every_field_of_its_message(name: str) -> None:
    shown = json.loads(golden(name))
    fields = set(MESSAGES[name].__struct_encode_fields__)
    # Fields that exclude another one, that tell of a value left out, or that come only when asked
    # for, need not stand together.
    alternatives = {"run_id", "at", "delay_ms", "workflow", "key", "output_omitted", "limits"}
    assert fields - shown.keys() <= alternatives | ADDED


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_that_a_later_version_adds_are_ignored(name: str) -> None:
    document = json.loads(golden(name))
    extended = json.dumps({**document, "since_v9": {"deep": [1, None]}}).encode()
    message = decode(extended, MESSAGES[name])
    assert loads(encode(message)) == document


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_survives_messagepack_when_its_integers_fit(name: str) -> None:
    packed = msgspec.msgpack.encode(json.loads(golden(name)))
    message = decode(packed, MESSAGES[name], content_type="application/msgpack")
    assert loads(encode(message)) == loads(golden(name))
    assert msgspec.msgpack.decode(encode_messagepack(message)) == json.loads(golden(name))


@pytest.mark.parametrize("name", [kind.replace("-", ".", 1) for kind in REPORT_TYPES])
def test_a_report_of_a_later_version_is_refused_by_number(name: str) -> None:
    document = json.dumps({**json.loads(golden(name)), "v": 2}).encode()
    with pytest.raises(ProtocolError) as refused:
        decode(document, MESSAGES[name])
    assert (refused.value.code, refused.value.field) == (ErrorCode.UNSUPPORTED_VERSION, "v")


@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=25)
@given(data=st.data())
def test_a_damaged_message_is_read_or_refused_and_nothing_else(
    name: str, data: st.DataObject
) -> None:
    body = bytearray(golden(name))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=4))
        body = body or bytearray(b"{}")
    outcome = read(bytes(body), MESSAGES[name])
    if isinstance(outcome, ProtocolError):
        assert outcome.message
    else:
        check_json(encode(outcome), bytes_max=1 << 20, depth_max=70)


def read(body: bytes, shape: type[msgspec.Struct]) -> msgspec.Struct | ProtocolError:
    try:
        return decode(body, shape)
    except ProtocolError as error:
        return error
