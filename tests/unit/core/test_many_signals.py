"""What one signal costs a run that keeps very many, or has very many steps that wait."""

import sys
from types import FrameType

from tests.support.builders import BEGIN, Json, a_cause, a_definition, a_run, a_signal
from tests.support.scenario import given
from towpath_engine.core.decide import decide
from towpath_engine.core.effects import KeepSignal, Verdict
from towpath_engine.core.events import DecisionContinued, RunBegun, SignalReceived
from towpath_engine.core.model import Run
from towpath_engine.core.states import OPEN_STEP

NUMBERS: Json = {"type": "integer"}


def a_wait_for(**wait: object) -> Json:
    """A step of kind wait with these fields of `wait`."""
    return {"name": "approval", "wait": wait}


def begun(*steps: Json) -> Run:
    """A run of these steps that has come as far as it does by itself."""
    run = decide(a_run(a_definition(*steps)), RunBegun(seed="s", cause=a_cause()), BEGIN).run
    for number in range(100):
        if run.cursor is None:
            return run
        event = DecisionContinued(seed=f"c{number}", cause=a_cause())
        run = decide(run, event, BEGIN).run
    raise AssertionError("it goes on for ever")


def calls_of(run: Run, payload: object) -> tuple[int, Run]:
    """How many calls of functions one more signal costs, and the run with it."""
    number = run.signal_count
    signal = a_signal("go", payload, message_id=f"m{number}")
    event = SignalReceived(seed=f"s{number}", cause=a_cause("signal"), signal=signal)
    counted = 0

    def count(_frame: FrameType, what: str, _argument: object) -> None:
        nonlocal counted
        counted += what == "call"

    sys.setprofile(count)
    try:
        decision = decide(run, event, BEGIN)
    finally:
        sys.setprofile(None)
    assert decision.verdict is Verdict.APPLIED, decision.message
    return counted, decision.run


def test_each_of_many_signals_costs_one_row_and_one_line_of_history() -> None:
    story = given(a_wait_for(signal="go", count=60, schema=NUMBERS))
    for number in range(59):
        decision = story.is_signalled("go", number)
        assert [type(effect) for effect in decision.effects] == [KeepSignal]
        assert (len(decision.transitions), decision.changed) == (1, ())
    story.is_signalled("go", 59)
    assert story.status() == "completed"


def test_many_kept_signals_are_looked_at_once() -> None:
    run = begun(a_wait_for(signal="go", count=10_000, schema=NUMBERS))
    calls: list[int] = []
    for number in range(5_000):
        cost, run = calls_of(run, number)
        calls.append(cost)
    assert len(run.kept) == 5_000
    assert max(calls[-100:]) <= max(calls[1:100]), "the last cost no more than the first"


def test_a_signal_that_nothing_waits_for_costs_the_same_however_many_are_kept() -> None:
    run = begun(a_wait_for(signal="other", count=3, schema=NUMBERS))
    calls: list[int] = []
    for number in range(2_000):
        cost, run = calls_of(run, number)
        calls.append(cost)
    assert max(calls[-100:]) <= max(calls[1:100])


def test_many_items_that_wait_for_one_name_are_not_all_asked() -> None:
    body = [{"name": "answer", "wait": {"signal": "go", "schema": NUMBERS}}]
    calls: dict[int, int] = {}
    for count in (20, 2_000):
        items = {"items": list(range(count)), "max_concurrency": 2_000, "steps": body}
        run = begun({"name": "each", "map": items})
        assert sum(step.status in OPEN_STEP for step in run.steps.values()) == 1 + 2 * count
        calls_of(run, 1)  # what is compiled once
        calls[count], run = calls_of(run, 1)
    assert calls[2_000] <= calls[20] + 20, "none of the others is asked"
