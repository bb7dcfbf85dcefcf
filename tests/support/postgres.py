"""A real Postgres for tests: one server a session, a schema of its own for each test.

`TOWPATH_TEST_POSTGRES_URL` names a server to use instead of an embedded one.
"""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from towpath_engine.dev.embedded_postgres import EmbeddedPostgres
from towpath_engine.dev.ports import free_port

SERVER_VARIABLE = "TOWPATH_TEST_POSTGRES_URL"

# What a test writes need not survive the machine.
_OPTIONS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Address of a running server whose default database may be filled with schemas."""
    given = os.environ.get(SERVER_VARIABLE)
    if given:
        yield given
        return
    # Not pytest's own folder: as root, the server runs as a user who could not get there.
    folder = Path(tempfile.mkdtemp(prefix="towpath-postgres-"))
    server = EmbeddedPostgres(folder, free_port(), options=_OPTIONS)
    try:
        with asyncio.Runner() as runner:
            try:
                runner.run(server.start())
                yield server.url
            finally:
                runner.run(server.stop())
    finally:
        shutil.rmtree(server.data_dir, ignore_errors=True)


@asynccontextmanager
async def fresh_schema(url: str) -> AsyncGenerator[str]:
    """The name of a schema that does not exist yet; it is dropped in the end."""
    schema = f"t_{secrets.token_hex(6)}"
    try:
        yield schema
    finally:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        finally:
            await connection.close()
