"""The parts of `towpath dev` that need no server."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import msgspec
import pytest

from tests.support.eventually import eventually_sync
from towpath_engine.dev.child import Child, ChildSpec, kept_environment, tail_of
from towpath_engine.dev.data_dir import DataDir, Ports
from towpath_engine.dev.errors import DevError
from towpath_engine.dev.keeper import Keeper
from towpath_engine.dev.orphans import end_tasks
from towpath_engine.dev.ports import choose_port, free_port, is_free
from towpath_engine.dev.ready import ReadyLine, for_people


class Sleeper:
    """A server that keeps a real process; its start can be made to fail."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.log_file = folder / "log"
        self._spec = ChildSpec(
            name="sleeper",
            command=command,
            log_file=self.log_file,
            working_dir=folder,
            environment=kept_environment(),
        )
        self.child = Child(self._spec)
        self.starts = 0
        self.fail_next = False

    @property
    def pid(self) -> int | None:
        return self.child.pid

    def exit_status(self) -> int | None:
        return self.child.exit_status()

    async def start(self) -> None:
        self.starts += 1
        if self.fail_next:
            self.fail_next = False
            raise DevError("not now")
        self.child = Child(self._spec)

    async def stop(self) -> None:
        await self.child.stop()


async def test_a_task_that_loses_its_cancellation_is_cancelled_again() -> None:
    lost: list[str] = []

    async def careless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.append("once")  # as where a connection fails in the same instant
        await asyncio.Event().wait()

    task = asyncio.create_task(careless())
    await asyncio.sleep(0)
    await end_tasks([task])
    assert (task.cancelled(), lost) == (True, ["once"])


async def test_a_server_that_runs_is_left_alone(tmp_path: Path) -> None:
    server = Sleeper(tmp_path, ["/bin/sleep", "600"])
    keeper = Keeper("x", server, notify=lambda name, text: None)
    assert await keeper.run_once() is False
    assert server.starts == 0
    await server.stop()


async def test_a_server_that_died_is_started_again_and_people_are_told(tmp_path: Path) -> None:
    said: list[str] = []
    server = Sleeper(tmp_path, ["/bin/sleep", "600"])
    keeper = Keeper("x", server, notify=lambda name, text: said.append(f"{name} {text}"))
    server.child.kill()
    eventually_sync(lambda: server.exit_status() is not None)
    assert await keeper.run_once() is True
    assert server.exit_status() is None
    assert said == [
        "x ended (signal 9); starting it again",
        f"x runs again as process {server.pid}",
    ]
    await server.stop()


async def test_a_start_that_fails_is_tried_again(tmp_path: Path) -> None:
    said: list[str] = []
    server = Sleeper(tmp_path, ["/bin/sleep", "600"])
    keeper = Keeper("x", server, notify=lambda name, text: said.append(text))
    server.child.kill()
    eventually_sync(lambda: server.exit_status() is not None)
    server.fail_next = True
    await keeper.run_once()
    assert said[-1] == "not now"
    await keeper.run_once()
    assert server.exit_status() is None
    await server.stop()


async def test_a_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    server = Sleeper(tmp_path, ["/bin/sleep", "600"])
    keeper = Keeper("x", server, notify=lambda name, text: None)
    with server.log_file.open("r+b") as log:
        log.truncate(33 * 1024 * 1024)
    await keeper.run_once()
    assert server.log_file.stat().st_size == 0
    await server.stop()


async def test_a_child_that_ignores_its_signal_is_killed(tmp_path: Path) -> None:
    stubborn = Child(
        ChildSpec(
            name="stubborn",
            command=["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"],
            log_file=tmp_path / "log",
            working_dir=tmp_path,
            environment=kept_environment(),
            stop_signals=((signal.SIGTERM, 0.1),),
        )
    )
    eventually_sync(lambda: "up" in tail_of(tmp_path / "log"))
    assert await stubborn.stop() == -9


def test_the_tail_of_a_log_is_bounded_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x" * 100_000 + "\nlast\n")
    assert tail_of(tmp_path / "log").endswith("last")
    assert len(tail_of(tmp_path / "log")) <= 2_000
    assert tail_of(tmp_path / "missing") == ""


def test_a_port_in_use_is_passed_over() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = int(holder.getsockname()[1])
        assert not is_free(taken)
        assert choose_port(taken, None) != taken
    assert is_free(free_port())


def test_a_folder_is_locked_and_remembers_its_ports(tmp_path: Path) -> None:
    folder = DataDir(tmp_path / "data")
    assert folder.read_ports() == Ports()
    folder.write_ports(Ports(nats=1, postgres=2, http=(3, 4)))
    with pytest.raises(DevError, match="another towpath dev runs on"):
        DataDir(tmp_path / "data")
    folder.close()
    again = DataDir(tmp_path / "data")
    assert again.read_ports() == Ports(nats=1, postgres=2, http=(3, 4))
    again.close()
    assert (tmp_path / "data").exists()


def test_damaged_ports_are_forgotten(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    (tmp_path / "ports.json").write_text("{")
    assert folder.read_ports() == Ports()
    folder.close()


def test_the_state_of_a_running_one_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    folder.write_state(b"{}")
    assert (tmp_path / "dev.json").stat().st_mode & 0o077 == 0
    folder.close()
    assert not (tmp_path / "dev.json").exists()


def test_a_folder_that_cannot_be_made_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DevError, match="choose another --data-dir"):
        DataDir(tmp_path / "file")


def test_an_ephemeral_folder_goes_and_a_running_one_is_not_swept() -> None:
    one = DataDir(None)
    two = DataDir(None)
    assert one.path.exists()
    two.close()
    assert not two.path.exists()
    one.close()
    assert not one.path.exists()


def ready_line(**changes: str) -> ReadyLine:
    usual = ReadyLine(
        nats_url="nats://127.0.0.1:4222",
        postgres_url="postgresql://u:s3cr3t@127.0.0.1:2/x",
        prefix="towpath",
        http_url="http://127.0.0.1:3",
        http_urls=("http://127.0.0.1:3",),
        data_dir="data",
        pids={"dev": os.getpid(), "engine": 7},
    )
    return msgspec.structs.replace(usual, **changes)


def test_people_see_no_password() -> None:
    text = for_people(ready_line(nats_url="nats://u:s3cr3t@127.0.0.1:1"))
    assert "s3cr3t" not in text
    assert "process 7" in text
    assert "not ours" in text


def test_people_are_told_what_other_terminals_need_unless_it_is_the_default() -> None:
    assert "export" not in for_people(ready_line())
    text = for_people(ready_line(nats_url="nats://127.0.0.1:9", prefix="mine"))
    assert "export TOWPATH_NATS_URL=nats://127.0.0.1:9 TOWPATH_PREFIX=mine" in text
    assert "in every other terminal" in text
    # Where the server is found it need not be named.
    found = for_people(ready_line(nats_url="nats://127.0.0.1:9", data_dir="/srv/shop/.towpath"))
    assert "outside of /srv/shop, before commands, workers and clients" in found
