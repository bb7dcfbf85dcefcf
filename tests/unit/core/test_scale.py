"""What an event costs inside a run of 10,000 items: the same from the first to the last.

Work is counted, never timed: the instructions that the interpreter executes for a decision, and the
memory that it needs meanwhile (which shows work in C: a copy, a sort, a list that is decoded).
"""

import itertools
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.support.builders import (
    BEGIN,
    Json,
    a_cause,
    a_definition,
    a_run,
    a_signal,
    a_task,
    a_wait,
    json_of,
    raw,
)
from tests.support.scenario import rows_for
from towpath_engine.core.changes import StepsNeeded
from towpath_engine.core.decide import decide
from towpath_engine.core.effects import ContinueLater, Decision, DispatchStep, RevokeToken, Verdict
from towpath_engine.core.events import (
    CancelRequested,
    DecisionContinued,
    DispatchDelivered,
    DispatchWithdrawn,
    Event,
    PauseRequested,
    ReportReceived,
    ResumeRequested,
    RetryRequested,
    RunBegun,
    SignalReceived,
)
from towpath_engine.core.gate import HELD_BY_RUN
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import OPEN_STEP, SETTLED_RUN, RunStatus
from towpath_protocol.failures import Failure
from towpath_protocol.reports import Report, StepCompleted, StepFailed

ITEMS = 10_000
MEASURED = 5
SLICE = CoreLimits().transitions_per_decision_max
UNDONE_ITEMS = 2_000
RETRIED_ITEMS = 2_000
OVER = 3
"""A decision is full after an entry of the agenda, which may have had some transitions."""
BYTES_MORE = 4_096
"""What a trie, a larger number or a longer path may need more: less than a list of all items."""


class Work(Struct, frozen=True):
    """What a decision has taken."""

    instructions: int
    peak_bytes: int


