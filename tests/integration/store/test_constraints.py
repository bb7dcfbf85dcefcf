"""The schema's CHECKs repeat the core's tables: each list is compared with its enum."""

import re
from collections.abc import AsyncGenerator

import pytest

from tests.support.stores import a_postgres_store
from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import (
    SETTLED_RUN,
    SETTLED_STEP,
    RunStatus,
    StepKind,
    StepStatus,
    WaitReason,
)
from towpath_engine.store.invariants import (
    BEGUN_RUN,
    ENDINGS,
    LIVE_ATTEMPT,
    MAY_HOLD_TOKEN,
    UNDOINGS,
)
from towpath_engine.store.postgres import PostgresStore
from towpath_engine.store.rows import RUN_FIELDS, STEP_FIELDS

LISTS = {
    "run_status_known": set(RunStatus),
    "run_settled_at_with_status": SETTLED_RUN,
    "run_begun_has_started_at": BEGUN_RUN,
    "step_kind_known": set(StepKind),
    "step_status_known": set(StepStatus),
    "step_settled_at_with_status": SETTLED_STEP,
    "step_token_with_live_attempt": LIVE_ATTEMPT | MAY_HOLD_TOKEN,
    "step_waiting_for_known": set(WaitReason),
    "run_ending_known": ENDINGS,
    "run_compensation_known": UNDOINGS,
    "open_step_is_open": SETTLED_STEP,
}


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncGenerator[PostgresStore]:
    async with a_postgres_store(postgres_url) as store:
        yield store


async def test_the_lists_of_the_checks_are_those_of_the_core(postgres: PostgresStore) -> None:
    async with postgres.pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype = 'c' AND connamespace = current_schema()::regnamespace"
        )
    checks = {row[0]: set(re.findall(r"'([a-z_]+)'", row[1])) for row in rows}
    for name, members in LISTS.items():
        assert checks[name] == {str(member) for member in members}, name


async def test_every_check_has_a_name_of_its_own_table(postgres: PostgresStore) -> None:
    async with postgres.pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT conname, conrelid::regclass::text FROM pg_constraint"
            " WHERE contype = 'c' AND connamespace = current_schema()::regnamespace"
        )
    assert rows
    for name, table in rows:
        assert name.startswith(table), (name, table)
        assert not re.search(r"_check\d*$", name), name


async def test_every_field_of_the_model_has_a_column(postgres: PostgresStore) -> None:
    async with postgres.pool.acquire() as connection:
        columns = {
            table: await connection.fetch(
                "SELECT column_name FROM information_schema.columns"
                " WHERE table_schema = current_schema() AND table_name = $1",
                table,
            )
            for table in ("run", "step")
        }
    assert {row[0] for row in columns["run"]} == set(RUN_FIELDS)
    assert {row[0] for row in columns["step"]} == {"run_id", *STEP_FIELDS}
    assert set(RUN_FIELDS) == set(Run.__struct_fields__) - {
        "definition", "limits", "steps", "kept",
    }  # fmt: skip
    assert set(STEP_FIELDS) == set(Step.__struct_fields__)
