"""Both stores, empty, for the suites that hold them to one contract."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.postgres import fresh_schema
from tests.support.store_builders import LIMITS, a_document, parse
from towpath_engine.store.interface import Store
from towpath_engine.store.memory import MemoryStore
from towpath_engine.store.migrate import migrate
from towpath_engine.store.postgres import PostgresStore, open_postgres_store
from towpath_engine.store.transaction import StoreCaps

KINDS = ("memory", "postgres")


@asynccontextmanager
async def a_postgres_store(
    url: str, *, schema: str | None = None, caps: StoreCaps | None = None, **options: Any
) -> AsyncGenerator[PostgresStore]:
    """A store on a schema of its own, or on one that exists."""
    if schema is None:
        async with fresh_schema(url) as fresh:
            await migrate(url, fresh)
            async with a_postgres_store(url, schema=fresh, caps=caps, **options) as store:
                yield store
        return
    store = await open_postgres_store(url, schema, limits=LIMITS, parse=parse, caps=caps, **options)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def a_store(kind: str, url: str, *, caps: StoreCaps | None = None) -> AsyncGenerator[Store]:
    """An empty store with workflow `order` deployed once."""
    if kind == "memory":
        store = MemoryStore(limits=LIMITS, parse=parse, caps=caps)
        await store.deploy_workflow("order", "f-order", a_document())
        yield store
        return
    async with a_postgres_store(url, caps=caps) as postgres:
        await postgres.deploy_workflow("order", "f-order", a_document())
        yield postgres
