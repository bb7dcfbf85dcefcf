"""Two connections and one row: exactly one wins, and a lost connection writes nothing."""

import asyncio
from collections.abc import AsyncGenerator

import asyncpg
import pytest

from tests.support.census import count_open_runs
from tests.support.store_builders import (
    a_change,
    a_document,
    a_letter,
    a_run,
    a_start,
    a_step,
    an_id,
    later,
    load,
    save,
    started,
)
from tests.support.stores import a_postgres_store
from towpath_engine.core.states import RunStatus
from towpath_engine.store.errors import StoreRejected, StoreUnavailable
from towpath_engine.store.interface import BatchWrite, KeyClaim, SavedRun
from towpath_engine.store.postgres import PostgresStore
from towpath_engine.store.transaction import StoreCaps

GUARD_SECONDS = 60


@pytest.fixture
async def postgres(postgres_url: str) -> AsyncGenerator[PostgresStore]:
    async with a_postgres_store(postgres_url, pool_size=20) as store:
        await store.deploy_workflow("order", "f-order", a_document())
        yield store


async def wait_for_lock_waiters(store: PostgresStore, count: int) -> None:
    """Until so many sessions of this schema wait for a lock."""
    async with asyncio.timeout(GUARD_SECONDS), store.pool.acquire() as connection:
        while True:
            waiting = await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            if waiting >= count:
                return


async def test_a_thousand_claims_of_one_key_have_one_winner(postgres: PostgresStore) -> None:
    async def start(number: int) -> str:
        claim = KeyClaim(run_id=an_id(number), workflow="order", key="k")
        async with postgres.transaction() as tx:
            [holder] = await tx.claim_keys([claim])
            if holder.run_id == claim.run_id:
                await tx.save(BatchWrite(runs=[a_start(a_run(number, key="k"))]))
            return holder.run_id

    async with asyncio.timeout(GUARD_SECONDS):
        holders = await asyncio.gather(*(start(number) for number in range(1000)))
    assert len(set(holders)) == 1
    assert await postgres.get_key("order", "k") == holders[0]
    assert await count_open_runs(postgres) == {"running": 1}


async def test_a_claim_waits_for_the_transaction_that_claims_the_same_key(
    postgres: PostgresStore,
) -> None:
    claims = [KeyClaim(run_id=an_id(n), workflow="order", key="k") for n in (1, 2, 3)]

    async def claim(wanted: KeyClaim) -> str:
        async with postgres.transaction() as tx:
            return (await tx.claim_keys([wanted]))[0].run_id

    async with postgres.transaction() as tx:
        await tx.claim_keys([claims[0]])
        waiting = asyncio.create_task(claim(claims[1]))
        await wait_for_lock_waiters(postgres, 1)
        await tx.save(BatchWrite(runs=[a_start(a_run(1, key="k"))]))
    assert await waiting == an_id(1)


async def test_a_claim_wins_when_the_transaction_it_waited_for_rolled_back(
    postgres: PostgresStore,
) -> None:
    class DeliberateError(Exception):
        pass

    async def claim() -> str:
        async with postgres.transaction() as tx:
            wanted = KeyClaim(run_id=an_id(2), workflow="order", key="k", request_id="r")
            return (await tx.claim_keys([wanted]))[0].run_id

    async def claim_and_fail() -> asyncio.Task[str]:
        async with postgres.transaction() as tx:
            wanted = KeyClaim(run_id=an_id(1), workflow="order", key="k", request_id="r")
            await tx.claim_keys([wanted])
            tasks.append(asyncio.create_task(claim()))
            await wait_for_lock_waiters(postgres, 1)
            raise DeliberateError

    tasks: list[asyncio.Task[str]] = []
    with pytest.raises(DeliberateError):
        await claim_and_fail()
    assert await tasks[0] == an_id(2)


async def test_of_many_writers_of_one_version_one_wins(postgres: PostgresStore) -> None:
    before = await started(postgres, a_run(), a_step())

    async def write(number: int) -> tuple[int, set[str]]:
        change = a_change(before, a_step(f"s{number}"), seq=1)
        return number, await save(postgres, change)

    async with asyncio.timeout(GUARD_SECONDS):
        results = await asyncio.gather(*(write(number) for number in range(50)))
    winners = [number for number, written in results if written]
    assert len(winners) == 1
    steps = await postgres.get_steps(before.id, None, 100)
    assert [step.path for step in steps] == ["charge", f"s{winners[0]}"]
    assert len(await postgres.get_history(before.id, 0, 100)) == 1


