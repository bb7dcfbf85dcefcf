"""The two stores that are held to one contract."""

from collections.abc import AsyncGenerator

import pytest

from tests.support.stores import KINDS, a_store
from towpath_engine.store.interface import Store


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(kind: str, postgres_url: str) -> AsyncGenerator[Store]:
    async with a_store(kind, postgres_url) as empty:
        yield empty
