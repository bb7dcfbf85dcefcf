"""Conversions between types, `size`, and JSON text."""

import json
import math
import re
from typing import Final

from towpath_engine.core.expressions.operators import (
    checked_int,
    checked_timestamp,
    checked_uint,
    operand,
)
from towpath_engine.core.expressions.overloads import Overloads
from towpath_engine.core.expressions.results import encode, to_json
from towpath_engine.core.expressions.times import (
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
)
from towpath_engine.core.expressions.values import (
    NANOS,
    Duration,
    EvaluationError,
    Frame,
    Key,
    Timestamp,
    Uint,
    Value,
)
from towpath_protocol.codec import check_json
from towpath_protocol.errors import ProtocolError

_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_DOUBLE: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]{1,4})?|\.[0-9]+(?:[eE][+-]?[0-9]{1,4})?"
    r"|[nN]a[nN]|[iI]nf(?:inity)?)",
    re.ASCII,
)
_BOOLS: Final = {
    **dict.fromkeys(("true", "True", "TRUE", "t", "1"), True),
    **dict.fromkeys(("false", "False", "FALSE", "f", "0"), False),
}


def _size(_: Frame, value: str | bytes | list[Value] | dict[Key, Value]) -> int:
    return len(value)


def _int(_: Frame, value: int) -> int:
    return checked_int(int(value))


def _truncate(value: float) -> int:
    if math.isnan(value) or math.isinf(value):
        msg = "the double has no integer value"
        raise EvaluationError(msg)
    return math.trunc(value)


def _int_of_double(_: Frame, value: float) -> int:
    # As in the reference: the doubles at the very edge, which are not exact, are refused as well.
    if not -(2.0**63) < value < 2.0**63:
        msg = "the double is outside the range of an int"
        raise EvaluationError(msg)
    return _truncate(value)


def _int_of_string(_: Frame, value: str) -> int:
    if _DIGITS.fullmatch(value) is None:
        msg = "the string is not an integer"
        raise EvaluationError(msg)
    return checked_int(int(value))


def _int_of_timestamp(_: Frame, value: Timestamp) -> int:
    whole = abs(value.nanos) // NANOS
    return whole if value.nanos >= 0 else -(-value.nanos // NANOS + (value.nanos % NANOS > 0))


def _uint(_: Frame, value: int) -> Uint:
    return checked_uint(int(value))


def _uint_of_double(_: Frame, value: float) -> Uint:
    if not 0 <= value < 2.0**64:
        msg = "the double is outside the range of a uint"
        raise EvaluationError(msg)
    return checked_uint(_truncate(value))


def _uint_of_string(_: Frame, value: str) -> Uint:
    if _DIGITS.fullmatch(value) is None or value[0] in "+-":
        msg = "the string is not an unsigned integer"
        raise EvaluationError(msg)
    return checked_uint(int(value))


def _double(_: Frame, value: float) -> float:
    return value


def _double_of_int(_: Frame, value: int) -> float:
    return float(operand(value))


def _double_of_uint(_: Frame, value: Uint) -> float:
    return float(value)


def _double_of_string(_: Frame, value: str) -> float:
    if len(value) > 400 or _DOUBLE.fullmatch(value) is None:
        msg = "the string is not a number"
        raise EvaluationError(msg)
    return float(value)


def format_double(value: float) -> str:
    """The shortest text that reads back the same, without a trailing `.0`: `1`, `0.1`, `1e+20`."""
    if value != value:  # noqa: PLR0124 - NaN is the one value that differs from itself
        return "nan"
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text.removesuffix(".0")
    return f"{mantissa.removesuffix('.0')}e{exponent}"


def _string(_: Frame, value: str) -> str:
    return value


def _string_of_bool(_: Frame, value: bool) -> str:  # noqa: FBT001 - the argument of `string()`
    return "true" if value else "false"


def _string_of_int(_: Frame, value: int) -> str:
    return str(int(value)) if abs(value) < 10**4000 else _too_long()


def _too_long() -> str:
    msg = "the integer has too many digits"
    raise EvaluationError(msg)


def _string_of_double(_: Frame, value: float) -> str:
    return format_double(value)


def _string_of_bytes(frame: Frame, value: bytes) -> str:
    frame.charge_string(len(value))
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = "the bytes are not UTF-8"
        raise EvaluationError(msg) from error


def _string_of_timestamp(_: Frame, value: Timestamp) -> str:
    return format_timestamp(value)


def _string_of_duration(_: Frame, value: Duration) -> str:
    return format_duration(value)


def _bytes(_: Frame, value: bytes) -> bytes:
    return value


def _bytes_of_string(frame: Frame, value: str) -> bytes:
    frame.charge_string(len(value))
    return value.encode("utf-8")


def _bool(_: Frame, value: bool) -> bool:  # noqa: FBT001 - the argument of `bool()`
    return value


def _bool_of_string(_: Frame, value: str) -> bool:
    if value not in _BOOLS:
        msg = "the string is not a boolean"
        raise EvaluationError(msg)
    return _BOOLS[value]


def _timestamp(_: Frame, value: Timestamp) -> Timestamp:
    return value


def _timestamp_of_string(_: Frame, value: str) -> Timestamp:
    return parse_timestamp(value)


def _timestamp_of_int(_: Frame, value: int) -> Timestamp:
    return checked_timestamp(operand(value) * NANOS)


def _duration(_: Frame, value: Duration) -> Duration:
    return value


def _duration_of_string(_: Frame, value: str) -> Duration:
    return parse_duration(value)


def _json_parse(frame: Frame, text: str) -> Value:
    # Every fourth character may be a value of its own.
    frame.charge(1 + len(text) // 4)
    try:
        # A literal may hold what the door refuses in payloads: NUL, NaN, a key given twice.
        data = text.encode("utf-8")
        check_json(data, bytes_max=len(data))
        value: Value = json.loads(data)
    except ProtocolError as error:
        msg = f"the string is no JSON that may be used here: {error}"
        raise EvaluationError(msg) from error
    return value


def _json_format(frame: Frame, value: Value) -> str:
    text = encode(to_json(frame, value)).decode("utf-8")
    frame.charge_string(len(text))
    return text


CONVERSIONS: Final[Overloads] = {
    "size": {(str,): _size, (bytes,): _size, (list,): _size, (dict,): _size},
    "int": {
        (int,): _int,
        (Uint,): _int,
        (float,): _int_of_double,
        (str,): _int_of_string,
        (Timestamp,): _int_of_timestamp,
    },
    "uint": {
        (int,): _uint,
        (Uint,): _uint,
        (float,): _uint_of_double,
        (str,): _uint_of_string,
    },
    "double": {
        (float,): _double,
        (int,): _double_of_int,
        (Uint,): _double_of_uint,
        (str,): _double_of_string,
    },
    "string": {
        (str,): _string,
        (bool,): _string_of_bool,
        (int,): _string_of_int,
        (Uint,): _string_of_int,
        (float,): _string_of_double,
        (bytes,): _string_of_bytes,
        (Timestamp,): _string_of_timestamp,
        (Duration,): _string_of_duration,
    },
    "bytes": {(bytes,): _bytes, (str,): _bytes_of_string},
    "bool": {(bool,): _bool, (str,): _bool_of_string},
    "timestamp": {
        (Timestamp,): _timestamp,
        (str,): _timestamp_of_string,
        (int,): _timestamp_of_int,
    },
    "duration": {(Duration,): _duration, (str,): _duration_of_string},
    "json.parse": {(str,): _json_parse},
    "json.format": {1: _json_format},
}
