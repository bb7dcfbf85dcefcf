"""Where settings come from, and what is refused."""

from typing import Any

import pytest
from msgspec import convert

from towpath_engine.settings import DOCUMENTATION
from towpath_worker import ConnectionOptions, Worker, WorkerOptions
from towpath_worker.options import FROM_ENVIRONMENT, connection_options


def test_an_argument_beats_the_environment_and_that_the_default() -> None:
    environ = {"TOWPATH_NATS_URL": "nats://a:1, nats://b:2", "TOWPATH_PREFIX": "mine"}
    default = connection_options(environ={})
    assert (default.servers, default.prefix) == (["nats://127.0.0.1:4222"], "towpath")
    given = connection_options(environ=environ)
    assert (given.servers, given.prefix) == (["nats://a:1", "nats://b:2"], "mine")
    assert connection_options("nats://c:3", "other", environ=environ).prefix == "other"


def test_values_out_of_range_are_refused_by_name() -> None:
    bad: list[dict[str, Any]] = [{"slots": 0}, {"slots": 10_001}, {"drain_timeout_seconds": -1.0}]
    for fields in bad:
        (name,) = fields
        with pytest.raises(ValueError, match=name):
            WorkerOptions(**fields)
    with pytest.raises(ValueError, match="slots"):
        Worker("q", slots=0)
    with pytest.raises(ValueError, match="prefix"):
        ConnectionOptions(prefix="Not.Good")
    with pytest.raises(ValueError, match="names no server"):
        ConnectionOptions(nats_url=" , ")
    for inbox_prefix in ("mine", "_INBOX.>", "_INBOX mine", ""):
        with pytest.raises(ValueError, match="_INBOX"):
            ConnectionOptions(inbox_prefix=inbox_prefix)


def test_every_way_to_be_known_comes_from_the_environment_under_the_engines_names() -> None:
    environ = {variable: f"/{field}" for field, variable in FROM_ENVIRONMENT.items()}
    environ |= {
        "TOWPATH_NATS_URL": "tls://a:1",
        "TOWPATH_PREFIX": "mine",
        "TOWPATH_NATS_INBOX_PREFIX": "_INBOX_mine",
        "TOWPATH_NATS_TLS_HANDSHAKE_FIRST": "true",
        # One identity only; an empty variable is none.
        "TOWPATH_NATS_NKEY_SEED_FILE": "",
        "TOWPATH_NATS_TOKEN": "",
        "TOWPATH_NATS_USER": "",
        "TOWPATH_NATS_PASSWORD": "",
    }
    options = connection_options(environ=environ)
    assert options == ConnectionOptions(
        nats_url="tls://a:1",
        prefix="mine",
        credentials_file="/credentials_file",
        tls_ca_file="/tls_ca_file",
        tls_cert_file="/tls_cert_file",
        tls_key_file="/tls_key_file",
        tls_hostname="/tls_hostname",
        tls_handshake_first=True,
        inbox_prefix="_INBOX_mine",
    )
    assert set(FROM_ENVIRONMENT.values()) <= {f"TOWPATH_{name.upper()}" for name in DOCUMENTATION}
    assert connection_options("nats://b:2", environ=environ).credentials_file == "/credentials_file"


def test_user_and_password_or_a_token_may_come_from_the_environment() -> None:
    user = {"TOWPATH_NATS_USER": "me", "TOWPATH_NATS_PASSWORD": "secret"}
    assert connection_options(environ=user) == ConnectionOptions(user="me", password="secret")
    token = {"TOWPATH_NATS_TOKEN": "secret"}
    assert connection_options(environ=token) == ConnectionOptions(token="secret")


def test_options_that_contradict_each_other_are_refused() -> None:
    for fields, match in (
        ({"tls_cert_file": "c"}, "both or neither"),
        ({"user": "u"}, "both or neither"),
        ({"token": "t", "credentials_file": "c"}, "only one of token, credentials_file"),
        ({"user": "u", "password": "p", "nkey_seed_file": "s"}, "only one of user, nkey_seed_file"),
    ):
        with pytest.raises(ValueError, match=match):
            convert(fields, ConnectionOptions)


def test_the_address_holds_no_secret() -> None:
    options = ConnectionOptions(nats_url="nats://me:secret@a:1, tls://token@b:2, c:3")
    assert options.address == "nats://a:1, tls://b:2, nats://c:3"


async def test_a_worker_without_a_task_does_not_serve() -> None:
    with pytest.raises(RuntimeError, match="no task"):
        await Worker("q").serve()
