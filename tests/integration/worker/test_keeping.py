"""Leases: in-progress acks, redelivery, heartbeats, the attempt timeout."""

import asyncio
import threading

from tests.integration.worker.conftest import Serving, ThreadedWorker, worker_of
from tests.support.engine_side import EngineSide, new_run_id
from tests.support.eventually import until
from towpath_worker import Context


async def test_a_task_that_blocks_the_event_loop_keeps_its_lease(
    engine: EngineSide, jetstream_url: str
) -> None:
    engine.ack_wait_s = 1.0
    await engine.create_consumers("inventory")
    worker = worker_of(engine, jetstream_url)
    calls: list[int] = []
    released = threading.Event()

    @worker.task("block")
    async def block(ctx: Context) -> str:
        calls.append(ctx.attempt)
        released.wait(60)  # blocks the loop, as a badly written task does
        return "done"

    running = ThreadedWorker(worker)
    try:
        token = await engine.dispatch("block")
        await until(lambda: engine.acks.count(b"+WPI") >= 12, "four ack waits are bridged")
        assert (await engine.report_of(token, "step-started")).body["worker_id"]
        released.set()
        assert (await engine.end_of(token)).body["output"] == "done"
        info = await engine.consumer()
        assert info.num_redelivered == 0
    finally:
        released.set()
        running.stop()
    assert calls == [1]


async def test_the_same_token_delivered_again_does_not_run_twice(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)
    go = asyncio.Event()
    calls: list[str] = []

    @worker.task("once")
    async def once(ctx: Context) -> str:
        calls.append(ctx.run_id)
        await go.wait()
        return "done"

    async with serving(worker):
        run_id = new_run_id()
        token = await engine.dispatch("once", run_id=run_id)
        await until(lambda: calls == [run_id], "it runs")
        await engine.dispatch("once", run_id=run_id, token=token)
        await engine.end_of(await engine.dispatch("unknown"))
        go.set()
        await engine.end_of(token)
        await engine.dispatch("once", run_id=run_id, token=token)
        await engine.end_of(await engine.dispatch("unknown"))
        # Of the first two deliveries the newer subject is acked; the third is known to be over.
        await until(lambda: engine.acks.count(b"+ACK") == 4, "known tokens are acknowledged")
    assert (calls, len(engine.ends(token))) == ([run_id], 1)


async def test_heartbeats_carry_the_newest_progress_and_start_the_lease_at_once(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)

    @worker.task("copy")
    def copy(ctx: Context) -> object:
        for n in range(100):
            ctx.heartbeat({"copied": n})
        ctx.cancelled.wait_in_thread(0.5)
        return ctx.last_progress

    async with serving(worker):
        token = await engine.dispatch("copy", heartbeat_timeout_ms=800, last_progress={"copied": 7})
        await engine.report_of(token, "step-started")
        report = await engine.end_of(token)
    beats = engine.of(token, "step-heartbeat")
    assert [beat.body["n"] for beat in beats] == [1, 2]
    assert beats[-1].body["progress"] == {"copied": 99}
    assert beats[0].headers["Nats-Msg-Id"] == f"{token}:step-heartbeat:1"
    assert report.body["output"] == {"copied": 7}


async def test_an_attempt_ends_here_when_its_timeout_is_over(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url, slots=1)
    reasons: list[str | None] = []

    @worker.task("hang")
    async def hang(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.cancelled.reason)

    worker.task("quick")(lambda: "quick")
    async with serving(worker):
        hanging = await engine.dispatch("hang", attempt_timeout_ms=200)
        await engine.end_of(await engine.dispatch("quick"))
    assert reasons == ["attempt_timeout"]
    assert engine.ends(hanging) == []


async def test_a_report_is_repeated_until_a_stream_takes_it(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url, report_ack_timeout_seconds=0.5)
    worker.task("quick")(lambda: "quick")
    js = engine.client.jetstream()
    await js.delete_stream(f"{engine.prefix.upper()}_IN")
    async with serving(worker):
        token = await engine.dispatch("quick")
        await until(lambda: len(engine.ends(token)) >= 2, "it is published again")
        assert engine.acks == []
        await engine.create_streams()
        await engine.all_acknowledged()
    assert len({report.headers["Nats-Msg-Id"] for report in engine.ends(token)}) == 1
