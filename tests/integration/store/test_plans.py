"""Plans on empty statistics: no statement may scan a table that grows, however young it is."""

import re

import pytest

from tests.support.store_builders import (
    DEFINITION,
    LIMITS,
    a_change,
    a_document,
    a_run,
    a_signal,
    a_step,
    an_id,
    an_outbox_row,
    completed,
    later,
    save,
    started,
)
from tests.support.stores import a_postgres_store
from towpath_engine.store.interface import BatchWrite, LoadRequest, SavedRun
from towpath_engine.store.statements import load_statement, statement_names
from towpath_engine.store.transaction import PostgresTransaction, StoreCaps

# One row; bounded by the engine; a few hundred rows, read whole on purpose.
SMALL = {
    "dead_letter_total", "engine", "parked_signal", "partition_lease", "pause", "pause_epoch",
    "queue", "worker", "workflow",
}  # fmt: skip


@pytest.fixture
def growing() -> set[str]:
    return {
        "run", "step", "open_step", "ready_step", "transition", "signal", "outbox", "timer", "log",
    }  # fmt: skip


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


async def test_a_batch_costs_the_same_statements_for_one_run_and_for_many(
    postgres_url: str,
) -> None:
    async with a_postgres_store(postgres_url) as store:
        await store.deploy_workflow("order", "f-order", a_document())
        runs = [
            await started(store, a_run(number, deadline_at=later(60)), a_step())
            for number in range(1, 41)
        ]

        async def statements(changes: list[SavedRun], number: int) -> int:
            seen: list[str] = []
            async with store.pool.acquire() as connection, connection.transaction():
                with connection.query_logger(lambda record: seen.append(record.query)):
                    tx = PostgresTransaction(connection, LIMITS, StoreCaps())
                    locked = await tx.lock_runs([item.run.id for item in changes])
                    requests = [
                        LoadRequest(run_id=run_id, definition=DEFINITION, paths=frozenset({"a"}))
                        for run_id in locked
                    ]
                    await tx.load_runs(requests)
                    await tx.save(BatchWrite(runs=changes, published=[an_id(number)]))
            return len(seen)

        changes = [
            a_change(
                run, completed(run.steps["charge"]), a_step("ship", dispatch_deadline_at=later(9)),
                seq=1, outbox=[an_outbox_row(index, run)], revoked=["token-charge"],
                signals=[a_signal(1, run)], deadline_at=None,
            )
            for index, run in enumerate(runs)
        ]  # fmt: skip
        one = await statements(changes[:1], 901)
        many = await statements(changes[1:], 902)
    assert one == many
    assert 0 < many <= 20
