"""What tests of the command line share: commands that must succeed or fail, one at a time."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.processes import RealProcess, towpath

Environment = Mapping[str, str]
Json = Any


class Said(str):
    """What a command printed."""

    __slots__ = ()

    def json(self) -> Json:
        """As one JSON value."""
        return json.loads(self)

    def json_lines(self) -> list[Json]:
        """As one JSON value a line."""
        return [json.loads(line) for line in self.splitlines()]


def succeed(environment: Environment, arguments: Sequence[str], stdin: str = "") -> Said:
    """Run a command that must succeed and say nothing on stderr."""
    done = towpath(*arguments, environment=environment, stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Said(done.stdout)


def fail(environment: Environment, arguments: Sequence[str], stdin: str = "") -> tuple[int, str]:
    """Status and what is on stderr; nothing is printed on stdout, and no traceback."""
    done = towpath(*arguments, environment=environment, stdin=stdin)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.returncode, done.stderr


def background(
    environment: Environment, arguments: Sequence[str], folder: Path | None = None
) -> RealProcess:
    """A command that goes on, beside the test."""
    command = [sys.executable, "-m", "towpath_engine", *arguments]
    return RealProcess(command, environment=environment, working_dir=folder)
