"""What a decoder says about a value, in words for the person who wrote the value.

A pattern or a comparison sign helps nobody who does not read the schema: both become a sentence
with the rule.
"""

import re
from typing import Final

from towpath_protocol.ids import RULES

_PATTERN: Final = re.compile(r"Expected `str` matching regex (.*)", re.DOTALL)
_LENGTH: Final = re.compile(r"Expected `(str|array|object)` of length (>=|<=) (\d+)")
_RANGE: Final = re.compile(r"Expected `(?:int|float)` (>=|<=) (-?[\d.]+)")
_BY_PATTERN: Final = {repr(pattern): rule for pattern, rule in RULES.items()}
_UNITS: Final = {"str": "characters", "array": "elements", "object": "fields"}


def in_words(message: str) -> tuple[str, str]:
    """The decoder's message as (what is wrong, what to do instead); the latter may be empty."""
    if found := _PATTERN.fullmatch(message):
        rule = _BY_PATTERN.get(found[1])
        return ("is not allowed", f"use {rule}") if rule else (message, "")
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
    return message, ""
