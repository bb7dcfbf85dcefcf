"""What a worker asks its four consumers for."""

import random

import pytest

from towpath_worker.credit import LEVEL_COUNT, NORMAL_LEVEL, SHARE, CreditPlan, Probe, Stand

Backlog = tuple[int, int, int, int]
"""Messages that wait at each level."""
MANY = 1_000_000


def emptied(plan: CreditPlan, *, now_ms: int = 0) -> CreditPlan:
    """Every level was probed and found empty."""
    for level in range(LEVEL_COUNT):
        assert plan.plan(free=1, now_ms=now_ms) == [Probe(level, 1)]
        plan.ended(level, now_ms=now_ms)
    return plan


def test_levels_are_probed_in_order_one_at_a_time() -> None:
    plan = CreditPlan()
    assert plan.plan(free=5, now_ms=0) == [Probe(0, 5)]
    assert plan.plan(free=5, now_ms=0) == []
    plan.ended(0, now_ms=0)
    assert plan.plan(free=5, now_ms=0) == [Probe(1, 5)]


def test_where_everything_was_empty_standing_requests_wait_at_every_level() -> None:
    plan = emptied(CreditPlan())
    asks = plan.plan(free=7, now_ms=1)
    assert asks == [Stand(0, 1), Stand(1, 1), Stand(NORMAL_LEVEL, 7), Stand(3, 1)]
    assert plan.plan(free=7, now_ms=2) == []


def test_nothing_is_asked_without_a_free_slot() -> None:
    assert CreditPlan().plan(free=0, now_ms=0) == []


def test_a_probe_that_was_filled_leaves_the_rest_to_the_next_turn() -> None:
    plan = CreditPlan()
    plan.plan(free=2, now_ms=0)
    plan.received(0, pending=9, now_ms=0)
    assert plan.plan(free=1, now_ms=0) == []
    plan.received(0, pending=8, now_ms=0)
    assert plan.plan(free=0, now_ms=0) == []
    assert plan.plan(free=1, now_ms=0) == [Probe(0, 1)]


def test_a_filled_standing_request_is_replaced_without_a_probe_if_nothing_is_left() -> None:
    plan = emptied(CreditPlan())
    plan.plan(free=4, now_ms=1)
    plan.received(0, pending=0, now_ms=2)
    assert plan.plan(free=3, now_ms=2) == [Stand(0, 3)]


def test_an_empty_level_is_looked_at_again_after_a_moment() -> None:
    plan = CreditPlan()
    plan.plan(free=1, now_ms=0)
    plan.ended(0, now_ms=0)
    assert plan.plan(free=1, now_ms=49) == [Probe(1, 1)]
    plan.received(1, pending=5, now_ms=49)
    assert plan.plan(free=1, now_ms=50) == [Probe(0, 1)]


def test_a_refused_level_is_left_alone_until_its_time() -> None:
    plan = CreditPlan()
    plan.plan(free=1, now_ms=0)
    plan.lost(0, until_ms=1_000)
    assert plan.plan(free=1, now_ms=0) == [Probe(1, 1)]
    plan.lost(1, until_ms=1_000)
    plan.plan(free=1, now_ms=0)
    plan.lost(2, until_ms=1_000)
    plan.plan(free=1, now_ms=0)
    plan.lost(3, until_ms=1_000)
    assert plan.plan(free=1, now_ms=999) == []
    assert plan.plan(free=1, now_ms=1_000) == [Probe(0, 1)]


def served_of(slots: int, backlog: Backlog, count: int = 2_400) -> list[int]:
    """The levels of the first messages of a worker whose slots are all freed when all are taken."""
    plan, served, now_ms, left = CreditPlan(), list[int](), 0, list(backlog)
    while len(served) < count:
        free, now_ms = slots, now_ms + 1
        while free:
            (ask,) = plan.plan(free=free, now_ms=now_ms)
            assert isinstance(ask, Probe)
            got = min(ask.batch, left[ask.level])
            for number in range(got):
                left[ask.level] -= 1
                plan.received(ask.level, pending=left[ask.level], now_ms=now_ms)
                served.append(ask.level)
                assert number < ask.batch
            if got < ask.batch:
                plan.ended(ask.level, now_ms=now_ms)
            free -= got
    return served[:count]


@pytest.mark.parametrize("slots", [1, 4, 16, 100])
@pytest.mark.parametrize(
    "backlog",
    [
        (MANY, 0, 0, MANY),
        (MANY, 0, MANY, 0),
        (MANY, MANY, 0, 0),
        (0, MANY, 0, MANY),
        (0, 0, MANY, MANY),
        (MANY, MANY, MANY, MANY),
    ],
)
def test_of_sixteen_slots_one_goes_to_each_lower_level_with_a_backlog(
    slots: int, backlog: Backlog
) -> None:
    served = served_of(slots, backlog)
    first, *lower = [level for level in range(LEVEL_COUNT) if backlog[level]]
    for level in lower:
        assert abs(served.count(level) - len(served) // SHARE) <= 1 + slots // SHARE
    assert served.count(first) >= len(served) * (SHARE - len(lower)) // SHARE - slots


def test_urgent_work_goes_first_until_something_is_owed() -> None:
    assert served_of(1, (MANY, 0, 0, MANY), 48) == ([0] * 15 + [3]) * 3


def test_a_short_backlog_of_the_lowest_level_is_done_within_its_share() -> None:
    served = served_of(4, (MANY, 0, 0, 5), 200)
    assert served.count(3) == 5
    assert max(index for index, level in enumerate(served) if level == 3) < 5 * SHARE + 4


def test_what_was_owed_to_a_level_is_forgotten_when_it_is_found_empty() -> None:
    plan = CreditPlan()
    for now_ms in range(15):
        assert plan.plan(free=1, now_ms=now_ms) == [Probe(0, 1)]
        plan.received(0, pending=99, now_ms=now_ms)
    for level in (1, 2, 3):
        assert plan.plan(free=1, now_ms=15) == [Probe(level, 1)]
        plan.ended(level, now_ms=15)
    for now_ms in range(16, 60):
        assert plan.plan(free=1, now_ms=now_ms) == [Probe(0, 1)]
        plan.received(0, pending=99, now_ms=now_ms)


def test_whatever_happens_credit_stays_within_the_slots_and_one_a_level() -> None:
    chance = random.Random(7)
    for _ in range(200):
        plan, open_, running, slots, now_ms = CreditPlan(), [0] * LEVEL_COUNT, 0, 6, 0
        for _ in range(300):
            now_ms += chance.choice((0, 1, 60))
            free = slots - running
            for ask in plan.plan(free=max(0, free), now_ms=now_ms):
                assert open_[ask.level] == 0, "one request a level"
                assert ask.batch <= free
                open_[ask.level] = ask.batch
            level = chance.randrange(LEVEL_COUNT)
            match chance.randrange(4):
                case 0 if open_[level]:
                    open_[level] -= 1
                    running += 1
                    plan.received(level, pending=chance.choice((0, 9)), now_ms=now_ms)
                case 1 if open_[level]:
                    open_[level] = 0
                    plan.ended(level, now_ms=now_ms)
                case 2 if open_[level]:
                    open_[level] = 0
                    plan.lost(level, until_ms=now_ms + 200)
                case _ if running:
                    running -= 1
                case _:
                    pass
            assert [plan.idle(each) for each in range(LEVEL_COUNT)] == [not n for n in open_]
