"""Keeps one server running: starts it again when it died, with growing pauses."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from towpath_engine.dev.errors import DevError

_POLL_SECONDS = 0.1
_BACKOFF_SECONDS_MIN = 0.1
_BACKOFF_SECONDS_MAX = 5.0
# A server that ran this long had started well: the next pause is short again.
_STEADY_SECONDS = 10.0
_LOG_BYTES_MAX = 32 * 1024 * 1024


class KeptServer(Protocol):
    """What a keeper needs of a server."""

    log_file: Path

    @property
    def pid(self) -> int | None:
        """Process id of the last start."""
        ...

    def exit_status(self) -> int | None:
        """None while it runs."""
        ...

    async def start(self) -> None:
        """Start it on the same port and data. Raises DevError."""
        ...

    async def stop(self) -> None:
        """Stop it and wait until it has gone."""
        ...


class Keeper:
    """Watches `server` from its first successful start on. `notify(name, text)` tells people."""

    def __init__(
        self, name: str, server: KeptServer, *, notify: Callable[[str, str], None]
    ) -> None:
        self.name = name
        self.server = server
        self._notify = notify
        self._backoff = _BACKOFF_SECONDS_MIN
        self._started_at = time.monotonic()

    async def keep(self) -> None:
        """Run until cancelled."""
        while True:
            await self.run_once()
            await asyncio.sleep(_POLL_SECONDS)

    async def run_once(self) -> bool:
        """Start the server again if it died; whether it had to."""
        _bound_log(self.server.log_file)
        status = self.server.exit_status()
        if status is None:
            return False
        if time.monotonic() - self._started_at > _STEADY_SECONDS:
            self._backoff = _BACKOFF_SECONDS_MIN
        self._notify(self.name, f"ended ({_how(status)}); starting it again")
        await asyncio.sleep(self._backoff)
        self._backoff = min(self._backoff * 2, _BACKOFF_SECONDS_MAX)
        try:
            await self.server.start()
        except DevError as error:
            self._notify(self.name, str(error))
        else:
            self._notify(self.name, f"runs again as process {self.server.pid}")
        self._started_at = time.monotonic()
        return True


def _how(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"


def _bound_log(log_file: Path) -> None:
    """Empty a log that has grown too large. Its writer appends, so it goes on at the start."""
    try:
        if log_file.stat().st_size > _LOG_BYTES_MAX:
            os.truncate(log_file, 0)
    except FileNotFoundError:
        return
