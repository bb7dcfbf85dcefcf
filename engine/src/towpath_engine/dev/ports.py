"""Ports on the loopback interface."""

import socket

LOOPBACK = "127.0.0.1"


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
    """A port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def choose_port(*wanted: int | None) -> int:
    """The first of `wanted` that is free, else any free one."""
    for port in wanted:
        if port and is_free(port):
            return port
    return free_port()
