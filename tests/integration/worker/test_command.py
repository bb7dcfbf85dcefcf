"""The command on a real server: several queues in a process, and starting again after a change."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.engine_side import EngineSide
from tests.support.eventually import until
from tests.support.processes import bound_to_us

MODULE = """
from pathlib import Path
from towpath_worker import ProcessContext, Worker, WorkerOptions

options = WorkerOptions(heartbeat_interval_seconds=0.2)
worker = Worker("inventory", options=options)
other = Worker("shipping", options=options)

@worker.task("say")
def say() -> str:
    return {text!r}

@worker.task("apart", run_in="process")
def apart(ctx: ProcessContext) -> str:
    return __name__

other.task("say")(lambda: "from the other")

if __name__ == "__main__":
    worker.run()
"""

Run = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def run(engine: EngineSide, jetstream_url: str, tmp_path: Path) -> Iterator[Run]:
    """Starts Python with these arguments in the folder of the module `shop`."""
    processes: list[subprocess.Popen[bytes]] = []
    (tmp_path / "shop.py").write_text(MODULE.format(text="first"))

    def start(*arguments: str) -> "subprocess.Popen[bytes]":
        environ = {
            **os.environ, "TOWPATH_NATS_URL": jetstream_url, "TOWPATH_PREFIX": engine.prefix
        }  # fmt: skip
        command = bound_to_us([sys.executable, *arguments])
        process = subprocess.Popen(command, cwd=tmp_path, env=environ)
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


async def stopped(process: "subprocess.Popen[bytes]") -> int:
    process.send_signal(signal.SIGTERM)
    await until(lambda: process.poll() is not None, "it ends")
    return process.returncode


async def test_several_queues_are_served_over_one_connection(engine: EngineSide, run: Run) -> None:
    await engine.create_consumers("shipping")
    process = run("-m", "towpath_worker", "shop:worker", "shop:other", "--slots", "2")
    first = await engine.end_of(await engine.dispatch("say"))
    second = await engine.end_of(await engine.dispatch("say", queue="shipping"))
    assert (first.body["output"], second.body["output"]) == ("first", "from the other")
    assert {presence["slots"] for presence in engine.presences} == {2}
    assert await stopped(process) == 0


@pytest.mark.parametrize("command", [["-m", "towpath_worker", "shop:worker"], ["shop.py"]])
async def test_a_task_in_a_process_is_found_however_the_worker_was_started(
    engine: EngineSide, run: Run, command: list[str]
) -> None:
    process = run(*command)
    report = await engine.end_of(await engine.dispatch("apart"))
    assert report.body.get("output") in ("shop", "__mp_main__"), report.body.get("error")
    assert await stopped(process) == 0


async def test_a_change_starts_it_again_and_a_broken_file_is_survived(
    engine: EngineSide, run: Run, tmp_path: Path
) -> None:
    process = run("-m", "towpath_worker", "shop:worker", "--reload")
    assert (await engine.end_of(await engine.dispatch("say"))).body["output"] == "first"
    seen = len(engine.presences)
    (tmp_path / "shop.py").write_text("this is no Python")
    (tmp_path / "shop.py").write_text(MODULE.format(text="second, and longer"))
    first_id = engine.presences[0]["worker_id"]

    def another_serves() -> bool:
        return any(each["worker_id"] != first_id for each in engine.presences[seen:])

    await until(another_serves, "another process serves")
    assert (await engine.end_of(await engine.dispatch("say"))).body["output"].startswith("second")
    assert await stopped(process) == 0


async def test_a_worker_drains_and_ends_when_what_would_start_it_again_was_killed(
    engine: EngineSide, run: Run
) -> None:
    process = run("-m", "towpath_worker", "shop:worker", "--reload")
    assert (await engine.end_of(await engine.dispatch("say"))).body["output"] == "first"
    (child,) = psutil.Process(process.pid).children()
    assert f"-{child.pid}-" in engine.presences[0]["worker_id"]
    process.kill()
    process.wait(60)
    await until(lambda: not alive(child), "the worker has ended")
    assert engine.presences[-1]["tokens"] == []


def alive(process: psutil.Process) -> bool:
    """False for a zombie, too: who adopts it may be slow."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
