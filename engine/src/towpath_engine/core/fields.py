"""Reading the fields of an object of a definition, with every fault noted and none raised.

A method returns None both for a field that is absent and for one that is faulty: the fault is
noted then, and the definition is refused in the end whatever else is read.
"""

import math
from collections.abc import Callable
from typing import Final, TypeGuard

from towpath_engine.core.durations import RULE, BadDuration, parse_duration
from towpath_engine.core.faults import FaultCode, Faults
from towpath_protocol.codec import JsonValue
from towpath_protocol.errors import ProtocolError

COUNT_MAX: Final = 2**31 - 1


def is_object(value: object) -> TypeGuard[dict[str, JsonValue]]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[JsonValue]]:
    """Whether a JSON value is an array."""
    return isinstance(value, list)


def kind_of(value: object) -> str:
    """The JSON type of a value, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


class Fields:
    """The fields of one object. `path` is its place in the document."""

    def __init__(self, values: dict[str, JsonValue], path: str, faults: Faults) -> None:
        self.values = values
        self.path = path
        self.faults = faults

    def place(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def fault(self, name: str, message: str, code: FaultCode) -> None:
        """Note a fault of a field."""
        self.faults.add(self.place(name), message, code)

    def check_names(self, known: frozenset[str]) -> None:
        """Note every field that is not `known`."""
        for name in self.values:
            if name not in known:
                allowed = ", ".join(sorted(known))
                message = f"unknown field; allowed here: {allowed}"
                self.fault(name, message, FaultCode.UNKNOWN_FIELD)

    def has(self, name: str) -> bool:
        """Whether the field is there, be it null."""
        return name in self.values

    def require(self, name: str) -> None:
        """Note that a field is missing, if it is."""
        if name not in self.values:
            self.fault(name, "is missing", FaultCode.MISSING)

    def text(self, name: str) -> str | None:
        """A string that is not empty."""
        if name not in self.values:
            return None
        value = self.values[name]
        if not isinstance(value, str) or not value:
            shown = "an empty string" if value == "" else kind_of(value)
            self.fault(name, f"must be a string, not {shown}", FaultCode.WRONG_TYPE)
            return None
        return value

    def name(self, name: str, check: Callable[[str], str]) -> str | None:
        """A string that `check` of towpath_protocol.ids accepts."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return check(value)
        except ProtocolError as error:
            self.fault(name, f"{value[:80]!r} is no legal name: {error.fix}", FaultCode.BAD_NAME)
            return None

    def duration(self, name: str) -> int | None:
        """A duration in milliseconds."""
        if name not in self.values:
            return None
        value = self.values[name]
        if not isinstance(value, str):
            message = f"must be a duration, not {kind_of(value)}: {RULE}"
            self.fault(name, message, FaultCode.WRONG_TYPE)
            return None
        try:
            return parse_duration(value)
        except BadDuration as error:
            self.fault(name, str(error), FaultCode.BAD_VALUE)
            return None

    def count(self, name: str) -> int | None:
        """A whole number from 1."""
        if name not in self.values:
            return None
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int):
            self.fault(name, f"must be a whole number, not {kind_of(value)}", FaultCode.WRONG_TYPE)
            return None
        if not 1 <= value <= COUNT_MAX:
            self.fault(name, f"must be 1 to {COUNT_MAX}, not {value}", FaultCode.BAD_VALUE)
            return None
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        """A number from `low` to `high`."""
        if name not in self.values:
            return None
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(name, f"must be a number, not {kind_of(value)}", FaultCode.WRONG_TYPE)
            return None
        if not (math.isfinite(value) and low <= value <= high):
            self.fault(name, f"must be {low:g} to {high:g}, not {value}", FaultCode.BAD_VALUE)
            return None
        return float(value)

    def flag(self, name: str) -> bool:
        """A boolean; absent is false."""
        value = self.values.get(name, False)
        if not isinstance(value, bool):
            self.fault(name, f"must be true or false, not {kind_of(value)}", FaultCode.WRONG_TYPE)
            return False
        return value

    def names(self, name: str, check: Callable[[str], str]) -> tuple[str, ...] | None:
        """A list of strings that `check` of towpath_protocol.ids accepts, at least one."""
        found = self.texts(name)
        if found is None:
            return None
        if self.values[name] == []:
            self.fault(name, "is empty", FaultCode.BAD_VALUE)
        faultless = True
        for text in found:
            try:
                check(text)
            except ProtocolError as error:
                message = f"{text[:80]!r} is no legal name: {error.fix}"
                self.fault(name, message, FaultCode.BAD_NAME)
                faultless = False
        return found if found and faultless else None

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of strings, none empty, none twice."""
        if name not in self.values:
            return None
        value = self.values[name]
        if not is_list(value):
            self.fault(
                name, f"must be a list of strings, not {kind_of(value)}", FaultCode.WRONG_TYPE
            )
            return None
        found: list[str] = []
        for index, item in enumerate(value):
            place = f"{name}[{index}]"
            if not isinstance(item, str) or not item:
                self.fault(place, f"must be a string, not {kind_of(item)}", FaultCode.WRONG_TYPE)
            elif item in found:
                self.fault(place, f"{item!r} is there twice", FaultCode.DUPLICATE)
            else:
                found.append(item)
        return tuple(found)

    def word(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """One of the words of `allowed`."""
        value = self.text(name)
        if value is not None and value not in allowed:
            self.fault(name, f"must be one of {', '.join(allowed)}", FaultCode.BAD_VALUE)
            return None
        return value

    def object(self, name: str, known: frozenset[str]) -> "Fields | None":
        """An object with no other fields than `known`."""
        if name not in self.values:
            return None
        return open_object(self.values[name], self.place(name), self.faults, known=known)


def open_object(
    value: object,
    path: str,
    faults: Faults,
    *,
    known: frozenset[str],
) -> Fields | None:
    """The fields of `value`; None, and a fault, when it is no object."""
    if not is_object(value):
        faults.add(path, f"must be an object, not {kind_of(value)}", FaultCode.WRONG_TYPE)
        return None
    fields = Fields(value, path, faults)
    fields.check_names(known)
    return fields
