"""An engine that has the printed rights, on a server that has the printed configuration."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from tests.support.engines import running
from tests.support.jetstream import prefix
from tests.support.postgres import fresh_schema, postgres_url
from tests.support.secured import Secured
from tests.support.wire_client import WireClient
from towpath_engine.services.engine import Engine
from towpath_engine.store.migrate import migrate

__all__ = ["postgres_url", "prefix"]


@pytest.fixture
async def schema(postgres_url: str) -> AsyncGenerator[str]:
    async with fresh_schema(postgres_url) as name:
        await migrate(postgres_url, name)
        yield name


@pytest.fixture(params=["users", "account"])
def secured(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Iterator[Secured]:
    secured = Secured(tmp_path / "nats", prefix, request.param)
    secured.server.start()
    try:
        yield secured
    finally:
        secured.server.kill()


@pytest.fixture
async def engine(secured: Secured, postgres_url: str, schema: str) -> AsyncGenerator[Engine]:
    async with running(secured.settings(postgres_url, schema)) as engine:
        yield engine


@pytest.fixture
async def operator(secured: Secured, engine: Engine) -> AsyncGenerator[WireClient]:
    async with secured.wire("operator") as wire:
        yield wire


@pytest.fixture
async def client(secured: Secured, engine: Engine) -> AsyncGenerator[WireClient]:
    async with secured.wire("client") as wire:
        yield wire
