"""Brings a schema up to date, and tells whether it is.

Migrations are the numbered files of `migrations/`, forward only and never edited once released.
The first line of each says when it runs: `-- runs: before the code` (the previous engine still
works on the result) or `-- runs: after the code` (only once no previous engine is left).
"""

import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from importlib.resources import files
from typing import Final

import asyncpg
from msgspec import Struct

from towpath_engine.store.errors import SchemaMismatch
from towpath_engine.store.pool import Pool
from towpath_engine.store.session import Connection, translating
from towpath_engine.store.tls import check_tls_files

_NAME: Final = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")
_HEADER: Final = re.compile(r"^-- runs: (before|after) the code\n")
_SCHEMA: Final = re.compile(r"^[a-z_][a-z0-9_]{0,62}$")
_CONNECT_SECONDS: Final = 10


class Phase(StrEnum):
    """When a migration runs in an upgrade."""

    BEFORE = "before"
    AFTER = "after"


class Migration(Struct, frozen=True, kw_only=True):
    """One file. `checksum` is the SHA-256 of its text in hex."""

    number: int
    name: str
    phase: Phase
    checksum: str
    sql: str


class Applied(Struct, frozen=True, kw_only=True):
    """A row of schema_migration."""

    number: int
    name: str
    phase: Phase
    checksum: str
    applied_at: datetime


def load_migrations() -> list[Migration]:
    """The migrations of this release, in order. Raises ValueError for a malformed file."""
    found: list[Migration] = []
    for file in files("towpath_engine.store").joinpath("migrations").iterdir():
        if not file.name.endswith(".sql"):
            continue
        sql = file.read_text("utf-8")
        name, header = _NAME.match(file.name), _HEADER.match(sql)
        if name is None or header is None:
            message = f"{file.name} is not a migration: see the head of migrate.py"
            raise ValueError(message)
        found.append(
            Migration(
                number=int(name[1]),
                name=file.name.removesuffix(".sql"),
                phase=Phase(header[1]),
                checksum=sha256(sql.encode()).hexdigest(),
                sql=sql,
            )
        )
    return sorted(found, key=lambda migration: migration.number)


def check_schema_name(schema: str) -> None:
    """Raises SchemaMismatch unless it is a plain lower-case name."""
    if _SCHEMA.fullmatch(schema) is None or schema.startswith("pg_"):
        message = f"{schema!r} can't name a Postgres schema: use letters, digits and _."
        raise SchemaMismatch(message)


async def migrate(
    dsn: str,
    schema: str,
    *,
    phases: Sequence[Phase] = tuple(Phase),
    migrations: Sequence[Migration] | None = None,
) -> list[str]:
    """Apply what is missing, each in a transaction of its own; the names of those applied now.

    An advisory lock makes concurrent migrators take turns, so the second finds nothing to do.
    `migrations` defaults to those of this release. Raises SchemaMismatch when an applied file was
    changed, StoreUnavailable without a connection, StoreRejected when a migration fails.
    """
    check_schema_name(schema)
    check_tls_files(dsn)
    wanted = load_migrations() if migrations is None else migrations
    with translating():
        connection = await asyncpg.connect(dsn, timeout=_CONNECT_SECONDS)
        try:
            await connection.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", schema)
            await _prepare_schema(connection, schema)
            applied = await _read_applied(connection, schema)
            _check_unchanged(schema, wanted, applied)
            done = {row.number for row in applied}
            todo = [m for m in wanted if m.number not in done and m.phase in phases]
            for migration in todo:
                await _apply(connection, schema, migration)
        finally:
            await connection.close()
    return [migration.name for migration in todo]


async def _prepare_schema(connection: Connection, schema: str) -> None:
    # The name was checked, and identifiers can't be parameters.
    async with connection.transaction():
        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        await connection.execute(f"""
            CREATE TABLE IF NOT EXISTS "{schema}".schema_migration (
              number integer PRIMARY KEY,
              name text NOT NULL,
              phase text NOT NULL,
              checksum text NOT NULL,
              applied_at timestamptz NOT NULL
            )""")


async def _apply(connection: Connection, schema: str, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(f'SET LOCAL search_path TO "{schema}"')
        await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO schema_migration (number, name, phase, checksum, applied_at)"
            " VALUES ($1, $2, $3, $4, clock_timestamp())",
            migration.number,
            migration.name,
            migration.phase.value,
            migration.checksum,
        )


async def _read_applied(connection: Connection, schema: str) -> list[Applied]:
    rows = await connection.fetch(
        "SELECT number, name, phase, checksum, applied_at"  # noqa: S608 - the name was checked
        f' FROM "{schema}".schema_migration ORDER BY number'
    )
    return [
        Applied(
            number=row["number"],
            name=row["name"],
            phase=Phase(row["phase"]),
            checksum=row["checksum"],
            applied_at=row["applied_at"],
        )
        for row in rows
    ]


def _check_unchanged(schema: str, wanted: Sequence[Migration], applied: Sequence[Applied]) -> None:
    known = {migration.number: migration for migration in wanted}
    for row in applied:
        migration = known.get(row.number)
        if migration is not None and migration.checksum != row.checksum:
            message = (
                f"Migration {row.name} of schema {schema!r} is not the one that was applied on"
                f" {row.applied_at:%Y-%m-%d}: use the release that made the schema, or restore the"
                " file; `towpath migrate` can't mend it."
            )
            raise SchemaMismatch(message)


async def check_schema(
    pool: Pool, schema: str, *, migrations: Sequence[Migration] | None = None
) -> None:
    """Raises SchemaMismatch, in one sentence that names the fix, unless this engine can work here.

    Every before-code migration of this release must be there. Later ones may be, too, as long as
    they are before-code: that is what an old engine sees while a new one is being rolled out.
    """
    check_schema_name(schema)
    wanted = load_migrations() if migrations is None else migrations
    with translating():
        async with pool.acquire() as connection:
            try:
                applied = await _read_applied(connection, schema)
            except asyncpg.UndefinedTableError as fault:
                message = f"There is no Towpath schema {schema!r} yet: run `towpath migrate`."
                raise SchemaMismatch(message) from fault
    _check_unchanged(schema, wanted, applied)
    done, known = {row.number for row in applied}, {migration.number for migration in wanted}
    for migration in wanted:
        if migration.phase is Phase.BEFORE and migration.number not in done:
            message = f"Schema {schema!r} lacks migration {migration.name}: run `towpath migrate`."
            raise SchemaMismatch(message)
    for row in applied:
        if row.phase is Phase.AFTER and row.number not in known:
            message = (
                f"Schema {schema!r} has migration {row.name} of a newer release: run that release"
                " (`towpath migrate` never goes back)."
            )
            raise SchemaMismatch(message)
