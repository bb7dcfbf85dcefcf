"""PROTOCOL.md §3, §7: bodies in, bodies out."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from towpath_protocol.bounds import check_bounds
from towpath_protocol.codec import (
    check_json,
    decode,
    decode_report,
    encode,
    encode_messagepack,
    loads,
)
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.failures import DURATION_MS_MAX, Failure
from towpath_protocol.limits import WireLimits
from towpath_protocol.messagepack import from_json, is_messagepack, to_json
from towpath_protocol.reports import (
    REPORT_TYPES,
    CustomEvent,
    LogLine,
    ReleaseReason,
    Report,
    StepCompleted,
    StepFailed,
    StepReleased,
)
from towpath_protocol.requests import GetRun, SignalRun, StartMany, StartManyItems, StartRun

MESSAGEPACK = "application/msgpack"


def refusal(data: bytes, kind: str, content_type: str | None = None) -> ProtocolError:
    with pytest.raises(ProtocolError) as refused:
        decode_report(data, kind, content_type=content_type)
    return refused.value


def test_the_smallest_reports_are_whole() -> None:
    assert decode_report(b'{"output":1}', "step-completed") == StepCompleted(output=Raw(b"1"))
    failed = decode_report(b'{"error":{"type":"A","message":"b"}}', "step-failed")
    assert failed == StepFailed(error=Failure(type="A", message="b"))
    for kind in ("step-completed", "step-started", "step-heartbeat"):
        assert isinstance(decode_report(b"{}", kind), REPORT_TYPES[kind])


def test_an_absent_output_is_null_and_a_null_patch_is_none() -> None:
    report = decode_report(b'{"metadata": null }', "step-completed")
    assert isinstance(report, StepCompleted)
    assert (bytes(report.output), report.metadata) == (b"null", None)


def test_a_user_value_is_carried_as_it_came() -> None:
    report = decode_report(
        b'{"output": {"a": 1.0,  "b": 12345678901234567890123}}', "step-completed"
    )
    assert isinstance(report, StepCompleted)
    assert bytes(report.output) == b'{"a": 1.0,  "b": 12345678901234567890123}'
    assert loads(encode(report)) == {
        "type": "step.completed",
        "v": 1,
        "output": {"a": 1.0, "b": 12345678901234567890123},
    }


def test_every_message_says_its_version_and_type() -> None:
    assert json.loads(encode(StepReleased(reason=ReleaseReason.DRAIN))) == {
        "type": "step.released",
        "v": 1,
        "reason": "drain",
    }


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", ""),
        (b"{}", ""),
        (b'{"error":{}}', "error"),
        (b'{"error":{"type":1,"message":""}}', "error.type"),
        (b'{"error":{"type":"A","message":"b","retryable":"no"}}', "error.retryable"),
        (b'{"error":{"type":"A","message":"b","retry_after_ms":-1}}', "error.retry_after_ms"),
        (b'{"error":{"type":"A","message":"b"},"logs":[{"message":1}]}', "logs[0].message"),
        (b'{"error":{"type":"A","message":"b"},"events":[{"name":""}]}', "events[0].name"),
        (b'{"type":"step.completed","error":{"type":"A","message":"b"}}', "type"),
    ],
)
def test_a_body_of_the_wrong_shape_is_malformed_and_names_the_field(
    body: bytes, field: str
) -> None:
    error = refusal(body, "step-failed")
    assert (error.code, error.field) == (ErrorCode.MALFORMED, field)


def test_no_number_or_text_outgrows_what_stores_it() -> None:
    many = b'{"events":[%s]}' % b",".join([b'{"name":"a"}'] * 101)
    assert refusal(many, "step-completed").field == "events"
    long_id = b'{"worker_id":"%s"}' % (b"w" * 257)
    assert refusal(long_id, "step-started").field == "worker_id"
    assert refusal(b'{"n":9223372036854775808}', "step-heartbeat").field == "n"
    for body, shape in (
        (b'{"workflow":"a","version":2147483648}', StartRun),
        (b'{"workflow":"a","version":0}', StartRun),
    ):
        with pytest.raises(ProtocolError) as refused:
            decode(body, shape)
        assert refused.value.field == "version"


def test_no_duration_leads_beyond_the_calendar() -> None:
    body = b'{"again":{"after_ms":%d}}'
    assert decode_report(body % DURATION_MS_MAX, "step-completed")
    error = refusal(body % (DURATION_MS_MAX + 1), "step-completed")
    assert error.field == "again.after_ms"


def test_unsafe_values_are_named_inside_the_message() -> None:
    error = refusal(b'{"output":{"a":["\\u0000"]}}', "step-completed")
    assert (error.code, error.field) == (ErrorCode.UNSAFE_JSON, "output.a[0]")
    assert refusal(b'{"output":1,"output":2}', "step-completed").field == "output"


def test_a_value_may_be_as_deep_as_the_limit_wherever_it_stands() -> None:
    deepest = b"[" * 64 + b"]" * 64
    item = b'{"workflow":"a","input":' + deepest + b"}"
    batch = decode(b'{"items":[' + item + b"]}", StartMany)
    check_bounds(batch, WireLimits())
    deeper = decode_report(b'{"output":[' + deepest + b"]}", "step-completed")
    with pytest.raises(ProtocolError) as refused:
        check_bounds(deeper, WireLimits())
    assert (refused.value.code, refused.value.field) == (ErrorCode.UNSAFE_JSON, "output")


LIMITS = WireLimits(
    output_bytes_max=10, error_bytes_max=60, logs_bytes_max=60, metadata_bytes_max=10,
    payload_bytes_max=10, context_bytes_max=10, input_bytes_max=10, progress_bytes_max=10,
)  # fmt: skip


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (StepCompleted(output=Raw(b'"123456789"')), "output"),
        (StepCompleted(metadata=Raw(b'{"a":"1234"}')), "metadata"),
        (StepCompleted(logs=(LogLine(message="a" * 20), LogLine(message="b" * 20))), "logs"),
        (StepCompleted(events=(CustomEvent(name="a", data=Raw(b"1" * 11)),)), "events[0].data"),
        (StepFailed(error=Failure(type="A", message="a" * 40)), "error"),
        (StepReleased(reason=ReleaseReason.DRAIN, progress=Raw(b"1" * 11)), "progress"),
        (StartRun(workflow="a", input=Raw(b"1" * 11)), "input"),
        (StartRun(workflow="a", context=Raw(b'{"a":"1234"}')), "context"),
        (SignalRun(workflow="a", key="k", signal="s", payload=Raw(b"1" * 11)), "payload"),
    ],
)
def test_a_value_over_its_limit_is_too_large_and_named(message: msgspec.Struct, field: str) -> None:
    check_bounds(message, WireLimits())
    with pytest.raises(ProtocolError) as refused:
        check_bounds(message, LIMITS)
    assert (refused.value.code, refused.value.field) == (ErrorCode.TOO_LARGE, field)


def test_a_message_over_the_stream_s_limit_is_not_read() -> None:
    small = WireLimits(message_bytes_max=20)
    assert decode_report(b'{"output":"1234567"}', "step-completed", limits=small)
    with pytest.raises(ProtocolError) as refused:
        decode_report(b'{"output":"12345678"}', "step-completed", limits=small)
    assert refused.value.code is ErrorCode.TOO_LARGE


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"signal":"s"}', "run_id"),
        (b'{"signal":"s","workflow":"a"}', "run_id"),
        (b'{"signal":"s","key":"k"}', "run_id"),
        (b'{"signal":"s","workflow":"a","key":" k"}', "key"),
        (b'{"signal":"s!","workflow":"a","key":"k"}', "signal"),
        (b'{"signal":"s","run_id":"0199C82C-C000-7000-8203-040506070809"}', "run_id"),
        (b'{"signal":"s","workflow":"a","key":"k","message_id":""}', "message_id"),
    ],
)
def test_a_request_that_says_not_what_it_means_names_the_field(body: bytes, field: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        decode(body, SignalRun)
    assert refused.value.field == field
    assert refused.value.status == 400


def test_a_contradiction_within_a_start_names_the_item() -> None:
    body = b'{"items":[{"workflow":"a"},{"workflow":"a","at":"soon"}]}'
    with pytest.raises(ProtocolError) as refused:
        decode(body, StartMany)
    assert refused.value.field == "items[1].at"
    assert len(decode(body, StartManyItems).items) == 2
    with pytest.raises(ProtocolError) as refused:
        decode(b'{"workflow":"a","at":"2026-03-01T08:30:00Z","delay_ms":1}', StartRun)
    assert refused.value.field == "at"
    with pytest.raises(ProtocolError) as refused:
        decode(b'{"workflow":"a","context":[]}', StartRun)
    assert refused.value.field == "context"


def test_a_name_with_a_line_end_is_no_name() -> None:
    with pytest.raises(ProtocolError) as refused:
        decode(b'{"workflow":"a\\n"}', StartRun)
    assert refused.value.field == "workflow"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("application/msgpack", True),
        ("Application/MsgPack; v=1", True),
        ("application/x-msgpack", True),
        ("application/json", False),
        ("", False),
        (None, False),
    ],
)
def test_the_content_type_selects_messagepack(header: str | None, expected: bool) -> None:
    assert is_messagepack(header) is expected


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(1 << 63), max_value=(1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=40)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), inner
        )
    ),
    max_leaves=40,
)


@given(plain)
def test_messagepack_becomes_json_and_back_without_loss(value: object) -> None:
    text = to_json(msgspec.msgpack.encode(value), bytes_max=1 << 20)
    check_json(text, bytes_max=1 << 20)
    assert repr(loads(text)) == repr(value)
    assert repr(msgspec.msgpack.decode(from_json(text))) == repr(value)


@given(st.binary(max_size=60))
def test_garbage_as_messagepack_is_refused_or_becomes_safe_json(data: bytes) -> None:
    outcome = outcome_of(data)
    if isinstance(outcome, ProtocolError):
        assert outcome.code in REFUSALS
        assert outcome.message
    else:
        check_json(encode(outcome), bytes_max=1 << 20)


REFUSALS = {
    ErrorCode.UNDECODABLE, ErrorCode.UNSAFE_JSON, ErrorCode.MALFORMED, ErrorCode.TOO_LARGE,
    ErrorCode.UNSUPPORTED_VERSION,
}  # fmt: skip


def outcome_of(data: bytes) -> Report | ProtocolError:
    try:
        return decode_report(data, "step-completed", content_type=MESSAGEPACK)
    except ProtocolError as error:
        return error


def packed(**fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    ("data", "code", "field"),
    [
        (packed(output=b"x"), ErrorCode.UNSAFE_JSON, "output"),
        (packed(output=[1, msgspec.msgpack.Ext(5, b"x")]), ErrorCode.UNSAFE_JSON, "output[1]"),
        (packed(output={"a": {1: 2}}), ErrorCode.UNSAFE_JSON, "output.a"),
        (packed(output=[float("nan")]), ErrorCode.UNSAFE_JSON, "output[0]"),
        (packed(output="\x00"), ErrorCode.UNSAFE_JSON, "output"),
        (b"\x82\xa6output\x01\xa6output\x02", ErrorCode.UNSAFE_JSON, "output"),
        (b"\x81\xa6output\xa2\xff\xfe", ErrorCode.UNDECODABLE, "output"),
        (b"\x81\xa6output\xd6\xff\x00\x00\x00\x01", ErrorCode.UNSAFE_JSON, "output"),
        (b"\x81\xa6output", ErrorCode.UNDECODABLE, "output"),
        (b"\x81\xa6output\xdd\xff\xff\xff\xff", ErrorCode.UNDECODABLE, "output"),
        (b"\x81\xa6output\xdb\xff\xff\xff\xff", ErrorCode.UNDECODABLE, "output"),
        (b"\x81\xa6output\xc1", ErrorCode.UNSAFE_JSON, "output"),
        (b"\x80\x80", ErrorCode.UNDECODABLE, ""),
        (b"", ErrorCode.UNDECODABLE, ""),
        (b"\x91" * 100_000 + b"\xc0", ErrorCode.UNSAFE_JSON, None),
        (b"\x01", ErrorCode.MALFORMED, ""),
    ],
)
def test_messagepack_that_json_has_not_is_refused_with_its_path(
    data: bytes, code: ErrorCode, field: str | None
) -> None:
    error = refusal(data, "step-completed", MESSAGEPACK)
    assert error.code is code
    if field is not None:
        assert error.field.startswith(field)


def test_messagepack_that_swells_as_json_is_stopped() -> None:
    data = b"\xdd" + (1_000_000).to_bytes(4, "big") + b"\xc0" * 1_000_000
    with pytest.raises(ProtocolError) as refused:
        to_json(data, bytes_max=1 << 20)
    assert refused.value.code is ErrorCode.TOO_LARGE


def test_an_integer_that_messagepack_cannot_hold_is_refused_with_its_path() -> None:
    fits = GetRun(run_id="0199c82c-c000-7000-8203-040506070809")
    assert msgspec.msgpack.decode(encode_messagepack(fits)) == json.loads(encode(fits))
    with pytest.raises(ProtocolError) as refused:
        encode_messagepack(StepCompleted(output=Raw(b'[0,{"n":18446744073709551616}]')))
    assert (refused.value.code, refused.value.field) == (ErrorCode.UNSAFE_JSON, "output[1].n")
