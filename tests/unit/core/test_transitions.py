"""The tables: total, closed at the settled end, and drawn in the docs as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

from towpath_engine.core.states import SETTLED_RUN, SETTLED_STEP, RunStatus, StepStatus
from towpath_engine.core.transitions import (
    RUN_PAIRS,
    RUN_TRANSITIONS,
    STEP_PAIRS,
    STEP_TRANSITIONS,
    IllegalTransition,
    RunChange,
    StepChange,
    run_after,
    step_after,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("status", list(RunStatus))
def test_every_change_of_a_run_is_in_the_row_of_its_status_or_illegal(status: RunStatus) -> None:
    row = RUN_TRANSITIONS[status]
    for change in RunChange:
        if change in row:
            assert run_after(status, change) is row[change]
        else:
            with pytest.raises(IllegalTransition, match=f"{change} is not possible"):
                run_after(status, change)


@pytest.mark.parametrize("status", list(StepStatus))
def test_every_change_of_a_step_is_in_the_row_of_its_status_or_illegal(status: StepStatus) -> None:
    row = STEP_TRANSITIONS[status]
    for change in StepChange:
        if change in row:
            assert step_after(status, change) is row[change]
        else:
            with pytest.raises(IllegalTransition, match=f"{change} is not possible"):
                step_after(status, change)


def test_only_an_operator_leads_out_of_a_settled_run() -> None:
    ways = {(status, change) for status in SETTLED_RUN for change in RUN_TRANSITIONS[status]}
    assert ways == {
        (status, change)
        for status in (RunStatus.FAILED, RunStatus.TIMED_OUT)
        for change in (RunChange.RETRIED, RunChange.REDRIVEN)
    } | {
        (status, RunChange.COMPENSATING)
        for status in (RunStatus.CANCELLED, RunStatus.TIMED_OUT, RunStatus.COMPENSATION_FAILED)
    }


def test_a_settled_step_leads_only_to_being_visited_anew_or_undone() -> None:
    after = {pair[1] for pair in STEP_PAIRS if pair[0] in SETTLED_STEP}
    assert after == {StepStatus.PENDING, StepStatus.COMPENSATING}


def test_every_status_but_the_first_can_be_reached() -> None:
    reached = {after for _, after in RUN_PAIRS}
    assert reached == set(RunStatus)
    assert {after for _, after in STEP_PAIRS} == set(StepStatus)


def test_what_is_a_name_of_run_or_step() -> None:
    assert all(change.value.startswith("run-") for change in RunChange)
    assert all(change.value.startswith("step-") for change in StepChange)


def test_the_page_of_the_state_machines_is_fresh() -> None:
    command = [sys.executable, str(ROOT / "tools/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "state-machines" not in done.stdout + done.stderr
    assert "definition.schema" not in done.stdout + done.stderr
