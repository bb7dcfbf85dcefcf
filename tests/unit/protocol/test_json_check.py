"""PROTOCOL.md §3: what the door accepts can be read and given back by everybody; what it refuses
has a reason that is true."""

import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towpath_protocol.codec import check_json, dumps, loads
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.json_check import DEPTH_MAX, INTEGER_DIGITS_MAX, depth_of
from towpath_protocol.json_faults import find_fault

MIB = 1 << 20


def refusal(data: bytes, *, bytes_max: int = MIB, depth_max: int = DEPTH_MAX) -> ProtocolError:
    with pytest.raises(ProtocolError) as refused:
        check_json(data, bytes_max=bytes_max, depth_max=depth_max, field="output")
    return refused.value


def refusal_or_none(data: bytes) -> ProtocolError | None:
    try:
        check_json(data, bytes_max=MIB)
    except ProtocolError as error:
        return error
    return None


def short(value: object) -> str:
    return ascii(value)[:24] if isinstance(value, str | bytes) else type(value).__name__


@pytest.mark.parametrize(
    "data",
    [
        b"null", b"0", b"-0.0", b'""', b" [ ] ", b"{}", b"1e308", b"5e-324", b"1E+2",
        b"9" * INTEGER_DIGITS_MAX, b"-" + b"9" * INTEGER_DIGITS_MAX, b"0." + b"1" * 5_000,
        b'"\\ud83d\\ude00"', b'"\\\\u0000"', b'"\\\\\\\\ud800"', '"😀é\u2028\x7f"'.encode(),
        b'{"a":1,"A":2,"":3}', b'[{"a":1},{"a":2}]', b'"\\/\\b\\f\\n\\r\\t\\"\\\\"',
        b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, b'["' + b"[" * 500 + b'"]', b"[" + b"[]," * 99 + b"1]",
        b'"\\uD83D\\uDE00\\\\ud800"', b'"' + "\ufeff".encode() + b'"', b"\t\r\n 1 \n",
    ],
    ids=short,
)  # fmt: skip
def test_any_other_json_is_accepted(data: bytes) -> None:
    check_json(data, bytes_max=MIB)
    assert find_fault(data.decode(), DEPTH_MAX, INTEGER_DIGITS_MAX) is None


UNSAFE = [
    (b'"a\\u0000b"', "output", "NUL"),
    (b'{"a":[1,{"b":"\\u0000"}]}', "output.a[1].b", "NUL"),
    (b'{"a\\u0000":1}', "output", "NUL"),
    (b'"a\x00b"', "output", "NUL"),
    (b'["ok","\\ud800"]', "output[1]", "surrogate"),
    (b'"\\udc00\\ud800"', "output", "surrogate"),
    (b'"\\ud800\\ud800\\udc00\\udc00"', "output", "surrogate"),
    (b'"\\ud83d\\\\ude00"', "output", "surrogate"),
    (b'{"\\uDBFF":1}', "output", "surrogate"),
    (b"1e400", "output", "beyond the range"),
    (b'{"n":-1e999}', "output.n", "beyond the range"),
    (b"1" * 309, "output", "beyond the range"),
    (b"[0," + b"9" * 5_000 + b"]", "output[1]", "beyond the range"),
    (b"[" + b"9" * 309 + b".0]", "output[0]", "beyond the range"),
    (b"NaN", "output", "NaN"),
    (b'{"a":[Infinity]}', "output.a[0]", "Infinity"),
    (b"-Infinity", "output", "-Infinity"),
    (b'{"a":1,"a":1}', "output.a", "twice"),
    (b'[{"x":{"k":1,"\\u006b":2}}]', "output[0].x.k", "twice"),
    (b'{"a b":{"":1,"":2}}', "output['a b']['']", "twice"),
    (b"[" * 65 + b"]" * 65, "output" + "[0]" * 64, "deeper"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "output" + ".a" * 64, "deeper"),
    (b"[" * 1_000_000, "output" + "[0]" * 64, "deeper"),
    (b'{"a":' * 200_000, "output" + ".a" * 64, "deeper"),
    (b"[" * 70 + b'"' + b'\\"' * 400_000, "output" + "[0]" * 64, "deeper"),
]


@pytest.mark.parametrize(("data", "field", "word"), UNSAFE, ids=short)
def test_what_could_not_be_kept_is_refused_with_its_place(
    data: bytes, field: str, word: str
) -> None:
    error = refusal(data)
    assert (error.code, error.field) == (ErrorCode.UNSAFE_JSON, field)
    assert word in error.message
    assert error.fix


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", "output"), (b"  ", "output"), (b"1 2", "output"), (b"[1,]", "output[1]"),
        (b'{"a":1,}', "output.a"), (b"{,}", "output"), (b'{"a"}', "output.a"), (b"tru", "output"),
        (b"01", "output"), (b"1.", "output"), (b".5", "output"), (b"+1", "output"),
        (b"'a'", "output"), (b'"\\x"', "output"), (b'"\\u12g4"', "output"), (b'"abc', "output"),
        (b'"\x01"', "output"), (b"[1 2]", "output[0]"), (b'{"a":1 "b":2}', "output.a"),
        (b"[}", "output[0]"), (b"]", "output"), (b"\x00", "output"), (b"{1:2}", "output"),
        (b"[" * 70, "output"), (b"]" * 70, "output"), (b"\xc2\xa01", "output"),
        (b"\xef\xbb\xbf1", "output"), (b"\xff", "output"), (b'"\xed\xa0\x80"', "output"),
        (b'"\xc0\x80"', "output"), (b"\xff\xfe1\x00", "output"), (b"{'a':1}", "output"),
    ],
    ids=short,
)  # fmt: skip
def test_what_is_no_json_is_undecodable(data: bytes, field: str) -> None:
    error = refusal(data, depth_max=100)
    assert error.code is ErrorCode.UNDECODABLE
    assert error.field.startswith(field)


