"""JSON values as Python sees them, and the two conversions at the border of a task.

Laws: what came in goes to the task with its exact value (integers of any size, 1.0 stays a float);
what a task returns is refused, with a reason, when JSON could not carry it unchanged.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from typing import ClassVar, Protocol
from uuid import UUID

import msgspec
from msgspec import Struct

from towpath_protocol.codec import JsonValue, dumps, loads
from towpath_protocol.errors import ProtocolError
from towpath_worker import pydantic_models

Json = JsonValue
"""Any JSON value, as it is read."""

JsonLike = None | bool | int | float | str | Sequence["JsonLike"] | Mapping[str, "JsonLike"]
"""Any JSON value, as it may be given: read-only containers, so that `list[str]` is one, too."""


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, object]]


class _Model(Protocol):
    def model_dump(self, *, mode: str = ...) -> object: ...


Rich = (
    None | bool | int | float | str | datetime | date | UUID | Enum
    | Struct | _Dataclass | _Model | Sequence["Rich"] | Mapping[str, "Rich"]
)  # fmt: skip
"""What can be written as JSON: plain values, dates, UUIDs, enums, Structs, dataclasses, pydantic
models, and lists and mappings of these."""


class InvalidValueError(Exception):
    """A value that is not legal JSON for this place. `too_large` tells which of the two it is."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


def to_json(value: object, *, bytes_max: int, field: str) -> bytes:
    """JSON text of a task's value: builtins, structs, dataclasses, enums, dates, sets, UUIDs,
    pydantic models (by their aliases).

    Raises InvalidValueError, naming `field`, for what JSON cannot carry (NaN, unknown types, NUL,
    lone surrogates, nesting beyond 64) and, with `too_large`, beyond `bytes_max` bytes.
    """
    try:
        text = dumps(
            msgspec.to_builtins(value, str_keys=True, enc_hook=pydantic_models.plain), field=field
        )
    except ProtocolError as error:
        raise InvalidValueError(str(error)) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"{field} cannot be written as JSON: {error}") from error
    if len(text) > bytes_max:
        raise InvalidValueError(
            f"{field} is {len(text)} bytes of JSON, the limit is {bytes_max}", too_large=True
        )
    return text


def from_json(text: bytes) -> Json:
    """The value of JSON text; integers keep every digit."""
    value: Json = loads(text)
    return value
