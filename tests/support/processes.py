"""Real processes of Towpath: started, killed, started again; and proof that none is left.

Every process carries a mark in its environment, which its children inherit, so that the ones of
this test are told from everything else on the machine.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import psutil

from tests.support.eventually import DEADLINE_SECONDS, eventually_sync
from towpath_engine.dev import launch

MARK = "TOWPATH_TEST_MARK"

_TOWPATH = [sys.executable, "-m", "towpath_engine"]


class Identity(NamedTuple):
    """A process, told from a later one with the same number."""

    pid: int
    created: float


def bound_to_us(command: Sequence[str], number: signal.Signals = signal.SIGTERM) -> list[str]:
    """The command, so that the kernel sends it `number` when we die, however that is (Linux).

    It is the thread that starts it whose end counts: start what outlives a thread in the main one.
    """
    program = shutil.which(command[0])
    assert program is not None, f"{command[0]} is not installed"
    guard = [sys.executable, "-I", "-S", str(Path(launch.__file__))]
    return [*guard, str(os.getpid()), str(int(number)), "-", "-", program, *command[1:]]


class Halted:
    """A process that stands still (SIGSTOP) until `release`, or until we die."""

    def __init__(self, pid: int) -> None:
        # Nobody could end a process that stands still and whose test was killed.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", f"read _; kill -CONT {pid}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.kill(pid, signal.SIGSTOP)

    def release(self) -> None:
        """Let it go on."""
        self._guard.communicate()


class RealProcess:
    """One process with its output in files (a pipe that nobody reads would stop it).

    It is told to stop (SIGTERM) when the test process dies, however that is.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        working_dir: Path | None = None,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self._folder = Path(tempfile.mkdtemp(prefix="towpath-test-"))
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TOWPATH_") or name.startswith("TOWPATH_TEST_")
        }
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self.popen = subprocess.Popen(
                bound_to_us(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**inherited, **(environment or {}), MARK: self.mark},
                cwd=working_dir,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def _stdout(self) -> Path:
        return self._folder / "stdout"

    @property
    def _stderr(self) -> Path:
        return self._folder / "stderr"

    def output(self) -> str:
        """What it has printed so far."""
        return self._stdout.read_text()

    def errors(self) -> str:
        """What it has said on stderr so far."""
        return self._stderr.read_text()

    def running(self) -> bool:
        return self.popen.poll() is None

    def terminate(self) -> None:
        self.popen.terminate()

    def kill(self) -> None:
        """kill -9; reaped."""
        self.popen.kill()
        self.popen.wait(DEADLINE_SECONDS)

    def wait(self, timeout_seconds: float = DEADLINE_SECONDS) -> int:
        """Its exit status."""
        return self.popen.wait(timeout_seconds)

    def close(self) -> None:
        """Stop it if it still runs, wait until all that it started has gone, delete its output."""
        if self.running():
            self.terminate()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self.kill()
        eventually_sync(lambda: not marked_processes(self.mark))
        shutil.rmtree(self._folder)

    def family(self) -> set[Identity]:
        """The process and all below it, now."""
        root = psutil.Process(self.pid)
        return {identity(process) for process in [root, *root.children(recursive=True)]}


class DevProcess(RealProcess):
    """`towpath dev --json`, ready."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        super().__init__([*_TOWPATH, "dev", "--json", *arguments], environment=environment)
        try:
            self.ready: dict[str, Any] = eventually_sync(self._first_line)
        except BaseException:
            self.close()
            raise

    def pids(self) -> dict[str, int]:
        """Process ids of now, restarts included."""
        state = json.loads((Path(self.ready["data_dir"]) / "dev.json").read_bytes())
        return cast("dict[str, int]", state["pids"])

    def kill_child(self, name: str) -> int:
        """kill -9 of `nats`, `postgres` or `engine`; returns the old process id."""
        old = self.pids()[name]
        os.kill(old, signal.SIGKILL)
        return old

    def wait_restarted(self, name: str, old: int) -> int:
        """Wait until the child runs again; its new process id."""
        return eventually_sync(lambda: None if self.pids()[name] == old else self.pids()[name])

    def wipe_jetstream(self) -> None:
        """kill -9 of nats-server and deletion of its store; it comes back empty.

        The supervisor is stopped meanwhile, or it would start the server before the store is gone.
        """
        old = self.pids()["nats"]
        halted = Halted(self.pid)
        try:
            os.kill(old, signal.SIGKILL)
            eventually_sync(lambda: psutil.Process(old).status() == psutil.STATUS_ZOMBIE)
            shutil.rmtree(Path(self.ready["data_dir"]) / "nats" / "jetstream")
        finally:
            halted.release()
        self.wait_restarted("nats", old)

    def _first_line(self) -> dict[str, Any] | None:
        line, newline, _ = self.output().partition("\n")
        if newline:
            return cast("dict[str, Any]", json.loads(line))
        if not self.running():
            raise RuntimeError(f"towpath dev ended with {self.wait()}: {self.errors()}")
        return None


def towpath(
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    working_dir: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run a command that ends by itself; its status, output and errors."""
    inherited = {name: value for name, value in os.environ.items() if "TOWPATH" not in name}
    return subprocess.run(
        [*_TOWPATH, *arguments],
        env={**inherited, **(environment or {})},
        cwd=working_dir,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def identity(process: psutil.Process) -> Identity:
    return Identity(process.pid, process.create_time())


def alive(processes: set[Identity]) -> set[Identity]:
    """Those that are still in the process table, zombies included."""
    found: set[Identity] = set()
    for known in processes:
        try:
            if identity(psutil.Process(known.pid)) == known:
                found.add(known)
        except psutil.NoSuchProcess:
            continue
    return found


def marked_processes(mark: str) -> set[Identity]:
    """Processes that were started, directly or not, by the RealProcess with this mark.

    A program that overwrites its environment (Postgres' backends do) is not found: see `family`.
    """
    found: set[Identity] = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.add(identity(process))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found
