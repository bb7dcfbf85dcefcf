"""Development: a worker in a process of its own, started again when its files change.

The files are looked at, not subscribed to: no dependency, the same on every system, and it sees
the writes of every editor. The worker holds the end of a pipe whose other end only this process
has, so that it drains and ends, too, when this process was killed and can't tell it to.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

POLL_SECONDS: Final = 0.5
DRAIN_SECONDS: Final = 10.0
"""How long running attempts may go on after a change; then they are given back."""
FILES_MAX: Final = 10_000
SUPERVISOR_FLAG: Final = "--supervisor-pipe"
SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})

Seen = Mapping[Path, tuple[int, int]]
"""File → modification time in nanoseconds, size in bytes."""


def look(folders: Sequence[Path]) -> Seen:
    """The Python files below these folders, but hidden, cached and installed ones; at most
    10,000."""
    seen: dict[Path, tuple[int, int]] = {}
    for folder in folders:
        for place, names, files in os.walk(folder):
            names[:] = sorted(
                name for name in names if name not in SKIPPED and not name.startswith(".")
            )
            for name in files:
                if len(seen) >= FILES_MAX:
                    return seen
                if name.endswith(".py"):
                    _note(Path(place) / name, seen)
    return seen


def changed(before: Seen, after: Seen) -> list[Path]:
    """What was written, added or removed, in order."""
    return sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )


class Reloader:
    """Runs `python -m towpath_worker` with these arguments, again after every change."""

    def __init__(self, arguments: Sequence[str], *, folders: Sequence[Path]) -> None:
        self._theirs, self._ours = os.pipe()
        flag = (SUPERVISOR_FLAG, str(self._theirs))
        self._command = [sys.executable, "-m", "towpath_worker", *arguments, *flag]
        self._folders = folders
        self._stop = threading.Event()

    def run(self) -> int:
        """Until SIGTERM or SIGINT; the exit status is that of the last process."""
        before = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            return self._run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._theirs)
            os.close(self._ours)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop.set()

    def _run(self) -> int:
        seen = look(self._folders)
        process = self._start()
        while not self._stop.wait(POLL_SECONDS):
            now = look(self._folders)
            files = changed(seen, now)
            if not files:
                continue
            seen = now
            _say(f"{_shown(files)} changed; starting again")
            self._end(process)
            if not self._stop.is_set():
                process = self._start()
        return self._end(process)

    def _start(self) -> "subprocess.Popen[bytes]":
        # A group of its own: Ctrl-C is ours to pass on, once.
        return subprocess.Popen(self._command, process_group=0, pass_fds=[self._theirs])

    def _end(self, process: "subprocess.Popen[bytes]") -> int:
        """Drain it; then do not wait; then kill it."""
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                process.send_signal(number)
                try:
                    process.wait(DRAIN_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        # A signal of ours ended it, and that is what was wanted.
        return max(0, process.wait())


def end_with_supervisor(descriptor: int) -> None:
    """In the worker: drain and end when nobody holds the other end of this pipe any more."""
    os.set_inheritable(descriptor, False)  # noqa: FBT003 -- it takes no keyword
    threading.Thread(target=_follow, args=(descriptor,), daemon=True).start()


def _follow(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass  # nothing is ever written
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(DRAIN_SECONDS)
    os._exit(1)


def _note(path: Path, seen: dict[Path, tuple[int, int]]) -> None:
    try:
        status = path.stat()
    except OSError:
        return  # removed in the meantime
    seen[path] = (status.st_mtime_ns, status.st_size)


def _shown(files: Sequence[Path]) -> str:
    first = os.path.relpath(files[0])
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def _say(text: str) -> None:
    sys.stderr.write(f"towpath worker: {text}\n")
    sys.stderr.flush()
