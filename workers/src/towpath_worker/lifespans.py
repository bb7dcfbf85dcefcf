"""What a worker opens before its first pull and closes after its drain: pools, clients, models."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from towpath_worker.signatures import Task
from towpath_worker.tracebacks import user_frames

_log = logging.getLogger("towpath.worker")

LifespanFunction = (
    Callable[[], AbstractAsyncContextManager[object]] | Callable[[], AsyncIterator[object]]
)
"""A function that gives an async context manager; or an async generator with one `yield`."""

L = TypeVar("L", bound=LifespanFunction)


class LifespanError(RuntimeError):
    """A lifespan did not start, or gave a state that a task does not expect. The worker does not
    run; the cause is chained."""


class Lifespan:
    """One lifespan of one worker: `open`, then `close`, both in the same asyncio task."""

    def __init__(self, function: LifespanFunction | None, *, queue: str) -> None:
        self._function = function
        self._queue = queue
        self._manager: AbstractAsyncContextManager[object] | None = None
        self.state: object = None

    async def open(self, stop: asyncio.Event) -> bool:
        """True when it has started, False when `stop` came first. Raises LifespanError."""
        if self._function is None:
            return True
        manager = self._manager_of(self._function)
        scope = asyncio.timeout(None)
        try:
            async with scope:
                watching = asyncio.create_task(_expire(scope, stop))
                try:
                    self.state = await manager.__aenter__()
                finally:
                    watching.cancel()
        except Exception as error:
            if scope.expired():
                return False
            raise self._not_started(error) from error
        self._manager = manager
        return True

    def check(self, tasks: Iterable[Task]) -> None:
        """Raises LifespanError when a task expects another type of state."""
        for task in tasks:
            wanted = task.state_type
            if wanted is None or _is_instance(self.state, wanted):
                continue
            given = "no state" if self.state is None else f"a {type(self.state).__qualname__}"
            raise LifespanError(
                f"the task {task.name!r} expects a Context[{wanted.__qualname__}], and the "
                f"lifespan of the worker for queue {self._queue!r} gives {given}"
            )

    async def close(self, *, timeout_seconds: float) -> None:
        """Close what was opened. A failure is logged: all attempts are reported by then."""
        manager, self._manager = self._manager, None
        if manager is None:
            return
        try:
            async with asyncio.timeout(timeout_seconds):
                await manager.__aexit__(None, None, None)
        except Exception as error:  # noqa: BLE001 -- their code may raise anything
            theirs = (type(error), error, user_frames(error.__traceback__))
            _log.error("lifespan_close_failed queue=%s", self._queue, exc_info=theirs)

    def _manager_of(self, function: LifespanFunction) -> AbstractAsyncContextManager[object]:
        if inspect.isasyncgenfunction(function):
            return asynccontextmanager(function)()
        try:
            manager = function()
        except Exception as error:
            raise self._not_started(error) from error
        if isinstance(manager, AbstractAsyncContextManager):
            return manager
        raise LifespanError(
            f"the lifespan of the worker for queue {self._queue!r} is neither an async context "
            "manager nor an async generator: write `async def lifespan(): ...; yield state`"
        )

    def _not_started(self, error: Exception) -> LifespanError:
        return LifespanError(
            f"the lifespan of the worker for queue {self._queue!r} did not start: "
            f"{type(error).__name__}: {error}"
        )


async def _expire(scope: asyncio.Timeout, stop: asyncio.Event) -> None:
    """End the scope when `stop` is set."""
    await stop.wait()
    scope.reschedule(asyncio.get_running_loop().time())


def _is_instance(state: object, wanted: type) -> bool:
    try:
        return isinstance(state, wanted)
    except TypeError:
        return True  # a protocol that cannot be asked at run time
