"""Functions on strings. Positions count code points. Whatever is built is paid for beforehand."""

from typing import Final

from towpath_engine.core.expressions.overloads import Overloads
from towpath_engine.core.expressions.values import EvaluationError, Frame, Value, no_overload

# What Unicode calls White_Space; Python's own notion also has the separators U+001C to U+001F.
_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_UPPER: Final = {i: i - 32 for i in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {i: i + 32 for i in range(ord("A"), ord("Z") + 1)}
_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def _outside(what: str) -> EvaluationError:
    return EvaluationError(f"{what} is outside the string")


def _searched(frame: Frame, text: str, part: str) -> None:
    # Python falls back to a quadratic search for short texts and parts, never for long ones.
    quadratic = min(len(text), 30_000) * min(len(part), 600)
    frame.charge(1 + (len(text) >> 6) + (quadratic >> 12))


def _char_at(_: Frame, text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise _outside("the position")
    return text[at : at + 1]


def _contains(frame: Frame, text: str, part: str) -> bool:
    _searched(frame, text, part)
    return part in text


def _starts_with(frame: Frame, text: str, part: str) -> bool:
    frame.charge(1 + (len(part) >> 6))
    return text.startswith(part)


def _ends_with(frame: Frame, text: str, part: str) -> bool:
    frame.charge(1 + (len(part) >> 6))
    return text.endswith(part)


def _index_of(frame: Frame, text: str, part: str, start: int = 0) -> int:
    _searched(frame, text, part)
    if not 0 <= start <= len(text):
        raise _outside("the start")
    return text.find(part, start)


def _last_index_of(frame: Frame, text: str, part: str, start: int | None = None) -> int:
    # Searching backwards is quadratic in Python, however long the text is.
    frame.charge(1 + (len(text) >> 6) + (len(text) * len(part) >> 12))
    if start is None:
        return text.rfind(part)
    if not 0 <= start <= len(text):
        raise _outside("the start")
    return text.rfind(part, 0, start + len(part))


def _lower(frame: Frame, text: str) -> str:
    frame.charge_string(len(text))
    return text.translate(_LOWER)


def _upper(frame: Frame, text: str) -> str:
    frame.charge_string(len(text))
    return text.translate(_UPPER)


def _reverse(frame: Frame, text: str) -> str:
    frame.charge_string(len(text))
    return text[::-1]


def _trim(frame: Frame, text: str) -> str:
    frame.charge_string(len(text))
    return text.strip(_SPACE)


def _count(frame: Frame, text: str, part: str) -> int:
    _searched(frame, text, part)
    return text.count(part)


def _replace(frame: Frame, text: str, *change: str) -> str:
    return _replaced(frame, text, (change[0], change[1], _count(frame, text, change[0])))


def _replace_some(frame: Frame, text: str, old: str, *rest: Value) -> str:
    new, limit = rest
    assert isinstance(new, str), "by its overload"
    assert isinstance(limit, int), "by its overload"
    found = _count(frame, text, old)
    return _replaced(frame, text, (old, new, found if limit < 0 else min(found, limit)))


def _replaced(frame: Frame, text: str, change: tuple[str, str, int]) -> str:
    old, new, found = change
    frame.charge_string(len(text) + found * max(0, len(new) - len(old)))
    return text.replace(old, new, found)


def _split(frame: Frame, text: str, separator: str, limit: int = -1) -> list[Value]:
    if limit == 0:
        return []
    parts = (len(text) if not separator else _count(frame, text, separator) + 1) or 1
    if limit > 0:
        parts = min(parts, limit)
    frame.charge_list(parts)
    frame.charge_string(len(text))
    result: list[Value] = []
    if not separator:
        result.extend(text[: parts - 1])
        result.append(text[parts - 1 :])
    else:
        result.extend(text.split(separator, parts - 1))
    return result


def _substring(frame: Frame, text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= len(text) or not 0 <= stop <= len(text):
        raise _outside("the range")
    if stop < start:
        msg = "the range ends before it starts"
        raise EvaluationError(msg)
    frame.charge_string(stop - start)
    return text[start:stop]


def _join(frame: Frame, parts: list[Value], separator: str = "") -> str:
    frame.charge(1 + (len(parts) >> 2))
    texts: list[str] = []
    length = 0
    for part in parts:
        if not isinstance(part, str):
            raise no_overload("join", part)
        texts.append(part)
        length += len(part) + len(separator)
    frame.charge_string(length)
    return separator.join(texts)


def _quote(frame: Frame, text: str) -> str:
    frame.charge_string(2 * len(text) + 2)
    return '"' + "".join(_ESCAPES.get(c, c) for c in text) + '"'


STRINGS: Final[Overloads] = {
    "charAt": {(str, int): _char_at},
    "contains": {(str, str): _contains},
    "startsWith": {(str, str): _starts_with},
    "endsWith": {(str, str): _ends_with},
    "indexOf": {(str, str): _index_of, (str, str, int): _index_of},
    "lastIndexOf": {(str, str): _last_index_of, (str, str, int): _last_index_of},
    "lowerAscii": {(str,): _lower},
    "upperAscii": {(str,): _upper},
    "trim": {(str,): _trim},
    "replace": {(str, str, str): _replace, (str, str, str, int): _replace_some},
    "split": {(str, str): _split, (str, str, int): _split},
    "substring": {(str, int): _substring, (str, int, int): _substring},
    "join": {(list,): _join, (list, str): _join},
    "strings.quote": {(str,): _quote},
}


def reverse_string(frame: Frame, text: str) -> str:
    """`s.reverse()`; lists have a `reverse` as well, so the table of lists registers both."""
    return _reverse(frame, text)
