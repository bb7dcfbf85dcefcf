"""Bytes ↔ messages. One way in (`decode`), one way out (`encode`), and the plain JSON pair.

Bodies are JSON; MessagePack is turned into JSON at the door, so that everything behind it sees one
format. `decode` reads nothing that `check_json` has not passed.
"""

import json
import re
from typing import Final, TypeGuard, TypeVar

import msgspec
from msgspec import Struct

from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.json_check import (
    DEPTH_MAX,
    INTEGER_DIGITS_MAX,
    check_json,
    depth_of,
    has_bad_escape,
)
from towpath_protocol.limits import WireLimits
from towpath_protocol.messagepack import from_json, is_messagepack, to_json
from towpath_protocol.reports import REPORT_TYPES, Report
from towpath_protocol.versions import CURRENT, OLDEST_SUPPORTED
from towpath_protocol.wording import in_words, object_of

__all__ = [
    "JsonValue", "check_json", "decode", "decode_report", "dumps", "encode", "encode_messagepack",
    "is_messagepack", "loads",
]  # fmt: skip

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
"""What `loads` returns."""

ENVELOPE_DEPTH: Final = 6
"""Levels that messages put around a user's value (`items[].input` of run.start-many has three)."""

DEFAULT_LIMITS: Final = WireLimits()

T = TypeVar("T")

_ENCODER: Final = msgspec.json.Encoder()
_DUMPER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# msgspec ends its messages with the place: " - at `$.error.details`".
_PLACE: Final = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")


def encode(message: Struct) -> bytes:
    """The message as JSON text. Raw values go out as they are."""
    return _ENCODER.encode(message)


def encode_messagepack(message: Struct) -> bytes:
    """The message as MessagePack. Raises ProtocolError naming an integer that does not fit it."""
    return from_json(encode(message))


def decode(
    data: bytes,
    shape: type[T],
    *,
    content_type: str | None = None,
    limits: WireLimits = DEFAULT_LIMITS,
) -> T:
    """The message in `data`, which must be a whole and harmless one.

    `shape` is a struct class; reports have `decode_report`. Raises ProtocolError: what
    `check_json` raises; `malformed` when it is not of this shape; `unsupported_version` for a `v`
    of another time. Sizes and depths of single values are judged by `bounds.check_bounds`, since
    an outcome over them fails its attempt instead of being no message.
    """
    if is_messagepack(content_type):
        data = to_json(data, bytes_max=limits.message_bytes_max)
    if not data.strip():
        raise ProtocolError(
            ErrorCode.UNDECODABLE, "the body is empty", fix=f"send {object_of(shape) or 'JSON'}"
        )
    check_json(
        data, bytes_max=limits.message_bytes_max, depth_max=limits.depth_max + ENVELOPE_DEPTH
    )
    try:
        message = msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError as error:
        raise _shape_error(error, shape) from error
    version = getattr(message, "v", CURRENT)
    if not OLDEST_SUPPORTED <= version <= CURRENT:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"is {version}, and this side speaks {OLDEST_SUPPORTED} to {CURRENT}",
            field="v",
            fix="upgrade the older side first",
        )
    return message


def decode_report(
    data: bytes,
    kind: str,
    *,
    content_type: str | None = None,
    limits: WireLimits = DEFAULT_LIMITS,
) -> Report:
    """The report in `data`; `kind` is the subject's (`step-completed`), so `type` may be absent.

    Raises ProtocolError as `decode` does, and KeyError for a kind that is no report's.
    """
    return decode(data, REPORT_TYPES[kind], content_type=content_type, limits=limits)


def _shape_error(error: msgspec.ValidationError, shape: object) -> ProtocolError:
    text = str(error)
    match = _PLACE.search(text)
    field = match.group(1) if match is not None else ""
    if isinstance(error.__cause__, ProtocolError):
        return error.__cause__.within(field)
    message, fix = in_words(text if match is None else text[: match.start()], shape, field)
    return ProtocolError(ErrorCode.MALFORMED, message, field=field, fix=fix)


def loads(data: bytes, *, field: str = "") -> JsonValue:
    """The value of JSON text: integers of any size exact, 1.0 a float, -0.0 kept.

    Meant for text that was checked; anything else raises ProtocolError (`undecodable`) rather
    than RecursionError or the like.
    """
    try:
        value: JsonValue = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolError(
            ErrorCode.UNDECODABLE, f"is not JSON ({error})", field=field, fix="send JSON"
        ) from error
    return value


def dumps(value: object, *, field: str = "") -> bytes:
    """The JSON text of a value made of None, bool, int, float, str, list, tuple and dict.

    UTF-8, not escaped, no spaces; 1.0 stays 1.0 and big integers stay exact. Raises ProtocolError
    (`unsafe_json`) for what `check_json` would refuse, whatever its size: NaN and Infinity,
    numbers beyond a double, NUL, lone surrogates, keys that are not text, other types, nesting
    beyond 64.
    """
    try:
        data = _DUMPER.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(f"is not JSON ({error})", field) from error
    # Encoded first, since that refuses circles: what follows is a finite tree.
    _refuse_what_json_mends(value, field)
    if depth_of(data) > DEPTH_MAX:
        raise _not_json(f"is nested deeper than {DEPTH_MAX} levels", field)
    if has_bad_escape(data):
        raise _not_json("contains a NUL character", field)
    return data


_INTEGER_END: Final = 10**INTEGER_DIGITS_MAX


def _is_object(value: object) -> TypeGuard[dict[object, object]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, list | tuple)


def _refuse_what_json_mends(value: object, field: str) -> None:
    """Keys that are no text become text in json, and two keys may become one; big integers pass."""
    pending = [value]
    while pending:
        item = pending.pop()
        if _is_object(item):
            for key in item:
                if not isinstance(key, str):
                    raise _not_json(f"has the key {key!r}, and keys must be text", field)
            pending.extend(item.values())
        elif _is_array(item):
            pending.extend(item)
        elif isinstance(item, int) and not -_INTEGER_END < item < _INTEGER_END:
            raise _not_json(f"has an integer of more than {INTEGER_DIGITS_MAX} digits", field)


def _not_json(message: str, field: str) -> ProtocolError:
    return ProtocolError(ErrorCode.UNSAFE_JSON, message, field=field, fix="return plain JSON data")
