"""Workers as processes: signals and sudden death."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.engine_side import EngineSide
from tests.support.eventually import until
from tests.support.processes import bound_to_us

Spawn = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def spawn(engine: EngineSide, jetstream_url: str, tmp_path: Path) -> Iterator[Spawn]:
    """Starts a worker process; whatever still runs at the end is killed."""
    processes: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        program = Path(__file__).with_name("a_worker.py")
        process = subprocess.Popen(
            bound_to_us([sys.executable, str(program), jetstream_url, engine.prefix, str(tmp_path)])
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


async def started(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    await until((folder / f"started-{process.pid}").exists, "the task runs")


async def test_sigterm_drains(engine: EngineSide, spawn: Spawn, tmp_path: Path) -> None:
    process = spawn()
    token = await engine.dispatch("hold")
    await started(process, tmp_path)
    process.send_signal(signal.SIGTERM)

    (tmp_path / "go").touch()
    report = await engine.end_of(token)
    await until(lambda: process.poll() is not None, "it exits")
    assert (report.body["output"], process.returncode) == (process.pid, 0)
    await engine.all_acknowledged()


async def test_a_killed_workers_attempt_goes_on_elsewhere_under_the_same_token(
    engine: EngineSide, spawn: Spawn, tmp_path: Path
) -> None:
    engine.ack_wait_s = 1.0
    await engine.create_consumers("inventory")
    first = spawn()
    token = await engine.dispatch("hold")
    await started(first, tmp_path)
    first.kill()
    second = spawn()
    await started(second, tmp_path)
    (tmp_path / "go").touch()
    assert (await engine.end_of(token)).body["output"] == second.pid
    await engine.all_acknowledged()
