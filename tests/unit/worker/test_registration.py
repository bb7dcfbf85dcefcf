"""Why a function is refused as a task, in words that help; and what is a task all the same."""

import dataclasses
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import datetime
from typing import Annotated, Literal, TypedDict

import pydantic
import pytest
from msgspec import Meta, Struct

from towpath_worker import (
    Again,
    Context,
    Json,
    ProcessContext,
    RegistrationError,
    TaskNameError,
    TaskTypeError,
    Worker,
)
from towpath_worker.signatures import RunIn, describe


class Order(Struct):
    sku: str


class Pool:
    """No type of data."""


class Nested(Struct):
    pool: Pool


class Model(pydantic.BaseModel):
    sku: str


class Row(TypedDict):
    sku: str


@dataclasses.dataclass
class Charged:
    receipt: str


def more_than_an_input(one: int, two: int) -> None: ...
def two_contexts(one: Context, two: Context) -> None: ...
def args(*orders: int) -> None: ...
def kwargs(**orders: int) -> None: ...
def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def custom_input(pool: Pool) -> None: ...
def nested_input(order: Nested) -> None: ...
def listed_input(orders: list[Pool]) -> None: ...
def two_structs(order: Order | Nested) -> None: ...
def custom_output() -> Pool: ...
def listed_output() -> dict[str, list[Pool]]: ...
def coroutine_output() -> Coroutine[None, None, int]: ...
def function_output() -> Callable[[], int]: ...
def nan_default(order: float = float("nan")) -> None: ...


REFUSED: dict[Callable[..., object], str] = {
    more_than_an_input: "takes more than an input and a Context: put what it needs into one input",
    two_contexts: "takes more than an input and a Context",
    args: r"must not take \*args or \*\*kwargs: name the one input",
    kwargs: r"must not take \*args or \*\*kwargs",
    generator: "is a generator; return one value",
    async_generator: "is a generator; return one value",
    custom_input: "the input type of .*JSON cannot be converted to .*Pool; use a Struct",
    nested_input: "the input type of .*JSON cannot be converted to .*Pool",
    listed_input: "the input type of .*JSON cannot be converted to .*Pool",
    two_structs: "the input type of .*all Struct types must be tagged",
    custom_output: "the return type of .*Pool cannot be written as JSON; return a Struct",
    listed_output: "the return type of .*Pool cannot be written as JSON",
    coroutine_output: "the return type of .*is no value",
    function_output: "the return type of ",
    nan_default: "has a default that no input could be",
    Pool: "is no function; a class cannot be a task",
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_a_refusal_names_the_function_and_the_fix(function: Callable[..., object]) -> None:
    worker = Worker("q")
    with pytest.raises(TaskTypeError, match=REFUSED[function]) as caught:
        worker.task("shop.charge")(function)
    assert f"'shop.charge' (tests.unit.worker.test_registration.{function.__name__})" in str(
        caught.value
    )
    assert isinstance(caught.value, RegistrationError | TypeError)
    assert worker.registry.names == ()


def test_names_are_refused_with_an_example_of_a_good_one() -> None:
    worker = Worker("q")
    with pytest.raises(TaskNameError, match=r"write @worker.task\('shop.charge'\)"):
        worker.task("1 bad")(lambda: None)
    worker.task("a")(lambda: None)
    with pytest.raises(TaskNameError, match="registered twice in this worker"):
        worker.task("a")(lambda: None)


class Handlers:
    def method(self, order: Order, ctx: Context) -> str:
        return order.sku

    async def __call__(self, order: Order) -> str:
        return order.sku


def test_methods_callable_objects_and_partials_are_tasks_too() -> None:
    method = describe("t", Handlers().method)
    assert (method.input_name, method.context_name, method.run_in) == (
        "order", "ctx", RunIn.THREAD,
    )  # fmt: skip
    assert describe("t", Handlers()).run_in is RunIn.LOOP

    def with_more(pool: Pool, order: Order) -> None: ...

    partial = describe("t", functools.partial(with_more, Pool()))
    assert (partial.input_name, partial.input_type) == ("order", Order)


def test_a_context_is_known_by_its_type_in_every_form() -> None:
    def state(ctx: Context[Pool]) -> None: ...
    def optional(order: Order, ctx: Context | None = None) -> None: ...
    def narrow(c: ProcessContext) -> None: ...
    def keyword(*, ctx: Context, order: Order) -> None: ...

    assert describe("t", state).state_type is Pool
    assert describe("t", optional).context_name == "ctx"
    assert describe("t", narrow).context_name == "c"
    assert describe("t", keyword).input_name == "order"


def test_every_type_of_data_may_come_and_go() -> None:
    def plain(order: Json) -> Json: ...
    def optional(order: Order | None) -> Charged | Again | None: ...
    def annotated(n: Annotated[int, Meta(ge=1)]) -> Annotated[set[datetime], "x"]: ...
    def model(order: Model) -> list[Model]: ...
    def models(orders: dict[str, Model | None]) -> tuple[Model, ...]: ...
    def rows(rows: dict[str, list[Row]]) -> Literal["a", "b"]: ...
    def any_values(order: dict[str, object]) -> dict[str, object]: ...
    def either() -> Order | Charged | Row: ...

    for function in (plain, optional, annotated, model, models, rows, either, any_values):
        assert describe("t", function).run_in is RunIn.THREAD
