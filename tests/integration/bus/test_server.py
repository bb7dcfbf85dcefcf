"""A server that is not fit is refused in one sentence; one that is away is waited for."""

import asyncio
import socket
import struct
from pathlib import Path

import pytest

from tests.support.bus import BusUnderTest, bus_settings, running_bus
from tests.support.eventually import until
from tests.support.jetstream import JetStreamServer, unique_prefix
from tests.support.old_nats import old_server_binary
from towpath_engine.bus.errors import BusRefused, BusUnavailable

USERS = """
authorization {{ users: [ {{ user: engine, password: {password} }} ] }}
"""


async def refusal(server: JetStreamServer) -> str:
    """What `start` says about a server."""
    under_test = BusUnderTest(bus_settings(server.url, unique_prefix()))
    with pytest.raises(BusRefused) as caught:
        await under_test.bus.start()
    assert not under_test.bus.connected
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("version", ["2.10.26", "2.11.9"])
async def test_a_server_older_than_2_12_3_is_refused(tmp_path: Path, version: str) -> None:
    binary = old_server_binary(version)
    server = JetStreamServer(tmp_path / "nats", binary=binary).start()
    try:
        sentence = await refusal(server)
        assert f"is version {version}, but Towpath needs at least 2.12.3" in sentence
    finally:
        server.kill()


async def test_the_oldest_server_that_is_taken_does_the_work(tmp_path: Path) -> None:
    binary = old_server_binary("2.12.3")
    server = JetStreamServer(tmp_path / "nats", binary=binary).start()
    try:
        async with running_bus(server.url, unique_prefix()) as under_test:
            await under_test.bus.ensure_queues(["mail"])
            messages = [under_test.signal(b"%d" % n) for n in range(100)]
            assert all(c.ok for c in await under_test.publish(*messages))
            await until(lambda: len(under_test.messages) == 100, "all are delivered")
    finally:
        server.kill()


async def test_a_server_without_jetstream_is_refused(tmp_path: Path) -> None:
    server = JetStreamServer(tmp_path / "nats", jetstream=False).start()
    try:
        assert "has no JetStream" in await refusal(server)
    finally:
        server.kill()


async def test_an_account_without_jetstream_is_refused(tmp_path: Path) -> None:
    config = """
    accounts { A { users: [ { user: a, password: a } ] }
               B { jetstream: enabled, users: [ { user: b, password: b } ] } }
    no_auth_user: a
    """
    server = JetStreamServer(tmp_path / "nats", config=config).start()
    try:
        assert "has no JetStream" in await refusal(server)
    finally:
        server.kill()


async def test_a_server_that_takes_too_small_messages_is_refused(tmp_path: Path) -> None:
    server = JetStreamServer(tmp_path / "nats", config="max_payload: 100KB").start()
    try:
        sentence = await refusal(server)
        assert "at most 102400 bytes, but Towpath needs 802816: raise max_payload" in sentence
    finally:
        server.kill()


async def test_a_missing_credentials_file_is_refused(jetstream_url: str, prefix: str) -> None:
    settings = bus_settings(jetstream_url, prefix, credentials_file="/nowhere/engine.creds")
    with pytest.raises(BusRefused, match=r"/nowhere/engine\.creds does not exist"):
        await BusUnderTest(settings).bus.start()


async def test_start_waits_for_a_server_that_is_not_there_yet(tmp_path: Path) -> None:
    server = JetStreamServer(tmp_path / "nats")
    under_test = BusUnderTest(bus_settings(server.url, unique_prefix(), start_timeout_s=60.0))
    starting = asyncio.create_task(under_test.bus.start())
    try:
        await asyncio.to_thread(server.start)
        await starting
        assert under_test.bus.connected
    finally:
        await under_test.bus.close()
        server.kill()


async def test_start_gives_up_after_its_timeout_and_may_be_called_again(tmp_path: Path) -> None:
    server = JetStreamServer(tmp_path / "nats")
    under_test = BusUnderTest(bus_settings(server.url, unique_prefix(), start_timeout_s=0.3))
    with pytest.raises(BusUnavailable, match=f"no NATS at 127.0.0.1:{server.port}"):
        await under_test.bus.start()
    server.start()
    try:
        for _ in range(100):
            try:
                await under_test.bus.start()
            except BusUnavailable:
                continue  # a slow machine
            break
        assert under_test.bus.connected
        await under_test.bus.close()
    finally:
        server.kill()


