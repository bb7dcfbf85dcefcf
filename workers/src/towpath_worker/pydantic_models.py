"""Pydantic's models, if a program uses them: recognised by what they carry, asked by name.

Nothing here imports pydantic before a model was seen, and who has a model has pydantic.
"""

import functools
import importlib
from collections.abc import Callable
from typing import TypedDict

import msgspec


class _Reason(TypedDict):
    msg: str
    loc: tuple[int | str, ...]


def is_model(type_: object) -> bool:
    """True for a class that pydantic made: a model, or one of its dataclasses."""
    return isinstance(type_, type) and "__pydantic_validator__" in type_.__dict__


@functools.lru_cache(maxsize=256)
def validator(type_: object) -> Callable[[bytes], object]:
    """JSON text → value of a type that has models in it. It raises ValueError."""
    adapter = importlib.import_module("pydantic").TypeAdapter(type_)
    return adapter.validate_json


def reasons(error: ValueError) -> str:
    """What pydantic says, in one line, each with its place; without the values."""
    listed: Callable[[], list[_Reason]] | None = getattr(error, "errors", None)
    if listed is None:
        return str(error)
    return "; ".join(f"{each['msg']} - at `{_path(each['loc'])}`" for each in listed())


def read(type_: type, value: object) -> object:
    """A decoding hook of msgspec: a model inside of another type. Raises ValueError."""
    if type_ is object:
        return value  # any value is one
    if not is_model(type_):
        raise TypeError(f"{type_.__qualname__} is no type of data")
    try:
        return validator(type_)(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(reasons(error)) from error


def plain(value: object) -> object:
    """An encoding hook of msgspec: a model as plain values. Raises TypeError for other objects."""
    dump: Callable[..., object] | None = getattr(value, "model_dump", None)
    if dump is None or not is_model(type(value)):
        raise TypeError(f"objects of type {type(value).__qualname__} are not supported")
    return dump(mode="json", by_alias=True)


def _path(loc: tuple[int | str, ...]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
