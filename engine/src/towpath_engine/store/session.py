"""Runs a named statement on a connection, and turns its faults into the store's own.

Every statement of the store goes through `fetch`, `fetch_row`, `fetch_value` or `execute`, with
its name as a literal: so a test can find each use of each file.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from towpath_engine.store.errors import (
    PausesChanged,
    StatementTimedOut,
    StoreError,
    StoreRejected,
    StoreUnavailable,
)
from towpath_engine.store.statements import load_statement
from towpath_engine.store.tls import tls_reason

# Quoted: these classes take parameters for the type checker only.
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"
Record = asyncpg.Record

# SQLSTATE classes 22 (data), 23 (constraints), 44 (check option) and P0 (our own triggers) blame
# the rows. Everything else blames the moment or the installation (a schema that is missing, a
# server that is read-only after a failover), and must never make a dead letter of a message.
_CLASSES_REJECTED = frozenset({"22", "23", "44", "P0"})

# query_canceled: by statement_timeout, or by an administrator.
_CANCELLED = "57014"

PAUSE_FENCE = "pause_epoch_expected"
"""The rule that a batch breaks when pauses have changed under it."""


def translate(fault: BaseException) -> StoreError:
    """The store's error for a fault of asyncpg or of the socket."""
    if isinstance(fault, asyncpg.PostgresError):
        state = fault.sqlstate or ""
        constraint: str | None = getattr(fault, "constraint_name", None)
        if constraint == PAUSE_FENCE:
            return PausesChanged(str(fault))
        if state[:2] in _CLASSES_REJECTED:
            return StoreRejected(str(fault), constraint=constraint)
        kind = StatementTimedOut if state == _CANCELLED else StoreUnavailable
        return kind(f"Postgres answered {state}: {fault}")
    if reason := tls_reason(fault):
        return StoreUnavailable(f"no connection to Postgres: {reason}")
    if isinstance(fault, ValueError | TypeError):
        # asyncpg's own DataError: a value that can't be encoded for its parameter.
        return StoreRejected(str(fault))
    reason = " ".join(str(fault).split()) or type(fault).__name__
    return StoreUnavailable(f"no connection to Postgres: {reason}")


@contextmanager
def translating() -> Generator[None]:
    """Within it, asyncpg's and the socket's errors leave as the store's."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as fault:
        raise translate(fault) from fault
    except (OSError, TimeoutError) as fault:
        raise translate(fault) from fault


async def fetch(connection: Connection, name: str, /, **values: Any) -> list[Record]:
    """All rows of the statement."""
    statement = load_statement(name)
    with translating():
        return await connection.fetch(statement.sql, *statement.arguments(values))


async def fetch_row(connection: Connection, name: str, /, **values: Any) -> Record | None:
    """The first row of the statement, if any."""
    statement = load_statement(name)
    with translating():
        return await connection.fetchrow(statement.sql, *statement.arguments(values))


async def fetch_value(connection: Connection, name: str, /, **values: Any) -> Any:
    """The first column of the first row, or None."""
    statement = load_statement(name)
    with translating():
        return await connection.fetchval(statement.sql, *statement.arguments(values))


async def execute(connection: Connection, name: str, /, **values: Any) -> int:
    """Run it for its effect; the number of rows it touched."""
    statement = load_statement(name)
    with translating():
        # A prepared statement, unlike Connection.execute, is cached; it also reports its status.
        tag = await connection.execute(statement.sql, *statement.arguments(values))
    return int(tag.rsplit(" ", 1)[-1])
