"""An engine as a role that can read and write rows and nothing else."""

import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.support.engines import engine_settings, running
from tests.support.eventually import eventually
from tests.support.jetstream import jetstream_url
from tests.support.wire_client import RefusedError, WireClient, connected
from towpath_engine.store.errors import SchemaMismatch
from towpath_engine.store.migrate import Migration, Phase, load_migrations, migrate
from towpath_engine.store.role import grant_role

__all__ = ["jetstream_url"]

PASSWORD = "s3cr3t-of-the-role"


def as_role(url: str, role: str) -> str:
    """The same database, logged in to as the role."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    return f"postgresql://{role}:{PASSWORD}@{host}{urlsplit(url).path}"


@pytest.fixture
async def role(postgres_url: str) -> AsyncGenerator[str]:
    """A role that may log in and owns nothing; needs a quoted name, as many have."""
    name = f"serve-{secrets.token_hex(4)}"
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{PASSWORD}'")
        yield name
        await connection.execute(f'DROP OWNED BY "{name}"')
        await connection.execute(f'DROP ROLE "{name}"')
    finally:
        await connection.close()


async def towpath(url: str, schema: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command, with the owner's address."""
    environment = {**os.environ, "TOWPATH_POSTGRES_URL": url, "TOWPATH_POSTGRES_SCHEMA": schema}
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "towpath_engine", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


async def asked(wire: WireClient, verb: str, **body: Any) -> None:
    """Ask; whatever the engine thinks of it, it must not have stumbled over a missing right."""
    try:
        await wire.api(verb, **body)
    except RefusedError as refused:
        if refused.status >= 500:
            raise


async def test_an_engine_with_the_printed_grants_runs_whole_workflows(
    postgres_url: str,
    schema: str,
    role: str,
    jetstream_url: str,
    prefix: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = await towpath(postgres_url, schema, "database-role", role)
    assert printed.returncode == 0, printed.stderr
    owner = await asyncpg.connect(postgres_url)
    await owner.execute(printed.stdout)
    await owner.close()
    settings = engine_settings(jetstream_url, as_role(postgres_url, role), prefix, schema)
    steps = [
        {"name": "ask", "task": "ask", "queue": "mail", "retry": {"max_attempts": 2}},
        {"name": "nap", "sleep": "10ms"},
        {"name": "go", "wait": {"signal": "go"}},
    ]
    async with running(settings), connected(jetstream_url, prefix) as wire:
        await wire.deploy({"expressions": "cel/1", "workflow": "whole", "steps": steps})
        run_id = await wire.start("whole", key="k", tags=["t"], request_id="r")
        await wire.fail(await wire.take("mail"))
        log = {"at": "2026-01-01T00:00:00Z", "level": "info", "message": "once more"}
        await wire.complete(await wire.take("mail"), 1, worker_id="w", logs=[log])
        await wire.api("run.signal", run_id=run_id, signal="go", payload=2)
        assert (await wire.result(run_id))["status"] == "completed"
        cancelled = await wire.start("whole")
        await wire.api("run.cancel", run_id=cancelled)
        assert (await wire.result(cancelled))["status"] == "cancelled"
        await wire.put("in.signal.-.nonsense.go", b"1")
        (letter,) = await eventually(wire.dead_letters)
        for verb in ("run.list", "workflow.list", "worker.list", "queue.list"):
            await asked(wire, verb)
        for verb in ("run.explain", "run.logs", "run.history", "run.retry", "run.purge"):
            await asked(wire, verb, run_id=cancelled)
        for verb in ("queue.pause", "queue.resume"):
            await asked(wire, verb, queue="mail")
        await asked(wire, "workflow.retention", workflow="whole", retention_ms=1)
        await asked(wire, "dead-letter.discard", ids=[letter["id"]])
    said = capsys.readouterr().out
    assert "engine_ready" in said
    assert "42501" not in said, "no sweep was denied anything, either"


async def test_the_role_changes_no_schema_and_reads_no_other(
    postgres_url: str, schema: str, role: str
) -> None:
    await grant_role(postgres_url, schema, role)
    owner = await asyncpg.connect(postgres_url)
    other = f"{schema}_other"
    await owner.execute(f"CREATE SCHEMA {other}; CREATE TABLE {other}.secret AS SELECT 1 AS one")
    try:
        connection = await asyncpg.connect(as_role(postgres_url, role))
        try:
            assert await connection.fetchval(f"SELECT count(*) FROM {schema}.run") == 0
            for statement in (
                f"CREATE TABLE {schema}.mine (one int)",
                f"CREATE INDEX mine ON {schema}.run (id)",
                f"CREATE FUNCTION {schema}.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
                f"ALTER TABLE {schema}.run ADD COLUMN mine int",
                f"ALTER TABLE {schema}.run DISABLE TRIGGER ALL",
                f"DROP TABLE {schema}.run",
                f"TRUNCATE {schema}.run",
                f"DROP SCHEMA {schema} CASCADE",
                f"DELETE FROM {schema}.schema_migration",
                f"UPDATE {schema}.schema_migration SET checksum = ''",
                "CREATE SCHEMA mine",
                "CREATE TABLE public.mine (one int)",
                f"SELECT * FROM {other}.secret",
                "SELECT * FROM pg_authid",
                f"SET ROLE {await owner.fetchval('SELECT current_user')}",
            ):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)
        finally:
            await connection.close()
    finally:
        await owner.execute(f"DROP SCHEMA {other} CASCADE")
        await owner.close()


