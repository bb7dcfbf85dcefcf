"""Every cell of the table of operations that is the core's to decide."""

from collections.abc import Callable

import pytest

from tests.support.builders import BEGIN, a_task, a_wait
from tests.support.scenario import Story, given
from towpath_engine.core.effects import Decision, Verdict
from towpath_engine.core.events import PauseRequested, ResumeRequested
from towpath_engine.core.model import Cause
from towpath_engine.core.operations import OPERATIONS, UNDONE, Effect, Operation, answer_of
from towpath_engine.core.states import LIVE_RUN, RunStatus

VERDICTS = {
    Effect.DONE: Verdict.APPLIED,
    Effect.QUIET: Verdict.IGNORED,
    Effect.REFUSED: Verdict.REFUSED,
    Effect.STALE: Verdict.STALE,
}


UNDOING = {RunStatus.COMPENSATING, RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED}


def a_story(status: RunStatus) -> Story:
    """A run in this status whose first step, if it was reached, is done."""
    undo = {"compensate": {"task": "undo"}} if status in UNDOING else {}
    steps = (a_task("first", **undo), a_task("work"), a_wait("ask"))
    start_at = BEGIN.replace(year=2031) if status is RunStatus.PENDING else None
    story = given(*steps, timeout="1h", start_at=start_at)
    if status is not RunStatus.PENDING:
        story.completes("first")
    match status:
        case RunStatus.WAITING | RunStatus.COMPLETED:
            story.completes("work")
        case RunStatus.FAILED | RunStatus.COMPENSATING:
            story.fails("work")
        case RunStatus.COMPENSATED:
            story.fails("work")
            story.completes("first")
        case RunStatus.COMPENSATION_FAILED:
            story.fails("work")
            story.fails("first")
        case RunStatus.CANCELLED:
            story.is_cancelled()
        case RunStatus.TIMED_OUT:
            story.time_passes_until_due(None)
        case _:
            pass
    if status is RunStatus.COMPLETED:
        story.is_signalled()
    assert story.status() == status.value
    return story


CAUSE = Cause(type="operator", by="ada")


def _paused(story: Story) -> Decision:
    return story.happens(PauseRequested(seed=story.seed(), cause=CAUSE))


def _resumed(story: Story) -> Decision:
    if RunStatus(story.status()) in LIVE_RUN:
        _paused(story)
    return story.happens(ResumeRequested(seed=story.seed(), cause=CAUSE))


def _late(story: Story) -> Decision:
    token = story.message(0).token if story.dispatches else "a-token"
    return story.completes("first", token=token)


DOING: dict[Operation, Callable[[Story], Decision]] = {
    Operation.SIGNAL: lambda story: story.is_signalled("go"),
    Operation.CANCEL: lambda story: story.is_cancelled(),
    Operation.PAUSE: _paused,
    Operation.RESUME: _resumed,
    Operation.RETRY: lambda story: story.is_retried(),
    Operation.REDRIVE: lambda story: story.is_redriven("first"),
    Operation.REPORT: _late,
    Operation.TIMER: lambda story: story.timer_fires("first"),
}
CELLS = [(operation, status) for operation in DOING for status in RunStatus]


@pytest.mark.parametrize(("operation", "status"), CELLS, ids=str)
def test_every_operation_does_in_every_status_what_the_table_says(
    operation: Operation, status: RunStatus
) -> None:
    answer = OPERATIONS[operation][status]
    story = a_story(status)
    decision = DOING[operation](story)
    assert decision.verdict is VERDICTS[answer.effect]
    assert decision.refusal == (None if answer.code is None else answer.code.value)
    if answer.effect is Effect.REFUSED:
        assert decision.message is not None
        assert status.value in decision.message, "a refusal names the status"
    if answer.effect is not Effect.DONE:
        assert story.status() == status.value


@pytest.mark.parametrize("operation", UNDONE, ids=str)
@pytest.mark.parametrize("undone", [RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED], ids=str)
@pytest.mark.parametrize("ending", [RunStatus.CANCELLED, RunStatus.TIMED_OUT], ids=str)
def test_what_became_of_the_undoing_counts_more_than_the_status(
    operation: Operation, undone: RunStatus, ending: RunStatus
) -> None:
    story = given(a_task("first", compensate={"task": "undo"}), a_task("work"), timeout="1h")
    story.completes("first")
    if ending is RunStatus.CANCELLED:
        story.is_cancelled(compensate=True)
    else:
        story.time_passes_until_due(None)
    if undone is RunStatus.COMPENSATED:
        story.completes("first")
    else:
        story.fails("first")
    assert (story.run.status, story.run.compensation) == (ending, undone)
    answer = answer_of(operation, ending, undone)
    decision = DOING[operation](story)
    assert decision.verdict is VERDICTS[answer.effect]
    assert decision.refusal == (None if answer.code is None else answer.code.value)
    expected = RunStatus.COMPENSATING if answer.effect is Effect.DONE else ending
    assert story.run.status is expected


def test_only_what_the_shell_answers_without_the_core_is_missing() -> None:
    of_the_shell = {Operation.RESTART, Operation.PURGE, Operation.RESULT}
    assert DOING.keys() == set(Operation) - of_the_shell


def test_a_code_is_given_exactly_when_an_operation_is_refused() -> None:
    answers = [answer for row in OPERATIONS.values() for answer in row.values()]
    assert answers
    assert all((answer.code is not None) == (answer.effect is Effect.REFUSED) for answer in answers)
