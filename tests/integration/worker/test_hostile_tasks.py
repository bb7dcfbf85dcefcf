"""Tasks that do what no task should: the worker and the attempts of others go on."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest

from tests.integration.worker.conftest import Serving, worker_of
from tests.support.engine_side import EngineSide
from tests.support.eventually import until
from tests.support.processes import bound_to_us
from towpath_worker import Context

STUBBORN = """
import asyncio, threading, time
from towpath_worker import Context, Worker, WorkerOptions

worker = Worker("inventory", options=WorkerOptions(drain_timeout_seconds=0.2))
never = threading.Event()

@worker.task("swallows")
async def swallows(ctx: Context) -> None:
    ctx.heartbeat("swallows")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

@worker.task("blocks_a_thread")
def blocks(ctx: Context) -> None:
    ctx.heartbeat("blocks")
    never.wait()

@worker.task("awaits_a_thread")
async def awaits(ctx: Context) -> None:
    ctx.heartbeat("awaits")
    await asyncio.to_thread(never.wait)

@worker.task("spins")
async def spins(ctx: Context) -> None:
    ctx.heartbeat("spins")
    await asyncio.to_thread(ctx.cancelled.wait_in_thread, 0.5)
    print("spinning", flush=True)
    while True:
        pass

if __name__ == "__main__":
    worker.run()
"""


def started(
    folder: Path, command: list[str], *, url: str, prefix: str, output: IO[bytes] | None = None
) -> "subprocess.Popen[bytes]":
    environ = {**os.environ, "TOWPATH_NATS_URL": url, "TOWPATH_PREFIX": prefix}
    return subprocess.Popen(
        bound_to_us([sys.executable, *command]),
        cwd=folder, env=environ, stdout=output, stderr=output,
    )  # fmt: skip


@pytest.mark.parametrize("command", [["-m", "towpath_worker", "stubborn:worker"], ["stubborn.py"]])
@pytest.mark.parametrize("task", ["swallows", "blocks_a_thread", "awaits_a_thread"])
async def test_a_task_that_does_not_stop_is_given_back_and_its_worker_ends(
    engine: EngineSide, jetstream_url: str, tmp_path: Path, task: str, command: list[str]
) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    process = started(tmp_path, command, url=jetstream_url, prefix=engine.prefix)
    try:
        token = await engine.dispatch(task)
        await engine.report_of(token, "step-heartbeat")
        process.send_signal(signal.SIGTERM)
        report = await engine.end_of(token)
        assert (report.kind, report.body["reason"]) == ("step-released", "drain")
        await until(lambda: process.poll() is not None, "it ends")
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


async def test_signals_that_a_blocked_loop_does_not_take_up_end_the_process(
    engine: EngineSide, jetstream_url: str, tmp_path: Path
) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = started(
            tmp_path, ["stubborn.py"], url=jetstream_url, prefix=engine.prefix, output=output
        )
    try:
        await engine.dispatch("spins")
        await until(lambda: b"spinning" in log.read_bytes(), "the loop is blocked")

        def ended() -> bool:
            process.send_signal(signal.SIGTERM)
            return process.poll() is not None

        await until(ended, "it ends")
        assert process.returncode == 128 + signal.SIGTERM
        assert b"a task blocks the event loop" in log.read_bytes()
    finally:
        process.kill()
        process.wait()


async def test_a_thousand_slots_are_a_thousand_attempts_at_once(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url, slots=1_000)
    go, running, most = asyncio.Event(), 0, 0

    @worker.task("hold")
    async def hold(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1
        return number

    async with serving(worker):
        tokens = [await engine.dispatch("hold", number) for number in range(1_500)]
        await until(lambda: running == 1_000, "all slots are taken")
        go.set()
        await until(lambda: sum(len(engine.ends(t)) for t in tokens[-3:]) == 3, "they end")
        await engine.all_acknowledged()
    assert most == 1_000
    outputs = [each.body["output"] for each in engine.reports if each.kind == "step-completed"]
    assert sorted(outputs) == list(range(1_500))


async def test_a_flood_of_heartbeats_holds_up_nobody(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)
    go = threading.Event()

    @worker.task("flood")
    def flood(ctx: Context) -> None:
        for number in range(200_000):
            ctx.heartbeat(number)
        go.set()

    worker.task("quick")(lambda: "quick")
    async with serving(worker):
        token = await engine.dispatch("flood", heartbeat_timeout_ms=60_000)
        await until(go.is_set, "the flood is over")
        await engine.end_of(await engine.dispatch("quick"))
        assert (await engine.end_of(token)).kind == "step-completed"
    beats = engine.of(token, "step-heartbeat")
    assert 1 <= len(beats) < 100
