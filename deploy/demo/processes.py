"""The demo's child processes: restarted when they die, stopped without remains."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

RESTART_PAUSE_SECONDS: Final = 0.3
STOP_SECONDS: Final = 15.0


class ChildSpec(Struct, frozen=True, kw_only=True):
    """How to start one child. `log` takes what it prints."""

    name: str
    command: tuple[str, ...]
    log: Path
    env: dict[str, str]
    folder: Path


class ChildError(Exception):
    """A child that is not restarted ended, or one dies again and again."""


def clean_environment(additions: Mapping[str, str]) -> dict[str, str]:
    """Our environment without settings of another Towpath, plus `additions`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOWPATH_")}
    return {**kept, **additions}


class Children:
    """Owns every process that the demo starts.

    Each has a session of its own, so that Ctrl-C reaches the demo alone, which then stops them; and
    a pipe on standard input, whose end tells them that the demo is gone.
    """

    def __init__(self, on_start: Callable[[str, int], None]) -> None:
        self._on_start = on_start
        self.names_by_pid: dict[int, str] = {}
        self._processes: dict[str, Process] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self, spec: ChildSpec, *, stdout: int | None = None) -> Process:
        """Start a child and return it. Raises OSError when it can't be started."""
        with spec.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *spec.command,
                stdin=PIPE,
                stdout=log if stdout is None else stdout,
                stderr=log,
                env=spec.env,
                cwd=spec.folder,
                start_new_session=True,
            )
        self._processes[spec.name] = process
        self.names_by_pid[process.pid] = spec.name
        self._on_start(spec.name, process.pid)
        return process

    async def keep(self, spec: ChildSpec) -> None:
        """Start a child and start it again when it dies; an exit with status 0 is its end."""
        process = await self.start(spec)
        self._keepers.append(asyncio.create_task(self._keep(spec, process), name=spec.name))

    def failure(self) -> BaseException | None:
        """Why a kept child can't be kept, if so."""
        for keeper in self._keepers:
            if keeper.done() and not keeper.cancelled() and keeper.exception() is not None:
                return keeper.exception()
        return None

    async def stop(self, *, last: str) -> None:
        """Stop all, the one named `last` after the others. Returns when none is left."""
        self._stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        others = [one for name, one in self._processes.items() if name != last]
        await asyncio.gather(*(end(process) for process in others))
        if last in self._processes:
            await end(self._processes[last])

    async def _keep(self, spec: ChildSpec, process: Process) -> None:
        failed_starts = 0
        while await process.wait() != 0 and not self._stopping:
            began = time.monotonic()
            await asyncio.sleep(RESTART_PAUSE_SECONDS)
            process = await self.start(spec)
            await _briefly(process)
            failed_starts = failed_starts + 1 if time.monotonic() - began < 2 else 0
            if failed_starts >= 10:
                raise ChildError(f"{spec.name} dies as soon as it is started; see {spec.log}")


async def _briefly(process: Process) -> None:
    """Give a new process a moment to fail."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            await process.wait()


async def end(process: Process) -> None:
    """SIGTERM, and SIGKILL for one that does not listen. Returns when it is reaped."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def first_line(process: Process, seconds: float) -> bytes:
    """The first line that the child prints. Raises `ChildError` when it ends or takes too long."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            line = await process.stdout.readline()
    except TimeoutError as error:
        raise ChildError(f"nothing was ready within {seconds:g} s") from error
    if not line:
        raise ChildError(f"it ended with status {await process.wait()}")
    return line


def free_port() -> int:
    """A port that nobody uses now, below the range that outgoing connections take theirs from."""
    for _ in range(1_000):
        port = random.randrange(18_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ChildError("no free port was found")


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log, for a message about a failure."""
    if not log.exists():
        return ""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
