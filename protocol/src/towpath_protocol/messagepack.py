"""MessagePack at the door: turned into JSON text on the way in, made from it on the way out.

Only JSON's types exist: nil, booleans, integers, floats, strings, arrays, maps with string keys.
Binary, extension and timestamp values, other keys, NaN and Infinity are refused with their path.
The reader has a stack of its own and never recurses; what it makes is checked as JSON afterwards
(duplicate keys, NUL, depth).
"""

import json
import struct
from collections.abc import Callable
from math import isfinite
from typing import Final, TypeGuard

import msgspec
from msgspec import Struct

from towpath_protocol.errors import ErrorCode, ProtocolError, join_path

CONTENT_TYPES: Final = frozenset({"application/msgpack", "application/x-msgpack"})

_quote: Final[Callable[[str], str]] = json.JSONEncoder(ensure_ascii=False).encode
_INTEGER_MIN: Final = -(1 << 63)
_INTEGER_MAX: Final = (1 << 64) - 1

# First byte → struct format of what follows it.
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_CONSTANTS: Final = {0xC0: "null", 0xC2: "false", 0xC3: "true"}
_REFUSED: Final = {
    0xC1: "a reserved byte", 0xC4: "binary data", 0xC5: "binary data", 0xC6: "binary data",
    0xC7: "an extension value", 0xC8: "an extension value", 0xC9: "an extension value",
    0xD4: "an extension value", 0xD5: "an extension value", 0xD6: "a timestamp or extension value",
    0xD7: "a timestamp or extension value", 0xD8: "an extension value",
}  # fmt: skip


def is_messagepack(content_type: str | None) -> bool:
    """Whether a Content-Type header selects MessagePack (parameters are ignored)."""
    if content_type is None:
        return False
    return content_type.partition(";")[0].strip().lower() in CONTENT_TYPES


class _Level(Struct):
    """An open array or map: how many members are still to come, and where in it we are."""

    is_map: bool
    left: int
    index: int = -1
    key: str = ""


class _Reader:
    """Reads one MessagePack value and writes it as JSON text into `out`."""

    def __init__(self, data: bytes, bytes_max: int) -> None:
        self.data = data
        self.at = 0
        self.bytes_max = bytes_max
        self.size = 0
        self.out: list[str] = []
        self.stack: list[_Level] = []

    def run(self) -> None:
        """Read the whole of `data`. Raises ProtocolError."""
        self._value()
        while self.stack:
            level = self.stack[-1]
            if level.left == 0:
                self._write("}" if level.is_map else "]")
                self.stack.pop()
                continue
            level.left -= 1
            if level.index >= 0:
                self._write(",")
            level.index += 1
            if level.is_map:
                self._key(level)
            self._value()
        if self.at < len(self.data):
            raise self._refusal(ErrorCode.UNDECODABLE, "has more bytes after the value")

    def _write(self, text: str) -> None:
        self.out.append(text)
        self.size += len(text)
        if self.size > self.bytes_max:
            raise ProtocolError(
                ErrorCode.TOO_LARGE,
                f"is more than {self.bytes_max} bytes as JSON",
                field=self._path(),
                fix="send less, or a reference to where the data is",
            )

    def _path(self) -> str:
        path = ""
        for level in self.stack[:64]:
            if level.index >= 0:
                path = join_path(path, level.key if level.is_map else f"[{level.index}]")
        return path[:200]

    def _refusal(self, code: ErrorCode, message: str, fix: str = "") -> ProtocolError:
        return ProtocolError(code, message, field=self._path(), fix=fix)

    def _take(self, count: int) -> bytes:
        taken = self.data[self.at : self.at + count]
        if len(taken) < count:
            raise self._refusal(ErrorCode.UNDECODABLE, "is not MessagePack: it ends within a value")
        self.at += count
        return taken

    def _key(self, level: _Level) -> None:
        level.index, index = -1, level.index
        first = self._take(1)[0]
        length = self._string_length(first)
        if length is None:
            raise self._refusal(
                ErrorCode.UNSAFE_JSON, "has a key that is not a string", "use string keys"
            )
        key = self._string(length)
        level.key, level.index = key[:64], index
        self._write(_quote(key) + ":")

    def _string_length(self, first: int) -> int | None:
        if 0xA0 <= first <= 0xBF:
            return first & 0x1F
        return self._length(first) if 0xD9 <= first <= 0xDB else None

    def _length(self, first: int) -> int:
        return int.from_bytes(self._take(_LENGTHS[first]), "big")

    def _string(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise self._refusal(
                ErrorCode.UNDECODABLE, "has a string that is not UTF-8", "use UTF-8"
            ) from error

    def _value(self) -> None:
        first = self._take(1)[0]
        if first <= 0x7F or first >= 0xE0:
            self._write(str(first if first <= 0x7F else first - 0x100))
        elif first in _CONSTANTS:
            self._write(_CONSTANTS[first])
        elif first in _NUMBERS:
            self._number(_NUMBERS[first])
        elif first in _REFUSED:
            raise self._refusal(
                ErrorCode.UNSAFE_JSON, f"is {_REFUSED[first]}, which JSON has not", "send text"
            )
        else:
            self._sized(first)

    def _number(self, layout: str) -> None:
        (number,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        if isinstance(number, float) and not isfinite(number):
            raise self._refusal(ErrorCode.UNSAFE_JSON, f"is {number}", "use null or text")
        self._write(repr(number))

    def _sized(self, first: int) -> None:
        length = self._string_length(first)
        if length is not None:
            self._write(_quote(self._string(length)))
        elif first <= 0x8F:
            self._open(is_map=True, count=first & 0x0F)
        elif first <= 0x9F:
            self._open(is_map=False, count=first & 0x0F)
        else:
            self._open(is_map=first >= 0xDE, count=self._length(first))

    def _open(self, *, is_map: bool, count: int) -> None:
        self._write("{" if is_map else "[")
        self.stack.append(_Level(is_map=is_map, left=count))


def to_json(data: bytes, *, bytes_max: int) -> bytes:
    """The JSON text of a MessagePack value, to be checked as such afterwards.

    Raises ProtocolError: `undecodable`, `unsafe_json` for a type that JSON has not, `too_large`
    when the JSON text has more than `bytes_max` characters.
    """
    reader = _Reader(data, bytes_max)
    reader.run()
    return "".join(reader.out).encode()


def from_json(data: bytes) -> bytes:
    """The MessagePack form of checked JSON text.

    Raises ProtocolError (`unsafe_json`) with the path of an integer outside -2^63 to 2^64 - 1,
    which MessagePack can't hold.
    """
    value: object = json.loads(data)
    _refuse_big_integers(value)
    return msgspec.msgpack.encode(value)


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _refuse_big_integers(value: object) -> None:
    pending: list[tuple[str, object]] = [("", value)]
    while pending:
        path, item = pending.pop()
        if _is_object(item):
            pending.extend((join_path(path, key), inner) for key, inner in item.items())
        elif _is_array(item):
            pending.extend((f"{path}[{index}]", inner) for index, inner in enumerate(item))
        elif isinstance(item, int) and not _INTEGER_MIN <= item <= _INTEGER_MAX:
            raise ProtocolError(
                ErrorCode.UNSAFE_JSON,
                "is an integer that MessagePack can't hold",
                field=path,
                fix="ask for JSON",
            )
