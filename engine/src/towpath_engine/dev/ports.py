"""Ports on the loopback interface."""

import random
import socket

from towpath_engine.dev.errors import DevError

LOOPBACK = "127.0.0.1"

_RANGE = (18_000, 32_000)
_TRIES_MAX = 1_000


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        # As servers do; else a port whose last connections linger in TIME_WAIT seems taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A port that nobody uses at the moment, outside the range of outgoing connections.

    One of those could take the port while its server is being started again.
    """
    for _ in range(_TRIES_MAX):
        port = random.randrange(*_RANGE)  # noqa: S311 - it only has to differ from the others'
        if is_free(port):
            return port
    raise DevError("no free port was found")


def choose_port(*wanted: int | None) -> int:
    """The first of `wanted` that is free, else any free one."""
    for port in wanted:
        if port and is_free(port):
            return port
    return free_port()
