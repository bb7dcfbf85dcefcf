"""The operators: arithmetic, comparison, indexing, membership.

One documented deviation from CEL: where the static types leave it open, `+ - *` of an int and a
double promote the int, when it is exact as a double. JSON writers send `10` for 10.0, and an
expression that fails only for round prices is a trap. `/` and `%` stay strict, since they mean
different things for the two types.
"""

import math
from collections.abc import Callable, Mapping
from operator import add as plus
from operator import mul as times
from operator import sub as minus
from typing import Final

from towpath_engine.core.expressions.values import (
    INT_MAX,
    INT_MIN,
    NONE,
    UINT_MAX,
    Duration,
    EvaluationError,
    Frame,
    Optional,
    Timestamp,
    Uint,
    Value,
    compare,
    equal,
    map_key,
    no_overload,
    numbers,
    type_name,
)

Binary = Callable[[Frame, Value, Value], Value]
Unary = Callable[[Frame, Value], Value]

EXACT_MAX: Final = 2**53
DURATION_MAX: Final = 315_576_000_000 * 1_000_000_000
TIMESTAMP_MIN: Final = -62_135_596_800 * 1_000_000_000
TIMESTAMP_MAX: Final = 253_402_300_800 * 1_000_000_000 - 1


def checked_int(value: int) -> int:
    """The result of integer arithmetic. Raises EvaluationError outside 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    msg = "integer overflow"
    raise EvaluationError(msg)


def checked_uint(value: int) -> Uint:
    """The result of unsigned arithmetic. Raises EvaluationError outside 64 bits."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    msg = "unsigned integer overflow"
    raise EvaluationError(msg)


def checked_duration(nanos: int) -> Duration:
    """A duration within CEL's range of 10,000 years. Raises EvaluationError outside."""
    if -DURATION_MAX <= nanos <= DURATION_MAX:
        return Duration(nanos)
    msg = "duration out of range"
    raise EvaluationError(msg)


def checked_timestamp(nanos: int) -> Timestamp:
    """An instant of the years 1 to 9999. Raises EvaluationError outside."""
    if TIMESTAMP_MIN <= nanos <= TIMESTAMP_MAX:
        return Timestamp(nanos)
    msg = "timestamp out of range"
    raise EvaluationError(msg)


def operand(value: int) -> int:
    """An integer that arithmetic may use. JSON may carry larger ones; those only compare."""
    if INT_MIN <= value <= INT_MAX:
        return value
    msg = "integer beyond 64 bits: it can be passed on and compared, not computed with"
    raise EvaluationError(msg)


def _exact(value: int) -> float:
    if -EXACT_MAX <= value <= EXACT_MAX:
        return float(value)
    msg = "the integer is too large to be exact as a double"
    raise EvaluationError(msg)


def _concat_strings(frame: Frame, left: str, right: str) -> str:
    frame.charge_string(len(left) + len(right))
    return left + right


def _concat_bytes(frame: Frame, left: bytes, right: bytes) -> bytes:
    frame.charge_string(len(left) + len(right))
    return left + right


def _concat_lists(frame: Frame, left: list[Value], right: list[Value]) -> list[Value]:
    frame.charge_list(len(left) + len(right))
    return [*left, *right]


