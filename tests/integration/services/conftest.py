"""One engine a test, with a schema and a prefix of its own, and an outsider who talks to it."""

from collections.abc import AsyncGenerator

import pytest

from tests.support.engines import engine_settings, running
from tests.support.jetstream import jetstream_url, own_jetstream, prefix
from tests.support.postgres import fresh_schema, postgres_url
from tests.support.wire_client import WireClient, connected
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings
from towpath_engine.store.migrate import migrate

__all__ = ["jetstream_url", "own_jetstream", "postgres_url", "prefix"]


@pytest.fixture
async def schema(postgres_url: str) -> AsyncGenerator[str]:
    async with fresh_schema(postgres_url) as name:
        await migrate(postgres_url, name)
        yield name


@pytest.fixture
def settings(jetstream_url: str, postgres_url: str, prefix: str, schema: str) -> Settings:
    return engine_settings(jetstream_url, postgres_url, prefix, schema)


@pytest.fixture
async def engine(settings: Settings) -> AsyncGenerator[Engine]:
    async with running(settings) as engine:
        yield engine


@pytest.fixture
async def wire(engine: Engine, settings: Settings) -> AsyncGenerator[WireClient]:
    async with connected(settings.nats_url, settings.prefix) as wire:
        yield wire
