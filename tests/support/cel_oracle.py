"""The reference implementation of CEL, as the oracle of our interpreter, and both their results in
one comparable form."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cel_expr_python import cel

from towpath_engine.core.expressions import cel_frontend
from towpath_engine.core.expressions.interface import ExpressionRefused
from towpath_engine.core.expressions.interpreter import build_program
from towpath_engine.core.expressions.limits import RuntimeLimits
from towpath_engine.core.expressions.values import (
    NANOS,
    Duration,
    EvaluationError,
    Frame,
    Key,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    key_value,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FAILED: Final = "<failed>"


class Given:
    """Variables by qualified name, as an evaluation wants them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def lookup(self, name: str) -> Any:
        return self.values[name]


def run_ours(source: str, values: Mapping[str, Any], limits: RuntimeLimits | None = None) -> Value:
    """The raw value of our interpreter. Raises EvaluationError, CheckError."""
    declared = dict.fromkeys(values, cel_frontend.Declared.DYN)
    checked = cel_frontend.check(source, declared)
    program = build_program(checked.tree, cel_frontend.compile_pattern)
    limits = limits or RuntimeLimits()
    return program.evaluate(Frame(Given(values), limits, fuel=limits.template_fuel))


def ours(source: str, values: Mapping[str, Any]) -> object:
    """Our result in comparable form, or FAILED."""
    try:
        return _comparable(run_ours(source, values))
    except (EvaluationError, ExpressionRefused):
        return FAILED


def theirs(source: str, values: Mapping[str, Any]) -> object:
    """The oracle's result in comparable form, or FAILED."""
    declared = frozenset((name, cel_frontend.Declared.DYN) for name in values)
    expression = cel_frontend.environment(declared).compile(source)
    try:
        return _comparable_oracle(expression.eval(data=values))
    except RuntimeError:
        return FAILED


def _number(value: float) -> object:
    if isinstance(value, float) and math.isnan(value):
        return ("double", "nan")
    return ("double" if isinstance(value, float) else "int", value)


def _key(key: object) -> object:
    return ("int", key) if isinstance(key, int) and not isinstance(key, bool) else key


def _span(nanos: int) -> timedelta:
    return timedelta(microseconds=nanos * 1_000_000 // NANOS)


def _entries(value: dict[Key, Value]) -> object:
    return {_key(key_value(k)): _comparable(v) for k, v in value.items()}


_OURS: Final[dict[type, Callable[[Any], object]]] = {
    Uint: lambda v: ("uint", int(v)),
    int: _number,
    float: _number,
    bytes: lambda v: ("bytes", v),
    list: lambda v: [_comparable(item) for item in v],
    dict: _entries,
    Timestamp: lambda v: EPOCH + _span(v.nanos),
    Duration: lambda v: _span(v.nanos),
    TypeValue: lambda v: ("type", v.name),
    Optional: lambda v: ("optional", _comparable(v.value) if v.present else FAILED),
}
_THEIRS: Final[dict[type, Callable[[Any], object]]] = {
    int: _number,
    float: _number,
    bytearray: lambda v: ("bytes", bytes(v)),
    list: lambda v: [_comparable_oracle(item) for item in v],
    dict: lambda v: {_key(k): _comparable_oracle(item) for k, item in v.items()},
    cel.Type: lambda v: ("type", v.name()),
}


def _comparable(value: Value) -> object:
    convert = _OURS.get(type(value))
    return value if convert is None else convert(value)


def _comparable_oracle(value: Any) -> object:
    kind = value.type()
    if kind == cel.Type.ERROR:
        return FAILED
    plain: object = value.value()
    if kind == cel.Type.UINT:
        return ("uint", int(value.value()))
    convert = _THEIRS.get(type(plain))
    return plain if convert is None else convert(plain)
