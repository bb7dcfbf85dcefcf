"""Opens the pool of connections: search path, codecs, timeouts, and plans that do not surprise."""

from typing import Final, TypeAlias

import asyncpg

from towpath_engine.store.errors import SchemaMismatch
from towpath_engine.store.session import Connection, translating
from towpath_engine.store.tls import check_tls_files

# Quoted: the class takes a parameter for the type checker only.
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

_CONNECT_SECONDS: Final = 10
_IDLE_IN_TRANSACTION_MS: Final = 60_000
_SERVER_VERSION_MIN: Final = 15


def encode_uuid(text: str) -> bytes:
    """The 16 bytes of a UUID. Raises ValueError for anything else."""
    return bytes.fromhex(text.replace("-", ""))


def decode_uuid(data: bytes) -> str:
    """Lower-case canonical text of 16 bytes."""
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


async def prepare_connection(connection: Connection) -> None:
    """Let ids travel as text without building UUID objects (measured: a sixth of the loop)."""
    await connection.set_type_codec(
        "uuid", schema="pg_catalog", encoder=encode_uuid, decoder=decode_uuid, format="binary"
    )


async def _keep_session(_connection: Connection) -> None:
    """Return a connection as it is: nothing in the store changes its session, and asyncpg's own
    reset would cost a round trip a transaction."""


def session_settings(schema: str, statement_timeout_ms: int) -> dict[str, str]:
    """Run-time parameters of every connection of the store.

    The planner must not depend on statistics that a young table does not have yet: a generic plan
    made while `run` was empty would scan it whole for ever after. All hot statements are look-ups
    by index, so the other ways are made expensive, and one plan a statement is enough.
    """
    return {
        "application_name": f"towpath/{schema}",
        "search_path": f'"{schema}"',
        "timezone": "UTC",
        "default_transaction_isolation": "read committed",
        "statement_timeout": str(statement_timeout_ms),
        "idle_in_transaction_session_timeout": str(_IDLE_IN_TRANSACTION_MS),
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
        "plan_cache_mode": "force_generic_plan",
    }


async def open_pool(
    dsn: str, *, schema: str, size: int, statement_timeout_ms: int = 30_000
) -> Pool:
    """A pool of at most `size` connections, the last used one taken first.

    `statement_timeout_ms` bounds each statement on the server, and a little more on this side, for
    a server that does not answer at all. Raises StoreUnavailable when no connection can be made,
    SchemaMismatch for a server older than Postgres 15.
    """
    check_tls_files(dsn)
    with translating():
        pool = await asyncpg.create_pool(
            dsn,
            min_size=1,
            max_size=size,
            max_queries=1_000_000_000,
            max_inactive_connection_lifetime=0,
            init=prepare_connection,
            reset=_keep_session,
            timeout=_CONNECT_SECONDS,
            command_timeout=statement_timeout_ms / 1000 + 5,
            statement_cache_size=256,
            max_cached_statement_lifetime=0,
            server_settings=session_settings(schema, statement_timeout_ms),
        )
    async with pool.acquire() as connection:
        major = connection.get_server_version().major
    if major < _SERVER_VERSION_MIN:
        await pool.close()
        message = (
            f"Postgres {major} is too old: use a server of version {_SERVER_VERSION_MIN} or newer."
        )
        raise SchemaMismatch(message)
    return pool
