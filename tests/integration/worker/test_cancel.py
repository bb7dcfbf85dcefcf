"""Cancellation: the push, the heartbeat exchange, tokens the engine has closed."""

import asyncio

from tests.integration.worker.conftest import Serving, worker_of
from tests.support.engine_side import EngineSide
from tests.support.eventually import until
from towpath_worker import Context, Worker


def hanging_worker(engine: EngineSide, url: str, running: list[str]) -> Worker:
    worker = worker_of(engine, url)

    @worker.task("hang")
    async def hang(ctx: Context) -> None:
        running.append(ctx.step)
        await asyncio.Event().wait()

    @worker.task("spin")
    def spin(ctx: Context) -> str:
        running.append(ctx.step)
        assert ctx.cancelled.wait_in_thread(60)
        return f"stopped: {ctx.cancelled.reason}"

    return worker


async def test_a_push_cancels_an_async_task(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    running: list[str] = []
    async with serving(hanging_worker(engine, jetstream_url, running)):
        token = await engine.dispatch("hang")
        await until(lambda: bool(running), "it runs")
        await engine.push_cancel(token)
        error = (await engine.end_of(token)).body["error"]
    assert (error["type"], error["message"], error["retryable"]) == (
        "Cancelled", "the run was cancelled", False,
    )  # fmt: skip


async def test_a_plain_function_sees_that_it_is_cancelled_and_may_finish(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    running: list[str] = []
    async with serving(hanging_worker(engine, jetstream_url, running)):
        token = await engine.dispatch("spin")
        await until(lambda: bool(running), "it runs")
        await engine.push_cancel(token)
        report = await engine.end_of(token)
    assert report.body["output"] == "stopped: the run was cancelled"


async def test_a_missed_push_is_made_good_by_the_heartbeat_exchange(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    running: list[str] = []
    async with serving(hanging_worker(engine, jetstream_url, running)):
        token = await engine.dispatch("hang")
        await until(lambda: bool(running), "it runs")
        engine.cancel.append(token)
        assert (await engine.end_of(token)).kind == "step-failed"
    seen = [presence for presence in engine.presences if presence["tokens"]]
    assert seen[0]["tokens"] == [token]
    assert (seen[0]["slots"], seen[0]["tasks"]) == (4, ["hang", "spin"])
    assert seen[0]["sdk"].startswith("python/")


async def test_a_stale_token_ends_without_a_report(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    running: list[str] = []
    async with serving(hanging_worker(engine, jetstream_url, running)):
        token = await engine.dispatch("hang")
        await until(lambda: bool(running), "it runs")
        engine.stale.append(token)
        await engine.all_acknowledged()
    assert engine.ends(token) == []


async def test_garbage_on_the_control_subject_changes_nothing(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    running: list[str] = []
    async with serving(hanging_worker(engine, jetstream_url, running)):
        token = await engine.dispatch("hang")
        await until(lambda: bool(running), "it runs")
        for garbage in (b"", b"{}", b"\xff\xfe", b'{"type":"step.cancel"}', b"9" * 1_000):
            await engine.client.publish(f"{engine.prefix}.control.inventory", garbage)
        await engine.push_cancel("another-token")
        await engine.push_cancel(token)
        assert (await engine.end_of(token)).kind == "step-failed"