async def test_of_many_writers_that_save_alone_one_wins(postgres: PostgresStore) -> None:
    runs = [await started(postgres, a_run(number), a_step()) for number in range(1, 11)]

    async def write(number: int) -> int | None:
        changes = [a_change(run, a_step(f"s{number}"), seq=1) for run in runs]
        async with postgres.transaction() as tx:
            batch = BatchWrite(runs=changes[:: 1 if number % 2 else -1])
            return number if await tx.save_alone(batch) else None

    async with asyncio.timeout(GUARD_SECONDS):
        numbers = await asyncio.gather(*(write(number) for number in range(50)))
    winners = [number for number in numbers if number is not None]
    assert len(winners) == 1
    for run in runs:
        steps = await postgres.get_steps(run.id, None, 100)
        assert [step.path for step in steps] == ["charge", f"s{winners[0]}"]
        assert len(await postgres.get_history(run.id, 0, 100)) == 1


async def test_batches_that_share_runs_in_opposite_orders_do_not_deadlock(
    postgres: PostgresStore,
) -> None:
    runs = [a_run(number) for number in range(1, 41)]
    await save(postgres, *map(a_start, runs))

    async def write(changes: list[SavedRun]) -> set[str]:
        return await save(postgres, *changes)

    for version in range(1, 6):
        current = [a_change(a_run(n, version=version), seq=0) for n in range(1, 41)]
        async with asyncio.timeout(GUARD_SECONDS):
            results = await asyncio.gather(*(
                write(current[::step]) for step in (1, -1, 1, -1)
            ))  # fmt: skip
        assert sorted(run_id for written in results for run_id in written) == sorted(
            run.id for run in runs
        )


async def test_a_connection_killed_in_the_middle_leaves_nothing_written(
    postgres: PostgresStore, postgres_url: str
) -> None:
    async def write() -> None:
        async with postgres.transaction() as tx:
            await tx.claim_keys([KeyClaim(run_id=an_id(1), workflow="order", key="k")])
            await tx.save(BatchWrite(runs=[a_start(a_run(key="k"), a_step())]))
            await kill_sessions(postgres_url, postgres)
            await tx.lock_runs([an_id(1)])

    with pytest.raises(StoreUnavailable):
        await write()
    assert await postgres.get_run(an_id(1)) is None
    assert await postgres.get_key("order", "k") is None


async def test_a_connection_killed_before_the_commit_leaves_nothing_written(
    postgres: PostgresStore, postgres_url: str
) -> None:
    async def write() -> None:
        async with postgres.transaction() as tx:
            await tx.save(BatchWrite(runs=[a_start(a_run(), a_step())]))
            await kill_sessions(postgres_url, postgres)

    with pytest.raises(StoreUnavailable):
        await write()
    assert await postgres.get_run(an_id(1)) is None


async def kill_sessions(url: str, store: PostgresStore) -> None:
    """End every session of the store's pool on the server."""
    async with store.pool.acquire() as own:
        name = await own.fetchval("SELECT current_setting('application_name')")
    connection = await asyncpg.connect(url)
    try:
        killed = await connection.fetch(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            " WHERE application_name = $1",
            name,
        )
    finally:
        await connection.close()
    assert killed


async def test_idle_connections_that_were_killed_are_replaced(
    postgres: PostgresStore, postgres_url: str
) -> None:
    await asyncio.gather(*(postgres.now() for _ in range(5)))
    await kill_sessions(postgres_url, postgres)
    failures = 0
    for _ in range(50):
        try:
            await postgres.now()
        except StoreUnavailable:
            failures += 1
        else:
            break
    assert failures <= 20, "each dead connection is met at most once"
    assert (await postgres.now()).tzinfo is not None


async def test_a_swallowed_error_does_not_look_like_a_commit(postgres: PostgresStore) -> None:
    async def write() -> None:
        async with postgres.transaction() as tx:
            await tx.save(BatchWrite(runs=[a_start(a_run())]))
            with pytest.raises(StoreRejected):
                await tx.save(BatchWrite(runs=[a_start(a_run(2, priority=9))]))

    with pytest.raises(StoreRejected, match="must not be swallowed"):
        await write()
    assert await postgres.get_run(an_id(1)) is None


