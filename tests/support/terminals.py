"""A command on a pseudo-terminal: what a person at a keyboard would see."""

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from fcntl import ioctl
from typing import NamedTuple

from tests.support.eventually import DEADLINE_SECONDS

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Screen(NamedTuple):
    """Exit status, and everything that came out, escapes included."""

    status: int
    raw: str

    @property
    def text(self) -> str:
        """Without colours."""
        return ESCAPE.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        """The lines, without colours."""
        return self.text.splitlines()

    @property
    def colours(self) -> bool:
        """Whether anything was coloured."""
        return ESCAPE.search(self.raw) is not None


def towpath_on_a_terminal(
    *arguments: str, environment: Mapping[str, str], columns: int = 80
) -> Screen:
    """Run a command that ends by itself on a terminal of that width."""
    return on_a_terminal(
        [sys.executable, "-m", "towpath_engine", *arguments],
        environment=environment,
        columns=columns,
    )


def on_a_terminal(
    command: Sequence[str], *, environment: Mapping[str, str], columns: int
) -> Screen:
    """Run any command on a terminal of that width."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if "TOWPATH" not in name and name not in ("NO_COLOR", "COLUMNS", "LINES")
    }
    master, slave = pty.openpty()
    try:
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            list(command),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**inherited, "TERM": "xterm", **environment},
            start_new_session=True,
        )
        os.close(slave)
        return Screen(*_read_all(process, master))
    finally:
        os.close(master)


def _read_all(process: "subprocess.Popen[bytes]", master: int) -> tuple[int, str]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    found = bytearray()
    while time.monotonic() < deadline:
        ready, _, _ = select.select([master], [], [], 0.1)
        if ready:
            try:
                piece = os.read(master, 65_536)
            except OSError:  # the other side has closed: all was read
                break
            if not piece:
                break
            found += piece
        elif process.poll() is not None:
            break
    else:
        process.kill()
    return process.wait(), found.decode(errors="replace").replace("\r\n", "\n")
