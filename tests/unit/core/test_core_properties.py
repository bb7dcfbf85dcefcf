"""The invariants 1 to 5 of ARCHITECTURE over random definitions and random orders of events.

What a history must never show is checked by the world after every decision; here it is only said
which histories there are, and that together they have seen every legal change.
"""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.builders import BEGIN, a_run
from tests.support.definitions import definitions
from tests.support.histories import Tally, World
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.parse import parse_definition
from towpath_engine.core.states import RunStatus, StepStatus
from towpath_engine.core.transitions import (
    RUN_TRANSITIONS,
    STEP_TRANSITIONS,
    RunChange,
    StepChange,
)

# Nothing is undone yet: these changes come with the kinds that need them.
RUN_NOT_YET = {RunChange.COMPENSATING, RunChange.COMPENSATED, RunChange.COMPENSATION_FAILED}
STEP_NOT_YET = {
    StepChange.COMPENSATING,
    StepChange.COMPENSATED,
    StepChange.COMPENSATION_FAILED,
}

_NUMBER = st.integers(0, 999)
NUMBERS = st.lists(_NUMBER, max_size=80) | st.lists(_NUMBER, min_size=20, max_size=80)
LIMITS = CoreLimits(
    transitions_per_decision_max=5, releases_in_a_row_max=4, transitions_per_run_max=400
)


def legal_pairs() -> set[tuple[str, str]]:
    """(status, change) of everything that can happen by now."""
    runs = {
        (status.value, change.value)
        for status, row in RUN_TRANSITIONS.items()
        for change in row
        if status is not RunStatus.COMPENSATING and change not in RUN_NOT_YET
    }
    steps = {
        (status.value, change.value)
        for status, row in STEP_TRANSITIONS.items()
        for change in row
        if status is not StepStatus.COMPENSATING and change not in STEP_NOT_YET
    }
    return runs | steps


def explore(document: dict[str, object], numbers: list[int], tally: Tally) -> None:
    """One history: chaos as the numbers say, then calm until the run has settled."""
    start_at = BEGIN + timedelta(seconds=30) if numbers and numbers[0] % 3 == 0 else None
    run = a_run(
        parse_definition(document),
        run_input={"n": len(numbers)},
        start_at=start_at,
        limits=LIMITS,
    )
    world = World(run, tally)
    if numbers and numbers[0] % 3 == 1:
        world.closes(numbers[-1])
    world.begins()
    for number in numbers:
        world.act(number)
    world.calm()
    for number in numbers:
        # Settled is settled: the world checks that nothing changes, but by an operator's will.
        world.act(number)
    world.calm()
    tally.histories += 1
    tally.ends[world.run.status.value] += 1


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def check_histories(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()

    @examples(count)
    @given(definitions(), NUMBERS)
    def histories(document: dict[str, object], numbers: list[int]) -> None:
        explore(document, numbers, tally)

    histories()
    with capsys.disabled():
        print("", *tally.lines(), sep="\n")  # noqa: T201 - what the histories have covered
    never = legal_pairs() - set(tally.run_pairs) - set(tally.step_pairs)
    assert not never, f"legal, but never seen in {tally.histories} histories: {sorted(never)}"


def check_confluence(count: int) -> None:
    @examples(count)
    @given(definitions(), NUMBERS)
    def histories(document: dict[str, object], numbers: list[int]) -> None:
        document = {name: value for name, value in document.items() if name != "timeout"}
        definition = parse_definition(document)
        worlds = [
            World(a_run(definition, run_input={"n": 5}), Tally(), harmless=True) for _ in range(2)
        ]
        calm, stormy = worlds
        for world in worlds:
            world.begins()
        for number in numbers:
            stormy.act(number)
        for world in worlds:
            world.calm()
        assert stormy.outcome() == calm.outcome()

    histories()


def test_random_histories_keep_the_invariants_and_see_every_legal_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_histories(1_800, capsys)


def test_duplicates_reorderings_and_losses_do_not_change_the_outcome() -> None:
    check_confluence(150)


@pytest.mark.slow
def test_many_random_histories_keep_the_invariants_and_see_every_legal_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_histories(20_000, capsys)


@pytest.mark.slow
def test_many_duplicates_reorderings_and_losses_do_not_change_the_outcome() -> None:
    check_confluence(5_000)
