"""The values that expressions compute with, and the errors and the budget of an evaluation.

JSON values are themselves, as the JSON decoder made them. CEL's other types are the small classes
here. Two Python habits have to be kept out: `True == 1`, and integers without end.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, TypeAlias

from msgspec import Struct

from towpath_engine.core.expressions.interface import Values
from towpath_engine.core.expressions.limits import RuntimeLimits

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
NANOS: Final = 1_000_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Uint(int):
    """An unsigned integer; equal to the signed one of the same value, as CEL has it."""


class Timestamp(Struct, frozen=True):
    """An instant, in nanoseconds since 1970-01-01T00:00:00Z."""

    nanos: int


class Duration(Struct, frozen=True):
    """A span of time, in nanoseconds."""

    nanos: int


class TypeValue(Struct, frozen=True):
    """The result of `type(x)`, and the meaning of a type's name."""

    name: str


class BoolKey(Enum):
    """A boolean key of a map: Python's `True` would collide with 1."""

    FALSE = 0
    TRUE = 1


class Optional:
    """`optional.of(value)`, or `optional.none()` when not `present`."""

    __slots__ = ("present", "value")

    def __init__(self, value: "Value", *, present: bool = True) -> None:
        self.value = value
        self.present = present


Key: TypeAlias = str | int | BoolKey
Value: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | list["Value"]
    | dict[Key, "Value"]
    | Timestamp
    | Duration
    | Optional
    | TypeValue
    | None
)

NONE: Final = Optional(None, present=False)


class EvaluationError(Exception):
    """An evaluation went wrong. `position` is filled in by the innermost node that has one."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


class BudgetExceededError(EvaluationError):
    """The evaluation cost more than it may; `&&` and `||` do not absorb this one."""


class Frame:
    """One evaluation: its variables, the locals of its macros, and what it may still cost."""

    __slots__ = ("_seen", "_values", "fuel", "limits", "slots")

    def __init__(self, values: Values, limits: RuntimeLimits, *, fuel: int) -> None:
        self._values = values
        self._seen: dict[str, Value] = {}
        self.limits = limits
        self.fuel = fuel
        self.slots: list[Value | EvaluationError] = []

    def variable(self, name: str) -> "Value":
        """A variable, looked up once per evaluation so that it cannot change half-way."""
        seen = self._seen
        if name in seen:
            return seen[name]
        value = from_python(self._values.lookup(name))
        seen[name] = value
        return value

    def charge(self, units: int) -> None:
        """Spend fuel. Raises BudgetExceededError when there is none left."""
        self.fuel -= units
        if self.fuel < 0:
            msg = "too costly: the expression ran out of fuel"
            raise BudgetExceededError(msg)

    def charge_string(self, length: int) -> None:
        """Before a string of `length` is built: spend its cost, refuse it when too long."""
        if length > self.limits.string_length_max:
            msg = f"too costly: a string longer than {self.limits.string_length_max}"
            raise BudgetExceededError(msg)
        self.charge(1 + (length >> 4))

    def charge_list(self, length: int) -> None:
        """Before a list or map of `length` is built: spend its cost, refuse it when too long."""
        if length > self.limits.list_length_max:
            msg = f"too costly: a list longer than {self.limits.list_length_max}"
            raise BudgetExceededError(msg)
        self.charge(1 + (length >> 1))


Evaluator: TypeAlias = Callable[[Frame], Value]


def from_python(value: "Value | datetime") -> "Value":
    """A looked-up value as CEL sees it: an aware datetime becomes a timestamp, JSON stays."""
    if isinstance(value, datetime):
        return Timestamp((value - EPOCH) // timedelta(microseconds=1) * 1_000)
    return value


TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    Timestamp: "timestamp",
    Duration: "duration",
    Optional: "optional",
    TypeValue: "type",
}


def type_name(value: Value) -> str:
    """What error messages call the type of a value."""
    return TYPE_NAMES[type(value)]


def no_overload(function: str, *arguments: Value) -> EvaluationError:
    """The error for operands of types that the function does not take."""
    types = ", ".join(type_name(a) for a in arguments)
    return EvaluationError(f"{function} does not take ({types})")


def equal(frame: Frame, left: Value, right: Value) -> bool:
    """CEL's `==`: numbers compare across types, other types are unequal to each other.

    Every node that is compared costs fuel, so that a value whose parts are shared many times over
    cannot be compared for ever.
    """
    frame.charge(1)
    if isinstance(left, bool) or isinstance(right, bool) or left is None:
        return left is right
    if isinstance(left, str | bytes):
        frame.charge(len(left) >> 6)
        return left == right
    if isinstance(left, list | dict | Optional):
        return _equal_parts(frame, left, right)
    return left == right


def _equal_parts(
    frame: Frame, left: "list[Value] | dict[Key, Value] | Optional", right: Value
) -> bool:
    match left, right:
        case (list(), list()):
            return len(left) == len(right) and all(
                equal(frame, a, b) for a, b in zip(left, right, strict=True)
            )
        case (dict(), dict()):
            return len(left) == len(right) and all(
                k in right and equal(frame, v, right[k]) for k, v in left.items()
            )
        case (Optional(), Optional()):
            same = left.present == right.present
            return same and (not left.present or equal(frame, left.value, right.value))
        case _:
            return False


def compare(function: str, left: Value, right: Value) -> int:
    """-1, 0 or 1. Raises EvaluationError for types without an order, or of different types.

    NaN compares to nothing: the comparison operators treat numbers before they come here.
    """
    if isinstance(left, bool) and isinstance(right, bool):
        return int(left) - int(right)
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(left, bytes) and isinstance(right, bytes):
        return (left > right) - (left < right)
    if (pair := numbers(left, right)) is not None:
        return (pair[0] > pair[1]) - (pair[0] < pair[1])
    match left, right:
        case (Timestamp(), Timestamp()) | (Duration(), Duration()):
            return (left.nanos > right.nanos) - (left.nanos < right.nanos)
        case _:
            raise no_overload(function, left, right)


def numbers(left: Value, right: Value) -> tuple[float, float] | None:
    """Both, when both are numbers; a bool is none."""
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left, right
    return None


def map_key(value: Value) -> Key | None:
    """A value as a key of a map, or None when no map can have such a key."""
    if isinstance(value, bool):
        return BoolKey.TRUE if value else BoolKey.FALSE
    if isinstance(value, str | int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


def insert(target: dict[Key, Value], key: Value, value: Value) -> None:
    """Add an entry to a map under construction. Raises EvaluationError for a bad or second key."""
    name = None if isinstance(key, float) else map_key(key)
    if name is None:
        msg = f"a value of type {type_name(key)} cannot be the key of a map"
        raise EvaluationError(msg)
    if name in target:
        msg = "the map has a key twice"
        raise EvaluationError(msg)
    target[name] = value


def key_value(key: Key) -> Value:
    """The key of a map as a value."""
    return key is BoolKey.TRUE if isinstance(key, BoolKey) else key


def sorted_keys(entries: dict[Key, Value]) -> list[Key]:
    """The keys in the one order in which every map is walked: by type, then by value.

    Neither the order of the document nor that of the database is stable; this one is.
    """
    return sorted(entries, key=_key_order)


def _key_order(key: Key) -> tuple[int, int, str]:
    if isinstance(key, str):
        return (2, 0, key)
    return (0, key.value, "") if isinstance(key, BoolKey) else (1, key, "")