def _divide_doubles(_: Frame, left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _quotient(left: int, right: int) -> int:
    if right == 0:
        msg = "divide by zero"
        raise EvaluationError(msg)
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    if right == 0:
        msg = "modulus by zero"
        raise EvaluationError(msg)
    if left == INT_MIN and right == -1:
        # No overflow in Python; the reference has it, and the two must not differ.
        msg = "integer overflow"
        raise EvaluationError(msg)
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


Implementation = Callable[..., Value]
Table = Mapping[tuple[type, type], Implementation]
Instant = Timestamp | Duration


def _ints(apply: Callable[[int, int], int]) -> Callable[[Frame, int, int], int]:
    return lambda _frame, a, b: checked_int(apply(operand(a), operand(b)))


def _uints(apply: Callable[[int, int], int]) -> Callable[[Frame, Uint, Uint], Uint]:
    return lambda _frame, a, b: checked_uint(apply(int(a), int(b)))


def _doubles(apply: Callable[[float, float], float]) -> Table:
    def same(_frame: Frame, left: float, right: float) -> float:
        return apply(left, right)

    def int_left(_frame: Frame, left: int, right: float) -> float:
        return apply(_exact(left), right)

    def int_right(_frame: Frame, left: float, right: int) -> float:
        return apply(left, _exact(right))

    return {(float, float): same, (int, float): int_left, (float, int): int_right}


def _spans(
    apply: Callable[[int, int], int], make: Callable[[int], Instant]
) -> Callable[[Frame, Instant, Instant], Instant]:
    return lambda _frame, a, b: make(apply(a.nanos, b.nanos))


_ADD: Final[Table] = {
    (int, int): _ints(plus),
    (Uint, Uint): _uints(plus),
    **_doubles(plus),
    (str, str): _concat_strings,
    (bytes, bytes): _concat_bytes,
    (list, list): _concat_lists,
    (Timestamp, Duration): _spans(plus, checked_timestamp),
    (Duration, Timestamp): _spans(plus, checked_timestamp),
    (Duration, Duration): _spans(plus, checked_duration),
}
_SUBTRACT: Final[Table] = {
    (int, int): _ints(minus),
    (Uint, Uint): _uints(minus),
    **_doubles(minus),
    (Timestamp, Timestamp): _spans(minus, checked_duration),
    (Timestamp, Duration): _spans(minus, checked_timestamp),
    (Duration, Duration): _spans(minus, checked_duration),
}
_MULTIPLY: Final[Table] = {
    (int, int): _ints(times),
    (Uint, Uint): _uints(times),
    **_doubles(times),
}
_DIVIDE: Final[Table] = {
    (int, int): _ints(_quotient),
    (Uint, Uint): _uints(_quotient),
    (float, float): _divide_doubles,
}
_MODULO: Final[Table] = {(int, int): _ints(_remainder), (Uint, Uint): _uints(_remainder)}


def dispatched(symbol: str, table: Table) -> Binary:
    """A binary operator that looks its implementation up by the exact types of its operands."""

    def apply(frame: Frame, left: Value, right: Value) -> Value:
        implementation = table.get((type(left), type(right)))
        if implementation is None:
            raise no_overload(symbol, left, right)
        return implementation(frame, left, right)

    return apply


def negate(_: Frame, value: Value) -> Value:
    """`-value`."""
    if type(value) is int:
        return checked_int(-operand(value))
    if type(value) is float:
        return -value
    raise no_overload("-", value)


def less(frame: Frame, left: Value, right: Value) -> bool:
    """`left < right`."""
    if (pair := numbers(left, right)) is not None:
        return pair[0] < pair[1]
    return _ordered(frame, left, right) < 0


def less_or_equal(frame: Frame, left: Value, right: Value) -> bool:
    """`left <= right`."""
    if (pair := numbers(left, right)) is not None:
        return pair[0] <= pair[1]
    return _ordered(frame, left, right) <= 0


def greater(frame: Frame, left: Value, right: Value) -> bool:
    """`left > right`."""
    return less(frame, right, left)


def greater_or_equal(frame: Frame, left: Value, right: Value) -> bool:
    """`left >= right`."""
    return less_or_equal(frame, right, left)


def _ordered(frame: Frame, left: Value, right: Value) -> int:
    if isinstance(left, str | bytes):
        frame.charge(len(left) >> 6)
    return compare("comparison", left, right)


def not_equal(frame: Frame, left: Value, right: Value) -> bool:
    """`left != right`."""
    return not equal(frame, left, right)


def contained(frame: Frame, item: Value, container: Value) -> bool:
    """`item in container`."""
    if isinstance(container, dict):
        key = map_key(item)
        if key is None and not isinstance(item, float):
            raise no_overload("in", item, container)
        return key is not None and key in container
    if isinstance(container, list):
        if isinstance(item, str):
            # A string equals nothing but a string in Python as well, so the fast way is safe.
            frame.charge(1 + (len(container) >> 3))
            return item in container
        return any(equal(frame, item, element) for element in container)
    raise no_overload("in", item, container)


def index(_: Frame, container: Value, key: Value) -> Value:
    """`container[key]`. Raises EvaluationError when there is no such element."""
    if isinstance(container, Optional):
        return optional_index(_, container, key)
    found = _find(container, key)
    if found is not None:
        return found[0]
    if isinstance(container, list):
        msg = f"index {describe(key)} is outside the list of {len(container)}"
        raise EvaluationError(msg)
    msg = f"no such key: {describe(key)}"
    raise EvaluationError(msg)


def optional_index(_: Frame, container: Value, key: Value) -> Value:
    """`container[?key]`."""
    if isinstance(container, Optional):
        if not container.present:
            return NONE
        container = container.value
    found = _find(container, key)
    return NONE if found is None else Optional(found[0])


def _find(container: Value, key: Value) -> tuple[Value] | None:
    if isinstance(container, list):
        at = int(key) if isinstance(key, float) and key.is_integer() else key
        if not isinstance(at, int) or isinstance(at, bool):
            raise no_overload("[]", container, key)
        return (container[at],) if 0 <= at < len(container) else None
    if isinstance(container, dict):
        name = map_key(key)
        if name is None or name not in container:
            return None
        return (container[name],)
    raise no_overload("[]", container, key)


def describe(key: Value) -> str:
    """A key in an error message, cut to a readable length."""
    if isinstance(key, str):
        return repr(key) if len(key) <= 80 else repr(key[:80]) + "..."
    return repr(key) if isinstance(key, int | float) else f"a value of type {type_name(key)}"


def select(container: Value, field: str) -> Value:
    """`container.field`. Raises EvaluationError when there is no such field."""
    if isinstance(container, dict):
        if field in container:
            return container[field]
        msg = f"no such key: {describe(field)}"
        raise EvaluationError(msg)
    if isinstance(container, Optional):
        return optional_select(container, field) if container.present else NONE
    msg = f"cannot read {describe(field)} of a value of type {type_name(container)}"
    raise EvaluationError(msg)


def optional_select(container: Value, field: str) -> Value:
    """`container.?field`. Raises EvaluationError when the container is no map."""
    if isinstance(container, Optional):
        if not container.present:
            return NONE
        container = container.value
    if isinstance(container, dict):
        return Optional(container[field]) if field in container else NONE
    msg = f"cannot read {describe(field)} of a value of type {type_name(container)}"
    raise EvaluationError(msg)


def has_field(container: Value, field: str) -> bool:
    """`has(container.field)`; true as well when the field is null."""
    if isinstance(container, Optional):
        if not container.present:
            return False
        container = container.value
    if isinstance(container, dict):
        return field in container
    msg = f"cannot test for {describe(field)} in a value of type {type_name(container)}"
    raise EvaluationError(msg)


BINARY: Final[Mapping[str, Binary]] = {
    "_+_": dispatched("+", _ADD),
    "_-_": dispatched("-", _SUBTRACT),
    "_*_": dispatched("*", _MULTIPLY),
    "_/_": dispatched("/", _DIVIDE),
    "_%_": dispatched("%", _MODULO),
    "_==_": equal,
    "_!=_": not_equal,
    "_<_": less,
    "_<=_": less_or_equal,
    "_>_": greater,
    "_>=_": greater_or_equal,
    "@in": contained,
    "_[_]": index,
    "_[?_]": optional_index,
}