def test_one_byte_over_the_limit_is_too_large_and_the_limit_itself_is_not() -> None:
    check_json(b'"12345678"', bytes_max=10)
    error = refusal(b'"123456789"', bytes_max=10)
    assert (error.code, error.status) == (ErrorCode.TOO_LARGE, 413)
    assert "11" in error.message
    assert "10" in error.message


def test_depth_is_counted_outside_strings_only() -> None:
    assert depth_of(b'[{"a":"]]]]","b":[[1]]},"{{{{"]') == 4
    assert depth_of(b'"\\"["') == 0
    assert depth_of(b"") == 0


def test_a_long_path_is_cut() -> None:
    data = b'{"' + b"k" * 60 + b'":'
    error = refusal(data * 10 + b"NaN" + b"}" * 10)
    assert len(error.field) < 400


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**300), max_value=10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(
                st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def same(left: object, right: object) -> bool:
    """Equal with types and signs: 1 is not 1.0, 0.0 is not -0.0, True is not 1."""
    return repr(left) == repr(right)


@given(json_values)
def test_any_json_value_is_accepted_and_comes_back_unchanged(value: object) -> None:
    data = dumps(value)
    check_json(data, bytes_max=MIB)
    assert same(loads(data), value)
    escaped = json.dumps(value).encode()
    check_json(escaped, bytes_max=MIB)
    assert same(loads(escaped), value)


def fragments() -> st.SearchStrategy[bytes]:
    tokens = [
        b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"\\u0000", b"\\ud800", b"\\udc00",
        b"\\u0041", b"1", b"-", b"0", b".", b"e9", b"1e400", b"true", b"null", b"NaN",
        b"Infinity", b'"a"', b'"a":', b'"b":1', b" ", b"\n", b"\x00", b"\xff", b"\xc3\xa9", b"\\\\",
        b'"k\\u0000"', b'"\\ud83d\\ude00"', b"9" * 310,
    ]  # fmt: skip
    return st.lists(st.sampled_from(tokens), max_size=24).map(b"".join)


def true_reason(data: bytes, error: ProtocolError) -> bool:
    """Whether another reader sees the same fault: the plain parser, with nothing of ours."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return error.code is ErrorCode.UNDECODABLE
    doubled: list[str] = []

    def pairs(members: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in members]
        doubled.extend(name for name in names if names.count(name) > 1)
        return dict(members)

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_int=float)
    except json.JSONDecodeError:
        # It may well stop earlier than that parser, at something else that is refused.
        return error.code in {ErrorCode.UNDECODABLE, ErrorCode.UNSAFE_JSON}
    shown = json.dumps(value)
    faults = (
        bool(doubled)
        or any(word in shown for word in ("NaN", "Infinity", "\\u0000"))
        or not encodable(value)
        or depth_of(data) > DEPTH_MAX
        or "\\u0000" in text
        or "\\ud" in text.lower()
    )
    return faults and error.code is ErrorCode.UNSAFE_JSON


def encodable(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@given(fragments() | st.binary(max_size=40))
def test_garbage_is_accepted_only_if_everybody_can_keep_it_and_refused_only_with_cause(
    data: bytes,
) -> None:
    error = refusal_or_none(data)
    if error is not None:
        assert true_reason(data, error), (data, error)
        return
    value = loads(data)
    again = json.dumps(value, ensure_ascii=False, allow_nan=False)
    assert "\x00" not in again
    assert same(json.loads(again.encode("utf-8")), value)
    assert dumps(value)


@given(fragments())
def test_the_fast_pass_and_the_walk_agree(data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    if text.startswith("\ufeff"):
        return
    accepted = refusal_or_none(data) is None
    assert accepted == (find_fault(text, DEPTH_MAX, INTEGER_DIGITS_MAX) is None)


def test_no_text_exhausts_the_stack() -> None:
    for data in (b"[" * MIB, b'{"":' * (MIB // 4), b"[{" * (MIB // 2), b'[["' * (MIB // 3)):
        assert refusal(data).code in {ErrorCode.UNSAFE_JSON, ErrorCode.UNDECODABLE}
        with pytest.raises(ProtocolError):
            loads(data)


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def circle() -> list[object]:
    value: list[object] = []
    value.extend([value, value])
    return value


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (math.nan, "Out of range"), (math.inf, "Out of range"), ({1: 2}, "keys must be text"),
        ({"a": {None: 1}}, "keys must be text"), ("\x00", "NUL"), ({"\x00": 1}, "NUL"),
        ("\ud800", "surrogates"), ([10**308], "308 digits"), (10**5_000, "4300"),
        (b"bytes", "bytes"), ({1, 2}, "set"), (object(), "object"), (deep(65), "deeper"),
        (deep(sys.getrecursionlimit() * 20), "recursion"), (circle(), "Circular"),
    ],
    ids=short,
)  # fmt: skip
def test_a_value_that_is_no_safe_json_is_not_written(value: object, word: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        dumps(value, field="output")
    assert (refused.value.code, refused.value.field) == (ErrorCode.UNSAFE_JSON, "output")
    assert word in refused.value.message


def test_values_are_written_without_loss() -> None:
    value = {"f": 1.0, "z": -0.0, "big": 10**300, "text": "é😀\\u0000", "deep": deep(63)}
    data = dumps(value)
    assert b'"f":1.0,"z":-0.0' in data
    assert "é😀".encode() in data
    check_json(data, bytes_max=MIB)
    assert same(loads(data), value)
