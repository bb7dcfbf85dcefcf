"""An engine logs in at NATS in every way that its settings know."""

import asyncio
from pathlib import Path

import pytest

from tests.support.bus import BusUnderTest, bus_settings
from tests.support.eventually import until
from tests.support.jetstream import JetStreamServer, unique_prefix
from tests.support.nats_identities import Identity, Operator
from tests.support.nats_logins import logins
from towpath_engine.bus.errors import BusRefused
from towpath_engine.bus.nats_bus import NatsBus
from towpath_engine.settings import load_settings
from towpath_engine.wiring import bus_settings as wired_settings

SMALL = {
    f"TOWPATH_STREAM_{name}_BYTES_MAX": str(4 * 2**20)
    for name in ("DISPATCH", "IN", "ADVISORY", "EVENTS")
}


async def test_an_engine_logs_in_as_its_settings_say(tmp_path: Path) -> None:
    for number, (config, scheme, variables) in enumerate(logins(tmp_path)):
        server = JetStreamServer(
            tmp_path / f"nats-{number}",
            config=config,
            greets="handshake_first" not in config,
        ).start()
        url = server.url.replace("nats:", f"{scheme}:")
        environ = {"TOWPATH_NATS_URL": url, "TOWPATH_PREFIX": unique_prefix()}
        bus = NatsBus(wired_settings(load_settings({**environ, **SMALL, **variables}).settings))
        try:
            await bus.start()
            assert bus.connected, config
        finally:
            await bus.close()
            server.kill()


async def test_rotated_credentials_are_taken_up_by_the_next_connection(tmp_path: Path) -> None:
    one, two = Identity("user"), Identity("user")
    seed = tmp_path / "seed.nk"
    seed.write_text(one.seed)
    config = "authorization {{ users: [ {{ nkey: {} }} ] }}"
    server = JetStreamServer(tmp_path / "nats", config=config.format(one.public)).start()
    settings = bus_settings(server.url, unique_prefix(), nkey_seed_file=str(seed))
    under_test = BusUnderTest(settings)
    try:
        await under_test.bus.start()
        await asyncio.to_thread(server.reconfigure, config.format(two.public))
        await until(lambda: not under_test.bus.connected, "the old key is thrown out")
        seed.write_text(two.seed)
        await until(lambda: under_test.bus.connected, "the new key is used")
    finally:
        await under_test.bus.close()
        server.kill()


@pytest.mark.parametrize(
    ("field", "content", "part"),
    [
        ("credentials_file", None, "does not exist"),
        ("credentials_file", "no such thing", "is no NATS credentials file: it lacks its JWT"),
        ("nkey_seed_file", "no such thing", "holds no nkey seed"),
        ("nkey_seed_file", "\0", "holds no nkey seed"),
    ],
)
async def test_a_file_that_holds_no_identity_is_refused_at_once(
    tmp_path: Path, field: str, content: str | None, part: str
) -> None:
    file = tmp_path / "identity"
    if content is not None:
        file.write_text(content)
    settings = bus_settings("nats://127.0.0.1:1", unique_prefix(), **{field: str(file)})
    with pytest.raises(BusRefused, match=part) as caught:
        await BusUnderTest(settings).bus.start()
    assert str(file) in str(caught.value)


async def test_a_credentials_file_without_its_seed_is_refused(tmp_path: Path) -> None:
    file = Operator().write_credentials(tmp_path / "user.creds")
    file.write_text(file.read_text().partition("-----BEGIN USER NKEY SEED")[0])
    settings = bus_settings("nats://127.0.0.1:1", unique_prefix(), credentials_file=str(file))
    with pytest.raises(BusRefused, match="lacks its seed"):
        await BusUnderTest(settings).bus.start()
