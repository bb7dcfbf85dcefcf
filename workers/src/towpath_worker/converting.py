"""From JSON to the type a program asked for: what an output becomes.

Structs, dataclasses, TypedDicts, enums and builtin types by msgspec; pydantic models, also inside
these, by their own `model_validate`, without this package ever importing pydantic.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from towpath_worker.values import InvalidValueError, Json

T = TypeVar("T")


def converted(value: Json, kind: type[T], *, field: str) -> T:
    """The value as a `kind`. Raises InvalidValueError, naming `field` and the place in it, when
    it is none, and TypeError when `kind` is no type that JSON can be turned into."""
    try:
        return msgspec.convert(value, type=kind, dec_hook=_other_type)
    except msgspec.ValidationError as error:
        name = getattr(kind, "__name__", str(kind))
        raise InvalidValueError(f"{field} is no {name}: {error}") from error


def _other_type(kind: type, value: object) -> object:
    validate: Callable[[object], object] | None = getattr(kind, "model_validate", None)
    if validate is None:
        raise TypeError(f"{kind!r} is no type that JSON can be turned into")
    return validate(value)
