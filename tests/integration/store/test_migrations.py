"""Migrations: from nothing, twice, by two at once; and the schemas that are refused."""

import asyncio
from collections.abc import AsyncGenerator

import asyncpg
import pytest
from msgspec.structs import replace

from tests.support.postgres import fresh_schema
from tests.support.store_builders import LIMITS, parse
from towpath_engine.store.errors import SchemaMismatch, StoreRejected, StoreUnavailable
from towpath_engine.store.migrate import Migration, Phase, load_migrations, migrate
from towpath_engine.store.postgres import open_postgres_store


@pytest.fixture
async def schema(postgres_url: str) -> AsyncGenerator[str]:
    async with fresh_schema(postgres_url) as name:
        yield name


async def open_and_close(url: str, schema: str) -> None:
    store = await open_postgres_store(url, schema, limits=LIMITS, parse=parse, pool_size=1)
    await store.close()


def a_migration(number: int, sql: str, phase: Phase = Phase.BEFORE) -> Migration:
    return Migration(number=number, name=f"{number:04}_test", phase=phase, checksum=sql, sql=sql)


async def test_an_empty_database_gets_every_migration_in_order_and_none_twice(
    postgres_url: str, schema: str
) -> None:
    names = [migration.name for migration in load_migrations()]
    assert names == sorted(names)
    assert await migrate(postgres_url, schema) == names
    assert await migrate(postgres_url, schema) == []
    await open_and_close(postgres_url, schema)


async def test_two_migrators_at_once_apply_each_migration_once(
    postgres_url: str, schema: str
) -> None:
    both = await asyncio.gather(migrate(postgres_url, schema), migrate(postgres_url, schema))
    names = [migration.name for migration in load_migrations()]
    assert sorted(both[0] + both[1]) == names
    assert [] in both


async def test_two_installations_in_one_database_do_not_meet(
    postgres_url: str, schema: str
) -> None:
    async with fresh_schema(postgres_url) as other:
        await migrate(postgres_url, schema)
        with pytest.raises(SchemaMismatch, match="There is no Towpath schema"):
            await open_and_close(postgres_url, other)
        assert await migrate(postgres_url, other) != []
        await open_and_close(postgres_url, other)


async def test_a_schema_that_lacks_a_migration_is_refused_with_the_fix(
    postgres_url: str, schema: str
) -> None:
    await migrate(postgres_url, schema, migrations=load_migrations()[:-1])
    last = load_migrations()[-1].name
    with pytest.raises(SchemaMismatch, match=rf"lacks migration {last}: run `towpath migrate`\."):
        await open_and_close(postgres_url, schema)


async def test_an_edited_migration_is_refused_by_name(postgres_url: str, schema: str) -> None:
    first, *rest = load_migrations()
    await migrate(postgres_url, schema, migrations=[replace(first, checksum="other"), *rest])
    with pytest.raises(SchemaMismatch, match=f"{first.name} .* is not the one that was applied"):
        await open_and_close(postgres_url, schema)
    with pytest.raises(SchemaMismatch, match=first.name):
        await migrate(postgres_url, schema)


async def test_an_old_engine_works_while_a_new_one_is_being_rolled_out(
    postgres_url: str, schema: str
) -> None:
    newer = [*load_migrations(), a_migration(9001, "CREATE TABLE extra (id int)")]
    await migrate(postgres_url, schema, migrations=newer)
    await open_and_close(postgres_url, schema)
    after = [*newer, a_migration(9002, "DROP TABLE extra", Phase.AFTER)]
    early = await migrate(postgres_url, schema, migrations=after, phases=[Phase.BEFORE])
    assert early == []
    await migrate(postgres_url, schema, migrations=after)
    with pytest.raises(SchemaMismatch, match="9002_test of a newer release"):
        await open_and_close(postgres_url, schema)


async def test_a_migration_that_fails_leaves_nothing_of_itself(
    postgres_url: str, schema: str
) -> None:
    bad = [
        a_migration(1, "CREATE TABLE one (id int)"),
        a_migration(2, "CREATE TABLE two (id int); SELECT 1 / 0"),
    ]
    with pytest.raises(StoreRejected):
        await migrate(postgres_url, schema, migrations=bad)
    connection = await asyncpg.connect(postgres_url)
    try:
        rows = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1", schema
        )
    finally:
        await connection.close()
    assert [row[0] for row in rows] == ["one", "schema_migration"]


@pytest.mark.parametrize("name", ["", "Towpath", 'a"b', "pg_x", "a" * 64, "1a"])
async def test_a_name_that_can_not_be_a_schema_is_refused(postgres_url: str, name: str) -> None:
    with pytest.raises(SchemaMismatch, match="can't name a Postgres schema"):
        await migrate(postgres_url, name)


async def test_without_a_server_the_store_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        await migrate("postgresql://towpath@127.0.0.1:1/postgres", "towpath")
