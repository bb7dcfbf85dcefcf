"""How a connection makes itself known to a real server, and which servers it does not trust."""

import ssl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from tests.support.eventually import eventually, until
from tests.support.jetstream import JetStreamServer
from tests.support.nats_identities import Identity, Operator
from towpath_worker import ConnectionOptions, ConnectionOptionsError, NotConnectedError
from towpath_worker.transport import Connection

TLS = Path(__file__).parents[2] / "support" / "tls"
TLS_CONFIG = f'tls {{ cert_file: "{TLS}/server.pem", key_file: "{TLS}/server-key.pem" }}'


@contextmanager
def server_with(folder: Path, config: str, *, greets: bool = True) -> Generator[JetStreamServer]:
    server = JetStreamServer(folder, jetstream=False, config=config, greets=greets).start()
    try:
        yield server
    finally:
        server.kill()


async def answers(options: ConnectionOptions) -> bool:
    """True when a message goes through the server and comes back to an inbox."""
    connection = Connection(options, name="test")
    await connection.open(timeout_seconds=20)
    try:
        bodies: list[bytes] = []
        inbox = connection.new_inbox()
        await connection.subscribe(inbox, lambda received: bodies.append(received.body))
        await connection.publish(inbox, b"here")
        await until(lambda: bool(bodies), "the message is back")
        return bodies == [b"here"]
    finally:
        await connection.close()


async def refused(options: ConnectionOptions, words: str) -> str:
    """Why the connection does not open: `words` are in it, sooner or later."""
    connection = Connection(options, name="test")

    async def said() -> str:
        with pytest.raises(NotConnectedError) as caught:
            await connection.open(timeout_seconds=0.5)
        assert words in str(caught.value)
        return str(caught.value)

    try:
        return await eventually(said)
    finally:
        await connection.close()


async def test_a_credentials_file_opens_a_server_in_operator_mode(tmp_path: Path) -> None:
    operator = Operator()
    file = operator.write_credentials(tmp_path / "u.creds")
    with server_with(tmp_path / "nats", operator.config) as server:
        assert await answers(ConnectionOptions(nats_url=server.url, credentials_file=str(file)))
        await refused(ConnectionOptions(nats_url=server.url), "uthorization")


async def test_rotated_credentials_are_taken_up_when_the_old_ones_run_out(tmp_path: Path) -> None:
    operator = Operator()
    file = operator.write_credentials(tmp_path / "u.creds", valid_seconds=2)
    with server_with(tmp_path / "nats", operator.config) as server:
        options = ConnectionOptions(nats_url=server.url, credentials_file=str(file))
        connection = Connection(options, name="test")
        resets: list[None] = []
        await connection.open(timeout_seconds=20)
        try:
            connection.on_reset(lambda: resets.append(None))
            operator.write_credentials(file)
            await until(lambda: bool(resets), "the new credentials are used")
            assert connection.connected
        finally:
            await connection.close()


async def test_an_nkey_seed_file_opens_a_server_that_knows_its_key(tmp_path: Path) -> None:
    user = Identity("user")
    seed = tmp_path / "seed.nk"
    seed.write_text(f"{user.seed}\n")
    config = f"authorization {{ users: [ {{ nkey: {user.public} }} ] }}"
    with server_with(tmp_path / "nats", config) as server:
        assert await answers(ConnectionOptions(nats_url=server.url, nkey_seed_file=str(seed)))
        seed.write_text(Identity("user").seed)
        wrong = ConnectionOptions(nats_url=server.url, nkey_seed_file=str(seed))
        await refused(wrong, "uthorization")


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        ('authorization { user: "u", password: "p" }', {"user": "u", "password": "p"}),
        ('authorization { token: "t" }', {"token": "t"}),
    ],
)
async def test_user_and_password_or_a_token_open_a_server(
    tmp_path: Path, config: str, fields: dict[str, Any]
) -> None:
    with server_with(tmp_path / "nats", config) as server:
        assert await answers(ConnectionOptions(nats_url=server.url, **fields))


