"""The rights of the database role that engines run as: exactly these, granted by the owner.

`towpath migrate` runs as the owner of the schema and alone changes it. `towpath serve` reads and
writes rows: no statement of it creates, alters or drops anything (a test runs whole workflows
as such a role), and the record of migrations it only reads.
"""

from typing import Final

import asyncpg

from towpath_engine.store.errors import SchemaMismatch
from towpath_engine.store.migrate import check_schema_name
from towpath_engine.store.session import translating
from towpath_engine.store.tls import check_tls_files

_CONNECT_SECONDS: Final = 10


def quoted(name: str) -> str:
    """A name as an SQL identifier, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def role_grants(schema: str, role: str) -> list[str]:
    """The statements, to be run by the owner of the schema, in order; they may be repeated.

    Later migrations of the same owner are covered by default privileges. Raises SchemaMismatch for
    a schema name that none of ours can be.
    """
    check_schema_name(schema)
    space, who = quoted(schema), quoted(role)
    rows = "SELECT, INSERT, UPDATE, DELETE"
    later = f"ALTER DEFAULT PRIVILEGES IN SCHEMA {space}"
    return [
        f"GRANT USAGE ON SCHEMA {space} TO {who}",
        f"GRANT {rows} ON ALL TABLES IN SCHEMA {space} TO {who}",
        f"REVOKE INSERT, UPDATE, DELETE ON {space}.schema_migration FROM {who}",
        f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {space} TO {who}",
        f"{later} GRANT {rows} ON TABLES TO {who}",
        f"{later} GRANT EXECUTE ON FUNCTIONS TO {who}",
    ]


async def grant_role(dsn: str, schema: str, role: str) -> list[str]:
    """Run `role_grants` in one transaction, as the owner that `dsn` logs in as.

    Raises SchemaMismatch, in one sentence, when the schema or the role does not exist or the
    login does not own the schema; StoreUnavailable without a connection.
    """
    statements = role_grants(schema, role)
    check_tls_files(dsn)
    with translating():
        connection = await asyncpg.connect(dsn, timeout=_CONNECT_SECONDS)
        try:
            owner = await connection.fetchval(
                "SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = $1", schema
            )
            if owner is None:
                message = f"There is no schema {schema!r}: run `towpath migrate` first."
                raise SchemaMismatch(message)
            me = await connection.fetchval("SELECT current_user")
            if me != owner:
                # Default privileges are those of whoever grants them: others would cover nothing.
                message = f"Schema {schema!r} belongs to {owner!r}: log in as it, not as {me!r}."
                raise SchemaMismatch(message)
            known = await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role)
            if known is None:
                message = (
                    f"There is no role {role!r}: create it, for example with"
                    f" CREATE ROLE {quoted(role)} LOGIN PASSWORD '...'."
                )
                raise SchemaMismatch(message)
            async with connection.transaction():
                for statement in statements:
                    await connection.execute(statement)
        finally:
            await connection.close()
    return statements
