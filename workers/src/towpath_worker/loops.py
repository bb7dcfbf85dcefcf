"""An event loop that ends when the worker has, whatever a task left running in it.

`asyncio.run` waits for ever for a task that swallows its cancellation, and for a function in
`asyncio.to_thread` that does not return. Their attempts have been given back by then.
"""

import asyncio
import contextlib
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Final, ParamSpec, TypeVar

_log = logging.getLogger("towpath.worker")

P = ParamSpec("P")
T = TypeVar("T")

UNSEEN_SIGNALS_MAX: Final = 3
LEFT_SECONDS: Final = 1.0
"""How long what is left in the loop, and then in threads, may take to end."""


def run(main: Coroutine[object, object, None]) -> None:
    """`asyncio.run`, but what does not end is left behind. Raises what `main` raises."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_DaemonExecutor())
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(main)
    finally:
        try:
            loop.run_until_complete(_wind_up(loop))
        finally:
            asyncio.set_event_loop(None)
            loop.close()


@contextlib.contextmanager
def on_stop_signals(stop: Callable[[], None]) -> Generator[None]:
    """Inside, SIGINT and SIGTERM call `stop` in the running loop.

    A task may block the loop for ever: UNSEEN_SIGNALS_MAX signals that it does not take up end the
    process, with the status that a shell gives to the signal.
    """
    loop = asyncio.get_running_loop()
    unseen = 0

    def seen() -> None:
        nonlocal unseen
        unseen = 0
        stop()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal unseen
        unseen += 1
        if unseen >= UNSEEN_SIGNALS_MAX:
            os.write(2, b"towpath worker: a task blocks the event loop; ending at once\n")
            os._exit(128 + number)
        loop.call_soon_threadsafe(seen)

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


async def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        _, left = await asyncio.wait(tasks, timeout=LEFT_SECONDS)
        for task in left:
            _log.warning("left_behind task=%s: it ignores its cancellation", task.get_name())
    closing = asyncio.create_task(loop.shutdown_asyncgens())
    await asyncio.wait({closing}, timeout=LEFT_SECONDS)
    await loop.shutdown_default_executor()


class _DaemonExecutor(ThreadPoolExecutor):
    """As many threads as the default executor has, but none that the process waits for."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: list[threading.Thread] = []
        self._undone = 0
        self._most = min(32, (os.cpu_count() or 1) + 4)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See Executor."""
        future: Future[T] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 -- handed to who waits
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            self._undone += 1
            if self._undone > len(self._open) and len(self._open) < self._most:
                thread = threading.Thread(target=self._work, name="towpath-executor", daemon=True)
                self._open.append(thread)
                thread.start()
        self._calls.put(call)
        return future

    def shutdown(
        self,
        wait: bool = True,  # noqa: FBT001, FBT002 -- as Executor has it
        *,
        cancel_futures: bool = False,
    ) -> None:
        """See Executor; waits no longer than LEFT_SECONDS, and cancels what has not begun."""
        while cancel_futures and not self._calls.empty():
            self._calls.get()
        with self._lock:
            threads = list(self._open)
        for _ in threads:
            self._calls.put(None)
        ends = time.monotonic() + LEFT_SECONDS
        for thread in threads if wait else []:
            thread.join(max(0.0, ends - time.monotonic()))

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            with self._lock:
                self._undone -= 1
