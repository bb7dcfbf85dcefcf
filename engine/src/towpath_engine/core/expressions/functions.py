"""The allow-list: every function that evaluates all its arguments, by name and argument types.

A function that is not here, and not among the operators or the special forms, is refused when the
definition is deployed.
"""

from collections.abc import Mapping
from typing import Final

from towpath_engine.core.expressions.conversions import CONVERSIONS
from towpath_engine.core.expressions.lists import LISTS
from towpath_engine.core.expressions.numbers import NUMBERS
from towpath_engine.core.expressions.operators import negate
from towpath_engine.core.expressions.overloads import Overloads
from towpath_engine.core.expressions.strings import STRINGS
from towpath_engine.core.expressions.values import (
    NONE,
    Duration,
    EvaluationError,
    Frame,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    Value,
)

_OF_TYPE: Final[Mapping[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    Optional: "optional_type",
    TypeValue: "type",
}
TYPE_VALUES: Final[Mapping[str, TypeValue]] = {n: TypeValue(n) for n in _OF_TYPE.values()}


def _not(_: Frame, value: bool) -> bool:  # noqa: FBT001 - the operand of `!`
    return not value


def _type(_: Frame, value: Value) -> TypeValue:
    return TYPE_VALUES[_OF_TYPE[type(value)]]


def _identity(_: Frame, value: Value) -> Value:
    return value


def _of_non_zero(_: Frame, value: Value) -> Optional:
    zero = value is None or value in (False, 0, 0.0, "", b"")
    if isinstance(value, list | dict):
        zero = not value
    elif isinstance(value, Duration | Timestamp):
        zero = value.nanos == 0
    return NONE if zero else Optional(value)


def _value(_: Frame, optional: Optional) -> Value:
    if not optional.present:
        msg = "the optional has no value"
        raise EvaluationError(msg)
    return optional.value


def _has_value(_: Frame, optional: Optional) -> bool:
    return optional.present


def _some(_: Frame, value: Value) -> Optional:
    return Optional(value)


_GENERAL: Final[Overloads] = {
    "!_": {(bool,): _not},
    "-_": {1: negate},
    "type": {1: _type},
    "dyn": {1: _identity},
    "optional.of": {1: _some},
    "optional.ofNonZeroValue": {1: _of_non_zero},
    "value": {(Optional,): _value},
    "hasValue": {(Optional,): _has_value},
}

FUNCTIONS: Final[Overloads] = {**_GENERAL, **CONVERSIONS, **STRINGS, **NUMBERS, **LISTS}
