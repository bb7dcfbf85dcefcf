"""Sizes and depths of the single values inside a message (PROTOCOL.md, "Limits").

`check_bounds` says the first one over its limit. A sender calls it before it publishes, so that
nothing is published; the engine calls it on requests (413) and on reports, where an output over
its limit fails the attempt.
"""

from collections.abc import Callable
from typing import Final, TypeGuard

from msgspec import Raw, Struct

from towpath_protocol.codec import encode
from towpath_protocol.errors import ErrorCode, ProtocolError, join_path
from towpath_protocol.failures import Failure
from towpath_protocol.json_check import depth_of
from towpath_protocol.limits import WireLimits
from towpath_protocol.reports import LogLine

# Field of a message → its limit. What is not named here is bounded by the message as a whole.
_VALUES: Final[dict[str, Callable[[WireLimits], int]]] = {
    "input": lambda limits: limits.input_bytes_max,
    "output": lambda limits: limits.output_bytes_max,
    "payload": lambda limits: limits.payload_bytes_max,
    "context": lambda limits: limits.context_bytes_max,
    "metadata": lambda limits: limits.metadata_bytes_max,
    "progress": lambda limits: limits.progress_bytes_max,
    "definition": lambda limits: limits.definition_bytes_max,
    "details": lambda limits: limits.error_bytes_max,
    "data": lambda limits: limits.payload_bytes_max,
    "fields": lambda limits: limits.logs_bytes_max,
}


def check_bounds(message: Struct, limits: WireLimits, *, field: str = "") -> None:
    """Refuse a message with a value over its limit.

    Raises ProtocolError: `too_large`, or `unsafe_json` for a value nested too deep.
    """
    for name in message.__struct_fields__:
        value: object = getattr(message, name)
        path = join_path(field, name.rstrip("_"))
        match value:
            case Raw():
                check_value(bytes(value), name, limits, field=path)
            case Failure():
                _check_size(len(encode(value)), limits.error_bytes_max, path)
                check_bounds(value, limits, field=path)
            case Struct():
                check_bounds(value, limits, field=path)
            case _ if _is_tuple(value):
                _check_parts(value, limits, path)
            case _:
                pass


def check_value(value: bytes, name: str, limits: WireLimits, *, field: str = "") -> None:
    """Refuse the JSON text of one value over its limits; `name` is that of the message's field.

    Raises ProtocolError: `too_large`, or `unsafe_json` for one nested too deep.
    """
    bound = _VALUES.get(name)
    _check_size(len(value), limits.message_bytes_max if bound is None else bound(limits), field)
    if len(value) > 2 * limits.depth_max and depth_of(value) > limits.depth_max:
        raise ProtocolError(
            ErrorCode.UNSAFE_JSON,
            f"is nested deeper than {limits.depth_max} levels",
            field=field,
            fix="flatten the value, or send text",
        )


def _is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    return isinstance(value, tuple)


def _check_parts(parts: tuple[object, ...], limits: WireLimits, field: str) -> None:
    lines = [part for part in parts if isinstance(part, LogLine)]
    if lines:
        size = sum(len(encode(line)) + 1 for line in lines) + 1
        _check_size(size, limits.logs_bytes_max, field)
    for index, part in enumerate(parts):
        if isinstance(part, Struct):
            check_bounds(part, limits, field=f"{field}[{index}]")


def _check_size(size: int, size_max: int, field: str) -> None:
    if size > size_max:
        raise ProtocolError(
            ErrorCode.TOO_LARGE,
            f"{size} bytes, and the limit is {size_max}",
            field=field,
            fix="send less, or a reference to where the data is",
        )
