"""Exit statuses of `towpath`. Scripts depend on them: numbers never change their meaning."""

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended. With any but OK, stderr has one sentence that says why."""

    OK = 0
    BUG = 1
    """An error of Towpath itself; stderr has a traceback for the bug report."""
    USAGE = 2
    """The arguments, a setting or an input file can't be used."""
    UNREACHABLE = 3
    """No NATS, Postgres or engine answered."""
    NOT_FOUND = 4
    """The run, workflow or key does not exist (404)."""
    REFUSED = 5
    """The engine or a server refused: validation, conflict, size, overload, or a wrong schema."""
    RUN_FAILED = 6
    """`result` or `start --wait`: the run settled otherwise than completed."""
    TIMED_OUT = 7
    """`result` or `start --wait`: the run has not settled yet."""
    INTERRUPTED = 130
    """Ctrl-C."""