async def test_tables_of_later_migrations_are_covered(
    postgres_url: str, schema: str, role: str
) -> None:
    await grant_role(postgres_url, schema, role)
    sql = "CREATE TABLE later (n int GENERATED ALWAYS AS IDENTITY, one int)"
    later = Migration(number=9_000, name="9000_later", phase=Phase.BEFORE, checksum="x", sql=sql)
    await migrate(postgres_url, schema, migrations=[*load_migrations(), later])
    connection = await asyncpg.connect(as_role(postgres_url, role))
    try:
        await connection.execute(f"INSERT INTO {schema}.later (one) VALUES (1)")
        assert await connection.fetchval(f"DELETE FROM {schema}.later RETURNING n") == 1
    finally:
        await connection.close()


async def test_a_role_that_may_not_migrate_is_told_who_may(
    postgres_url: str, schema: str, role: str
) -> None:
    """`towpath migrate` is for the owner, `serve` never migrates: it says what is missing."""
    await grant_role(postgres_url, schema, role)
    refused = await towpath(as_role(postgres_url, role), f"{schema}_new", "migrate")
    assert refused.returncode != 0
    assert "permission denied" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert PASSWORD not in refused.stderr


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"schema": "t_not_there"}, "run `towpath migrate` first"),
        ({"role": "not-there"}, 'CREATE ROLE "not-there" LOGIN'),
    ],
)
async def test_what_can_not_be_granted_is_refused_with_the_fix(
    postgres_url: str, schema: str, role: str, change: dict[str, Any], part: str
) -> None:
    given = {"schema": schema, "role": role, **change}
    with pytest.raises(SchemaMismatch, match=part):
        await grant_role(postgres_url, given["schema"], given["role"])


async def test_only_the_owner_can_grant(postgres_url: str, schema: str, role: str) -> None:
    await grant_role(postgres_url, schema, role)
    with pytest.raises(SchemaMismatch, match="log in as it"):
        await grant_role(as_role(postgres_url, role), schema, role)


async def test_the_command_applies_the_grants_and_may_be_repeated(
    postgres_url: str, schema: str, role: str
) -> None:
    for _ in range(2):
        applied = await towpath(postgres_url, schema, "database-role", role, "--apply")
        assert (applied.returncode, applied.stdout) == (
            0,
            f"Role {role} may now serve schema {schema}.\n",
        )
    connection = await asyncpg.connect(as_role(postgres_url, role))
    try:
        assert await connection.fetchval(f"SELECT count(*) FROM {schema}.schema_migration") > 0
    finally:
        await connection.close()
