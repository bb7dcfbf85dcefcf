"""Threads for tasks that are plain functions.

Not `ThreadPoolExecutor`: its threads keep the process alive, and a task that ignores cancellation
must not stop a worker from ending after its drain timeout.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable

from msgspec import Struct


class _Call(Struct, eq=False):
    function: Callable[[], object]
    context: contextvars.Context
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[object]


class TaskThreads:
    """Daemon threads, started when needed, at most one per call that runs."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    async def run(self, function: Callable[[], object]) -> object:
        """Call `function` in a thread, with the caller's context variables; returns or raises what
        it does. Cancelling the wait does not stop the function."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name="towpath-task", daemon=True).start()
        self._calls.put(_Call(function, contextvars.copy_context(), loop, future))
        return await future

    def close(self) -> None:
        """Let idle threads end; busy ones end after their call."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            result: object = None
            error: BaseException | None = None
            try:
                result = call.context.run(call.function)
            except BaseException as caught:  # noqa: BLE001 -- handed to the waiting task
                error = caught
            try:
                call.loop.call_soon_threadsafe(self._resolve, call.future, result, error)
            except RuntimeError:
                return  # the loop is closed: the process is ending

    def _resolve(
        self, future: asyncio.Future[object], result: object, error: BaseException | None
    ) -> None:
        self._busy -= 1
        if future.done():
            return
        if isinstance(error, StopIteration):
            # A future refuses it; the task failed with it all the same.
            error = RuntimeError(f"StopIteration: {error}")
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
