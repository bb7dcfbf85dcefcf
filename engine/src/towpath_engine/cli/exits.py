"""Exit statuses of `towpath`. Scripts depend on them: numbers never change their meaning."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """How a command ended. With any but OK, stderr has one sentence that says why."""

    OK = 0
    BUG = 1
    """An error of Towpath itself; stderr has a traceback for the bug report, or the engine's log
    has it."""
    USAGE = 2
    """The arguments, a setting or an input file can't be used."""
    UNREACHABLE = 3
    """No NATS, Postgres or engine answered; of what was to change, it may have happened."""
    NOT_FOUND = 4
    """The run, workflow, key, queue or dead letter does not exist (404)."""
    REFUSED = 5
    """The engine or a server refused: validation, conflict, size, overload, or a wrong schema; of
    several starts or replays, at least one."""
    RUN_FAILED = 6
    """`result`, `watch` or `start --wait`: the run settled otherwise than completed."""
    TIMED_OUT = 7
    """`result` or `start --wait`: the run has not settled yet."""
    DIFFERENT = 8
    """`replay`: the history does not come out the same; standard output has what differs."""
    DENIED = 9
    """NATS does not let us in as who we are, or in, but not do this."""
    INTERRUPTED = 130
    """Ctrl-C."""


EXIT_BY_STATUS: Final[Mapping[int, Exit]] = {404: Exit.NOT_FOUND, 500: Exit.UNREACHABLE}
"""HTTP-like status of an error answer → exit status; any other is REFUSED."""
EXIT_BY_CODE: Final[Mapping[str, Exit]] = {"internal": Exit.BUG}
"""Code of an error answer → exit status, where its status says too little."""

EPILOG: Final = (
    "Exit status: 0 done, 1 bug, 2 wrong arguments, settings or file, 3 no answer, 4 not found, "
    "5 refused, 6 the run failed, 7 the run has not settled, 8 the replay differs, "
    "9 denied by NATS, 130 interrupted."
)
