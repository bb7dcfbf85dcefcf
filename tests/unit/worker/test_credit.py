"""What a worker asks its four consumers for."""

import random

from towpath_worker.credit import LEVEL_COUNT, NORMAL_LEVEL, CreditPlan, Probe, Stand


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


def test_a_backlog_at_every_level_is_served_by_priority_and_nobody_starves() -> None:
    plan = CreditPlan()
    served = [0] * LEVEL_COUNT
    for now_ms in range(2_400):
        (ask,) = plan.plan(free=1, now_ms=now_ms)
        assert isinstance(ask, Probe)
        served[ask.level] += 1
        plan.received(ask.level, pending=100, now_ms=now_ms)
    assert served == [2_100, 100, 100, 100]


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
