"""The invariants of ARCHITECTURE over random definitions of the whole language and random orders
of events.

What a history must never show is checked after every decision (tests/support/invariants.py); here
it is only said which histories there are, and that together they have seen every legal change.
"""

import os
import random
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.builders import BEGIN, a_run
from tests.support.drawn_definitions import definition_of, definitions, document_of
from tests.support.histories import World
from tests.support.replays import check_replays
from tests.support.shrinking import shown, shrunk
from tests.support.tallies import Tally
from towpath_engine.core.definition import Definition
from towpath_engine.core.faults import DefinitionRefused
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run
from towpath_engine.core.parse import parse_definition

_NUMBER = st.integers(0, 999)
NUMBERS = st.lists(_NUMBER, max_size=80) | st.lists(_NUMBER, min_size=20, max_size=80)
PARENT: Final = "0190a0a0-0000-7000-8000-00000000aaaa"
LIMITS = CoreLimits(
    transitions_per_decision_max=5, releases_in_a_row_max=4, transitions_per_run_max=400
)
OTHER_LIMITS: Final = (
    LIMITS,
    CoreLimits(
        transitions_per_decision_max=1, releases_in_a_row_max=4, transitions_per_run_max=3_000
    ),
    CoreLimits(
        transitions_per_decision_max=3, releases_in_a_row_max=4, transitions_per_run_max=3_000
    ),
    CoreLimits(releases_in_a_row_max=4, transitions_per_run_max=3_000),
    CoreLimits(
        transitions_per_decision_max=20, releases_in_a_row_max=4, transitions_per_run_max=60
    ),
    CoreLimits(
        releases_in_a_row_max=4, open_steps_per_run_max=8, events_per_report_max=0,
        error_bytes_max=300, progress_bytes_max=2,
    ),
    CoreLimits(
        transitions_per_decision_max=7, releases_in_a_row_max=4, payload_bytes_max=90,
        joined_output_bytes_max=150, metadata_bytes_max=40, signals_kept_max=2,
    ),
    CoreLimits(releases_in_a_row_max=2, dispatch_bytes_max=1_150, signals_kept_bytes_max=9),
)  # fmt: skip
"""The smaller a decision may be, the more often one is split; a small run is soon too big, and
small payloads are soon too large."""
HISTORIES_PER_DEFINITION: Final = 8
CHUNK: Final = 1_000
MANY: Final = range(10_000, 110_000)
"""The histories of the long test. TOWPATH_TEST_HISTORIES_FROM says where to begin, if it was cut
off: it says how far it has come."""


def numbers_of(seed: int) -> list[int]:
    """What happens in the history with this number."""
    dice = random.Random(seed)
    return [dice.randrange(1_000) for _ in range(dice.choice((0, 15, 40, 80)))]


def with_parent(run: Run, choice: int) -> Run:
    """The run as a child of another that waits for it, or that does not; some deep below."""
    match choice % 6:
        case 0:
            return replace(run, parent_run_id=PARENT, parent_step="here", depth=choice % 100)
        case 1:
            return replace(run, parent_run_id=PARENT)
        case _:
            return run


def explore(
    definition: Definition, numbers: list[int], tally: Tally, *, thorough: bool = True
) -> World:
    """One history: chaos as the numbers say, then calm until the run has settled; then operators
    may have it go on, and so to the end once more. A `thorough` one is replayed, too."""
    choice = sum(numbers)
    start_at = BEGIN + timedelta(seconds=30) if choice % 4 == 1 else None
    run = a_run(
        definition,
        run_input={"n": len(numbers) % 7, "items": list(range(choice % 5))},
        start_at=start_at,
        limits=OTHER_LIMITS[choice % len(OTHER_LIMITS)],
    )
    world = World(with_parent(run, choice), tally, thorough=thorough)
    if choice % 3 == 1:
        world.closes(choice)
    world.begins()
    for number in numbers:
        world.act(number)
    world.calm()
    for number in numbers:
        # Settled is settled: nothing changes, but by an operator's will.
        world.act(number)
    world.calm()
    if thorough:
        check_replays(world.first, world)
    tally.end(world.run)
    return world


def explore_seed(seed: int, tally: Tally, *, thorough: bool = True) -> None:
    """The history with this number; a failing one is told with the smallest that fails so."""
    number = seed // HISTORIES_PER_DEFINITION
    numbers = numbers_of(seed)
    try:
        explore(definition_of(number), numbers, tally, thorough=thorough)
    except Exception as error:
        small = shrunk(document_of(number), numbers, why_it_fails)
        raise AssertionError(f"history {seed}: {error!r}\n{shown(*small)}") from error


def why_it_fails(document: dict[str, Any], numbers: list[int]) -> str | None:
    """The kind of failure of a history, and where; None when it does not fail."""
    try:
        definition = parse_definition(document)
    except DefinitionRefused:
        return None
    try:
        explore(definition, numbers, Tally())
    except Exception as error:  # noqa: BLE001 - whatever it is: it is told
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = "" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
        return f"{type(error).__name__} {where}"
    return None


def explore_many(seeds: Iterable[int]) -> Tally:
    """Many histories; what they have covered."""
    tally = Tally()
    for seed in seeds:
        explore_seed(seed, tally, thorough=seed % 4 == 0)
    return tally


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def check_confluence(count: int) -> None:
    @examples(count)
    @given(definitions(flat=True), NUMBERS)
    def histories(document: dict[str, object], numbers: list[int]) -> None:
        definition = parse_definition(document)
        given_input: dict[str, object] = {"n": 5}
        worlds = [
            World(a_run(definition, run_input=given_input), Tally(), harmless=True)
            for _ in range(2)
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


def check_coverage(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("", *tally.lines(), sep="\n")  # noqa: T201 - what the histories have covered
    never = tally.never_seen()
    assert not never, f"legal, but never seen in {tally.histories} histories: {never}"
    never = tally.never_met()
    assert not never, f"never met in {tally.histories} histories: {never}"


def test_random_histories_keep_the_invariants_and_see_every_legal_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tally = Tally()
    for seed in range(6_000):
        explore_seed(seed, tally)
    check_coverage(tally, capsys)


def test_duplicates_reorderings_and_losses_do_not_change_the_outcome() -> None:
    check_confluence(150)


@pytest.mark.slow
def test_a_hundred_thousand_histories_keep_the_invariants_and_see_every_legal_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = int(os.environ.get("TOWPATH_TEST_HISTORIES_FROM", MANY.start))
    chunks = [range(start, start + CHUNK) for start in range(first, MANY.stop, CHUNK)]
    tally = Tally()
    with ProcessPoolExecutor(max_workers=2) as pool:
        for chunk, part in zip(chunks, pool.map(explore_many, chunks), strict=True):
            tally.join(part)
            with capsys.disabled():
                # To go on there, if this is cut off.
                print(f"histories before {chunk.stop} are done")  # noqa: T201 - a long test
    check_coverage(tally, capsys)


@pytest.mark.slow
def test_many_duplicates_reorderings_and_losses_do_not_change_the_outcome() -> None:
    check_confluence(5_000)
