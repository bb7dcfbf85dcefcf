"""Background tasks that somebody waits for: none is lost to the garbage collector, none leaks."""

import asyncio
import logging
from collections.abc import Coroutine

_log = logging.getLogger("towpath.worker")


class Background:
    """A set of running tasks. A task that raises is a bug and is logged as one."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run it until it ends or `cancel` is called."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def join(self) -> None:
        """Wait until nothing runs any more."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def cancel(self, *, timeout_seconds: float | None = None) -> int:
        """Cancel what runs and wait for it; the result is how many have not ended in time."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return 0
        _, left = await asyncio.wait(tasks, timeout=timeout_seconds)
        return len(left)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("background_task_failed", exc_info=task.exception())
