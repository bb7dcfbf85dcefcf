"""From values to JSON text: what an expression may give to the outside."""

import base64
import json
import math
from collections.abc import ValuesView
from typing import Final

from towpath_engine.core.expressions.times import format_duration, format_timestamp
from towpath_engine.core.expressions.values import (
    BudgetExceededError,
    Duration,
    EvaluationError,
    Frame,
    Key,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    type_name,
)

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

_PLAIN: Final = frozenset({bool, int, type(None)})


def encode(value: Value) -> bytes:
    """JSON text of a value that is nothing but JSON; integers of any size are exact."""
    # `towpath_protocol.codec.dumps` writes the same text, but walks the value once more to judge
    # it, which has been done here.
    return _ENCODER.encode(value).encode("utf-8")


def to_json(frame: Frame, value: Value, depth: int = 0) -> Value:
    """The value as JSON: keys sorted, timestamps as RFC 3339, durations in seconds (`3600s`),
    bytes as base64, an absent optional as null. `depth` is how deep in a document it is placed.

    Nodes are counted as a tree and paid for, since parts may be shared many times over. Raises
    EvaluationError for NaN, infinities, types, keys that are no strings, an optional inside a list
    or map, NUL characters, and results that are too large or nested too deeply.
    """
    if isinstance(value, Optional):
        value = value.value if value.present else None
    return _Walk(frame).plain(value, frame.limits.result_depth_max - depth)


def pass_through(frame: Frame, value: Value, depth: int) -> Value:
    """A variable, or a part of one: JSON that is already within all limits but, where it is placed
    `depth` levels down, perhaps that on nesting. Raises EvaluationError."""
    if not isinstance(value, list | dict):
        return _scalar(value)
    level: list[Value] = [value]
    limit = frame.limits.result_depth_max
    while depth > 0 and level:
        depth += 1
        if depth > limit:
            raise _too_deep(limit)
        level = [part for parent in level for part in _containers(parent)]
    return value


def _containers(parent: Value) -> list[Value]:
    parts = parent.values() if isinstance(parent, dict) else parent
    if not isinstance(parts, list | ValuesView):
        return []
    return [p for p in parts if isinstance(p, list | dict)]


def _too_deep(limit: int) -> EvaluationError:
    return EvaluationError(f"the result is nested deeper than {limit}")


class _Walk:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._nodes = frame.limits.result_nodes_max
        self._bytes = frame.limits.result_bytes_max
        self._spend(1, 1)

    def plain(self, value: Value, depth: int) -> Value:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, list | dict):
            if depth == 0:
                raise _too_deep(self._frame.limits.result_depth_max)
            # A container pays for what is in it, before the walk goes there.
            self._spend(len(value), len(value))
            if isinstance(value, list):
                return [self.plain(item, depth - 1) for item in value]
            return self._map(value, depth)
        if isinstance(value, str | bytes):
            self._spend(0, len(value) + 2)
        return _scalar(value)

    def _map(self, value: dict[Key, Value], depth: int) -> Value:
        names: list[str] = []
        length = 0
        for key in value:
            if not isinstance(key, str):
                msg = "a map with keys that are not strings has no JSON form"
                raise EvaluationError(msg)
            if "\0" in key:
                raise _nul()
            length += len(key) + 3
            names.append(key)
        self._spend(0, length)
        names.sort()
        return {name: self.plain(value[name], depth - 1) for name in names}

    def _spend(self, nodes: int, length: int) -> None:
        self._nodes -= nodes
        self._bytes -= length
        if self._nodes < 0 or self._bytes < 0:
            msg = "too costly: the result is too large"
            raise BudgetExceededError(msg)
        self._frame.charge(nodes)


def _nul() -> EvaluationError:
    return EvaluationError("NUL characters are not allowed in results")


def _scalar(value: Value) -> Value:
    if isinstance(value, str) and "\0" not in value:
        return value
    match value:
        case float() if math.isnan(value) or math.isinf(value):
            msg = "NaN and infinities have no JSON form"
            raise EvaluationError(msg)
        case str():
            raise _nul()
        case Timestamp():
            return format_timestamp(value)
        case Duration():
            return format_duration(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Uint():
            return int(value)
        case Optional() | TypeValue():
            msg = f"a value of type {type_name(value)} has no JSON form"
            raise EvaluationError(msg)
        case _:
            return value