async def test_a_cancelled_transaction_leaves_nothing_and_its_connection_works(
    postgres_url: str,
) -> None:
    async with a_postgres_store(postgres_url, pool_size=2) as store:
        entered = asyncio.Event()

        async def write() -> None:
            async with store.transaction() as tx:
                await tx.save(BatchWrite(runs=[a_start(a_run(2))]))
                entered.set()
                await tx.lock_runs([an_id(1)])

        await started(store, a_run(1))
        async with store.transaction() as tx:
            await tx.lock_runs([an_id(1)])
            task = asyncio.create_task(write())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with asyncio.timeout(GUARD_SECONDS):
            statuses = [store.run_statuses([an_id(1), an_id(2)]) for _ in range(4)]
            assert await asyncio.gather(*statuses) == [{an_id(1): "running"}] * 4


async def test_a_settled_run_frees_its_key_in_the_same_commit(postgres: PostgresStore) -> None:
    before = await started(postgres, a_run(key="k"))
    async with postgres.transaction() as tx:
        done = a_change(before, status=RunStatus.FAILED, settled_at=later(1))
        await tx.save(BatchWrite(runs=[done]))
        async with postgres.transaction() as other:
            assert await other.find_keys([("order", "k")]) == {("order", "k"): before.id}
    async with postgres.transaction() as other:
        assert await other.find_keys([("order", "k")]) == {}


async def test_values_that_postgres_refuses_are_rejected_not_unavailable(
    postgres: PostgresStore,
) -> None:
    for run in (a_run(triggered_by="\x00"), a_run(key="k" * 1025), a_run(id="no id")):
        with pytest.raises(StoreRejected):
            await save(postgres, a_start(run))
    assert await load(postgres, an_id(1)) is None


async def test_dead_letters_are_counted_exactly_by_concurrent_writers(
    postgres_url: str,
) -> None:
    caps = StoreCaps(dead_letter_rows_max=25)
    async with a_postgres_store(postgres_url, caps=caps, pool_size=10) as store:

        async def write(number: int) -> int:
            async with store.transaction() as tx:
                await tx.save(
                    BatchWrite(dead_letters=[a_letter(2 * number), a_letter(2 * number + 1)])
                )
                return tx.refused_letter_count

        async with asyncio.timeout(GUARD_SECONDS):
            refused = await asyncio.gather(*(write(number) for number in range(20)))
        kept = await store.letters.page(None, 100, body_bytes_max=0)
    assert (len(kept), sum(refused)) == (25, 15)


async def test_a_statement_that_takes_too_long_is_unavailability_not_rejection(
    postgres_url: str,
) -> None:
    async with a_postgres_store(postgres_url, pool_size=2, statement_timeout_ms=200) as store:
        await started(store, a_run(1))

        async def lock() -> None:
            async with store.transaction() as tx:
                await tx.lock_runs([an_id(1)])

        async with store.transaction() as tx:
            await tx.lock_runs([an_id(1)])
            with pytest.raises(StoreUnavailable):
                await lock()
        await lock()
        assert await store.run_statuses([an_id(1)]) == {an_id(1): "running"}


async def test_a_deadlock_is_unavailability_for_one_and_success_for_the_other(
    postgres: PostgresStore,
) -> None:
    await save(postgres, a_start(a_run(1)), a_start(a_run(2)))
    both = asyncio.Barrier(2)

    async def lock(first: int, second: int) -> str:
        try:
            async with postgres.transaction() as tx:
                await tx.lock_runs([an_id(first)])
                await both.wait()
                await tx.lock_runs([an_id(second)])
        except StoreUnavailable:
            return "unavailable"
        return "committed"

    async with asyncio.timeout(GUARD_SECONDS):
        ends = await asyncio.gather(lock(1, 2), lock(2, 1))
    assert sorted(ends) == ["committed", "unavailable"]


async def test_a_schema_that_vanished_is_unavailability_not_a_reason_for_dead_letters(
    postgres: PostgresStore,
) -> None:
    async with postgres.pool.acquire() as connection:
        await connection.execute("DROP TABLE timer")
    with pytest.raises(StoreUnavailable):
        await save(postgres, a_start(a_run(deadline_at=later(1))))
    with pytest.raises(StoreUnavailable):
        await postgres.due_timers(later(9), 1)
