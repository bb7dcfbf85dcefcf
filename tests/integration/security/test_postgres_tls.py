"""TLS with Postgres: trusted when it should be, refused in one sentence otherwise."""

from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.support.engines import engine_settings, running
from tests.support.jetstream import jetstream_url
from tests.support.postgres_tls import TLS, tls_postgres
from tests.support.secured import one_step
from tests.support.wire_client import connected
from towpath_engine.store.errors import StoreUnavailable
from towpath_engine.store.migrate import migrate

__all__ = ["jetstream_url"]

CA = quote(str(TLS / "ca.pem"))
OTHER_CA = quote(str(TLS / "client.pem"))
CLIENT = f"sslcert={quote(str(TLS / 'client.pem'))}&sslkey={quote(str(TLS / 'client-key.pem'))}"


async def refusal(url: str, schema: str) -> str:
    """Why the schema could not be looked at: one sentence without a password."""
    with pytest.raises(StoreUnavailable) as caught:
        await migrate(url, schema)
    sentence = str(caught.value)
    assert "\n" not in sentence
    password = urlsplit(url).password
    assert password
    assert password not in sentence
    return sentence


async def test_an_engine_works_over_verified_tls(
    postgres_url: str, schema: str, jetstream_url: str, prefix: str
) -> None:
    async with tls_postgres(postgres_url) as (url, proxy):
        url = f"{url}?sslmode=verify-full&sslrootcert={CA}"
        await migrate(url, schema)
        settings = engine_settings(jetstream_url, url, prefix, schema)
        async with running(settings), connected(jetstream_url, prefix) as wire:
            await wire.deploy(one_step("sent", "mail", "x"))
            run_id = await wire.start("sent")
            await wire.complete(await wire.take("mail"), 1)
            assert (await wire.result(run_id))["status"] == "completed"
        assert proxy.sessions > 1
        assert proxy.in_the_clear == b""


async def test_a_server_of_another_authority_is_not_trusted(postgres_url: str, schema: str) -> None:
    async with tls_postgres(postgres_url) as (url, proxy):
        told = await refusal(f"{url}?sslmode=verify-full&sslrootcert={OTHER_CA}", schema)
        assert "the certificate of the Postgres server is not trusted" in told
        assert "check sslrootcert" in told
        assert proxy.in_the_clear == b"", "it does not go on without TLS"


async def test_a_certificate_must_bear_the_name_of_the_host(postgres_url: str, schema: str) -> None:
    async with tls_postgres(postgres_url, certificate="client") as (url, _):
        told = await refusal(f"{url}?sslmode=verify-full&sslrootcert={OTHER_CA}", schema)
        assert "certificate is not valid for '127.0.0.1'" in told
        assert await migrate(f"{url}?sslmode=verify-ca&sslrootcert={OTHER_CA}", schema) == []


async def test_a_server_that_demands_a_client_certificate_gets_one(
    postgres_url: str, schema: str
) -> None:
    async with tls_postgres(postgres_url, client_authority=TLS / "client.pem") as (url, _):
        trusted = f"{url}?sslmode=verify-full&sslrootcert={CA}"
        assert await migrate(f"{trusted}&{CLIENT}", schema) == []
        assert "Postgres" in await refusal(trusted, schema)


async def test_a_server_without_tls_is_refused_when_tls_is_demanded(
    postgres_url: str, schema: str
) -> None:
    told = await refusal(f"{postgres_url}?sslmode=require", schema)
    assert told == (
        "no connection to Postgres: the Postgres server speaks no TLS, which sslmode demands"
    )


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey"])
async def test_a_file_that_is_not_there_is_named(
    postgres_url: str, schema: str, tmp_path: Path, name: str
) -> None:
    missing = tmp_path / "missing.pem"
    told = await refusal(f"{postgres_url}?sslmode=verify-full&{name}={missing}", schema)
    assert f"{name}={missing} can't be read: No such file" in told
