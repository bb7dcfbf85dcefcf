"""A statement that takes longer than it may says so: a smaller batch may pass."""

import pytest

from tests.support.stores import a_postgres_store
from towpath_engine.store.errors import StatementTimedOut, StoreUnavailable
from towpath_engine.store.session import translating


async def test_a_statement_that_takes_too_long_is_told_from_a_server_that_is_away(
    postgres_url: str,
) -> None:
    async with a_postgres_store(postgres_url) as store, store.pool.acquire() as connection:
        await connection.execute("SET statement_timeout = '50ms'")
        with pytest.raises(StatementTimedOut), translating():
            await connection.execute("SELECT pg_sleep(60)")
        with pytest.raises(StoreUnavailable) as caught, translating():
            await connection.execute("SELECT 1 FROM nothing_of_that_name")
        assert not isinstance(caught.value, StatementTimedOut)
