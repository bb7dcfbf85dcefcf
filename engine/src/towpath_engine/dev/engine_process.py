"""`towpath serve` as our child."""

import asyncio
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from towpath_engine.dev.child import Child, ChildSpec, Restartable, kept_environment
from towpath_engine.dev.errors import DevError
from towpath_engine.dev.ports import LOOPBACK

_READY_SECONDS = 120.0
_POLL_SECONDS = 0.05
_ANSWER_BYTES_MAX = 64 * 1024


class EngineProcess(Restartable):
    """One engine with its pages on 127.0.0.1:`port`.

    `settings` are TOWPATH_* variables that win over ours; `drain_seconds` is how long it may take
    to stop.
    """

    def __init__(
        self,
        log_file: Path,
        port: int,
        *,
        settings: Mapping[str, str],
        drain_seconds: float,
    ) -> None:
        super().__init__()
        self.port = port
        self.log_file = log_file
        self._settings = settings
        self._drain_seconds = drain_seconds

    @property
    def url(self) -> str:
        """http://127.0.0.1:PORT"""
        return f"http://{LOOPBACK}:{self.port}"

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises DevError with the end of its log."""
        child = self._child = Child(
            ChildSpec(
                name="engine",
                command=[sys.executable, "-m", "towpath_engine", "serve"],
                log_file=self.log_file,
                working_dir=Path.cwd(),
                environment={
                    **kept_environment(),
                    **self._settings,
                    "TOWPATH_HTTP_HOST": LOOPBACK,
                    "TOWPATH_HTTP_PORT": str(self.port),
                },
                stop_signals=((signal.SIGTERM, self._drain_seconds + 10.0),),
            )
        )
        deadline = time.monotonic() + _READY_SECONDS
        while not await _is_ready(self.port, child.pid):
            if child.exit_status() is not None:
                raise DevError("the engine ended before it was ready", child.log_tail())
            if time.monotonic() > deadline:
                await child.stop()
                raise DevError("the engine runs but does not become ready", child.log_tail())
            await asyncio.sleep(_POLL_SECONDS)


async def _is_ready(http_port: int, process_id: int) -> bool:
    """Whether the engine behind this port is that process and answers 200 to /readyz."""
    try:
        async with asyncio.timeout(5.0):
            reader, writer = await asyncio.open_connection(LOOPBACK, http_port)
            try:
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: towpath\r\n\r\n")
                answer = await reader.read(_ANSWER_BYTES_MAX)
            finally:
                writer.close()
                await writer.wait_closed()
        body = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=_Readiness)
    except (OSError, TimeoutError, msgspec.DecodeError):
        return False
    return body.ready and body.pid == process_id


class _Readiness(Struct, frozen=True):
    ready: bool
    pid: int
