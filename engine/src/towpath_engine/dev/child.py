"""A child process: started, watched, stopped; it never outlives us and never stays a zombie.

Not asyncio's subprocesses: those belong to one event loop, and the servers of a test session are
shared by tests that have a loop each.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from towpath_engine.dev.errors import DevError

_LAUNCHER = Path(__file__).with_name("launch.py")
_POLL_SECONDS = 0.02
_LOG_TAIL_BYTES = 2_000


class RunAs(Struct, frozen=True, kw_only=True):
    """The unprivileged user that a program runs as, when we are root."""

    name: str
    user_id: int
    group_id: int


class ChildSpec(Struct, frozen=True, kw_only=True):
    """How to start and stop a program.

    `stop_signals` are (signal, seconds to wait for its effect), tried in order; SIGKILL follows.
    `death_signal` is what the kernel sends when we die. Output goes to the end of `log_file`.
    """

    name: str
    command: Sequence[str]
    log_file: Path
    working_dir: Path
    environment: Mapping[str, str]
    death_signal: signal.Signals = signal.SIGKILL
    stop_signals: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 10.0),)
    run_as: RunAs | None = None


class Child:
    """One process of a ChildSpec. Make a new one to start it again."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        with spec.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(_LAUNCHER),
                    str(os.getpid()),
                    str(int(spec.death_signal)),
                    str(spec.run_as.user_id) if spec.run_as else "-",
                    str(spec.run_as.group_id) if spec.run_as else "-",
                    *spec.command,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=spec.working_dir,
                env=dict(spec.environment),
                # A group of its own: Ctrl-C in a terminal reaches us alone, and we stop the
                # children in the order in which they need each other.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The program's process id (the launcher has become the program)."""
        return self._process.pid

    def exit_status(self) -> int | None:
        """None while it runs, else its status (negative: the signal). Reaps it."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL, without waiting."""
        self._send(signal.SIGKILL)

    async def stop(self) -> int:
        """Stop it by its signals and wait until it has gone; returns its exit status."""
        for number, patience_seconds in self.spec.stop_signals:
            self._send(number)
            if await self.wait(patience_seconds) is not None:
                break
        else:
            self.kill()
        status = await self.wait(30.0)
        if status is None:
            raise DevError(f"{self.spec.name} (process {self.pid}) does not die of SIGKILL")
        return status

    async def wait(self, timeout_seconds: float) -> int | None:
        """Its exit status, or None if it still runs after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while (status := self.exit_status()) is None and time.monotonic() < deadline:  # noqa: ASYNC110 - a process sets no event
            await asyncio.sleep(_POLL_SECONDS)
        return status

    def log_tail(self) -> str:
        """The end of its log."""
        return tail_of(self.spec.log_file)

    def _send(self, number: signal.Signals) -> None:
        if self.exit_status() is None:
            self._process.send_signal(number)


def tail_of(log_file: Path) -> str:
    """The last lines of a file, at most 2,000 bytes; empty if there is none."""
    try:
        with log_file.open("rb") as file:
            file.seek(max(0, log_file.stat().st_size - _LOG_TAIL_BYTES))
            return file.read(_LOG_TAIL_BYTES).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


class Restartable:
    """A server that is started again and again: a new Child each time, the last one in `_child`.

    What is common to those that `towpath dev` keeps; each has a `start` of its own.
    """

    def __init__(self) -> None:
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the last start, None before the first."""
        return self._child.pid if self._child else None

    def exit_status(self) -> int | None:
        """None while it runs (or was never started), else its exit status."""
        return self._child.exit_status() if self._child else None

    async def stop(self) -> None:
        """Send the signals of its ChildSpec, and wait until it has gone."""
        if self._child:
            await self._child.stop()

    def kill(self) -> None:
        """SIGKILL, without waiting."""
        if self._child:
            self._child.kill()


def kept_environment(*unwanted_prefixes: str) -> dict[str, str]:
    """Our environment without the variables that begin so."""
    return {
        name: value
        for name, value in os.environ.items()
        if not unwanted_prefixes or not name.startswith(unwanted_prefixes)
    }
