"""A batch that is a transaction by itself: everything is written, or nothing is."""

from typing import Any

import pytest

from tests.support.store_builders import (
    a_change,
    a_run,
    a_signal,
    a_start,
    a_step,
    an_id,
    an_outbox_row,
    completed,
    later,
    load,
    save,
    started,
)
from towpath_engine.core.states import RunStatus
from towpath_engine.store.interface import BatchWrite, SavedRun, Store


async def save_alone(store: Store, *runs: SavedRun, **batch: Any) -> bool:
    async with store.transaction() as tx:
        return await tx.save_alone(BatchWrite(runs=runs, **batch))


async def stored(store: Store, run_id: str) -> object:
    """All that a batch writes of a run."""
    async with store.transaction() as tx:
        locked = await tx.lock_runs([run_id])
    return (
        locked,
        await load(store, run_id, ["charge", "ship"]),
        await store.get_history(run_id, 0, 100),
        await store.due_timers(later(3600), 100),
        await store.open_dispatches(later(3600), None, 100),
    )


async def test_what_is_saved_alone_is_what_a_transaction_would_have_saved(store: Store) -> None:
    runs = [await started(store, a_run(number), a_step()) for number in (1, 2)]
    for run in runs:
        row = an_outbox_row(run.version, run, id=an_id(900 + int(run.id[-2:], 16)))
        assert await save(store, a_change(run, outbox=[row]))
    now = [await load(store, run.id, ["charge"]) for run in runs]
    changes = [
        a_change(
            run, completed(run.steps["charge"]), a_step("ship"), seq=run.seq + 1,
            reached=b"\x07", metadata=b'{"a":1}', revoked=["token-charge"],
        )
        for run in now if run is not None
    ]  # fmt: skip
    assert await save(store, changes[0], published=[an_id(901)]) == {runs[0].id}
    assert await save_alone(store, changes[1], published=[an_id(902)])
    one, two = [await load(store, run.id, ["charge", "ship"]) for run in runs]
    assert one is not None
    assert two is not None
    assert (one.version, one.steps, one.metadata) == (two.version, two.steps, two.metadata)
    assert list(two.steps) == ["charge", "ship"]
    assert await store.get_history(runs[0].id, 0, 9) == await store.get_history(runs[1].id, 0, 9)
    opened = await store.open_dispatches(later(3600), None, 100)
    assert [(row.run_id, row.path) for row in opened] == [(run.id, "ship") for run in runs]
    assert await store.due_outbox(later(3600), 100) == []


async def test_a_run_that_settles_alone_frees_its_key_and_its_timers(store: Store) -> None:
    run = await started(store, a_run(key="k", deadline_at=later(60)), a_step())
    done = a_change(
        run, completed(run.steps["charge"]), status=RunStatus.COMPLETED, settled_at=later(1)
    )
    assert await save_alone(store, done)
    async with store.transaction() as tx:
        assert await tx.find_keys([("order", "k")]) == {}
    assert await store.due_timers(later(3600), 100) == []
    assert await store.open_dispatches(later(3600), None, 100) == []


async def test_one_run_that_has_moved_on_keeps_the_whole_batch_from_being_written(
    store: Store,
) -> None:
    moved, current = [await started(store, a_run(number), a_step()) for number in (1, 2)]
    assert await save(store, a_change(moved, a_step("other"), seq=1))
    before = [await stored(store, run.id) for run in (moved, current)]
    changes = [
        a_change(run, completed(run.steps["charge"]), a_step("ship"), seq=1)
        for run in (moved, current)
    ]
    assert not await save_alone(store, *changes)
    assert [await stored(store, run.id) for run in (moved, current)] == before


async def test_a_transaction_goes_on_after_a_batch_that_could_not_be_saved_alone(
    store: Store,
) -> None:
    moved, current = [await started(store, a_run(number), a_step()) for number in (1, 2)]
    assert await save(store, a_change(moved))
    changes = BatchWrite(runs=[a_change(run, a_step("ship")) for run in (moved, current)])
    async with store.transaction() as tx:
        assert not await tx.save_alone(changes)
        assert set(await tx.lock_runs([moved.id, current.id])) == {moved.id, current.id}
        assert await tx.save(changes) == {current.id}
    assert [step.path for step in await store.get_steps(moved.id, None, 9)] == ["charge"]
    assert [step.path for step in await store.get_steps(current.id, None, 9)] == ["charge", "ship"]


async def test_a_batch_that_must_be_rejected_is_not_saved_alone(store: Store) -> None:
    run = await started(store, a_run(), a_step())
    before = await stored(store, run.id)
    assert not await save_alone(store, a_change(run, seq=5, known=False), a_change(run, priority=9))
    assert not await save_alone(store, a_change(run, a_step("ship", token=None)))
    assert await stored(store, run.id) == before


@pytest.mark.parametrize("what", ["new run", "signal", "timer", "request id"])
async def test_kinds_that_need_locks_or_more_statements_are_left_to_a_transaction(
    store: Store, what: str
) -> None:
    run = await started(store, a_run(), a_step())
    before = await stored(store, run.id)
    batch = {
        "new run": BatchWrite(runs=[a_start(a_run(2))]),
        "signal": BatchWrite(runs=[a_change(run, signals=[a_signal(1, run)])]),
        "timer": BatchWrite(runs=[a_change(run, a_step(dispatch_deadline_at=later(5)))]),
        "request id": BatchWrite(runs=[a_change(run)], requests=[("order", "r", run.id)]),
    }[what]
    async with store.transaction() as tx:
        assert not await tx.save_alone(batch)
    assert await stored(store, run.id) == before
    assert await store.get_run(an_id(2)) is None


async def test_the_confirmed_messages_of_a_batch_without_runs_are_deleted(store: Store) -> None:
    run = await started(store, a_run())
    assert await save(store, a_change(run, outbox=[an_outbox_row(1, run)]))
    assert await save_alone(store, published=[an_id(1)])
    assert await store.due_outbox(later(3600), 100) == []
