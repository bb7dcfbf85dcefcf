"""The contract of the census, and of the limit of queues: who counts, and who is counted."""

import asyncio

from tests.support.census import count_runs
from tests.support.store_builders import (
    a_change,
    a_run,
    a_step,
    completed,
    later,
    save,
    started,
)
from towpath_engine.core.states import LIVE_RUN, RunStatus
from towpath_engine.store.census import FIRST, STATUSES, CensusPlace
from towpath_engine.store.interface import Store


def test_a_pass_takes_every_status_that_is_not_final() -> None:
    assert set(STATUSES) == {status.value for status in LIVE_RUN}


async def test_an_empty_store_has_a_page_without_runs_for_each_status(store: Store) -> None:
    place: CensusPlace | None = FIRST
    seen: list[str] = []
    while place is not None:
        page = await store.census.page(place, 10)
        assert (page.runs, page.orphans) == (0, 0)
        seen.append(page.status)
        place = page.next
    assert tuple(seen) == STATUSES


async def test_every_live_run_is_counted_once_whatever_the_page(store: Store) -> None:
    for number in range(1, 12):
        await started(store, a_run(number), a_step())
    for number in range(12, 16):
        await started(
            store, a_run(number, status=RunStatus.PENDING, started_at=None, start_at=later(9))
        )
    for page in (1, 2, 4, 5, 11, 100):
        assert await count_runs(store, page=page) == ({"running": 11, "pending": 4}, 0)


async def test_settled_runs_are_not_counted_and_runs_that_nothing_moves_are_told(
    store: Store,
) -> None:
    run = await started(store, a_run(1), a_step())
    lost = await started(store, a_run(2), a_step())
    await started(store, a_run(3), a_step())
    await save(
        store,
        a_change(
            run, completed(run.steps["charge"]), seq=1, status=RunStatus.COMPLETED,
            settled_at=later(1), output=b"1",
        ),
    )  # fmt: skip
    await save(store, a_change(lost, completed(lost.steps["charge"]), seq=1))
    assert await count_runs(store, page=1) == ({"running": 2}, 1)


async def test_queues_are_added_up_to_the_limit_and_not_one_beyond(store: Store) -> None:
    assert await store.add_queues(["a", "b"], 3) == ["a", "b"]
    assert await store.add_queues(["c", "d"], 3) is None
    assert await store.list_queues() == ["a", "b"]
    assert await store.add_queues(["b", "c"], 3) == ["c"]
    assert await store.add_queues(["a", "b", "c"], 3) == []
    assert await store.add_queues(["a", "b", "c"], 2) == []
    await store.remove_queues(["b", "nobody"])
    assert await store.list_queues() == ["a", "c"]
    assert await store.add_queues(["d"], 3) == ["d"]


async def test_the_limit_of_queues_holds_for_many_who_add_at_once(store: Store) -> None:
    answers = await asyncio.gather(
        *(store.add_queues([f"q{number}", f"q{number}b"], 9) for number in range(12))
    )
    assert sum(1 for answer in answers if answer is not None) == 4
    assert len(await store.list_queues()) == 8
