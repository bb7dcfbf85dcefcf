"""What the worker SDK's types must accept: pyright finds nothing here."""

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import assert_type

from msgspec import Struct

from towpath_worker import (
    Again,
    Client,
    Context,
    Json,
    ProcessContext,
    RunHandle,
    TerminalError,
    Worker,
    capture_structlog,
    run_workers,
)
from towpath_worker.workflow import choice, pass_, retry, sleep, task, wait, workflow

worker = Worker("inventory", slots=4)


class Reserve(Struct):
    sku: str


@dataclasses.dataclass
class Reserved:
    sku: str


@worker.task("a")
async def with_both(order: Reserve, ctx: Context) -> Reserved | Again:
    return Again(after=timedelta(seconds=1)) if ctx.attempt == 1 else Reserved(order.sku)


@worker.task("b")
def plain(order: dict[str, int]) -> int:
    return order["n"]


@worker.task("c")
async def only_context(ctx: Context) -> None:
    ctx.heartbeat({"n": [1, None, {"x": 1.0}]})
    names: list[str] = ["a"]
    ctx.heartbeat(names)
    ctx.set_metadata({"names": names})
    if not names:
        raise TerminalError("no names", details={"names": names})


@worker.task("d")
def nothing() -> str:
    return "x"


class Pool:
    size: int = 1


@worker.lifespan
async def pool() -> AsyncIterator[Pool]:
    yield Pool()


@contextlib.asynccontextmanager
async def managed() -> AsyncGenerator[Pool]:
    yield Pool()


Worker("managed", lifespan=managed)
Worker("generator", lifespan=pool)


@worker.task("e")
async def with_state(order: Reserve, ctx: Context[Pool]) -> bool:
    assert_type(ctx.state, Pool)
    assert_type(ctx.last_progress_as(Reserve), Reserve | None)
    ctx.progress(order)
    ctx.progress(Reserved(order.sku))
    ctx.progress({"at": datetime.now(UTC), "rows": [Reserve("a"), Reserve("b")]})
    assert_type(ctx.cancelled.reason, str | None)
    return await ctx.still_mine(timeout_seconds=1)


@worker.task("f", run_in="thread")
def in_thread(ctx: Context[Pool]) -> bool:
    return ctx.still_mine_sync() and not ctx.cancelled


@worker.task("g", run_in="process")
def in_process(order: Reserve, ctx: ProcessContext) -> int:
    ctx.heartbeat({"sku": order.sku})
    return 0 if ctx.cancelled.wait_in_thread(1) else 1


def processors() -> list[Callable[[object, str, MutableMapping[str, object]], object]]:
    return [capture_structlog]


def serve_all() -> None:
    run_workers(worker, Worker("shipping"))


# A decorated function keeps its own type.
assert_type(plain({"n": 1}), int)


async def start() -> None:
    async with Client() as client:
        handle = await client.start("order", Reserve("A"), key="k", priority="high")
        assert_type(handle, RunHandle)
        assert_type(await handle.result(timeout=60), Json)
        assert_type(await handle.result(type=Reserved), Reserved)
        await client.deploy(
            workflow(
                "order",
                steps=[
                    task("a", task="a", retry=retry(max_attempts=3), when="input.x", limit=2),
                    wait("b", signal="s", timeout=timedelta(hours=1)),
                    choice("c", [("true", "d")]),
                    sleep("d", "1s"),
                    pass_("e", {"x": [1, "${ input.y }"]}, end=True),
                ],
            )
        )
