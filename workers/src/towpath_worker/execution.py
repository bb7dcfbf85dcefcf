"""One attempt: decode the input, call the task where it runs, map how it ended to an outcome.

The only place that catches every exception of a task. Nothing here knows NATS.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Final, assert_never

from towpath_worker import capture
from towpath_worker.binding import bound, completed, failure_of
from towpath_worker.context import Context
from towpath_worker.logs import clean_text
from towpath_worker.options import WorkerOptions
from towpath_worker.outcomes import Completed, Dropped, Failed, Outcome
from towpath_worker.processes import TaskProcesses
from towpath_worker.signatures import RunIn, Task
from towpath_worker.threads import TaskThreads
from towpath_worker.values import InvalidValueError

__all__ = ["Execution", "failure_of"]

SILENT_REASONS: Final = frozenset({"stale", "attempt_timeout", "drain"})
"""Reasons to stop after which the engine expects no report of this token."""


class Execution:
    """How tasks run: the threads and processes for plain functions, and the limits."""

    def __init__(
        self, threads: TaskThreads, options: WorkerOptions, processes: TaskProcesses | None = None
    ) -> None:
        self._threads = threads
        self._options = options
        self._processes = processes or TaskProcesses(threads, options)

    async def run(self, task: Task, ctx: Context[object], raw_input: bytes) -> Outcome:
        """Run the task once; cancelling the calling asyncio task interrupts an async task.

        Raises only CancelledError, when the calling asyncio task was cancelled although nobody
        wanted this attempt to stop: then the process is going down.
        """
        if task.run_in is RunIn.PROCESS:
            return await self._in_process(task, ctx)
        try:
            call = bound(task, ctx, raw_input)
        except InvalidValueError as error:
            return Failed(type="InvalidInput", message=f"input: {error}", retryable=False)
        except Exception as error:  # noqa: BLE001 -- their types may raise anything
            return failure_of(error, error_bytes_max=self._options.error_bytes_max)
        return await self._in_worker(task, ctx, call)

    async def _in_worker(
        self, task: Task, ctx: Context[object], call: Callable[[], object]
    ) -> Outcome:
        try:
            with capture.into(ctx.log):
                if task.run_in is RunIn.LOOP:
                    return completed(await _awaited(call), self._options)
                outcome = await self._threads.run(lambda: self._called(call))
        except asyncio.CancelledError:
            return _cancelled(ctx)
        except BaseException as error:  # noqa: BLE001 -- a task may raise anything
            return failure_of(error, error_bytes_max=self._options.error_bytes_max)
        assert isinstance(outcome, Completed | Failed), "what _called returns"
        return outcome

    def _called(self, call: Callable[[], object]) -> Completed | Failed:
        """In a thread: what ends the process or the loop elsewhere ends one attempt here. A large
        output is written here, too, where the event loop need not wait for it."""
        try:
            return completed(call(), self._options)
        except BaseException as error:  # noqa: BLE001 -- a task may raise anything
            return failure_of(error, error_bytes_max=self._options.error_bytes_max)

    async def _in_process(self, task: Task, ctx: Context[object]) -> Outcome:
        try:
            outcome = await self._processes.run(task, ctx)
        except asyncio.CancelledError:
            return _cancelled(ctx)
        except OSError as error:
            return failure_of(error, error_bytes_max=self._options.error_bytes_max)
        match outcome:
            case Completed() | Failed():
                return outcome
            case None:
                # Killed because it did not stop: as an async task that was cancelled.
                return _cancelled(ctx)
            case _:
                assert_never(outcome)


async def _awaited(call: Callable[[], object]) -> object:
    awaitable = call()
    assert inspect.isawaitable(awaitable), "registered as a coroutine function"
    return await awaitable


def _cancelled(ctx: Context) -> Outcome:
    reason = ctx.cancelled.reason
    if reason is None:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError  # the whole process is being stopped
        return Failed(type="CancelledError", message="the task cancelled itself")
    if reason in SILENT_REASONS:
        return Dropped(why=reason)
    return Failed(type="Cancelled", message=clean_text(reason), retryable=False)