async def test_wrong_credentials_are_named_without_being_shown(tmp_path: Path) -> None:
    config = USERS.format(password="right")
    server = JetStreamServer(tmp_path / "nats", config=config).start()
    url = server.url.replace("//", "//engine:s3cr3t@")
    under_test = BusUnderTest(bus_settings(url, unique_prefix(), start_timeout_s=1.0))
    try:
        with pytest.raises(BusUnavailable, match="Authorization Violation") as caught:
            await under_test.bus.start()
        assert "s3cr3t" not in str(caught.value)
        assert "engine" not in str(caught.value)
    finally:
        server.kill()


async def test_the_reason_of_a_refusal_outlives_connections_that_are_reset_unread() -> None:
    connections = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            writer.write(b'INFO {"server_id":"a","version":"2.15.0","max_payload":1048576}\r\n')
            await reader.readline()
            writer.write(b"-ERR 'Authorization Violation'\r\n")
            await writer.drain()
        else:  # with nothing to linger for, closing is a reset
            peer = writer.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = bus_settings(
            f"nats://127.0.0.1:{port}",
            unique_prefix(),
            start_timeout_s=2.0,
            reconnect_backoff_min_s=0.01,
        )
        with pytest.raises(BusUnavailable, match="Authorization Violation"):
            await BusUnderTest(settings).bus.start()
    assert connections > 1


async def test_a_rotated_password_ends_the_client_and_the_bus_comes_back(tmp_path: Path) -> None:
    config = USERS.format(password="one")
    server = JetStreamServer(tmp_path / "nats", config=config).start()
    try:
        async with running_bus(
            server.url, unique_prefix(), user="engine", password="one"
        ) as under_test:
            server.reconfigure(USERS.format(password="two"))
            await until(lambda: not under_test.bus.connected, "the server throws us out")
            resets = under_test.resets
            server.reconfigure(config)
            await until(lambda: under_test.resets > resets, "we are back")
            (confirmation,) = await under_test.publish(under_test.signal(b"1"))
            assert confirmation.ok
    finally:
        server.kill()


TLS = Path(__file__).parents[2] / "support" / "tls"


def tls_server(folder: Path, *, handshake_first: bool) -> JetStreamServer:
    # The key guards nothing but this test; its authority's key was thrown away.
    first = ", handshake_first: true" if handshake_first else ""
    config = f'tls {{ cert_file: "{TLS}/server.pem", key_file: "{TLS}/server-key.pem"{first} }}'
    return JetStreamServer(folder, config=config, greets=not handshake_first).start()


@pytest.mark.parametrize("handshake_first", [False, True])
async def test_the_bus_speaks_tls_with_an_authority_of_its_own(
    tmp_path: Path, handshake_first: bool
) -> None:
    server = tls_server(tmp_path / "nats", handshake_first=handshake_first)
    try:
        async with running_bus(
            server.url.replace("nats:", "tls:"),
            unique_prefix(),
            tls_ca_file=str(TLS / "ca.pem"),
            tls_handshake_first=handshake_first,
        ) as under_test:
            await under_test.publish(under_test.signal(b"1"))
            await until(lambda: len(under_test.messages) == 1, "it is delivered")
            resets = under_test.resets
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await until(lambda: under_test.resets > resets, "connected again")
    finally:
        server.kill()


async def test_a_server_of_an_unknown_authority_is_not_trusted(tmp_path: Path) -> None:
    server = tls_server(tmp_path / "nats", handshake_first=False)
    settings = bus_settings(
        server.url.replace("nats:", "tls:"), unique_prefix(), start_timeout_s=10.0
    )
    try:
        with pytest.raises(BusUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await BusUnderTest(settings).bus.start()
    finally:
        server.kill()


async def test_unreadable_tls_files_are_refused(jetstream_url: str, prefix: str) -> None:
    settings = bus_settings(jetstream_url, prefix, tls_ca_file="/nowhere/ca.pem")
    with pytest.raises(BusRefused, match="The TLS files for NATS can't be used"):
        await BusUnderTest(settings).bus.start()
