"""One attempt: decode the input, call the task, map what it returned or raised to an outcome.

The only place that catches every exception of a task. Nothing here knows NATS.
"""

import asyncio
import functools
import inspect
import traceback
from collections.abc import Callable

import msgspec

from towpath_worker.context import Context
from towpath_worker.logs import clean_text
from towpath_worker.options import WorkerOptions
from towpath_worker.outcomes import (
    Again,
    Completed,
    Dropped,
    Failed,
    Outcome,
    RetryAfter,
    TerminalError,
)
from towpath_worker.registry import Task
from towpath_worker.threads import TaskThreads
from towpath_worker.values import InvalidValueError, from_json, to_json

TYPE_LENGTH_MAX = 128
SILENT_REASONS = frozenset({"stale", "attempt_timeout", "drain"})
"""Reasons to stop after which the engine expects no report of this token."""


class Execution:
    """How tasks run: the threads for plain functions, and the limits."""

    def __init__(self, threads: TaskThreads, options: WorkerOptions) -> None:
        self._threads = threads
        self._options = options

    async def run(self, task: Task, ctx: Context, raw_input: bytes) -> Outcome:
        """Run the task once; cancelling the calling asyncio task interrupts an async task.

        Raises only CancelledError, when the calling asyncio task was cancelled although nobody
        wanted this attempt to stop: then the process is going down.
        """
        try:
            call = _bind(task, ctx, raw_input)
        except msgspec.MsgspecError as error:
            return Failed(type="InvalidInput", message=f"input: {error}", retryable=False)
        try:
            if task.is_async:
                result = await _awaited(call)
            else:
                result = await self._threads.run(call)
        except asyncio.CancelledError:
            return _cancelled(ctx)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- a task may raise anything
            return failure_of(error, error_bytes_max=self._options.error_bytes_max)
        return self._completed(result)

    def _completed(self, result: object) -> Outcome:
        if isinstance(result, Again):
            return Completed(output=b"null", again=result)
        if inspect.iscoroutine(result):
            result.close()
            return Failed(
                type="InvalidOutput",
                message="the task returned a coroutine; write it as `async def`",
                retryable=False,
            )
        try:
            output = to_json(result, bytes_max=self._options.output_bytes_max, field="output")
        except InvalidValueError as error:
            kind = "TooLarge" if error.too_large else "InvalidOutput"
            return Failed(type=kind, message=str(error), retryable=False)
        return Completed(output=output)


def failure_of(error: BaseException, *, error_bytes_max: int) -> Failed:
    """The failure that an exception stands for, cut to `error_bytes_max` bytes."""
    message_max, stack_max, details_max = (
        error_bytes_max // 8,
        error_bytes_max // 4,
        error_bytes_max // 4,
    )
    message = _cut(clean_text(str(error)), message_max)
    match error:
        case TerminalError():
            failed = Failed(
                type=error.type,
                message=message,
                retryable=False,
                details=_details(error.details, details_max),
            )
        case RetryAfter():
            failed = Failed(
                type=error.type,
                message=message or error.message,
                details=_details(error.details, details_max),
                retry_after_ms=error.retry_after_ms,
            )
        case _:
            failed = Failed(type=type(error).__name__, message=message, stack=_stack(error))
    stack = None if failed.stack is None else _cut_front(clean_text(failed.stack), stack_max)
    kind = clean_text(failed.type)[:TYPE_LENGTH_MAX] or "Error"
    return msgspec.structs.replace(failed, type=kind, stack=stack)


def _bind(task: Task, ctx: Context, raw_input: bytes) -> Callable[[], object]:
    arguments: dict[str, object] = {}
    if task.input_name is not None:
        if task.input_type is None:
            arguments[task.input_name] = from_json(raw_input)
        else:
            value = from_json(raw_input)
            arguments[task.input_name] = msgspec.convert(value, type=task.input_type, strict=True)
    if task.context_name is not None:
        arguments[task.context_name] = ctx
    return functools.partial(task.function, **arguments)


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


def _details(details: object, bytes_max: int) -> bytes | None:
    if details is None:
        return None
    try:
        return to_json(details, bytes_max=bytes_max, field="error.details")
    except InvalidValueError as error:
        return msgspec.json.encode({"details_left_out": str(error)})


def _stack(error: BaseException) -> str:
    # The first frame is ours and tells a reader nothing.
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    return "".join(traceback.format_exception(type(error), error, frames))


def _cut(text: str, bytes_max: int) -> str:
    encoded = text.encode()
    if len(encoded) <= bytes_max:
        return text
    return encoded[:bytes_max].decode(errors="ignore") + " [cut]"


def _cut_front(text: str, bytes_max: int) -> str:
    """A stack's last lines say most."""
    encoded = text.encode()
    if len(encoded) <= bytes_max:
        return text
    return "[cut] " + encoded[-bytes_max:].decode(errors="ignore")
