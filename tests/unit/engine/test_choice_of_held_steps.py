"""What is let out first of what waits: the oldest have their turn, and are not pushed back."""

from datetime import timedelta

from tests.support.builders import BEGIN
from towpath_engine.services.admission import choose
from towpath_engine.store.admission import HeldStep


def held(number: int, level: int) -> HeldStep:
    """A step that has waited since `number` seconds after the beginning."""
    at = BEGIN + timedelta(seconds=number)
    return HeldStep(run_id=f"run-{number}", path="work", level=level, ready_at=at)


def test_the_oldest_comes_before_the_most_urgent_so_that_it_does_not_stay_behind_again() -> None:
    rows = [held(0, level=3), held(1, level=3), held(2, level=0), held(3, level=0)]
    chosen = choose(rows, budget=3, by_time=1)
    assert [row.run_id for row in chosen] == ["run-0", "run-2", "run-3"]


def test_without_a_turn_by_time_the_most_urgent_go() -> None:
    rows = [held(0, level=3), held(1, level=2), held(2, level=0)]
    assert [row.run_id for row in choose(rows, budget=2, by_time=0)] == ["run-2", "run-1"]


def test_no_step_is_chosen_twice() -> None:
    rows = [held(0, level=0), held(1, level=1)]
    assert [row.run_id for row in choose(rows, budget=2, by_time=1)] == ["run-0", "run-1"]
