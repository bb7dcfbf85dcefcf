"""Which functions are tasks."""

from typing import Any

import pytest
from msgspec import Struct

from towpath_worker import Context, Worker
from towpath_worker.registry import describe


def test_input_and_context_are_told_apart_by_annotation() -> None:
    def both(order: dict[str, int], context: Context) -> None: ...
    def swapped(context: Context, order: dict[str, int]) -> None: ...
    async def only_context(context: Context) -> None: ...

    assert (describe("t", both).input_name, describe("t", both).context_name) == (
        "order", "context",
    )  # fmt: skip
    assert describe("t", swapped).input_type == dict[str, int]
    assert describe("t", only_context).input_name is None
    assert describe("t", only_context).is_async


def test_a_parameter_called_ctx_needs_no_annotation() -> None:
    unannotated: Any = eval("lambda order, ctx: None")
    task = describe("t", unannotated)
    assert (task.input_name, task.context_name) == ("order", "ctx")


def test_annotations_may_name_types_of_the_place_of_definition() -> None:
    class Local(Struct):
        n: int = 0

    def make() -> None:
        def task(order: "Local") -> object:
            return Local()

        assert describe("t", task).input_type is Local

    make()


def test_what_is_no_task_function_is_refused_when_it_is_registered() -> None:
    worker = Worker("q")
    bad: dict[str, Any] = {
        "more than an input": eval("lambda one, two: None"),
        "args": eval("lambda *args: None"),
    }
    exec("def unresolved(order: 'Nowhere'): ...", {}, bad)
    bad["Nowhere"] = bad.pop("unresolved")
    for words, function in bad.items():
        with pytest.raises(TypeError, match=words):
            worker.task("a")(function)
    assert worker.registry.names == ()


def test_names_are_checked_and_unique() -> None:
    worker = Worker("q")
    worker.task("a.b-c_d")(lambda: None)
    with pytest.raises(ValueError, match="twice"):
        worker.task("a.b-c_d")(lambda: None)
    for name in ("", "1a", "a b", "a/b", "x" * 129):
        with pytest.raises(ValueError, match="task"):
            worker.task(name)(lambda: None)
    with pytest.raises(ValueError, match="queue"):
        Worker("two words")


def test_the_decorated_function_stays_as_it_is() -> None:
    worker = Worker("q")

    def double(number: int) -> int:
        return number * 2

    assert worker.task("double")(double) is double
    assert double(2) == 4
