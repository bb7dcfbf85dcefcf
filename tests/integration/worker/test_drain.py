"""Stopping a worker."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator

import psutil
import pytest

from tests.integration.worker.conftest import worker_of
from tests.support.engine_side import EngineSide
from tests.support.eventually import until
from towpath_worker import Context, LifespanError, ProcessContext, Worker
from towpath_worker.worker import serve_workers


async def test_a_drained_worker_finishes_what_runs_and_takes_nothing_new(
    engine: EngineSide, jetstream_url: str
) -> None:
    worker = worker_of(engine, jetstream_url)
    go = asyncio.Event()
    running: list[int] = []

    @worker.task("hold")
    async def hold(number: int) -> int:
        running.append(number)
        await go.wait()
        return number

    serving = asyncio.create_task(worker.serve())
    first = await engine.dispatch("hold", 1)
    await until(lambda: running == [1], "it runs")
    worker.stop()

    async def nobody_asks() -> None:
        infos = [await engine.consumer(level) for level in range(4)]
        assert [info.num_waiting for info in infos] == [0] * 4

    async with asyncio.timeout(60):
        while True:
            try:
                await nobody_asks()
                break
            except AssertionError:
                continue
    second = await engine.dispatch("hold", 2)
    go.set()
    await serving
    assert (await engine.end_of(first)).body["output"] == 1
    assert (running, engine.of(second)) == ([1], [])
    assert engine.acks.count(b"+ACK") == 1


async def test_a_draining_worker_says_so_and_says_goodbye_when_nothing_runs_any_more(
    engine: EngineSide, jetstream_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "towpath.worker")
    worker = worker_of(engine, jetstream_url, drain_timeout_seconds=99)
    go = asyncio.Event()

    @worker.task("hold")
    async def hold() -> None:
        await go.wait()

    serving = asyncio.create_task(worker.serve())
    dispatch = await engine.dispatch("hold")
    await until(lambda: bool(engine.presences), "it serves")
    assert "draining" not in engine.presences[0], "what a worker of before would send"
    await until(lambda: worker.serving and bool(engine.of(dispatch)), "it runs")
    worker.stop()
    await until(lambda: "draining" in engine.presences[-1], "it tells that it drains")
    assert engine.presences[-1]["tokens"] == [dispatch]
    assert "worker_draining queue=inventory running=1 timeout_seconds=99 " in caplog.text
    go.set()
    await serving
    assert (engine.presences[-1]["draining"], engine.presences[-1]["tokens"]) == (True, [])


async def test_an_idle_worker_says_goodbye_at_once(engine: EngineSide, jetstream_url: str) -> None:
    worker = worker_of(engine, jetstream_url)
    worker.task("quick")(lambda: "quick")
    serving = asyncio.create_task(worker.serve())
    await until(lambda: bool(engine.presences), "it serves")
    worker.stop()
    await serving
    assert engine.presences[-1]["draining"]


async def test_what_runs_longer_than_the_drain_timeout_is_given_back(
    engine: EngineSide, jetstream_url: str
) -> None:
    worker = worker_of(engine, jetstream_url, drain_timeout_seconds=0.3)
    running: list[str] = []
    released = threading.Event()

    @worker.task("hang")
    async def hang(ctx: Context) -> None:
        running.append("hang")
        ctx.progress({"done": 3})
        await asyncio.Event().wait()

    @worker.task("block")
    def block() -> None:
        running.append("block")
        released.wait(60)

    serving = asyncio.create_task(worker.serve())
    hanging = await engine.dispatch("hang")
    blocking = await engine.dispatch("block")
    await until(lambda: len(running) == 2, "both run")
    worker.stop()
    try:
        await serving
    finally:
        released.set()
    report = await engine.end_of(hanging)
    assert (report.kind, report.body["reason"]) == ("step-released", "drain")
    assert report.body["progress"] == {"done": 3}
    assert (await engine.end_of(blocking)).kind == "step-released"
    await engine.all_acknowledged()
    assert (len(engine.ends(hanging)), len(engine.ends(blocking))) == (1, 1)


async def test_a_second_stop_does_not_wait(engine: EngineSide, jetstream_url: str) -> None:
    worker = worker_of(engine, jetstream_url, drain_timeout_seconds=3_600)
    running: list[str] = []

    @worker.task("hang")
    async def hang() -> None:
        running.append("hang")
        await asyncio.Event().wait()

    serving = asyncio.create_task(worker.serve())
    token = await engine.dispatch("hang")
    await until(lambda: bool(running), "it runs")
    worker.stop()
    worker.stop()
    await serving
    assert (await engine.end_of(token)).body["reason"] == "drain"


async def test_a_process_that_runs_longer_is_ended_and_its_progress_handed_on(
    engine: EngineSide, jetstream_url: str
) -> None:
    worker = worker_of(engine, jetstream_url, drain_timeout_seconds=0.3)
    worker.task("ignore", run_in="process")(ignore)
    serving = asyncio.create_task(worker.serve())
    token = await engine.dispatch("ignore", heartbeat_timeout_ms=60_000)
    beat = await engine.report_of(token, "step-heartbeat")
    pid = beat.body["progress"]["pid"]
    worker.stop()
    await serving
    report = await engine.end_of(token)
    assert (report.kind, report.body["reason"]) == ("step-released", "drain")
    assert report.body["progress"] == {"pid": pid}
    assert not psutil.pid_exists(pid)


def ignore(ctx: ProcessContext) -> None:
    ctx.heartbeat({"pid": os.getpid()})
    threading.Event().wait(600)


async def test_one_worker_that_cannot_start_stops_the_others_of_its_process(
    engine: EngineSide, jetstream_url: str
) -> None:
    good = worker_of(engine, jetstream_url)
    good.task("quick")(lambda: "quick")
    broken = Worker("shipping", nats_url=jetstream_url, prefix=engine.prefix)
    broken.task("quick")(lambda: "quick")

    @broken.lifespan
    async def late() -> AsyncIterator[None]:
        await until(lambda: bool(engine.presences), "the other one serves")
        raise ValueError("no database")
        yield

    with pytest.raises(LifespanError, match="no database"):
        await serve_workers(good, broken)
    assert not good.serving


async def test_a_task_that_is_given_back_may_clean_up_before_the_lifespan_closes(
    engine: EngineSide, jetstream_url: str
) -> None:
    worker = worker_of(engine, jetstream_url, drain_timeout_seconds=0.1)
    order: list[str] = []

    @worker.lifespan
    async def pool() -> AsyncIterator[str]:
        yield "pool"
        order.append("closed")

    @worker.task("hold")
    async def hold(ctx: Context) -> None:
        cleaned = asyncio.Event()
        ctx.heartbeat()
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_later(0.5, cleaned.set)
            await cleaned.wait()
            order.append("cleaned up")

    serving = asyncio.create_task(worker.serve())
    token = await engine.dispatch("hold")
    await engine.report_of(token, "step-heartbeat")
    worker.stop()
    await serving
    assert order == ["cleaned up", "closed"]
    assert [each.kind for each in engine.ends(token)] == ["step-released"]
