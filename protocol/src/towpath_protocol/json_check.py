"""The explicit pass over JSON text that msgspec.Raw would let through unread.

Raw values are stored and handed on as they came, so everything that a later reader could choke on
(another language, Postgres, our own `json.loads`) is refused at the door: text that is not UTF-8
or begins with a byte order mark, NUL and lone surrogates in strings, numbers beyond a double, NaN
and Infinity, the same key twice in an object, nesting beyond the limit, anything after the value.

The good case runs at the speed of C code: counting, one search for suspicious escapes, one parse.
Only text that is going to be refused is walked in Python (`json_faults`), to name the place. Depth
is known before anything recursive sees the text, so no input can exhaust the stack.
"""

import json
import re
from itertools import accumulate
from typing import Final, NoReturn

from towpath_protocol import json_faults
from towpath_protocol.errors import ErrorCode, ProtocolError, join_path

DEPTH_MAX: Final = 64
"""Nesting of any JSON value: a scalar is 0 deep, `[]` is 1 deep."""

INTEGER_DIGITS_MAX: Final = 308
"""Digits of an integer: beyond it most languages read Infinity, as they do for 1e400."""

_BOM: Final = b"\xef\xbb\xbf"
# Possessive, and an unterminated string runs to the end: linear on any input.
_STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_BRACKETS_ONLY: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEP: Final = [0] * 256
for _byte, _delta in ((b"[", 1), (b"{", 1), (b"]", -1), (b"}", -1)):
    _STEP[_byte[0]] = _delta
_BAD_ESCAPE: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
# An escaped backslash, and a whole surrogate pair; taken out, what _BAD_ESCAPE still finds is bad.
_GOOD_ESCAPE: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


class _Found(Exception):  # noqa: N818 -- no error: it only leaves the parser's hooks
    """The parser's hook met something that is refused."""


def depth_of(data: bytes) -> int:
    """The deepest nesting of brackets outside strings, found without recursion.

    0 for a scalar. For text that is not JSON an upper bound of how deep a parser would go.
    """
    if b'"' in data:
        data = _STRINGS.sub(b"", data)
    brackets = data.translate(None, _BRACKETS_ONLY)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def _within_depth(data: bytes, depth_max: int) -> bool:
    # Most values have fewer brackets in all than they may have levels.
    return data.count(b"[") + data.count(b"{") <= depth_max or depth_of(data) <= depth_max


def _pairs(pairs: list[tuple[str, object]]) -> None:
    if len(pairs) > 1 and len({key for key, _ in pairs}) != len(pairs):
        raise _Found


def _integer(literal: str) -> None:
    if len(literal.lstrip("-")) > INTEGER_DIGITS_MAX:
        raise _Found


def _float(literal: str) -> None:
    if float(literal) in _INFINITE:
        raise _Found


_INFINITE: Final = frozenset({float("inf"), float("-inf")})


def _constant(_literal: str) -> NoReturn:
    raise _Found


_SCANNER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=_float, parse_int=_integer, parse_constant=_constant
)
_INTEGERS_ARE_SHORT: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_float=_float, parse_constant=_constant
)


def check_json(data: bytes, *, bytes_max: int, depth_max: int = DEPTH_MAX, field: str = "") -> None:
    """Refuse what is not one JSON value that every reader can take and give back unchanged.

    `field` is where the value stands; faults are named below it. Raises ProtocolError:
    `too_large` (over `bytes_max` bytes), `undecodable` (not JSON), `unsafe_json` (JSON, or nearly,
    that can't be kept).
    """
    if len(data) > bytes_max:
        raise ProtocolError(
            ErrorCode.TOO_LARGE,
            f"{len(data)} bytes, and the limit is {bytes_max}",
            field=field,
            fix="send less, or a reference to where the data is",
        )
    text = _decode_text(data, field)
    if not _within_depth(data, depth_max):
        _refuse(text, depth_max, field)
    scanner = _SCANNER if len(data) > INTEGER_DIGITS_MAX else _INTEGERS_ARE_SHORT
    try:
        scanner.decode(text)
    except (_Found, json.JSONDecodeError):
        _refuse(text, depth_max, field)
    if has_bad_escape(data):
        _refuse(text, depth_max, field)


def has_bad_escape(data: bytes) -> bool:
    """Whether JSON text has a NUL or a lone surrogate written as an escape."""
    return (
        _BAD_ESCAPE.search(data) is not None
        and _BAD_ESCAPE.search(_GOOD_ESCAPE.sub(b" ", data)) is not None
    )


def _decode_text(data: bytes, field: str) -> str:
    if data.startswith(_BOM):
        raise ProtocolError(
            ErrorCode.UNDECODABLE,
            "begins with a byte order mark",
            field=field,
            fix="send plain UTF-8",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(
            ErrorCode.UNDECODABLE,
            f"is not UTF-8 at byte {error.start}",
            field=field,
            fix="encode all text as UTF-8",
        ) from error


def _refuse(text: str, depth_max: int, field: str) -> NoReturn:
    fault = json_faults.find_fault(text, depth_max, INTEGER_DIGITS_MAX)
    # The parser refused the text, so the walk finds a reason; should it ever not, say so plainly.
    raise _error(fault or json_faults.Fault("", "is not JSON", "", is_syntax=True), field)


def _error(fault: json_faults.Fault, field: str) -> ProtocolError:
    return ProtocolError(
        ErrorCode.UNDECODABLE if fault.is_syntax else ErrorCode.UNSAFE_JSON,
        fault.message,
        field=join_path(field, fault.path),
        fix=fault.fix,
    )
