"""From an input to a call of the task; from what it returned or raised to an outcome.

Pure, and the same in the worker and in the processes of its tasks.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Final

import msgspec

from towpath_worker.context import ProcessContext
from towpath_worker.logs import clean_text
from towpath_worker.options import WorkerOptions
from towpath_worker.outcomes import Again, Completed, Failed, RetryAfter, TerminalError
from towpath_worker.signatures import Task
from towpath_worker.tracebacks import traceback_text
from towpath_worker.values import InvalidValueError, to_json

TYPE_LENGTH_MAX: Final = 128


def bound(task: Task, ctx: ProcessContext, raw_input: bytes) -> Callable[[], object]:
    """The call of the task with this input. A null input leaves a default as it is.

    Raises InvalidValueError, with the place, when the input does not fit its annotation.
    """
    named: dict[str, object] = {}
    if task.input_name is not None and not (task.has_default and raw_input.strip() == b"null"):
        assert task.convert is not None, "a task with an input has a converter"
        named[task.input_name] = task.convert(raw_input)
    if task.context_name is not None:
        named[task.context_name] = ctx
    positional = [named.pop(name) for name in task.positional if name in named]
    return functools.partial(task.function, *positional, **named)


def completed(result: object, options: WorkerOptions) -> Completed | Failed:
    """What a task returned, as JSON or as the failure that it is."""
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
        output = to_json(result, bytes_max=options.output_bytes_max, field="output")
    except InvalidValueError as error:
        kind = "TooLarge" if error.too_large else "InvalidOutput"
        return Failed(type=kind, message=str(error), retryable=False)
    except Exception as error:  # noqa: BLE001 -- their types may raise anything
        raised = failure_of(error, error_bytes_max=options.error_bytes_max)
        message = f"output cannot be written as JSON: {raised.type}: {raised.message}"
        return msgspec.structs.replace(
            raised, type="InvalidOutput", message=message, retryable=False
        )
    return Completed(output=output)


def failure_of(error: BaseException, *, error_bytes_max: int) -> Failed:
    """The failure that an exception stands for, cut to `error_bytes_max` bytes. Raises nothing,
    whatever the exception is."""
    try:
        return _failure_of(error, error_bytes_max)
    except Exception as fault:  # noqa: BLE001 -- their exception may lack what it should have
        return Failed(
            type=clean_text(type(error).__name__)[:TYPE_LENGTH_MAX],
            message=f"the exception could not be read: {type(fault).__name__}",
            stack=_cut_front(clean_text(traceback_text(error)), error_bytes_max // 4),
        )


def _failure_of(error: BaseException, error_bytes_max: int) -> Failed:
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
        case InvalidValueError():
            # What a task gave to its context, or to a client; the next attempt would give the same.
            failed = Failed(
                type="TooLarge" if error.too_large else "InvalidOutput",
                message=message,
                retryable=False,
                stack=traceback_text(error),
            )
        case _:
            stack = traceback_text(error)
            failed = Failed(type=type(error).__name__, message=message, stack=stack)
    stack = None if failed.stack is None else _cut_front(clean_text(failed.stack), stack_max)
    kind = clean_text(failed.type)[:TYPE_LENGTH_MAX] or "Error"
    return msgspec.structs.replace(failed, type=kind, stack=stack)


def _details(details: object, bytes_max: int) -> bytes | None:
    if details is None:
        return None
    try:
        return to_json(details, bytes_max=bytes_max, field="error.details")
    except InvalidValueError as error:
        return msgspec.json.encode({"details_left_out": str(error)})


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
