"""Purges dispatches nobody needs any more from the stream: best effort, in the background."""

import asyncio

import structlog

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.services.shell import Shell
from towpath_protocol import subjects

log = structlog.get_logger(__name__)

_WAITING_MAX = 10_000
"""What does not fit is left to its Nats-TTL or to a worker, who finds the token stale."""


class Purger:
    """`purge(subject)` never blocks; `run_once` works off what has gathered, a few at a time."""

    def __init__(self, shell: Shell, *, parallel: int = 8) -> None:
        self._bus = shell.bus
        self._stream = subjects.dispatch_stream(shell.prefix)
        self._parallel = parallel
        self._waiting: list[str] = []

    def purge(self, subject: str) -> None:
        """Have the message of this exact subject removed some time soon."""
        if len(self._waiting) < _WAITING_MAX:
            self._waiting.append(subject)

    async def run_once(self) -> int:
        """Purge what has gathered; returns how many subjects were asked for."""
        done = 0
        while self._waiting:
            part = self._waiting[-self._parallel :]
            del self._waiting[-self._parallel :]
            try:
                await asyncio.gather(*(self._bus.purge_subject(self._stream, s) for s in part))
            except BusUnavailable:
                return done
            done += len(part)
        return done
