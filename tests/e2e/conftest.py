"""One `towpath dev` for all tests of this folder."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.processes import DevProcess
from tests.support.wire_client import WireClient, connected


@pytest.fixture(scope="session")
def dev() -> Iterator[DevProcess]:
    process = DevProcess("--ephemeral")
    try:
        yield process
    finally:
        process.close()


@pytest.fixture
async def wire(dev: DevProcess) -> AsyncIterator[WireClient]:
    async with connected(dev.ready["nats_url"], dev.ready["prefix"]) as client:
        yield client
