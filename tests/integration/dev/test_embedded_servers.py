# pyright: reportUnknownMemberType=false
# nats-py leaves its **options untyped.
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import nats
import psutil
import pytest
from nats.js.api import StreamConfig

from tests.support.eventually import eventually, eventually_sync
from tests.support.processes import RealProcess, alive, identity
from towpath_engine.dev.child import RunAs
from towpath_engine.dev.embedded_nats import EmbeddedNats
from towpath_engine.dev.embedded_postgres import EmbeddedPostgres
from towpath_engine.dev.errors import DevError
from towpath_engine.dev.ports import free_port, is_free
from towpath_engine.dev.unprivileged import reachable_data_dir, unprivileged_user


@pytest.fixture
async def postgres(open_dir: Path) -> AsyncIterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(open_dir / "postgres", free_port(), options={"fsync": "off"})
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def nats_server(open_dir: Path) -> AsyncIterator[EmbeddedNats]:
    server = EmbeddedNats(open_dir / "nats", free_port())
    await server.start()
    yield server
    await server.stop()


async def ask(server: EmbeddedPostgres, statement: str) -> object:
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_postgres_speaks_utf8_and_compares_bytes(postgres: EmbeddedPostgres) -> None:
    assert await ask(postgres, "SHOW server_encoding") == "UTF8"
    assert await ask(postgres, "SELECT 'a' > 'B'") is True
    assert await ask(postgres, "SHOW timezone") == "UTC"


async def test_postgres_listens_on_the_loopback_interface_alone(postgres: EmbeddedPostgres) -> None:
    assert await ask(postgres, "SHOW listen_addresses") == "127.0.0.1"
    assert await ask(postgres, "SHOW unix_socket_directories") == ""


async def test_postgres_wants_its_password(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(f"postgresql://towpath:guess@127.0.0.1:{postgres.port}/postgres")


async def test_postgres_never_runs_as_root(postgres: EmbeddedPostgres) -> None:
    assert postgres.pid is not None
    assert psutil.Process(postgres.pid).uids().effective != 0


async def test_postgres_killed_and_started_again_has_its_data_and_port(
    postgres: EmbeddedPostgres,
) -> None:
    url = postgres.url
    await ask(postgres, "CREATE TABLE kept AS SELECT 42 AS answer")
    postgres.kill()
    await eventually(lambda: _exited(postgres))

    async def started() -> bool:
        # The orphaned backends may hold the shared memory for a moment.
        try:
            await postgres.start()
        except DevError:
            return False
        return True

    assert await eventually(started)
    assert postgres.url == url
    assert await ask(postgres, "SELECT answer FROM kept") == 42


async def test_a_half_made_cluster_is_made_again(open_dir: Path) -> None:
    server = EmbeddedPostgres(open_dir / "postgres", free_port(), options={"fsync": "off"})
    (server.data_dir / "cluster.new").mkdir()
    (server.data_dir / "cluster.new" / "PG_VERSION").write_text("broken")
    await server.start()
    try:
        assert await ask(server, "SELECT 1") == 1
    finally:
        await server.stop()


async def test_what_postgres_says_is_in_the_error(open_dir: Path) -> None:
    server = EmbeddedPostgres(open_dir / "postgres", free_port(), options={"nonsense": "1"})
    with pytest.raises(DevError) as failed:
        await server.start()
    assert "nonsense" in failed.value.log_tail


async def test_no_mode_of_a_parent_folder_changes(open_dir: Path) -> None:
    before = [(folder, folder.stat().st_mode) for folder in open_dir.parents]
    server = EmbeddedPostgres(open_dir / "postgres", free_port(), options={"fsync": "off"})
    await server.start()
    await server.stop()
    assert [(folder, folder.stat().st_mode) for folder in open_dir.parents] == before
    assert server.data_dir.stat().st_mode & 0o077 == 0


def test_a_folder_that_the_user_cannot_enter_is_replaced_by_one_of_ours(tmp_path: Path) -> None:
    run_as = unprivileged_user()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    chosen = reachable_data_dir(closed / "postgres", run_as)
    again = reachable_data_dir(closed / "postgres", run_as)
    try:
        assert chosen == again, "it must be found again"
        assert (chosen == closed / "postgres") == (run_as is None)
        assert closed.stat().st_mode & 0o777 == 0o700
        _can_write(chosen, run_as)
    finally:
        chosen.rmdir()


def _can_write(folder: Path, run_as: RunAs | None) -> None:
    owner = os.geteuid() if run_as is None else run_as.user_id
    assert folder.stat().st_uid == owner


async def test_nats_has_jetstream_and_syncs_every_second(nats_server: EmbeddedNats) -> None:
    client = await nats.connect(nats_server.url)
    try:
        info = await client.jetstream().account_info()
        assert info.limits.max_storage in {-1, 16 * 1024**3}
    finally:
        await client.close()
    assert 'sync_interval: "1s"' in (nats_server.data_dir / "nats-server.conf").read_text()


async def test_nats_killed_and_started_again_has_its_data_and_port(
    nats_server: EmbeddedNats,
) -> None:
    await _publish(nats_server, "kept.1")
    nats_server.kill()
    await eventually(lambda: _exited(nats_server))
    await nats_server.start()
    assert await _publish(nats_server, "kept.2") == 2


async def test_two_servers_do_not_get_the_same_port(open_dir: Path) -> None:
    port = free_port()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        server = EmbeddedNats(open_dir / "nats", port)
        with pytest.raises(DevError) as failed:
            await server.start()
        assert str(port) in str(failed.value)
    assert server.exit_status() is not None


async def test_a_stopped_server_leaves_no_process_and_no_port(open_dir: Path) -> None:
    server = EmbeddedPostgres(open_dir / "postgres", free_port(), options={"fsync": "off"})
    await server.start()
    assert server.pid is not None
    root = psutil.Process(server.pid)
    family = {identity(process) for process in [root, *root.children(recursive=True)]}
    assert len(family) > 3
    await server.stop()
    eventually_sync(lambda: not alive(family))
    assert is_free(server.port)


_OWNER = """
import asyncio, pathlib, sys
from towpath_engine.dev.child import RunAs
from towpath_engine.dev.embedded_nats import EmbeddedNats
from towpath_engine.dev.embedded_postgres import EmbeddedPostgres
from towpath_engine.dev.ports import free_port

async def main():
    folder = pathlib.Path(sys.argv[1])
    postgres = EmbeddedPostgres(folder / "postgres", free_port())
    nats = EmbeddedNats(folder / "nats", free_port())
    await asyncio.gather(postgres.start(), nats.start())
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_servers_die_with_an_owner_that_is_killed(open_dir: Path) -> None:
    owner = RealProcess([sys.executable, "-c", _OWNER, str(open_dir)])
    try:
        eventually_sync(lambda: "started" in owner.output())
        family = owner.family()
        assert len(family) > 5
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        eventually_sync(lambda: not alive(family))
        assert not alive(family)
    finally:
        owner.close()


async def _publish(server: EmbeddedNats, subject: str) -> int:
    client = await nats.connect(server.url)
    try:
        stream = client.jetstream()
        await stream.add_stream(StreamConfig(name="KEPT", subjects=["kept.*"]))
        return (await stream.publish(subject, b"x")).seq
    finally:
        await client.close()


async def _exited(server: EmbeddedNats | EmbeddedPostgres) -> bool:
    return server.exit_status() is not None
