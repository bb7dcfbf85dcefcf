"""A password is shown to nobody: not to a server in the clear, not in a log, not in an error."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.bus import BusUnderTest, bus_settings
from tests.support.eventually import eventually_sync
from tests.support.jetstream import JetStreamServer, free_port, unique_prefix
from tests.support.processes import RealProcess
from towpath_engine.bus.errors import BusUnavailable
from towpath_worker import ConnectionOptions, NotConnectedError
from towpath_worker.transport import Connection

PASSWORD = "s3cr3t-w0rd"


class PlainServer:
    """Greets as a NATS server without TLS, as somebody in between would, and listens."""

    def __init__(self) -> None:
        self.heard = b""
        self.sessions = 0

    async def on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "x", "version": "2.15.1", "max_payload": 2**20, "auth_required": True}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        self.sessions += 1
        while data := await reader.read(4096):
            self.heard += data
        writer.close()


@asynccontextmanager
async def plain_server() -> AsyncGenerator[tuple[str, PlainServer]]:
    plain = PlainServer()
    server = await asyncio.start_server(plain.on_client, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", plain
    finally:
        server.close()


LOGINS: list[tuple[str, dict[str, Any]]] = [
    (f"tls://me:{PASSWORD}@", {}),
    (f"tls://{PASSWORD}@", {}),
    ("tls://", {"user": "me", "password": PASSWORD}),
    ("nats://", {"token": PASSWORD, "tls_hostname": "nats.example"}),
]


@pytest.mark.parametrize(("scheme", "fields"), LOGINS)
async def test_an_engine_shows_no_password_to_a_server_that_speaks_no_tls(
    scheme: str, fields: dict[str, Any]
) -> None:
    async with plain_server() as (address, plain):
        settings = bus_settings(
            f"{scheme}{address}", unique_prefix(), start_timeout_s=1.0, **fields
        )
        with pytest.raises(BusUnavailable, match="speaks no TLS"):
            await BusUnderTest(settings).bus.start()
        assert plain.sessions > 0
        assert plain.heard == b""


@pytest.mark.parametrize(("scheme", "fields"), LOGINS)
async def test_a_worker_shows_no_password_to_a_server_that_speaks_no_tls(
    scheme: str, fields: dict[str, Any]
) -> None:
    async with plain_server() as (address, plain):
        options = ConnectionOptions(nats_url=f"{scheme}{address}", **fields)
        connection = Connection(options, name="test")
        with pytest.raises(NotConnectedError, match="speaks no TLS"):
            await connection.open(timeout_seconds=1.0)
        await connection.close()
        assert plain.sessions > 0
        assert plain.heard == b""


def towpath(*arguments: str, **variables: str) -> RealProcess:
    """A process of the command line, with everything that it can say."""
    environment = {"TOWPATH_HTTP_PORT": "0", "TOWPATH_LOG_LEVEL": "debug", **variables}
    return RealProcess(
        [sys.executable, "-m", "towpath_engine", *arguments], environment=environment
    )


def ends_without_the_password(process: RealProcess, *, status: int, part: str) -> None:
    """It ends with this status and says this, and nowhere the password."""
    try:
        assert process.wait() == status
        said = process.output() + process.errors()
    finally:
        process.close()
    assert part in said
    assert PASSWORD not in said


async def test_an_engine_that_nats_refuses_logs_no_password(
    tmp_path: Path, postgres_url: str, schema: str
) -> None:
    config = 'authorization { user: me, password: "another" }'
    server = JetStreamServer(tmp_path / "nats", config=config).start()
    process = towpath(
        "serve",
        TOWPATH_NATS_URL=server.url.replace("//", f"//me:{PASSWORD}@"),
        TOWPATH_POSTGRES_URL=postgres_url,
        TOWPATH_POSTGRES_SCHEMA=schema,
    )
    try:
        await asyncio.to_thread(eventually_sync, lambda: "uthorization" in process.errors())
        process.terminate()
        await asyncio.to_thread(
            ends_without_the_password, process, status=0, part="bus_connection_failed"
        )
    finally:
        server.kill()


@pytest.mark.parametrize("command", ["serve", "migrate"])
async def test_a_refused_database_password_is_not_told(
    postgres_url: str, schema: str, command: str
) -> None:
    parts = urlsplit(postgres_url)
    host = parts.netloc.rpartition("@")[2]
    for url in (
        f"postgresql://{parts.username}:{PASSWORD}@{host}{parts.path}",
        f"postgresql://{parts.username}@{host}{parts.path}?password={PASSWORD}",
    ):
        process = towpath(command, TOWPATH_POSTGRES_URL=url, TOWPATH_POSTGRES_SCHEMA=schema)
        await asyncio.to_thread(
            ends_without_the_password, process, status=3, part="password authentication failed"
        )


@pytest.mark.parametrize(
    ("variables", "part"),
    [
        ({"TOWPATH_NATS_URL": f"nats://me:{PASSWORD}@a:4222"}, "nats://me:***@a:4222"),
        ({"TOWPATH_NATS_USER": "me", "TOWPATH_NATS_PASSWORD": PASSWORD}, "***"),
        ({"TOWPATH_NATS_TOKEN": PASSWORD}, "***"),
        ({"TOWPATH_POSTGRES_URL": f"postgresql://me:{PASSWORD}@a/b"}, "postgresql://me:***@a/b"),
    ],
)
def test_the_list_of_settings_masks_them(variables: dict[str, str], part: str) -> None:
    ends_without_the_password(towpath("settings", "--json", **variables), status=0, part=part)


def test_a_client_that_finds_no_server_tells_its_address_and_no_password() -> None:
    url = f"nats://me:{PASSWORD}@127.0.0.1:{free_port()}"
    process = towpath("list", TOWPATH_NATS_URL=url)
    ends_without_the_password(process, status=3, part="127.0.0.1")


def test_a_worker_that_finds_no_server_logs_its_address_and_no_password(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "lonely.py").write_text(
        "from towpath_worker import Worker\nworker = Worker('mail')\nworker.task('x')(lambda: 1)\n"
    )
    process = RealProcess(
        [sys.executable, "-m", "towpath_engine", "worker", "lonely:worker"],
        environment={"TOWPATH_NATS_URL": f"nats://me:{PASSWORD}@{address}"},
        working_dir=tmp_path,
    )
    try:
        eventually_sync(lambda: address in process.errors())
        process.terminate()
        process.wait()
        assert PASSWORD not in process.output() + process.errors()
    finally:
        process.close()
