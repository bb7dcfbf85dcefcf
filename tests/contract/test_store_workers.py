"""The contract of what is known of workers, for both stores."""

from typing import Any

from tests.support.store_builders import NOW, later
from towpath_engine.store.interface import Store
from towpath_engine.store.workers import LastSight, QueueWorkers, TaskWorkers, WorkerSighting


def a_sighting(worker: str = "w1", queue: str = "mail", **overrides: Any) -> WorkerSighting:
    values: dict[str, Any] = {
        "queue": queue, "worker_id": worker, "tasks": ("mail.send",), "slots": 4, "running": 1,
        "sdk": "python/1", "seen_at": NOW,
    }  # fmt: skip
    return WorkerSighting(**{**values, **overrides})


async def test_the_newest_sighting_counts_and_the_first_is_remembered(store: Store) -> None:
    await store.workers.save([a_sighting(seen_at=later(5))])
    newest = a_sighting(tasks=("a", "b"), running=3, seen_at=later(9))
    await store.workers.save([newest])
    await store.workers.save([a_sighting(running=7, seen_at=later(7))])
    (seen,) = await store.workers.page(None, None, 10)
    assert seen.newest == newest
    assert seen.first_seen_at == later(5)


async def test_a_worker_without_tasks_has_none(store: Store) -> None:
    await store.workers.save([a_sighting(tasks=())])
    (seen,) = await store.workers.page(None, None, 10)
    assert seen.newest.tasks == ()


async def test_workers_come_in_pages_by_queue_and_id_of_one_queue_or_of_all(store: Store) -> None:
    places = [("a", "w2"), ("b", "w1"), ("b", "w2"), ("c", "w1")]
    await store.workers.save([a_sighting(worker, queue) for queue, worker in reversed(places)])
    found: list[tuple[str, str]] = []
    while page := await store.workers.page(None, found[-1] if found else None, 3):
        found += [(one.newest.queue, one.newest.worker_id) for one in page]
    assert found == places
    of_b = await store.workers.page("b", None, 10)
    assert [one.newest.worker_id for one in of_b] == ["w1", "w2"]
    assert [one.newest.worker_id for one in await store.workers.page("b", ("b", "w1"), 9)] == ["w2"]


async def test_the_live_workers_of_a_queue_are_those_seen_lately(store: Store) -> None:
    await store.workers.save([a_sighting("old"), a_sighting("new", seen_at=later(60))])
    assert await store.workers.of_queues(["mail", "none"], later(50)) == {
        "mail": QueueWorkers(live=1, last_seen_at=later(60)),
        "none": QueueWorkers(live=0, last_seen_at=None),
    }


async def test_a_worker_that_drains_is_not_counted_and_is_gone_when_it_holds_nothing(
    store: Store,
) -> None:
    await store.workers.save([a_sighting("w1"), a_sighting("w2", draining=True)])
    await store.workers.save([a_sighting("w3", draining=True, running=0)])
    assert await store.workers.of_queues(["mail"], NOW) == {
        "mail": QueueWorkers(live=1, last_seen_at=NOW)
    }
    seen = await store.workers.page(None, None, 10)
    assert [one.is_live(NOW) for one in seen] == [True, True, False]
    assert [one.newest.draining for one in seen] == [False, True, True]
    assert not seen[0].is_live(later(1))
    await store.workers.save([a_sighting("w2", seen_at=later(1))])
    assert (await store.workers.of_queues(["mail"], NOW))["mail"].live == 2


async def test_it_is_known_how_many_live_workers_have_a_task(store: Store) -> None:
    await store.workers.save(
        [
            a_sighting("old", tasks=("a",)),
            a_sighting("w1", tasks=("a", "b"), seen_at=later(5)),
            a_sighting("w2", tasks=("b",), seen_at=later(7)),
            a_sighting("w3", tasks=("a",), seen_at=later(9), draining=True),
            a_sighting("w4", "silent", tasks=(), seen_at=later(6)),
        ]
    )
    places = [("mail", "a"), ("mail", "b"), ("mail", "c"), ("silent", "a"), ("none", "a")]
    assert await store.workers.of_tasks(places, later(5)) == {
        ("mail", "a"): TaskWorkers(live=2, able=1, last_seen_at=later(7)),
        ("mail", "b"): TaskWorkers(live=2, able=2, last_seen_at=later(7)),
        ("mail", "c"): TaskWorkers(live=2, able=0, last_seen_at=later(7)),
        ("silent", "a"): TaskWorkers(live=1, able=1, last_seen_at=later(6)),
        ("none", "a"): TaskWorkers(live=0, able=0, last_seen_at=None),
    }


async def test_it_is_known_when_a_worker_was_seen_last(store: Store) -> None:
    drains = a_sighting(queue="other", seen_at=later(3), draining=True)
    await store.workers.save([a_sighting(), drains])
    found = await store.workers.last_seen([("mail", "w1"), ("other", "w1"), ("mail", "w9")])
    assert found == {
        ("mail", "w1"): LastSight(at=NOW, draining=False),
        ("other", "w1"): LastSight(at=later(3), draining=True),
    }


async def test_those_not_seen_for_long_and_those_beyond_the_bound_are_forgotten(
    store: Store,
) -> None:
    await store.workers.save([a_sighting(f"w{n}", seen_at=later(n)) for n in range(6)])
    assert await store.workers.prune(later(2), 100) == 2
    assert await store.workers.prune(later(2), 3) == 1
    left = [one.newest.worker_id for one in await store.workers.page(None, None, 10)]
    assert left == ["w3", "w4", "w5"]
