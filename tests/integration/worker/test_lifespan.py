"""What a worker opens for its tasks, on a real server: when, for how long, and when it fails."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.worker.conftest import Serving, worker_of
from tests.support.engine_side import EngineSide
from tests.support.eventually import until
from towpath_worker import Context, LifespanError, Worker, WorkerOptions


class Pool:
    def __init__(self, told: list[str]) -> None:
        self.told = told

    def close(self) -> None:
        self.told.append("closed")


async def test_the_state_is_there_before_the_first_pull_and_until_the_last_report(
    engine: EngineSide, jetstream_url: str
) -> None:
    worker = worker_of(engine, jetstream_url)
    told: list[str] = []
    go = asyncio.Event()

    @worker.lifespan
    async def pool() -> AsyncIterator[Pool]:
        told.append("opened")
        made = Pool(told)
        yield made
        made.close()

    @worker.task("use")
    async def use(ctx: Context[Pool]) -> list[str]:
        ctx.state.told.append("used")
        await go.wait()
        return list(ctx.state.told)

    token = await engine.dispatch("use")
    serving = asyncio.create_task(worker.serve())
    await until(lambda: "used" in told, "it runs")
    worker.stop()
    go.set()
    await serving
    assert (await engine.end_of(token)).body["output"] == ["opened", "used"]
    assert told == ["opened", "used", "closed"]


async def test_a_lifespan_that_fails_keeps_the_worker_from_pulling(
    engine: EngineSide, jetstream_url: str
) -> None:
    async def broken() -> AsyncIterator[None]:
        raise ConnectionRefusedError("no database")
        yield

    def refuses() -> AsyncIterator[None]:
        raise KeyError("DSN")

    def no_manager() -> object:
        return 7

    functions: list[tuple[Any, str]] = [
        (broken, "queue 'inventory' did not start: ConnectionRefusedError: no database"),
        (refuses, "did not start: KeyError: 'DSN'"),
        (no_manager, "neither an async context manager nor an async generator"),
    ]
    for function, words in functions:
        worker = Worker("inventory", nats_url=jetstream_url, lifespan=function)
        worker.task("a")(lambda: None)
        with pytest.raises(LifespanError, match=words):
            await worker.serve()
        assert not worker.serving
    assert engine.presences == []


async def test_a_state_of_another_type_keeps_the_worker_from_pulling(
    engine: EngineSide, jetstream_url: str
) -> None:
    closed: list[bool] = []
    worker = worker_of(engine, jetstream_url)

    @worker.task("use")
    async def use(ctx: Context[Pool]) -> None: ...

    with pytest.raises(LifespanError, match=r"'use' expects a Context\[Pool\].* gives no state"):
        await worker.serve()

    @worker.lifespan
    async def pool() -> AsyncIterator[dict[str, int]]:
        yield {}
        closed.append(True)

    with pytest.raises(LifespanError, match="gives a dict"):
        await worker.serve()
    assert closed == [True]
    with pytest.raises(RuntimeError, match="has a lifespan already"):
        worker.lifespan(pool)


async def test_a_stop_ends_a_lifespan_that_does_not_get_ready() -> None:
    begun: list[str] = []
    worker = Worker("inventory")
    worker.task("a")(lambda: None)

    @worker.lifespan
    async def slow() -> AsyncIterator[None]:
        begun.append("begun")
        await asyncio.Event().wait()
        yield

    serving = asyncio.create_task(worker.serve())
    await until(lambda: bool(begun), "it opens")
    worker.stop()
    async with asyncio.timeout(60):
        await serving


async def test_a_lifespan_that_does_not_close_is_given_up(
    engine: EngineSide, jetstream_url: str, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    options = WorkerOptions(lifespan_close_seconds=0.1)

    async def stuck() -> AsyncIterator[int]:
        yield 7
        await asyncio.Event().wait()

    worker = Worker(
        "inventory",
        nats_url=jetstream_url,
        prefix=engine.prefix,
        options=options,
        lifespan=stuck,
    )

    @worker.task("use")
    def use(ctx: Context[int]) -> int:
        return ctx.state

    async with serving(worker):
        assert (await engine.end_of(await engine.dispatch("use"))).body["output"] == 7
    assert "lifespan_close_failed queue=inventory" in caplog.text
