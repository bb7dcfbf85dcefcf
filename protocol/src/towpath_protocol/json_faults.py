"""Where and why a JSON text is refused: the slow half of `json_check`.

A small scanner with a stack of its own walks the text token by token and keeps the path. It never
recurses and stops at the first fault. It decides nothing: `check_json` calls it for text
that the fast pass has refused already.
"""

import re
from math import isinf
from typing import Final, NamedTuple

from msgspec import Struct

from towpath_protocol.errors import join_path, shorten_path

_PATH_SHOWN_MAX: Final = 200
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SPACE: Final = re.compile(r"[ \t\n\r]*+")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?")
_STRING: Final = re.compile(
    r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_CONSTANT: Final = re.compile(r"-?(?:NaN|Infinity)")
_UNESCAPED: Final = {
    '\\"': '"', "\\\\": "\\", "\\/": "/", "\\b": "\b", "\\f": "\f", "\\n": "\n", "\\r": "\r",
    "\\t": "\t",
}  # fmt: skip


class Fault(NamedTuple):
    """The first fault of a text. `is_syntax`: it is not JSON at all."""

    path: str
    message: str
    fix: str
    is_syntax: bool


class _Stop(Exception):  # noqa: N818 -- carries a Fault out of the walk, always caught here
    def __init__(self, message: str, fix: str = "", *, is_syntax: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.is_syntax = is_syntax


class _Level(Struct):
    """An open object (`keys` is a set) or array (`keys` is None), and where in it we are."""

    keys: set[str] | None
    place: str = ""
    index: int = -1


class _Walk:
    """One pass over a text; `stack` is the path."""

    def __init__(self, text: str, depth_max: int, digits_max: int) -> None:
        self.text = text
        self.depth_max = depth_max
        self.digits_max = digits_max
        self.at = 0
        self.stack: list[_Level] = []

    def run(self) -> None:
        """Walk the whole text. Raises _Stop at the first fault."""
        self._value()
        while self.stack:
            self._next_member()
        self._skip_space()
        if self.at < len(self.text):
            raise self._syntax("there is more text after the value")

    def path(self) -> str:
        """Where the walk stands, as `items[3].name`."""
        path = ""
        for level in self.stack:
            if level.index >= 0:
                place = f"[{level.index}]" if level.keys is None else level.place
                path = join_path(path, place)
        return shorten_path(path, _PATH_SHOWN_MAX)

    def _syntax(self, what: str) -> _Stop:
        return _Stop(f"is not JSON: {what} at character {self.at}", is_syntax=True)

    def _skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match is not None else self.at

    def _peek(self) -> str:
        self._skip_space()
        return self.text[self.at : self.at + 1]

    def _value(self) -> None:
        """Read a scalar, or open an object or array."""
        match self._peek():
            case "{":
                self._open(_Level(keys=set()))
            case "[":
                self._open(_Level(keys=None))
            case '"':
                self._string()
            case "":
                raise self._syntax("the text ends where a value should be")
            case _:
                self._literal()

    def _open(self, level: _Level) -> None:
        if len(self.stack) >= self.depth_max:
            raise _Stop(
                f"is nested deeper than {self.depth_max} levels", "flatten the value, or send text"
            )
        self.at += 1
        self.stack.append(level)

    def _next_member(self) -> None:
        """Go on in the innermost object or array: close it, or read one member of it."""
        level = self.stack[-1]
        closing = "]" if level.keys is None else "}"
        found = self._peek()
        if found == closing:
            self.at += 1
            self.stack.pop()
            return
        if level.index >= 0:
            if found != ",":
                raise self._syntax(f"a comma or '{closing}' is missing")
            self.at += 1
        level.index += 1
        if level.keys is not None:
            self._key(level, level.keys)
        elif self._peek() == "]":
            raise self._syntax("a value is missing after the comma")
        self._value()

    def _key(self, level: _Level, keys: set[str]) -> None:
        if self._peek() != '"':
            raise self._syntax("a key in double quotes is missing")
        # Until the key is known, a fault in it is a fault of the object around it.
        level.index, index = -1, level.index
        key = self._string()
        level.index = index
        level.place = key if _PLAIN_KEY.fullmatch(key) else f"[{key[:64]!a}]"
        if key in keys:
            raise _Stop("stands twice in the same object", "give each key once")
        keys.add(key)
        if self._peek() != ":":
            raise self._syntax("a colon is missing")
        self.at += 1

    def _string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise self._bad_string()
        body = match.group()[1:-1]
        if "\\" in body:
            body = self._unescape(body)
        self.at = match.end()
        return body

    def _bad_string(self) -> _Stop:
        end = self.at + 1
        while end < len(self.text) and self.text[end] not in '"\n':
            if self.text[end] == "\x00":
                return _Stop("contains a NUL character", "remove it")
            if self.text[end] < " ":
                break
            end += 2 if self.text[end] == "\\" else 1
        return self._syntax("a string with a bad escape, a control character or no end begins")

    def _unescape(self, body: str) -> str:
        """Undo the escapes. Raises _Stop for NUL and lone surrogates."""
        units = _ESCAPE.sub(_unit, body)
        if "\x00" in units:
            raise _Stop("contains a NUL character (\\u0000)", "remove it")
        try:
            return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError as error:
            raise _Stop(
                "contains half a surrogate pair (\\ud800 to \\udfff)",
                "cut text between whole characters",
            ) from error

    def _literal(self) -> None:
        constant = _CONSTANT.match(self.text, self.at)
        if constant is not None:
            raise _Stop(f"is {constant.group()}", "use null or text")
        for word in ("null", "true", "false"):
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return
        number = _NUMBER.match(self.text, self.at)
        if number is None:
            raise self._syntax("no value begins")
        self._number(number)
        self.at = number.end()

    def _number(self, number: re.Match[str]) -> None:
        literal = number.group()
        if number.group(1) is None and number.group(2) is None:
            too_big = len(literal.lstrip("-")) > self.digits_max
        else:
            too_big = isinf(float(literal))
        if too_big:
            shown = literal if len(literal) <= 24 else literal[:21] + "..."
            raise _Stop(f"{shown} is beyond the range of numbers", "send it as text")


def _unit(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code, 16)) if code is not None else _UNESCAPED[match.group()]


def find_fault(text: str, depth_max: int, digits_max: int) -> Fault | None:
    """The first fault of `text`, or None if there is none."""
    walk = _Walk(text, depth_max, digits_max)
    try:
        walk.run()
    except _Stop as stop:
        return Fault(walk.path(), stop.message, stop.fix, stop.is_syntax)
    return None
