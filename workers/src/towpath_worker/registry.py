"""Which functions a worker knows: name, the function as it was written, what it takes.

A task function takes at most its input and a `Context`, told apart by annotation; both are
optional. `async def` runs in the event loop, a plain function in a thread.
"""

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Never, TypeVar

import msgspec
from msgspec import Struct

from towpath_protocol.ids import check_task
from towpath_worker.context import Context

TaskFunction = (
    Callable[[], object]
    | Callable[[Never], object]
    | Callable[[Never, Context], object]
    | Callable[[Context], object]
)
"""`f()`, `f(input)`, `f(ctx)` or `f(input, ctx)`; plain or async; any output that is JSON."""

F = TypeVar("F", bound=TaskFunction)


class Task(Struct, frozen=True):
    """A registered task. `input_type` None: plain JSON; `input_name` None: it takes no input."""

    name: str
    function: Callable[..., object]
    is_async: bool
    input_name: str | None
    input_type: object
    context_name: str | None


class Registry:
    """The tasks of one worker, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def add(self, name: str, function: Callable[..., object]) -> None:
        """Register a function. Raises TypeError when it is no task function or its input type is
        not one that JSON can be converted to, ValueError for a bad or repeated name."""
        check_task(name)
        if name in self._tasks:
            raise ValueError(f"the task {name!r} is registered twice")
        self._tasks[name] = describe(name, function)

    def get(self, name: str) -> Task | None:
        """The task of that name, or None."""
        return self._tasks.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order of registration."""
        return tuple(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())


def describe(name: str, function: Callable[..., object]) -> Task:
    """What a function takes. Raises TypeError when it is no task function."""
    hints = _hints(name, function)
    input_name: str | None = None
    context_name: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"the task {name!r} must not take *args or **kwargs")
        annotation = hints.get(parameter.name)
        is_context = annotation is Context or (annotation is None and parameter.name == "ctx")
        if is_context and context_name is None:
            context_name = parameter.name
        elif not is_context and input_name is None:
            input_name = parameter.name
        else:
            raise TypeError(f"the task {name!r} takes more than an input and a Context")
    input_type = hints.get(input_name) if input_name else None
    _check_type(name, input_type)
    return Task(
        name,
        function,
        inspect.iscoroutinefunction(function),
        input_name,
        input_type,
        context_name,
    )


def _hints(name: str, function: Callable[..., object]) -> dict[str, object]:
    # Types that are local to the place of definition are found through the closure alone.
    local: dict[str, object] = {}
    if inspect.isfunction(function):
        local.update(inspect.getclosurevars(function).nonlocals)
    try:
        return typing.get_type_hints(function, localns=local, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"the task {name!r} has an annotation that cannot be resolved ({error}); "
            "define the type at module level"
        ) from error


def _check_type(name: str, input_type: object) -> None:
    if input_type is None:
        return
    try:
        msgspec.json.Decoder(input_type)
    except TypeError as error:
        raise TypeError(f"the input type of the task {name!r}: {error}") from error
