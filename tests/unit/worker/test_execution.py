"""One task, one attempt: input by annotation, outcomes, limits."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from typing import Any, TypedDict

import msgspec
import pytest
from msgspec import Raw, Struct

from tests.unit.worker.dispatches import a_dispatch
from towpath_worker import Again, Context, RetryAfter, TerminalError, WorkerOptions
from towpath_worker.execution import Execution, failure_of
from towpath_worker.outcomes import Completed, Dropped, Failed, Outcome
from towpath_worker.registry import describe
from towpath_worker.threads import TaskThreads


class AsStruct(Struct):
    sku: str
    quantity: int = 1


@dataclasses.dataclass
class AsDataclass:
    sku: str


class AsTypedDict(TypedDict):
    sku: str


def a_context(raw: bytes = b"null", options: WorkerOptions | None = None) -> Context:
    return Context(
        a_dispatch(input=Raw(raw)),
        options=options or WorkerOptions(),
        loop=asyncio.get_running_loop(),
        on_heartbeat=lambda: None,
    )


async def run(function: Callable[..., object], raw: bytes = b"null", **options: Any) -> Outcome:
    chosen = WorkerOptions(**options)
    ctx = a_context(raw, chosen)
    threads = TaskThreads()
    try:
        return await Execution(threads, chosen).run(describe("task", function), ctx, raw)
    finally:
        threads.close()


async def output(function: Callable[..., object], raw: bytes = b"null") -> bytes:
    outcome = await run(function, raw)
    assert isinstance(outcome, Completed), outcome
    return outcome.output


async def failure(function: Callable[..., object], raw: bytes = b"null", **options: Any) -> Failed:
    outcome = await run(function, raw, **options)
    assert isinstance(outcome, Failed), outcome
    return outcome


async def test_the_input_is_converted_to_its_annotation() -> None:
    def as_struct(order: AsStruct) -> int:
        return order.quantity

    def as_dataclass(order: AsDataclass) -> str:
        return order.sku

    def as_typed_dict(order: AsTypedDict) -> str:
        return order["sku"]

    def as_list(numbers: list[int]) -> int:
        return sum(numbers)

    as_json: Any = eval("lambda anything: type(anything).__name__")

    assert await output(as_struct, b'{"sku":"A","quantity":7,"more":true}') == b"7"
    assert await output(as_dataclass, b'{"sku":"A"}') == b'"A"'
    assert await output(as_typed_dict, b'{"sku":"A"}') == b'"A"'
    assert await output(as_list, b"[1,100000000000000000000]") == b"100000000000000000001"
    assert await output(as_json, b'{"sku":"A"}') == b'"dict"'


async def test_an_input_of_the_wrong_shape_is_a_final_failure_that_names_the_place() -> None:
    def reserve(order: AsStruct) -> None:
        raise AssertionError("never called")

    failed = await failure(reserve, b'{"sku":1}')
    assert (failed.type, failed.retryable) == ("InvalidInput", False)
    assert "$.sku" in failed.message


async def test_structs_dataclasses_and_dates_are_outputs() -> None:
    def make() -> object:
        return {"s": AsStruct("A"), "d": AsDataclass("B"), "t": (1, 2.0), "n": {1: 2}}

    assert await output(make) == (
        b'{"s":{"sku":"A","quantity":1},"d":{"sku":"B"},"t":[1,2.0],"n":{"1":2}}'
    )


async def test_a_task_without_parameters_ignores_its_input() -> None:
    assert await output(lambda: "x", b'{"a":1}') == b'"x"'


async def test_again_is_a_completion_with_a_wait() -> None:
    outcome = await run(lambda: Again(after=2.5))
    assert outcome == Completed(output=b"null", again=Again(after=2.5))
    assert Again(after=2.5).after_ms == 2_500
    with pytest.raises(ValueError, match="negative"):
        Again(after=-1)


async def test_subclasses_of_the_sdk_errors_name_their_own_type() -> None:
    class SoldOutError(TerminalError):
        pass

    class BusyError(RetryAfter):
        pass

    def sold_out() -> None:
        raise SoldOutError("none left", details={"sku": "A"})

    def busy() -> None:
        raise BusyError(3, "later")

    failed = await failure(sold_out)
    assert (failed.type, failed.retryable, failed.details) == (
        "SoldOutError", False, b'{"sku":"A"}',
    )  # fmt: skip
    failed = await failure(busy)
    assert (failed.type, failed.retryable, failed.retry_after_ms) == ("BusyError", True, 3_000)


class UnusualError(BaseException):
    """As of libraries that want nobody to catch them."""


class Mute(RetryAfter):
    """Without what the class it is made from has."""

    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        raise LookupError("no words")


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        StopIteration(1),
        RecursionError("deep"),
        KeyboardInterrupt(),
        UnusualError("out of the way"),
        Mute(),
    ],
)
async def test_whatever_a_task_raises_fails_the_attempt_and_nothing_else(
    error: BaseException,
) -> None:
    def plain() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    for function in (plain, coroutine):
        failed = await failure(function)
        assert (failed.retryable, failed.stack is not None) == (True, True)


async def test_a_stack_begins_at_the_task() -> None:
    def deeper() -> None:
        raise KeyError("here")

    def plain() -> None:
        deeper()

    async def coroutine() -> None:
        await asyncio.sleep(0)
        deeper()

    class Checked(Struct):
        sku: str

        def __post_init__(self) -> None:
            deeper()

    def takes(order: Checked) -> None:
        raise AssertionError("never called")

    for function, first in (
        (plain, "in plain"), (coroutine, "in coroutine"), (takes, "in __post_init__")
    ):  # fmt: skip
        failed = await failure(function, b'{"sku":"A"}')
        assert failed.stack is not None
        head, frame, *_ = failed.stack.splitlines()
        assert head.startswith("Traceback")
        assert frame.endswith(first)
        assert "towpath_worker" not in failed.stack


async def test_an_exception_that_only_the_sdk_raised_keeps_its_frames() -> None:
    def called_wrong(*, needed: int, ctx: Context) -> None: ...

    task = describe("task", called_wrong)
    ctx = a_context()
    threads = TaskThreads()
    broken = msgspec.structs.replace(task, input_name=None)
    outcome = await Execution(threads, WorkerOptions()).run(broken, ctx, b"null")
    threads.close()
    assert isinstance(outcome, Failed)
    assert "needed" in outcome.message
    assert "towpath_worker" in (outcome.stack or "")


async def test_an_output_that_fails_while_it_is_written_fails_the_attempt() -> None:
    class Unwritable:
        __pydantic_validator__ = None

        def model_dump(self, **_: object) -> object:
            raise KeyError("half made")

    async def coroutine() -> object:
        return Unwritable()

    def plain() -> object:
        return Unwritable()

    for function in (coroutine, plain):
        failed = await failure(function)
        assert (failed.type, failed.retryable) == ("InvalidOutput", False)
        assert "KeyError: 'half made'" in failed.message
        assert "in model_dump" in (failed.stack or "")


async def test_a_plain_function_has_its_output_written_in_its_thread() -> None:
    written_in: list[str] = []

    class Written:
        __pydantic_validator__ = None

        def model_dump(self, **_: object) -> object:
            written_in.append(threading.current_thread().name)
            return 1

    def plain() -> object:
        return Written()

    assert await output(plain) == b"1"
    assert written_in == ["towpath-task"]


async def test_a_large_error_is_cut_to_its_limit() -> None:
    error = TerminalError("é" * 50_000, type="T" * 500, details={"x": "y" * 50_000})
    failed = failure_of(error, error_bytes_max=16 * 1024)
    sizes = len(failed.message.encode()) + len(failed.details or b"") + len(failed.type)
    assert sizes < 16 * 1024
    assert failed.message.endswith("[cut]")
    assert len(failed.type) == 128

    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        raise ValueError("at the bottom" + "x" * 100)

    def start() -> None:
        deep(200)

    failed = await failure(start, error_bytes_max=4_096)
    assert failed.stack is not None
    assert len(failed.stack.encode()) < 2_048
    assert "at the bottom" in failed.stack


async def test_a_plain_function_that_returns_a_coroutine_is_told_what_to_write() -> None:
    async def inner(number: int) -> int:
        return number

    def forgot() -> object:
        return inner(1)

    failed = await failure(forgot)
    assert failed.type == "InvalidOutput"
    assert "async def" in failed.message


async def test_a_task_that_cancels_itself_has_failed() -> None:
    async def cancel_itself() -> None:
        raise asyncio.CancelledError

    assert (await failure(cancel_itself)).type == "CancelledError"


async def test_cancelling_the_process_is_no_failure_of_the_task() -> None:
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(run(hang))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def cancelled(reason: str) -> Outcome:
    started: asyncio.Future[Context] = asyncio.get_running_loop().create_future()

    async def hang(ctx: Context) -> None:
        started.set_result(ctx)
        await asyncio.Event().wait()

    running = asyncio.create_task(run(hang))
    (await started).cancelled.set(reason)
    running.cancel()
    return await running


async def test_a_cancelled_attempt_ends_as_its_reason_says() -> None:
    for reason in ("stale", "attempt_timeout", "drain"):
        assert await cancelled(reason) == Dropped(why=reason)
    assert await cancelled("the run was cancelled") == Failed(
        type="Cancelled", message="the run was cancelled", retryable=False
    )


async def test_a_stuck_thread_does_not_take_the_place_of_another() -> None:
    threads = TaskThreads()
    release = threading.Event()
    stuck = asyncio.create_task(threads.run(lambda: release.wait(60)))
    assert await threads.run(lambda: "second") == "second"
    release.set()
    assert await stuck
    threads.close()
