"""Attempts whose effect would have to be undone: told to stop, but heard to their end."""

from collections.abc import Callable

import pytest

from tests.support.builders import BEGIN, a_cause
from tests.support.scenario import Story, given_yaml
from towpath_engine.core.effects import CancelAttempt, RevokeToken, Verdict
from towpath_engine.core.events import DispatchWithdrawn
from towpath_engine.core.limits import CoreLimits
from towpath_protocol.codec import loads
from towpath_protocol.reports import Again, ReleaseReason

pytestmark = pytest.mark.usefixtures("loading")

BOTH = """
- {name: first, task: first, compensate: {task: undo}}
- name: both
  parallel:
    branches:
      good: [{name: good, task: good, retry: {max_attempts: 3}, compensate: {task: undo}}]
      bad: [{name: bad, task: bad}]
      plain: [{name: plain, task: plain}]
"""
GOOD, BAD, PLAIN = "both/good/good", "both/bad/bad", "both/plain/plain"
CAUGHT = (
    BOTH
    + """
  catch: [{next: sorry}]
- {name: done, pass: 1, end: true}
- {name: sorry, task: sorry}
"""
)


def failing(text: str = BOTH, *, started: bool = True) -> Story:
    """A run that fails while the branch `good` has an attempt."""
    story = given_yaml(text)
    story.completes("first", 1)
    if started:
        story.is_started(GOOD)
    story.fails(BAD)
    return story


def told(story: Story, path: str) -> list[str]:
    """The tokens of the attempts of a step whose workers were told to stop."""
    return [e.token for e in story.effects if isinstance(e, CancelAttempt) and e.path == path]


def revoked(story: Story) -> set[str]:
    """The tokens that are dead."""
    return {effect.token for effect in story.effects if isinstance(effect, RevokeToken)}


def test_an_attempt_that_would_have_to_be_undone_is_told_to_stop_and_its_token_stays_valid() -> (
    None
):
    story = failing()
    assert story.status() == "compensating"
    assert story.status(GOOD) == "cancelling"
    token = story.token(GOOD)
    assert told(story, GOOD) == [token]
    assert token not in revoked(story)
    assert story.status("first") == "completed", "undoing starts when none is left"
    assert story.status("both/good") == "cancelled"
    assert story.status("both") == "failed"


def test_all_other_attempts_are_dead_at_once() -> None:
    story = given_yaml(BOTH)
    story.completes("first")
    token = story.token(PLAIN)
    story.fails(BAD)
    assert story.status(PLAIN) == "cancelled"
    assert token in revoked(story)
    assert told(story, PLAIN) == [token]
    assert story.completes(PLAIN, token=token).verdict is Verdict.STALE


def test_a_success_counts_as_completed_and_is_the_first_to_be_undone() -> None:
    story = failing()
    story.completes(GOOD, "late")
    assert story.status(GOOD) == "compensating"
    compensation = story.message().compensation
    assert compensation is not None
    assert loads(bytes(compensation.output)) == "late"
    assert story.status("first") == "completed"
    story.completes(GOOD)
    story.completes("first")
    assert story.status() == "compensated"


def is_failed(story: Story) -> None:
    story.fails(GOOD)


def wants_another(story: Story) -> None:
    story.completes(GOOD, again=Again())


def is_given_back(story: Story) -> None:
    story.is_released(GOOD, ReleaseReason.DRAIN)


def is_lost(story: Story) -> None:
    story.is_lost(GOOD)


def times_out(story: Story) -> None:
    story.time_passes_until_due(GOOD)


@pytest.mark.parametrize("ends", [is_failed, wants_another, is_given_back, is_lost, times_out])
def test_whatever_else_ends_it_cancels_it_without_a_retry(ends: Callable[[Story], None]) -> None:
    story = failing()
    ends(story)
    assert story.status(GOOD) == "cancelled"
    assert story.steps[GOOD].token is None
    assert story.status("first") == "compensating"
    story.completes("first")
    assert story.status() == "compensated"
    assert "step-retrying" not in story.whats(GOOD)


