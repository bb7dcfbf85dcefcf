"""Which functions a worker knows: name, the function as it was written, what it takes.

A task function takes at most its input and a `Context`, told apart by annotation; both are
optional. `signatures` says what else is asked of it.
"""

from collections.abc import Callable, Iterator
from typing import Never, TypeVar

from towpath_worker.context import Context, ProcessContext
from towpath_worker.signatures import RunIn, Task, TaskNameError, check_name, describe

__all__ = ["F", "P", "ProcessFunction", "Registry", "RunIn", "Task", "TaskFunction", "describe"]

TaskFunction = (
    Callable[[], object]
    | Callable[[Never], object]
    | Callable[[Never, Context[Never]], object]
    | Callable[[Context[Never]], object]
)
"""`f()`, `f(input)`, `f(ctx)` or `f(input, ctx)`; plain or async; any output that is JSON."""

ProcessFunction = (
    Callable[[], object]
    | Callable[[Never], object]
    | Callable[[Never, ProcessContext], object]
    | Callable[[ProcessContext], object]
)
"""The same for a task in a process, which has a `ProcessContext` only."""

F = TypeVar("F", bound=TaskFunction)
P = TypeVar("P", bound=ProcessFunction)


class Registry:
    """The tasks of one worker, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def add(self, name: str, function: Callable[..., object], run_in: str | None = None) -> None:
        """Register a function. Raises TaskTypeError when it is no task function or its types are
        none that JSON could carry, TaskNameError for a bad or repeated name."""
        check_name(name)
        task = describe(name, function, run_in)
        if name in self._tasks:
            raise TaskNameError(
                f"the task {name!r} is registered twice in this worker; give one of the two "
                "functions another name"
            )
        self._tasks[name] = task

    def get(self, name: str) -> Task | None:
        """The task of that name, or None."""
        return self._tasks.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order of registration."""
        return tuple(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())
