"""JSON text of an input → the value of its annotation; which annotations are possible.

msgspec converts Structs, dataclasses, TypedDicts, NamedTuples, attrs classes, enums, dates, UUIDs,
decimals, unions, `Annotated` and everything builtin. Types of pydantic convert themselves, wherever
they stand in a type; pydantic is never imported here but by a program that uses it.
"""

import types
import typing
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
)
from typing import Annotated, Literal, Never, NoReturn, TypeGuard, TypeVar, Union

import msgspec
from msgspec import Struct

from towpath_protocol.errors import ProtocolError
from towpath_worker import pydantic_models
from towpath_worker.outcomes import Again
from towpath_worker.values import InvalidValueError, from_json

Converter = Callable[[bytes], object]
"""JSON text → value. Raises InvalidValueError, with the place of what is wrong."""


class UnsupportedTypeError(TypeError):
    """No JSON value could be converted to this type, or none made of it."""


def converter(type_: object) -> Converter:
    """How to read an input of this type; None and `object` are plain JSON.

    Raises UnsupportedTypeError for a type that no JSON value can be converted to.
    """
    if says_nothing(type_):
        return from_json
    if any(pydantic_models.is_model(each) for each in _named_in(type_)):
        validate = pydantic_models.validator(type_)

        def from_model(text: bytes) -> object:
            try:
                return validate(text)
            except ValueError as error:
                raise InvalidValueError(pydantic_models.reasons(error)) from error

        return from_model
    _check_input(type_)

    def from_plain(text: bytes) -> object:
        try:
            return msgspec.convert(
                from_json(text), type=type_, strict=True, dec_hook=pydantic_models.read
            )
        except (msgspec.ValidationError, ProtocolError) as error:
            raise InvalidValueError(str(error)) from error

    return from_plain


def says_nothing(type_: object) -> bool:
    """True for an annotation that any value fits: none, `object`, `typing.Any`."""
    return type_ in (None, object) or repr(type_) == "typing.Any"


def check_output(type_: object) -> None:
    """Raises UnsupportedTypeError for a type of which no value could be written as JSON."""
    if type_ in (None, object, Never, NoReturn, Again, types.NoneType):
        return
    if isinstance(type_, TypeVar):
        return
    origin = typing.get_origin(type_)
    if origin is Annotated or origin in (Union, types.UnionType):
        arguments = typing.get_args(type_)
        for each in arguments[:1] if origin is Annotated else arguments:
            check_output(each)
        return
    if origin is Literal:
        return
    if _is_class(origin) and issubclass(origin, Collection):
        for each in typing.get_args(type_):
            if each is not Ellipsis:
                check_output(each)
        return
    _check_output_class(type_, origin or type_)


def _check_output_class(type_: object, class_: object) -> None:
    streams = (Awaitable, AsyncIterable, Iterator)
    if _is_class(class_) and issubclass(class_, streams):
        raise UnsupportedTypeError(f"{_shown(type_)} is no value; return a list")
    if pydantic_models.is_model(class_):
        return
    try:
        info = msgspec.inspect.type_info(type_)
    except TypeError:
        return  # a union of classes can be written, although it could not be told apart
    if isinstance(info, msgspec.inspect.CustomType):
        raise UnsupportedTypeError(
            f"{_shown(type_)} cannot be written as JSON; return a Struct, a dataclass, a "
            "TypedDict, a pydantic model or plain JSON"
        )


def _check_input(type_: object) -> None:
    try:
        info = msgspec.inspect.type_info(type_)
        msgspec.json.Decoder(type_)
    except TypeError as error:
        raise UnsupportedTypeError(f"{_shown(type_)}: {error}") from error
    for node in _nodes(info, seen=set()):
        custom = node.cls if isinstance(node, msgspec.inspect.CustomType) else None
        if custom not in (None, object) and not pydantic_models.is_model(custom):
            raise UnsupportedTypeError(
                f"JSON cannot be converted to {_shown(custom)}; use a Struct, a dataclass, a "
                "TypedDict, a pydantic model or plain JSON"
            )


def _nodes(info: object, *, seen: set[int]) -> Iterable[object]:
    """The types that a type is made of."""
    if id(info) in seen:
        return
    seen.add(id(info))
    yield info
    parts: list[object] = []
    if _is_tuple(info):
        parts.extend(info)
    elif isinstance(info, Struct):
        parts.extend(getattr(info, name) for name in info.__struct_fields__)
    for part in parts:
        if _is_tuple(part) or isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field):
            yield from _nodes(part, seen=seen)


def _named_in(type_: object) -> Iterable[object]:
    """The types that an annotation names: itself and its arguments."""
    yield type_
    for each in typing.get_args(type_):
        yield from _named_in(each)


def _shown(type_: object) -> str:
    return f"{type_.__module__}.{type_.__qualname__}" if _is_class(type_) else str(type_)


# An isinstance() would leave a strict checker with types that are partly unknown.
def _is_class(value: object) -> TypeGuard[type[object]]:
    return isinstance(value, type)


def _is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    return isinstance(value, tuple)
