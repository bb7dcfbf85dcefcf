"""Plans on empty statistics: no statement may scan a table that grows, however young it is."""

import re

import pytest

from tests.support.store_builders import (
    a_change,
    a_document,
    a_run,
    a_step,
    completed,
    save,
    started,
)
from tests.support.stores import a_postgres_store
from towpath_engine.store.statements import load_statement, statement_names

# One row; bounded by the engine; a few hundred rows, read whole on purpose.
SMALL = {"dead_letter_total", "parked_signal", "queue", "workflow"}


@pytest.fixture
def growing() -> set[str]:
    return {"run", "step", "open_step", "transition", "signal", "outbox", "timer", "log"}


async def test_no_statement_scans_a_table_that_grows(postgres_url: str, growing: set[str]) -> None:
    scanned: dict[str, set[str]] = {}
    async with a_postgres_store(postgres_url) as store, store.pool.acquire() as connection:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        for name in statement_names():
            statement = load_statement(name)
            await connection.execute(f"PREPARE p AS {statement.sql}")
            values = ", ".join(["NULL"] * len(statement.parameters))
            call = f"EXPLAIN EXECUTE p({values})" if values else "EXPLAIN EXECUTE p"
            plan = "\n".join(row[0] for row in await connection.fetch(call))
            await connection.execute("DEALLOCATE p")
            scanned[name] = set(re.findall(r"Seq Scan on (\w+)", plan)) - SMALL
    assert {name: tables for name, tables in scanned.items() if tables} == {}
    assert growing.isdisjoint(SMALL)


async def test_decisions_update_runs_and_steps_in_place(postgres_url: str) -> None:
    async with a_postgres_store(postgres_url) as store:
        await store.deploy_workflow("order", "f-order", a_document())
        run = await started(store, a_run(), a_step("s0"))
        for number in range(20):
            done = completed(run.steps[f"s{number}"])
            change = a_change(run, done, a_step(f"s{number + 1}"), reached=bytes([number]))
            await save(store, change)
            run = change.run
        async with store.pool.acquire() as connection:
            await connection.execute("SELECT pg_stat_force_next_flush()")
            rows = await connection.fetch(
                "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables"
                " WHERE schemaname = current_schema() AND relname IN ('run', 'step')"
            )
    counts = {row[0]: (row[1], row[2]) for row in rows}
    assert counts["step"] == (20, 20)
    assert counts["run"] == (20, 20)