class Kept:
    """A run as an engine keeps it in memory, and all its rows as a store has them."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rows: dict[str, Step] = {}
        self.dispatches: dict[str, DispatchStep] = {}
        """What is undone, by token, the oldest first."""
        self.asked = 0
        """Rows that decisions have asked for."""
        self.transitions: list[int] = []
        """Of each decision."""
        self._seeds = itertools.count(1)

    def happens(self, make: Callable[..., Event], **fields: Any) -> Decision:
        return self.decides(self.event(make, **fields))

    def event(self, make: Callable[..., Event], **fields: Any) -> Event:
        return make(seed=f"{next(self._seeds):032x}", cause=a_cause(), **fields)

    def decides(self, event: Event) -> Decision:
        decision = self._decided(event)
        assert decision.verdict is Verdict.APPLIED
        self.run = decision.run
        self.rows.update({step.path: step for step in decision.changed})
        self.transitions.append(len(decision.transitions))
        for effect in decision.effects:
            if isinstance(effect, DispatchStep):
                self.dispatches[effect.token] = effect
            elif isinstance(effect, RevokeToken):
                self.dispatches.pop(effect.token, None)
        return decision

    def _decided(self, event: Event) -> Decision:
        while True:
            try:
                return decide(self.run, event, BEGIN)
            except StepsNeeded as needed:
                found = self._rows_for(needed)
                self.asked += len(found)
                self.run = replace(self.run, steps={**self.run.steps, **found})

    def _rows_for(self, needed: StepsNeeded) -> Mapping[str, Step]:
        if needed.parts_of or needed.statuses:
            return rows_for(needed, self.rows)
        return {path: self.rows[path] for path in needed.paths if path in self.rows}

    def begins(self) -> "Kept":
        self.happens(RunBegun)
        return self.goes_on()

    def goes_on(self) -> "Kept":
        """The rest of what was split."""
        while self.run.cursor is not None and self.run.status not in SETTLED_RUN:
            self.happens(DecisionContinued)
        return self

    def report(self, report: Report) -> Event:
        """The oldest dispatch ends so."""
        dispatch = next(iter(self.dispatches.values()))
        return self.event(ReportReceived, token=dispatch.token, queue=dispatch.queue, report=report)

    def completes(self, count: int = 1, output: object = None) -> None:
        """As many of the oldest dispatches."""
        for _ in range(count):
            self.decides(self.report(StepCompleted(output=raw(output))))

    def fails(self) -> None:
        error = Failure(type="Boom", message="it failed", retryable=False)
        self.decides(self.report(StepFailed(error=error)))

    def measure(self) -> Work:
        """What the next completion takes; then it happens."""
        event = self.report(StepCompleted(output=raw("done")))
        work = work_of(self.run, event)
        self.decides(event)
        return work

    def measure_slice(self) -> Work:
        """What the next slice takes once its rows are there; then it happens."""
        event = self.event(DecisionContinued)
        self._decided(event)
        work = work_of(self.run, event)
        self.decides(event)
        return work


def work_of(run: Run, event: Event) -> Work:
    """The instructions of one decision, and the most memory it needs at once."""
    executed = itertools.count()

    def trace(frame: FrameType, what: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if what == "opcode":
            next(executed)
        return trace

    decide(run, event, BEGIN)  # what is remembered of a definition is remembered now
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        decide(run, event, BEGIN)
    finally:
        sys.settrace(before)
    tracemalloc.start()
    try:
        decision = decide(run, event, BEGIN)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decision.verdict is Verdict.APPLIED
    return Work(instructions=next(executed), peak_bytes=peak)


def a_map(concurrency: int, *steps: Json, **fields: object) -> Json:
    inner: Mapping[str, object] = {
        "items": "${ input }", "max_concurrency": concurrency, "steps": list(steps), **fields
    }  # fmt: skip
    return {"name": "lines", "map": inner}


PICK = a_task("pick", input="${ item }")
UNDONE = a_task("pick", input="${ item }", compensate={"task": "unpick"})


def a_wide_run(concurrency: int, *steps: Json, items: int = ITEMS, **fields: object) -> Kept:
    """A run of a map, that has begun."""
    definition = a_definition(a_map(concurrency, *(steps or (PICK,))), **fields)
    return Kept(a_run(definition, run_input=list(range(items)))).begins()


def worst(works: Iterator[Work]) -> Work:
    found = list(works)
    return Work(max(w.instructions for w in found), max(w.peak_bytes for w in found))


# One event


@pytest.mark.parametrize("concurrency", [1, 100, ITEMS])
def test_the_last_items_of_ten_thousand_take_as_much_work_as_the_first(concurrency: int) -> None:
    kept = a_wide_run(concurrency)
    first = worst(kept.measure() for _ in range(MEASURED))
    # Up to the last ones after which another one begins, or of all that have begun, but the join.
    to_come = len(kept.dispatches) if concurrency == ITEMS else ITEMS - concurrency - MEASURED
    kept.completes(to_come - MEASURED - 1)
    last = worst(kept.measure() for _ in range(MEASURED))
    assert last.instructions == first.instructions
    assert last.peak_bytes < first.peak_bytes + BYTES_MORE


def test_an_item_among_ten_thousand_takes_as_much_work_as_one_among_a_hundred() -> None:
    few, many = a_wide_run(50, items=100), a_wide_run(50)
    assert many.measure().instructions == few.measure().instructions
    assert many.measure().peak_bytes < few.measure().peak_bytes + BYTES_MORE


def test_a_large_input_that_each_item_names_is_decoded_once() -> None:
    step = a_task("pick", input={"item": "${ item }", "of": "${ size(input) }"})
    few, many = a_wide_run(50, step, items=100), a_wide_run(50, step)
    assert many.measure().peak_bytes < few.measure().peak_bytes + BYTES_MORE


def test_the_lists_of_a_hundred_maps_at_once_are_split_once() -> None:
    runs = [a_wide_run(10, items=1_000 + number) for number in range(100)]
    alone = a_wide_run(10, items=50).measure()
    for _ in range(2):
        measured = worst(kept.measure() for kept in runs)
        assert measured.peak_bytes < alone.peak_bytes + BYTES_MORE


def test_a_failed_item_takes_as_much_work_however_many_have_failed() -> None:
    kept = Kept(
        a_run(
            a_definition(a_map(100, PICK, tolerate={"percent": 100})), run_input=list(range(ITEMS))
        )
    ).begins()
    error = Failure(type="Boom", message="it failed", retryable=False)
    works: list[Work] = []
    for _ in range(2):
        event = kept.report(StepFailed(error=error))
        works.append(work_of(kept.run, event))
        kept.decides(event)
        for _ in range(ITEMS // 2 - 100):
            kept.fails()
    assert abs(works[1].instructions - works[0].instructions) <= 5
    assert works[1].peak_bytes < works[0].peak_bytes + BYTES_MORE


def test_undoing_ten_thousand_items_asks_for_one_row_at_a_time() -> None:
    kept = a_wide_run(1_000, UNDONE, on_failure="compensate", items=UNDONE_ITEMS)
    kept.completes(UNDONE_ITEMS - 1)
    kept.happens(CancelRequested, compensate=True)
    kept.goes_on()
    (last,) = kept.dispatches.values()
    kept.happens(DispatchWithdrawn, token=last.token)
    undone: list[str] = []
    asked = kept.asked
    while kept.dispatches:
        undone.append(next(iter(kept.dispatches.values())).path)
        kept.completes()
        assert kept.asked - asked <= 2
        asked = kept.asked
    assert undone == [f"lines[{index}]/pick" for index in reversed(range(UNDONE_ITEMS - 1))]
    assert kept.run.compensation is RunStatus.COMPENSATED
    assert len(kept.run.steps) <= 2


# Slices


def test_ten_thousand_items_begin_and_are_cancelled_in_slices() -> None:
    kept = a_wide_run(ITEMS)
    assert len(kept.dispatches) == ITEMS
    assert len(kept.transitions) == -(-(2 * ITEMS + 2) // SLICE)
    kept.happens(CancelRequested)
    assert kept.dispatches
    kept.goes_on()
    assert not kept.dispatches
    assert kept.run.status is RunStatus.CANCELLED
    assert max(kept.transitions) <= SLICE + OVER
    assert all(step.status not in OPEN_STEP for step in kept.rows.values())


def test_one_failed_item_of_ten_thousand_cancels_the_others_in_slices() -> None:
    kept = a_wide_run(ITEMS)
    kept.fails()
    assert kept.dispatches
    kept.goes_on()
    assert not kept.dispatches
    assert kept.run.status is RunStatus.FAILED
    assert max(kept.transitions) <= SLICE + OVER


def test_the_last_items_that_a_retry_comes_to_take_as_much_work_as_the_first() -> None:
    kept = a_wide_run(RETRIED_ITEMS, items=RETRIED_ITEMS)
    kept.fails()
    kept.goes_on()
    kept.happens(RetryRequested)
    works: list[Work] = []
    while kept.run.cursor is not None:
        works.append(kept.measure_slice())
    assert len(kept.dispatches) == RETRIED_ITEMS
    first, last = works[0], works[-2]  # the very last is not full
    assert last.instructions < first.instructions * 1.05


def test_ten_thousand_items_held_by_a_pause_go_on_in_slices() -> None:
    kept = Kept(a_run(a_definition(a_map(ITEMS, PICK)), run_input=list(range(ITEMS))))
    kept.happens(RunBegun)
    kept.happens(PauseRequested)
    kept.goes_on()
    held = [step.path for step in kept.rows.values() if step.held_by == HELD_BY_RUN]
    begun = len(kept.dispatches)
    assert len(held) + begun == ITEMS
    kept.happens(ResumeRequested)
    assert begun < len(kept.dispatches) < ITEMS
    kept.goes_on()
    assert len(kept.dispatches) == ITEMS
    assert max(kept.transitions) <= SLICE + OVER


def test_a_pause_in_the_middle_of_a_resume_holds_the_rest() -> None:
    kept = Kept(a_run(a_definition(a_map(ITEMS, PICK)), run_input=list(range(ITEMS))))
    kept.happens(RunBegun)
    kept.happens(PauseRequested)
    kept.goes_on()
    kept.happens(ResumeRequested)
    kept.happens(PauseRequested)
    kept.goes_on()
    begun = len(kept.dispatches)
    assert begun < ITEMS
    kept.completes()
    assert len(kept.dispatches) == begun - 1
    kept.happens(ResumeRequested)
    kept.goes_on()
    assert len(kept.dispatches) == ITEMS - 1


def test_an_end_in_the_middle_of_a_resume_ends_that_too() -> None:
    kept = Kept(a_run(a_definition(a_map(ITEMS, PICK)), run_input=list(range(ITEMS))))
    kept.happens(RunBegun)
    kept.happens(PauseRequested)
    kept.goes_on()
    kept.happens(ResumeRequested)
    kept.happens(CancelRequested)
    kept.goes_on()
    assert kept.run.status is RunStatus.CANCELLED
    assert not kept.dispatches
    assert max(kept.transitions) <= SLICE + OVER


def test_items_that_end_at_once_are_done_in_slices() -> None:
    kept = a_wide_run(1, {"name": "same", "pass": "${ item }"})
    assert kept.run.status is RunStatus.COMPLETED
    assert kept.run.output == json_of(list(range(ITEMS)))
    assert max(kept.transitions) <= SLICE + OVER
    assert len(kept.transitions) == 1 + ITEMS * 3 // SLICE


# What is kept


def test_a_run_in_memory_is_as_large_as_what_is_open() -> None:
    kept = a_wide_run(100)
    for _ in range(10):
        kept.completes(900)
        assert len(kept.run.steps) == 2 * 100 + 1
    assert kept.asked == 0


def test_a_joined_output_over_its_limit_fails_the_map_and_names_the_limit() -> None:
    limits = CoreLimits(joined_output_bytes_max=50_000)
    definition = a_definition(a_map(100, PICK))
    kept = Kept(a_run(definition, run_input=list(range(1_000)), limits=limits)).begins()
    while kept.run.status not in SETTLED_RUN:
        kept.completes(output="x" * 98)
    outputs = [step for step in kept.rows.values() if step.output is not None and "/" in step.path]
    assert 490 <= len(outputs) <= 510
    assert kept.run.error is not None
    assert kept.run.error.type == "TooLarge"
    assert "the joined output" in kept.run.error.message
    assert "50000" in kept.run.error.message.replace(",", "")


@pytest.mark.parametrize("items", [1_000, ITEMS])
def test_a_signal_for_one_of_many_waits_takes_as_much_work_as_for_one_of_few(items: int) -> None:
    few, many = work_of_a_signal(50), work_of_a_signal(items)
    assert many.instructions < 1.05 * few.instructions
    assert many.peak_bytes < few.peak_bytes + 2 * BYTES_MORE


def work_of_a_signal(items: int) -> Work:
    kept = a_wide_run(ITEMS, a_wait("approval"), items=items)
    return work_of(kept.run, kept.event(SignalReceived, signal=a_signal("go")))


def test_what_comes_while_a_fan_out_is_split_does_no_slice_of_it() -> None:
    kept = Kept(a_run(a_definition(a_map(ITEMS, PICK)), run_input=list(range(ITEMS))))
    kept.happens(RunBegun)
    begun = len(kept.dispatches)
    for _ in range(100):
        dispatch = next(iter(kept.dispatches.values()))
        decision = kept.happens(DispatchDelivered, token=dispatch.token)
        assert len(decision.transitions) == 1
        assert any(isinstance(effect, ContinueLater) for effect in decision.effects)
        kept.completes()
    assert len(kept.dispatches) == begun - 100
    kept.goes_on()
    assert len(kept.dispatches) == ITEMS - 100


def test_a_cancel_while_a_fan_out_is_split_begins_at_once() -> None:
    kept = Kept(a_run(a_definition(a_map(ITEMS, PICK)), run_input=list(range(ITEMS))))
    kept.happens(RunBegun)
    assert kept.happens(CancelRequested).transitions
    kept.goes_on()
    assert kept.run.status is RunStatus.CANCELLED
