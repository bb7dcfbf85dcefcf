"""The contract of a store, for both of them: keys and request ids, which decide who starts."""

from tests.support.store_builders import (
    NOW,
    a_change,
    a_run,
    a_start,
    a_step,
    an_id,
    later,
    load,
    save,
    started,
)
from towpath_engine.core.states import RunStatus
from towpath_engine.store.interface import BatchWrite, KeyClaim, Store


async def claim(store: Store, *claims: KeyClaim) -> list[tuple[str, bool]]:
    """Claim, and write the runs that won, as a batch does."""
    async with store.transaction() as tx:
        holders = await tx.claim_keys(claims)
        won = [
            a_start(a_run(id=wanted.run_id, key=wanted.key, request_id=wanted.request_id))
            for wanted, holder in zip(claims, holders, strict=True)
            if holder.run_id == wanted.run_id
        ]
        assert await tx.save(BatchWrite(runs=won)) == {item.run.id for item in won}
    return [(holder.run_id, holder.by_request) for holder in holders]


def a_claim(number: int, key: str | None = None, request: str | None = None) -> KeyClaim:
    return KeyClaim(run_id=an_id(number), workflow="order", key=key, request_id=request)


async def test_a_key_has_one_live_run_and_repeats_within_a_batch_lose(store: Store) -> None:
    assert await claim(store, a_claim(1, "k"), a_claim(2, "k"), a_claim(3, "j")) == [
        (an_id(1), False), (an_id(1), False), (an_id(3), False),
    ]  # fmt: skip
    assert await claim(store, a_claim(4, "k")) == [(an_id(1), False)]
    async with store.transaction() as tx:
        wanted = [("order", "k"), ("order", "x"), ("other", "k")]
        assert await tx.find_keys(wanted) == {("order", "k"): an_id(1)}


async def test_a_key_is_free_again_when_its_run_has_settled(store: Store) -> None:
    await claim(store, a_claim(1, "k", "r1"))
    before = await load(store, an_id(1))
    assert before is not None
    await save(store, a_change(before, status=RunStatus.COMPLETED, settled_at=later(1)))
    assert await store.get_key("order", "k") == an_id(1), "the newest settled one"
    assert await claim(store, a_claim(2, "k", "r2")) == [(an_id(2), False)]
    assert await store.get_key("order", "k") == an_id(2)


async def test_a_request_id_decides_before_the_key_and_outlives_the_run(store: Store) -> None:
    await claim(store, a_claim(1, "k", "r"))
    before = await load(store, an_id(1))
    assert before is not None
    await save(store, a_change(before, status=RunStatus.FAILED, settled_at=later(1)))
    assert await claim(store, a_claim(2, "other", "r")) == [(an_id(1), True)]
    assert await store.get_key("order", "other") is None


async def test_a_request_id_finds_the_run_that_it_started(store: Store) -> None:
    await claim(store, a_claim(1, "k", "r"), a_claim(2, None, "q"))
    async with store.transaction() as tx:
        found = await tx.find_requests([("order", "q"), ("order", "r"), ("order", "none")])
    assert found == {("order", "r"): an_id(1), ("order", "q"): an_id(2)}


async def test_a_claim_that_loses_its_key_does_not_keep_its_request_id(store: Store) -> None:
    await claim(store, a_claim(1, "k"))
    assert await claim(store, a_claim(2, "k", "r")) == [(an_id(1), False)]
    assert await claim(store, a_claim(3, "free", "r")) == [(an_id(3), False)]


async def test_a_request_id_can_be_bound_to_the_run_that_answered_it(store: Store) -> None:
    await claim(store, a_claim(1, "k"))
    await save(store, requests=[("order", "r", an_id(1))])
    assert await claim(store, a_claim(2, "k2", "r")) == [(an_id(1), True)]


async def test_repeats_of_a_request_follow_the_first_of_the_batch(store: Store) -> None:
    await claim(store, a_claim(1, "k"))
    claims = [a_claim(2, "k", "r"), a_claim(3, "j", "r"), a_claim(4, None, "q"), a_claim(5)]
    assert await claim(store, *claims) == [
        (an_id(1), False), (an_id(1), True), (an_id(4), False), (an_id(5), False),
    ]  # fmt: skip


async def test_a_run_that_settles_at_once_leaves_its_key_free(store: Store) -> None:
    run = a_run(key="k", status=RunStatus.COMPLETED, settled_at=NOW)
    await save(store, a_start(run))
    assert await claim(store, a_claim(2, "k")) == [(an_id(2), False)]


async def test_a_new_run_takes_over_the_key_of_one_that_settles_with_it(store: Store) -> None:
    before = await started(store, a_run(key="k"))
    cancelled = a_change(before, status=RunStatus.CANCELLED, settled_at=later(1))
    assert await save(store, cancelled, a_start(a_run(2, key="k"))) == {an_id(1), an_id(2)}
    assert await store.get_key("order", "k") == an_id(2)


async def test_a_key_goes_through_runs_that_are_replaced_within_one_batch(store: Store) -> None:
    held = await started(store, a_run(key="k"))
    cancelled = a_change(held, status=RunStatus.CANCELLED, settled_at=later(1))
    short = a_start(a_run(3, key="k", status=RunStatus.CANCELLED, settled_at=later(1)))
    last = a_start(a_run(2, key="k", request_id="r"))
    assert await save(store, cancelled, short, last) == {an_id(1), an_id(2), an_id(3)}
    assert await store.get_key("order", "k") == an_id(2)
    assert await claim(store, a_claim(4, None, "r")) == [(an_id(2), True)]


async def test_a_claimed_key_passes_to_the_run_that_replaces_its_claimant(store: Store) -> None:
    async with store.transaction() as tx:
        holders = await tx.claim_keys([a_claim(1, "k"), a_claim(2, "k")])
        assert {holder.run_id for holder in holders} == {an_id(1)}
        short = a_start(a_run(1, key="k", status=RunStatus.CANCELLED, settled_at=NOW))
        last = a_start(a_run(2, key="k"))
        assert await tx.save(BatchWrite(runs=[short, last])) == {an_id(1), an_id(2)}
    assert await store.get_key("order", "k") == an_id(2)


async def test_a_new_run_whose_key_is_taken_is_not_written(store: Store) -> None:
    await started(store, a_run(key="k"))
    late = a_start(a_run(2, key="k", request_id="r"), a_step())
    assert await save(store, late, a_start(a_run(3))) == {an_id(3)}
    assert await store.get_run(an_id(2)) is None
    assert await claim(store, a_claim(4, None, "r")) == [(an_id(4), False)]