def test_a_dispatch_that_nobody_has_yet_has_an_end_all_the_same() -> None:
    story = given_yaml(BOTH)
    story.completes("first")
    assert story.steps[GOOD].due_at is None
    story.fails(BAD)
    assert story.steps[GOOD].stage == "dispatched"
    end = story.steps[GOOD].attempt_deadline_at
    assert end is not None
    assert (end - BEGIN).total_seconds() == 300
    story.time_passes_until_due(GOOD)
    assert story.status(GOOD) == "cancelled"
    assert story.status("first") == "compensating"


def withdraw(story: Story) -> Verdict:
    """The dispatch of `good` is taken back out of the stream."""
    token = story.token(GOOD)
    cause = a_cause("withdrawn", token=token)
    event = DispatchWithdrawn(seed=story.seed(), cause=cause, token=token)
    return story.happens(event).verdict


def test_a_dispatch_that_was_taken_back_is_cancelled_at_once() -> None:
    story = failing(started=False)
    assert withdraw(story) is Verdict.APPLIED
    assert story.status(GOOD) == "cancelled"
    assert story.status("first") == "compensating"


def test_only_what_is_being_cancelled_can_be_taken_back() -> None:
    story = given_yaml(BOTH)
    story.completes("first")
    assert withdraw(story) is Verdict.IGNORED
    assert story.status(GOOD) == "dispatched"


def test_one_that_a_worker_said_to_have_is_not_taken_back() -> None:
    story = failing()
    assert withdraw(story) is Verdict.IGNORED
    story.completes(GOOD)
    assert story.status(GOOD) == "compensating"


def test_one_that_was_published_again_may_be_with_whoever_got_it_the_first_time() -> None:
    story = given_yaml(BOTH)
    story.completes("first")
    story.vanishes(GOOD)
    story.fails(BAD)
    assert withdraw(story) is Verdict.APPLIED
    assert story.steps[GOOD].stage == "running"
    assert withdraw(story) is Verdict.IGNORED
    story.completes(GOOD, "late")
    assert story.status(GOOD) == "compensating"


def test_a_dispatch_that_vanished_is_not_published_again_but_somebody_may_have_it() -> None:
    story = failing(started=False)
    story.vanishes(GOOD)
    assert story.steps[GOOD].dispatch_no == 1
    assert story.steps[GOOD].stage == "running"
    story.completes(GOOD, "late")
    assert story.status(GOOD) == "compensating"


def test_one_that_vanished_and_that_nobody_had_ends_by_its_own_timeout() -> None:
    story = failing(started=False)
    story.vanishes(GOOD)
    story.time_passes_until_due(GOOD)
    assert story.status(GOOD) == "cancelled"
    assert story.message().step == "first"


def test_one_that_somebody_may_have_is_heard_until_its_time_is_over() -> None:
    story = failing(started=False)
    story.is_delivered(GOOD)
    assert story.steps[GOOD].stage == "running"
    assert story.vanishes(GOOD).verdict is Verdict.IGNORED
    story.completes(GOOD)
    assert story.status(GOOD) == "compensating"


def test_it_may_still_start_and_beat_and_say_what_it_likes() -> None:
    story = failing(started=False)
    story.is_started(GOOD, "w7")
    assert story.steps[GOOD].worker_id == "w7"
    assert story.beats(GOOD, worker="w7", progress=1).verdict is Verdict.APPLIED
    assert story.status(GOOD) == "cancelling"
    story.completes(GOOD)
    assert story.status(GOOD) == "compensating"


def test_a_step_that_waits_for_its_next_attempt_has_none_and_is_cancelled() -> None:
    story = given_yaml(BOTH)
    story.completes("first")
    story.fails(GOOD)
    assert story.status(GOOD) == "waiting"
    story.fails(BAD)
    assert story.status(GOOD) == "cancelled"
    assert story.status("first") == "compensating"


def test_when_nothing_was_completed_after_all_the_run_is_failed_and_no_more() -> None:
    story = given_yaml(BOTH.replace(", compensate: {task: undo}", "", 1))
    story.completes("first")
    story.fails(BAD)
    assert story.status() == "compensating"
    story.fails(GOOD)
    assert story.status() == "failed"
    assert story.run.compensation is None


