"""The contract of what has settled: histories for a replay, retention, and purges that leave
nothing behind."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from tests.support.store_builders import (
    a_document,
    a_letter,
    a_run,
    a_signal,
    a_start,
    a_step,
    a_transition,
    an_id,
    completed,
    later,
    save,
    started,
)
from towpath_engine.core.model import Run
from towpath_engine.core.payloads import RowsOutput
from towpath_engine.core.states import RunStatus
from towpath_engine.store.interface import KeyClaim, KeyedSignalId, Store
from towpath_engine.store.past import Purge, PurgedBatch, PurgeSize
from towpath_engine.store.records import LogLine

DAY_MS = 86_400_000
SIZE = PurgeSize(runs_max=100, transitions_max=10_000)


def a_settled(number: int, at: float = 0.0, **fields: Any) -> Run:
    """A run that settled so many seconds after the others began."""
    return a_run(
        number,
        **{"status": RunStatus.COMPLETED, "output": b"1", "settled_at": later(at), **fields},
    )


async def settled(store: Store, *runs: Run) -> None:
    assert await save(store, *(a_start(run) for run in runs)) == {run.id for run in runs}


async def left(store: Store, numbers: Sequence[int]) -> list[int]:
    """Which of these runs are there."""
    there = await store.run_statuses([an_id(number) for number in numbers])
    return [number for number in numbers if an_id(number) in there]


# Histories


async def test_a_history_has_as_many_payloads_as_fit_and_at_least_one(store: Store) -> None:
    run = a_run(1, seq=4)
    sizes = (None, 30, 30, 5)
    rows = [
        a_transition(seq, payload=None if size is None else b"x" * size)
        for seq, size in enumerate(sizes, start=1)
    ]
    start = a_start(run)
    await save(store, type(start)(run=run, expected_version=None, transitions=rows))
    past = store.past
    assert await past.history(run.id, 0, 10, bytes_max=65) == rows
    assert await past.history(run.id, 0, 10, bytes_max=64) == rows[:3]
    assert await past.history(run.id, 0, 10, bytes_max=59) == rows[:2]
    assert await past.history(run.id, 1, 10, bytes_max=1) == rows[1:2]
    assert await past.history(run.id, 2, 1, bytes_max=99) == rows[2:3]
    assert await past.history("no id", 0, 10, bytes_max=99) == []
    assert [row.payload for row in await store.get_history(run.id, 0, 10)] == [None] * 4


async def test_outputs_come_with_their_visit_and_size_as_long_as_they_fit(store: Store) -> None:
    steps = [
        completed(a_step("a"), output=b"1234"),
        completed(a_step("b", visit=3), output=b"56"),
        a_step("c"),
    ]
    run = await started(store, a_run(1), *steps)
    asked = ["b", "a", "c", "nowhere"]
    a = RowsOutput(visit=1, size=4, value=b"1234")
    b = RowsOutput(visit=3, size=2, value=b"56")
    assert await store.past.outputs(run.id, asked, bytes_max=6) == {"a": a, "b": b}
    cut = RowsOutput(visit=1, size=4, value=None)
    assert await store.past.outputs(run.id, asked, bytes_max=5) == {"a": cut, "b": b}


async def test_signals_are_read_by_number_as_long_as_they_fit(store: Store) -> None:
    run = a_run(1)
    rows = [a_signal(number, run, payload=b"12345") for number in (1, 2, 3)]
    await started(store, run, signals=rows)
    found = await store.past.signals(run.id, [3, 1, 9], bytes_max=10)
    assert found == {3: rows[2].signal, 1: rows[0].signal}
    assert list(await store.past.signals(run.id, [3, 1], bytes_max=9)) == [3]
    assert list(await store.past.signals(run.id, [3, 1], bytes_max=1)) == [3]


# Purges


async def test_a_purged_run_leaves_nothing_behind(store: Store) -> None:
    run = a_settled(1, key="k", request_id="r", tags=("t",), seq=2)
    other = a_settled(2, key="k2", request_id="r2", seq=1)
    log = LogLine(run_id=run.id, path="a", attempt=1, token="t", at=later(0), lines=b"[]")
    for one in (run, other):
        rows = {"signals": [a_signal(1, one)], "logs": [log] if one is run else []}
        await save(store, a_start(one, completed(a_step("a")), **rows))
    await save(store, dead_letters=[a_letter(1, run_id=run.id)], requests=[("order", "r9", run.id)])
    assert await store.past.purge_run(run.id) is Purge.PURGED
    assert await store.get_run(run.id) is None
    assert await store.get_steps(run.id, None, 9) == []
    assert await store.get_history(run.id, 0, 9) == []
    assert await store.get_logs(run.id, None, 0, 9) == []
    assert await store.past.signals(run.id, [1], bytes_max=99) == {}
    assert await store.get_key("order", "k") is None
    assert len(await store.letters.get([an_id(1)])) == 1
    async with store.transaction() as tx:
        wanted = [("order", name) for name in ("r", "r2", "r9")]
        assert await tx.find_requests(wanted) == {("order", "r2"): other.id}
        claim = KeyClaim(run_id=an_id(7), workflow="order", key="k", request_id="r")
        assert [holder.run_id for holder in await tx.claim_keys([claim])] == [an_id(7)]
    assert await store.get_run(other.id) is not None
    assert len(await store.get_steps(other.id, None, 9)) == 1
    assert len(await store.get_history(other.id, 0, 9)) == 1
    assert await store.past.signals(other.id, [1], bytes_max=99) != {}
    assert await store.past.purge_run(run.id) is Purge.UNKNOWN


async def test_the_ids_of_keyed_signals_outlive_their_run(store: Store) -> None:
    run = a_settled(1)
    await settled(store, run)
    identity = KeyedSignalId(workflow="order", key="k", name="go", message_id="m")
    await save(store, keyed_signals=[(identity, run.id)])
    await store.past.purge_run(run.id)
    async with store.transaction() as tx:
        assert await tx.known_keyed_signals([identity]) == {identity}


async def test_no_live_run_is_purged_nor_one_whose_parent_or_child_is_live(store: Store) -> None:
    await settled(
        store,
        a_run(1),
        a_settled(2, parent_run_id=an_id(1)),
        a_settled(3),
        a_run(4, parent_run_id=an_id(3)),
        a_settled(5),
        a_settled(6, parent_run_id=an_id(5)),
    )
    for number, verdict in ((1, Purge.LIVE), (2, Purge.LIVE), (3, Purge.LIVE), (9, Purge.UNKNOWN)):
        assert await store.past.may_purge(an_id(number)) is verdict
        assert await store.past.purge_run(an_id(number)) is verdict
    assert await store.past.purge_run("no id") is Purge.UNKNOWN
    assert await store.past.count_before("order", later(99), 9) == 2
    batch = await store.past.purge_before("order", later(99), SIZE)
    assert batch == PurgedBatch(purged=2, more=False, workflow="order")
    assert await left(store, range(1, 7)) == [1, 2, 3, 4]


async def test_the_oldest_go_first_in_batches_of_a_bounded_size(store: Store) -> None:
    await settled(store, *(a_settled(n, at=10 - n, seq=3) for n in range(1, 10)))
    past = store.past
    assert await past.count_before("order", later(8), 3) == 3
    assert await past.count_before("order", later(8), 99) == 7
    by_runs = PurgeSize(runs_max=2, transitions_max=99)
    assert await past.purge_before("order", later(8), by_runs) == PurgedBatch(
        purged=2, more=True, workflow="order"
    )
    assert await left(store, range(1, 10)) == [1, 2, 3, 4, 5, 6, 7]
    by_rows = PurgeSize(runs_max=99, transitions_max=10)
    assert (await past.purge_before("order", later(8), by_rows)).purged == 3
    single = PurgeSize(runs_max=99, transitions_max=1)
    assert (await past.purge_before("order", later(8), single)).purged == 1
    last = await past.purge_before("order", later(8), by_rows)
    assert (last.purged, last.more) == (1, False)
    # The instant itself is not before it.
    assert await left(store, range(1, 10)) == [1, 2]
    assert await past.purge_before("order", later(8), by_rows) == PurgedBatch(workflow="order")


@pytest.mark.parametrize(
    ("retention_ms", "purged_after_days"), [(None, 30), (DAY_MS, 1), (0, None), (90 * DAY_MS, 90)]
)
async def test_runs_are_overdue_after_the_retention_of_their_workflow_or_the_default(
    store: Store, retention_ms: int | None, purged_after_days: int | None
) -> None:
    await settled(store, a_settled(1), a_settled(2, at=1))
    assert await store.past.set_retention("order", retention_ms)

    async def purge(at: datetime) -> int:
        return (await store.past.purge_overdue(30 * DAY_MS, SIZE, now=at)).purged

    if purged_after_days is None:
        assert await purge(later(3_000 * 86_400)) == 0
        return
    seconds = purged_after_days * 86_400
    assert await purge(later(seconds)) == 0
    assert await purge(later(seconds + 0.5)) == 1
    assert await left(store, [1, 2]) == [2]


async def test_a_default_of_zero_keeps_for_ever_all_but_what_says_otherwise(store: Store) -> None:
    await store.deploy_workflow("other", "f-other", a_document("other"))
    other = a_settled(2, workflow="other", definition=a_run().definition)
    await settled(store, a_settled(1), other)
    assert await store.past.purge_overdue(0, SIZE, now=later(10**8)) == PurgedBatch()
    assert await store.past.set_retention("other", 1)
    batch = await store.past.purge_overdue(0, SIZE, now=later(10**8))
    assert batch == PurgedBatch(purged=1, more=False, workflow="other")
    assert await left(store, [1, 2]) == [1]
    assert not await store.past.set_retention("nobody", 1)


async def test_the_workflow_with_the_oldest_run_comes_first(store: Store) -> None:
    await store.deploy_workflow("other", "f-other", a_document("other"))
    other = a_settled(2, at=-5, workflow="other", definition=a_run().definition)
    await settled(store, a_settled(1), other)
    whose = [(await store.past.purge_overdue(1, SIZE, now=later(9))).workflow for _ in range(3)]
    assert whose == ["other", "order", None]
