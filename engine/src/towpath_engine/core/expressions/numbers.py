"""The functions of `math.`."""

import math
from collections.abc import Callable
from typing import Final

from towpath_engine.core.expressions.operators import checked_int, checked_uint, operand
from towpath_engine.core.expressions.overloads import Overloads
from towpath_engine.core.expressions.values import (
    UINT_MAX,
    EvaluationError,
    Frame,
    Uint,
    Value,
    compare,
    no_overload,
    numbers,
)


def _extreme(name: str, sign: int) -> Callable[..., Value]:
    def pick(frame: Frame, *values: Value) -> Value:
        items: list[Value] = list(values)
        if len(items) == 1 and isinstance(items[0], list):
            items = items[0]
        if not items:
            msg = f"{name} of an empty list"
            raise EvaluationError(msg)
        frame.charge(1 + (len(items) >> 1))
        best = items[0]
        for item in items:
            if numbers(best, item) is None:
                raise no_overload(name, best, item)
            if compare(name, item, best) * sign > 0:
                best = item
        return best

    return pick


def _abs_int(_: Frame, value: int) -> int:
    return checked_int(abs(operand(value)))


def _same(_: Frame, value: Value) -> Value:
    return value


def _abs(_: Frame, value: float) -> float:
    return abs(value)


def _sign_int(_: Frame, value: int) -> int:
    return (value > 0) - (value < 0)


def _sign_uint(_: Frame, value: Uint) -> Uint:
    return Uint(value > 0)


def _sign(_: Frame, value: float) -> float:
    return value if math.isnan(value) else float((value > 0) - (value < 0))


def _rounded(apply: Callable[[float], int]) -> Callable[[Frame, float], float]:
    def round_to(_: Frame, value: float) -> float:
        if math.isnan(value) or math.isinf(value):
            return value
        return math.copysign(float(apply(value)), value)

    return round_to


def _half_away(value: float) -> int:
    whole = math.trunc(value)
    return whole + int(math.copysign(1, value)) if abs(value - whole) >= 0.5 else whole


def _is_nan(_: Frame, value: float) -> bool:
    return math.isnan(value)


def _is_inf(_: Frame, value: float) -> bool:
    return math.isinf(value)


def _is_finite(_: Frame, value: float) -> bool:
    return math.isfinite(value)


def _sqrt(_: Frame, value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


def _sqrt_int(frame: Frame, value: int) -> float:
    return _sqrt(frame, float(operand(value)))


def _bits(apply: Callable[[int, int], int]) -> dict[int | tuple[type, ...], Callable[..., Value]]:
    def ints(_: Frame, left: int, right: int) -> int:
        return apply(operand(left), operand(right))

    def uints(_: Frame, left: Uint, right: Uint) -> Uint:
        return Uint(apply(left, right))

    return {(int, int): ints, (Uint, Uint): uints}


def _signed(value: int) -> int:
    value &= UINT_MAX
    return value - (1 << 64) if value >> 63 else value


def _shifts(
    apply: Callable[[int, int], int],
) -> dict[int | tuple[type, ...], Callable[..., Value]]:
    def shift(value: int, by: int) -> int:
        if by < 0:
            msg = "a shift by a negative number"
            raise EvaluationError(msg)
        return apply(value & UINT_MAX, by) & UINT_MAX if by < 64 else 0

    def ints(_: Frame, value: int, by: int) -> int:
        return _signed(shift(operand(value), by))

    def uints(_: Frame, value: Uint, by: int) -> Uint:
        return checked_uint(shift(value, by))

    return {(int, int): ints, (Uint, int): uints}


def _not_int(_: Frame, value: int) -> int:
    return ~operand(value)


def _not_uint(_: Frame, value: Uint) -> Uint:
    return Uint(value ^ UINT_MAX)


_GREATEST: Final = _extreme("math.greatest", 1)
_LEAST: Final = _extreme("math.least", -1)

NUMBERS: Final[Overloads] = {
    "math.@max": {1: _GREATEST, 2: _GREATEST},
    "math.@min": {1: _LEAST, 2: _LEAST},
    "math.abs": {(int,): _abs_int, (Uint,): _same, (float,): _abs},
    "math.sign": {(int,): _sign_int, (Uint,): _sign_uint, (float,): _sign},
    "math.ceil": {(float,): _rounded(math.ceil)},
    "math.floor": {(float,): _rounded(math.floor)},
    "math.trunc": {(float,): _rounded(math.trunc)},
    "math.round": {(float,): _rounded(_half_away)},
    "math.isNaN": {(float,): _is_nan},
    "math.isInf": {(float,): _is_inf},
    "math.isFinite": {(float,): _is_finite},
    "math.sqrt": {(float,): _sqrt, (int,): _sqrt_int, (Uint,): _sqrt_int},
    "math.bitAnd": _bits(lambda a, b: a & b),
    "math.bitOr": _bits(lambda a, b: a | b),
    "math.bitXor": _bits(lambda a, b: a ^ b),
    "math.bitNot": {(int,): _not_int, (Uint,): _not_uint},
    "math.bitShiftLeft": _shifts(lambda a, b: a << b),
    "math.bitShiftRight": _shifts(lambda a, b: a >> b),
}
