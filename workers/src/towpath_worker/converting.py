"""From JSON to the type a program asked for: what an output becomes."""

from typing import TypeVar

import msgspec

from towpath_worker import pydantic_models
from towpath_worker.values import InvalidValueError, Json

T = TypeVar("T")


def converted(value: Json, kind: type[T], *, field: str) -> T:
    """The value as a `kind`: a Struct, dataclass, TypedDict, builtin type or pydantic model.

    Raises InvalidValueError, naming `field` and the place in it, when it is none.
    """
    try:
        return msgspec.convert(value, type=kind, dec_hook=pydantic_models.read)
    except msgspec.ValidationError as error:
        name = getattr(kind, "__name__", str(kind))
        raise InvalidValueError(f"{field} is no {name}: {error}") from error