async def test_an_inbox_prefix_of_its_own_is_all_that_a_client_listens_on(tmp_path: Path) -> None:
    permissions = '{ publish: ">", subscribe: { allow: ["_INBOX_mine.>"] } }'
    config = f'authorization {{ user: "u", password: "p", permissions: {permissions} }}'
    with server_with(tmp_path / "nats", config) as server:
        assert await answers(
            ConnectionOptions(
                nats_url=server.url, user="u", password="p", inbox_prefix="_INBOX_mine"
            )
        )


@pytest.mark.parametrize("first", [False, True])
async def test_tls_with_an_authority_of_its_own(tmp_path: Path, first: bool) -> None:
    config = TLS_CONFIG if not first else TLS_CONFIG.replace(" }", ", handshake_first: true }")
    with server_with(tmp_path / "nats", config, greets=not first) as server:
        url = server.url.replace("nats:", "tls:")
        options = ConnectionOptions(
            nats_url=url, tls_ca_file=str(TLS / "ca.pem"), tls_handshake_first=first
        )
        assert await answers(options)
        if not first:
            await refused(ConnectionOptions(nats_url=url), "CERTIFICATE_VERIFY_FAILED")


async def test_the_certificate_must_bear_the_hostname_asked_for(tmp_path: Path) -> None:
    with server_with(tmp_path / "nats", TLS_CONFIG) as server:
        given: dict[str, Any] = {"nats_url": server.url, "tls_ca_file": str(TLS / "ca.pem")}
        assert await answers(ConnectionOptions(**given, tls_hostname="localhost"))
        await refused(ConnectionOptions(**given, tls_hostname="nats.other"), "CERTIFICATE")


async def test_a_client_certificate_opens_a_server_that_demands_one(tmp_path: Path) -> None:
    # The key guards nothing but this test.
    cert, key = TLS / "client.pem", TLS / "client-key.pem"
    config = TLS_CONFIG.replace(" }", f', ca_file: "{cert}", verify: true }}')
    with server_with(tmp_path / "nats", config) as server:
        given: dict[str, Any] = {"nats_url": server.url, "tls_ca_file": str(TLS / "ca.pem")}
        assert await answers(
            ConnectionOptions(**given, tls_cert_file=str(cert), tls_key_file=str(key))
        )
        await refused(ConnectionOptions(**given), "takes us")


def test_the_certificates_of_the_tests_hold_whatever_the_clock_says() -> None:
    for name in ("ca", "client"):  # `server` shows itself only to a client that trusts it
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(TLS / f"{name}.pem")
        (shown,) = context.get_ca_certs()
        assert "2020" in str(shown["notBefore"])
        assert "2120" in str(shown["notAfter"])


async def test_where_tls_is_demanded_a_server_without_it_is_not_spoken_to(tmp_path: Path) -> None:
    with server_with(tmp_path / "nats", "") as server:
        options = ConnectionOptions(nats_url=server.url.replace("nats:", "tls:"))
        await refused(options, "speaks no TLS")


async def test_files_that_cannot_be_used_are_named_at_once(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    noise = tmp_path / "noise"
    noise.write_text("no such thing")
    for fields, match in (
        ({"credentials_file": str(nothing)}, "credentials_file .*can't be read"),
        ({"credentials_file": str(noise)}, "no NATS credentials file: it lacks its JWT"),
        ({"nkey_seed_file": str(noise)}, "nkey_seed_file holds no nkey seed"),
        ({"tls_ca_file": str(nothing)}, "TLS files .*nothing can't be used"),
        ({"tls_ca_file": str(noise)}, "TLS files .*noise can't be used"),
    ):
        options = convert({"nats_url": "nats://127.0.0.1:1", **fields}, ConnectionOptions)
        connection = Connection(options, name="test")
        with pytest.raises(ConnectionOptionsError, match=match):
            await connection.open(timeout_seconds=60)
        await connection.close()


async def test_messages_hold_neither_user_nor_password() -> None:
    options = ConnectionOptions(nats_url="nats://me:secret@127.0.0.1:1,tok@localhost:1")
    text = await refused(options, "127.0.0.1:1")
    assert "secret" not in text
    assert "tok" not in text