@pytest.mark.parametrize("compensate", [True, False])
def test_a_cancel_with_compensation_hears_them_and_one_without_does_not(
    *, compensate: bool
) -> None:
    story = given_yaml(BOTH)
    story.completes("first")
    story.is_started(GOOD)
    story.is_cancelled(compensate=compensate)
    assert story.status(GOOD) == ("cancelling" if compensate else "cancelled")
    assert story.status() == ("compensating" if compensate else "cancelled")
    if compensate:
        story.completes(GOOD)
        story.completes(GOOD)
        story.completes("first")
        assert story.status() == "cancelled"
        assert story.run.compensation == "compensated"


def test_with_on_failure_fail_they_are_cancelled_at_once() -> None:
    story = given_yaml("on_failure: fail\nsteps:" + BOTH)
    story.completes("first")
    story.fails(BAD)
    assert story.status(GOOD) == "cancelled"
    assert story.status() == "failed"


def test_with_on_failure_fail_a_later_cancel_may_still_undo_what_they_complete() -> None:
    story = failing("on_failure: fail\nsteps:" + CAUGHT)
    assert story.status(GOOD) == "cancelling"
    story.completes(GOOD)
    assert story.status() == "running"
    story.is_cancelled(compensate=True)
    assert story.status(GOOD) == "compensating"


def test_a_late_success_of_a_list_that_failed_fast_is_undone_when_the_run_fails_later() -> None:
    story = failing(CAUGHT)
    assert story.status(GOOD) == "cancelling"
    assert story.status("sorry") == "dispatched"
    assert story.status() == "running"
    story.completes(GOOD, "late")
    assert story.status(GOOD) == "completed"
    assert story.status("both/good") == "cancelled"
    assert story.status() == "running"
    story.fails("sorry")
    assert story.open_paths() == [GOOD]
    story.completes(GOOD)
    story.completes("first")
    assert story.status() == "compensated"


def test_one_that_is_left_when_the_run_turns_to_undoing_is_waited_for() -> None:
    story = failing(CAUGHT)
    story.fails("sorry")
    assert story.status() == "compensating"
    assert story.open_paths() == [GOOD]
    story.completes(GOOD)
    assert story.open_paths() == [GOOD]
    assert story.status(GOOD) == "compensating"


def test_a_run_that_completes_cancels_what_is_left_of_a_list_that_failed_fast() -> None:
    story = failing(CAUGHT)
    token = story.token(GOOD)
    story.completes("sorry", "sorry")
    assert story.status() == "completed"
    assert story.output() == "sorry"
    assert story.status(GOOD) == "cancelled"
    assert token in revoked(story)
    assert story.completes(GOOD, token=token).verdict is Verdict.STALE


def test_one_that_is_left_does_not_let_the_run_wait() -> None:
    story = failing(CAUGHT.replace("{name: sorry, task: sorry}", "{name: sorry, sleep: 1h}"))
    assert story.status() == "running", "a worker has an attempt still"
    story.fails(GOOD)
    assert story.status() == "waiting"


def test_it_ends_while_the_rest_of_a_large_run_is_still_being_cancelled() -> None:
    story = given_yaml(
        """
- {name: first, task: first, compensate: {task: undo}}
- name: lines
  map:
    items: "${ input }"
    steps: [{name: pick, task: pick, compensate: {task: undo}}]
""",
        run_input=list(range(30)),
        limits=CoreLimits(transitions_per_decision_max=10),
    )
    story.completes("first")
    story.goes_on()
    story.fails("lines[29]/pick")
    slow = [path for path in story.open_paths() if story.status(path) == "cancelling"]
    assert slow
    assert story.run.cursor is not None
    story.completes(slow[0])
    assert story.status(slow[0]) == "completed"
    story.goes_on()
    while story.status() == "compensating":
        for path in story.open_paths():
            story.completes(path)
            story.goes_on()
    assert story.status() == "compensated"
    undone = [t.step for t in story.history if t.what == "step-compensated"]
    assert undone[-2:] == [slow[0], "first"]
    assert len(undone) == 30
