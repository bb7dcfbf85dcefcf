"""The contract of the leases: every partition has at most one owner, and shares are even."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from tests.support.store_builders import NOW, an_id, later
from towpath_engine.store.interface import Store
from towpath_engine.store.leases import PARTITIONS, LeaseAnswer, LeaseTick, Origin, Standing, share

ALL = set(PARTITIONS)
LEASE_SECONDS = 8.0


async def tick(
    store: Store,
    engine: int,
    *,
    at: float = 0.0,
    standing: Standing = Standing.FIT,
    released: Sequence[int] = (),
    abandoned: Sequence[int] = (),
) -> LeaseAnswer:
    return await store.leases.tick(
        LeaseTick(
            engine_id=an_id(engine),
            standing=standing,
            lease_seconds=LEASE_SECONDS,
            released=released,
            abandoned=abandoned,
        ),
        now=later(at),
    )


def owned(answer: LeaseAnswer) -> set[int]:
    return {*answer.kept, *answer.acquired}


async def settled(store: Store, engines: Sequence[int], *, at: float = 0.0) -> list[set[int]]:
    """What each owns when all have ticked and let go of what is more than their share."""
    for _ in range(3):
        for engine in engines:
            answer = await tick(store, engine, at=at)
            await tick(store, engine, at=at, released=sorted(owned(answer))[answer.target :])
    return [owned(await tick(store, engine, at=at)) for engine in engines]


async def test_the_only_engine_owns_everything_with_its_first_tick(store: Store) -> None:
    answer = await tick(store, 1)
    assert answer.acquired == dict.fromkeys(PARTITIONS, Origin.RELEASED)
    assert answer.kept == frozenset()
    assert (answer.target, answer.engines) == (16, 1)
    again = await tick(store, 1, at=1)
    assert again.kept == ALL
    assert not again.acquired


async def test_partitions_spread_evenly_over_the_engines_that_live(store: Store) -> None:
    one, two, three = await settled(store, [1, 2, 3])
    assert one | two | three == ALL
    assert [len(one), len(two), len(three)] == [6, 5, 5]
    assert sum(map(len, (one, two, three))) == 16


async def test_a_second_engine_gets_nothing_that_was_not_let_go_of(store: Store) -> None:
    await tick(store, 1)
    assert owned(await tick(store, 2)) == set()
    first = await tick(store, 1)
    assert (first.kept, first.target, first.engines) == (ALL, 8, 2)
    await tick(store, 1, released=[15, 3])
    assert (await tick(store, 2)).acquired == {3: Origin.RELEASED, 15: Origin.RELEASED}


async def test_a_join_moves_no_more_than_the_newcomer_needs(store: Store) -> None:
    before = await settled(store, [1, 2])
    after = await settled(store, [1, 2, 3])
    assert [len(part) for part in before] == [8, 8]
    assert [len(part) for part in after] == [6, 5, 5]
    assert after[0] < before[0]
    assert after[1] < before[1]


async def test_more_engines_than_partitions_leave_some_without_one(store: Store) -> None:
    shares = await settled(store, range(1, 19))
    assert [len(part) for part in shares] == [1] * 16 + [0, 0]


async def test_the_lease_of_a_dead_engine_is_taken_as_soon_as_it_has_passed(store: Store) -> None:
    await settled(store, [1, 2])
    survivor = await tick(store, 2, at=LEASE_SECONDS - 0.1)
    assert len(owned(survivor)) == 8
    answer = await tick(store, 2, at=LEASE_SECONDS)
    assert len(answer.kept) == 8
    assert set(answer.acquired.values()) == {Origin.EXPIRED}
    assert owned(answer) == ALL
    assert (answer.target, answer.engines) == (16, 1)


async def test_an_engine_that_was_paused_does_not_renew_but_learns_that_it_must_begin_anew(
    store: Store,
) -> None:
    await tick(store, 1)
    answer = await tick(store, 1, at=40)
    assert answer.kept == frozenset()
    assert answer.acquired == dict.fromkeys(PARTITIONS, Origin.EXPIRED)


async def test_an_engine_that_was_paused_gets_nothing_back_that_another_has_taken(
    store: Store,
) -> None:
    await tick(store, 1)
    await tick(store, 2, at=9)
    answer = await tick(store, 1, at=9)
    assert owned(answer) == set()
    assert (answer.target, answer.engines) == (8, 2)
    assert owned(await tick(store, 2, at=10, released=range(8))) == set(range(8, 16))
    assert set((await tick(store, 1, at=10)).acquired) == set(range(8))


async def test_what_is_abandoned_is_taken_like_an_expired_lease(store: Store) -> None:
    await tick(store, 1)
    await tick(store, 2)
    answer = await tick(store, 1, abandoned=[4], released=[5])
    assert answer.kept == ALL - {4, 5}
    assert (await tick(store, 2)).acquired == {4: Origin.EXPIRED, 5: Origin.RELEASED}


async def test_nobody_gives_back_what_another_owns(store: Store) -> None:
    await tick(store, 1)
    await tick(store, 2, released=[1], abandoned=[2])
    assert (await tick(store, 1)).kept == ALL
    assert owned(await tick(store, 2)) == set()


async def test_a_stopping_engine_counts_no_longer_and_takes_nothing(store: Store) -> None:
    await settled(store, [1, 2])
    answer = await tick(store, 1, standing=Standing.STOPPING)
    assert (answer.target, answer.engines) == (0, 1)
    assert (await tick(store, 2)).target == 16
    await tick(store, 1, standing=Standing.STOPPING, released=sorted(answer.kept))
    assert owned(await tick(store, 1, standing=Standing.STOPPING)) == set()
    assert owned(await tick(store, 2)) == ALL


async def test_an_engine_without_nats_owns_nothing_beside_one_that_has_it(store: Store) -> None:
    await settled(store, [1, 2])
    cut_off = await tick(store, 1, standing=Standing.CUT_OFF)
    assert (cut_off.target, cut_off.engines, len(cut_off.kept)) == (0, 2, 8)
    assert (await tick(store, 2)).target == 16
    both = await tick(store, 2, standing=Standing.CUT_OFF)
    assert both.target == 8


async def test_engines_that_tick_at_once_never_own_the_same_partition(store: Store) -> None:
    engines = range(1, 6)
    for at in range(20):
        answers = await asyncio.gather(*(tick(store, engine, at=at) for engine in engines))
        held = [partition for answer in answers for partition in sorted(owned(answer))]
        assert len(held) == len(set(held)) == 16
        surplus = [sorted(owned(answer))[answer.target :] for answer in answers]
        await asyncio.gather(
            *(
                tick(store, engine, at=at, released=more)
                for engine, more in zip(engines, surplus, strict=True)
                if more
            )
        )
    last = [owned(await tick(store, engine, at=20)) for engine in engines]
    assert sorted(map(len, last)) == [3, 3, 3, 3, 4]


async def test_the_store_has_a_clock_of_its_own(store: Store) -> None:
    said = LeaseTick(engine_id=an_id(1), standing=Standing.FIT, lease_seconds=3600.0)
    assert owned(await store.leases.tick(said)) == ALL
    long_ago = NOW - timedelta(days=10_000)
    other = LeaseTick(engine_id=an_id(2), standing=Standing.FIT, lease_seconds=1.0)
    assert owned(await store.leases.tick(other, now=long_ago)) == set()


def test_shares_differ_by_one_at_most_and_cover_everything() -> None:
    for engines in range(1, 40):
        shares = [share(position, engines) for position in range(engines)]
        assert sum(shares) == 16
        assert max(shares) - min(shares) <= 1
        assert shares == sorted(shares, reverse=True)
