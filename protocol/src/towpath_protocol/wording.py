"""What a decoder says about a value, in words for the person who wrote the value.

A pattern, a comparison sign or the name of a type helps nobody who does not read the schema: they
become a sentence with the rule.
"""

import re
from enum import EnumType
from types import UnionType
from typing import Final, get_args, get_origin

import msgspec
from msgspec import Struct

from towpath_protocol.ids import RULES

_PATTERN: Final = re.compile(r"Expected `str` matching regex (.*)", re.DOTALL)
_LENGTH: Final = re.compile(r"Expected `(str|array|object)` of length (>=|<=) (\d+)")
_RANGE: Final = re.compile(r"Expected `(?:int|float)` (>=|<=) (-?[\d.]+)")
_BY_PATTERN: Final = {repr(pattern): rule for pattern, rule in RULES.items()}
_UNITS: Final = {"str": "characters", "array": "elements", "object": "fields"}
_TYPE: Final = re.compile(r"Expected `([a-z |]+)`, got `([a-z]+)`")
_MISSING: Final = re.compile(r"Object missing required field `([^`]*)`")
_ENUM: Final = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_KINDS: Final = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "an array", "object": "an object", "null": "null",
}  # fmt: skip
_SENT_AS: Final = {"str": "text in double quotes", "int": "a whole number of at most 64 bits"}


def in_words(message: str, shape: object = None, field: str = "") -> tuple[str, str]:
    """The decoder's message as (what is wrong, what to do instead); the latter may be empty.

    `shape` is what was to be decoded and `field` where in it the fault is: with them the fix can
    name the fields that the object needs, or the values that the field may have.
    """
    if found := _TYPE.fullmatch(message):
        return _of_type(found[1].split(" | "), found[2], "" if field else object_of(shape))
    if found := _MISSING.fullmatch(message):
        needed = "" if field else object_of(shape)
        return f"has no field `{found[1]}`", f"send {needed}" if needed else "add it"
    if found := _ENUM.fullmatch(message):
        values = _values_of(shape, field)
        return f"is {found[1]}", f"use one of {', '.join(values)}" if values else ""
    return _of_rule(message) or (message, "")


def object_of(shape: object) -> str:
    """`a JSON object with ...`: the fields without which there is none; empty for no struct."""
    if not (isinstance(shape, type) and issubclass(shape, Struct)):
        return ""
    needed = [f"`{one.encode_name}`" for one in msgspec.structs.fields(shape) if one.required]
    if not needed:
        return "a JSON object, `{}` at least"
    *others, last = needed
    return "a JSON object with " + (f"{', '.join(others)} and {last}" if others else last)


def _of_type(expected: list[str], got: str, needed: str) -> tuple[str, str]:
    kinds = [kind for kind in expected if kind != "null"] or expected
    names = " or ".join(_KINDS.get(kind, kind) for kind in kinds)
    what = "not whole, or too large" if (kinds, got) == (["int"], "float") else f"not {names}"
    sent = needed if kinds == ["object"] and needed else ""
    sent = sent or " or ".join(_SENT_AS.get(kind) or _KINDS.get(kind, kind) for kind in kinds)
    return f"is {_KINDS.get(got, got)}, {what}", f"send {sent}"


def _values_of(shape: object, field: str) -> list[str]:
    """The values of a field of the message itself that is an enumeration."""
    if not (isinstance(shape, type) and issubclass(shape, Struct)):
        return []
    for one in msgspec.structs.fields(shape):
        if one.encode_name == field:
            kinds = get_args(one.type) if get_origin(one.type) is UnionType else (one.type,)
            return [str(value) for kind in kinds if isinstance(kind, EnumType) for value in kind]
    return []


def _of_rule(message: str) -> tuple[str, str] | None:
    """A value of the right type that breaks a bound or a pattern."""
    if found := _PATTERN.fullmatch(message):
        rule = _BY_PATTERN.get(found[1])
        return ("is not allowed", f"use {rule}") if rule else None
    if found := _LENGTH.fullmatch(message):
        few, unit = found[2] == ">=", _UNITS[found[1]]
        return (
            f"has {'fewer' if few else 'more'} than {found[3]} {unit}",
            f"use {'at least' if few else 'at most'} {found[3]}",
        )
    if found := _RANGE.fullmatch(message):
        less = found[1] == ">="
        return (
            f"is {'less' if less else 'more'} than {found[2]}",
            f"use {'at least' if less else 'at most'} {found[2]}",
        )
    return None
