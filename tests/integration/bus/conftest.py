"""Fixtures of the bus tests: a shared nats-server, and plain clients that know nothing of us."""

from collections.abc import AsyncIterator

import pytest

from tests.support.jetstream import jetstream_url, own_jetstream, prefix
from tests.support.outsider import Outsider, connected_outsider

__all__ = ["jetstream_url", "outsider", "own_jetstream", "prefix"]


@pytest.fixture
async def outsider(jetstream_url: str) -> AsyncIterator[Outsider]:
    """A client of the shared server that is not ours."""
    async with connected_outsider(jetstream_url) as client:
        yield client
