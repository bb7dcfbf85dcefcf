"""Inputs by their annotation and outputs by their value, above all pydantic's models."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import pydantic
import pytest
from msgspec import Struct

from tests.unit.worker.test_execution import failure, output
from towpath_worker.conversion import UnsupportedTypeError, converter
from towpath_worker.values import InvalidValueError, to_json


class Colour(StrEnum):
    RED = "red"


class Address(pydantic.BaseModel):
    city: str = pydantic.Field(alias="town", min_length=2)


class Order(pydantic.BaseModel):
    sku: str
    at: datetime
    to: Address | None = None


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime


@pydantic.dataclasses.dataclass
class Checked:
    n: int


class Holder(Struct):
    """A Struct with a model in it."""

    address: Address
    colour: Colour = Colour.RED


@dataclasses.dataclass
class Plain:
    order: Order


AT = b'"2026-11-29T12:00:00Z"'


async def test_a_model_is_an_input_and_an_output_and_goes_by_its_aliases() -> None:
    def ship(order: Order) -> Order:
        assert order.at == datetime(2026, 11, 29, 12, tzinfo=UTC)
        assert order.to is not None
        return order

    text = b'{"sku":"A","at":' + AT + b',"to":{"town":"Oslo"}}'
    assert await output(ship, text) == text


async def test_models_may_stand_anywhere_in_a_type() -> None:
    def listed(orders: list[Address | None]) -> int:
        return len([each for each in orders if each is not None])

    def held(holder: Holder) -> Holder:
        return Holder(holder.address)

    def strict(order: Strict) -> int:
        return order.at.year

    def checked(value: Checked) -> Checked:
        return Checked(value.n + 1)

    def plain(value: Plain) -> Plain:
        return value

    assert await output(listed, b'[{"town":"Oslo"},null]') == b"1"
    assert await output(held, b'{"address":{"town":"Oslo"},"colour":"red"}') == (
        b'{"address":{"town":"Oslo"},"colour":"red"}'
    )
    assert await output(strict, b'{"at":' + AT + b"}") == b"2026"
    assert await output(checked, b'{"n":1}') == b'{"n":2}'
    text = b'{"order":{"sku":"A","at":' + AT + b',"to":null}}'
    assert await output(plain, text) == text


@pytest.mark.parametrize(
    ("type_", "raw", "place"),
    [
        (Order, b'{"sku":"A","at":1e400}', "at"),
        (Order, b'{"at":' + AT + b"}", "$.sku"),
        (list[Address], b'[{"town":"Oslo"},{"town":"x"}]', "$[1].town"),
        (Holder, b'{"address":{"town":"x"}}', "$.address"),
        (Checked, b'{"n":"one"}', "$.n"),
        (Holder, b'{"address":{"town":"Oslo"},"colour":"blue"}', "$.colour"),
    ],
)
async def test_what_does_not_fit_is_a_final_failure_that_names_the_place(
    type_: type[object], raw: bytes, place: str
) -> None:
    def reserve(order: object) -> None:
        raise AssertionError("never called")

    reserve.__annotations__["order"] = type_
    failed = await failure(reserve, raw)
    assert (failed.type, failed.retryable) == ("InvalidInput", False)
    assert place in failed.message
    assert "\n" not in failed.message


async def test_defaults_positions_and_values_of_any_type() -> None:
    def greet(name: str = "nobody") -> str:
        return name

    def anything(order: dict[str, object]) -> object:
        return order["a"]

    assert await output(anything, b'{"a":[1,{"b":null}]}') == b'[1,{"b":null}]'

    def positional(order: int, /, ctx: Any = None) -> int:
        return order

    assert await output(greet, b"null") == b'"nobody"'
    assert await output(greet, b'"somebody"') == b'"somebody"'
    assert await output(positional, b"7") == b"7"


async def test_an_output_that_json_cannot_carry_is_invalid() -> None:
    class WithNan(pydantic.BaseModel):
        n: float

    bad: list[Callable[[], object]] = [
        lambda: WithNan(n=float("inf")),
        lambda: {"a": object()},
        lambda: [Holder],
        lambda: "a\0b",
    ]
    for function in bad:
        failed = await failure(function)
        assert (failed.type, failed.retryable) == ("InvalidOutput", False)


def test_rich_values_are_written_as_they_would_be_read() -> None:
    value = {
        "at": datetime(2026, 11, 29, 12, tzinfo=UTC),
        "id": UUID(int=1),
        "colour": Colour.RED,
        "model": Checked(1),
        "struct": Holder(Address(town="Oslo")),
    }
    text = to_json(value, bytes_max=10_000, field="progress")
    assert text.startswith(b'{"at":"2026-11-29T12:00:00Z","id":"00000000-')
    with pytest.raises(InvalidValueError, match="progress cannot be written as JSON"):
        to_json({"o": object()}, bytes_max=100, field="progress")


def test_a_type_without_data_is_unsupported() -> None:
    with pytest.raises(UnsupportedTypeError, match="use a Struct"):
        converter(object.__class__)
