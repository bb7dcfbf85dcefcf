"""Parallel: branches at once, joined by name, failing fast or all waited for."""

import pytest

from tests.support.scenario import given_yaml

pytestmark = pytest.mark.usefixtures("loading")

TWO_BRANCHES = """
- name: notify
  parallel:
    branches:
      email: [{name: draw, task: draw}, {name: send, task: send}]
      sms: [{name: text, task: text}]
- {name: last, pass: "${ steps.notify.output }"}
"""
WAIT_ALL = TWO_BRANCHES.replace("parallel:", "parallel:\n    on_error: wait_all")


def test_all_branches_begin_at_once_and_the_whole_is_open_until_the_last_has_ended() -> None:
    story = given_yaml(TWO_BRANCHES)
    assert story.open_paths() == [
        "notify", "notify/email", "notify/email/draw", "notify/sms", "notify/sms/text"
    ]  # fmt: skip
    story.completes("notify/sms/text", 1)
    assert story.status("notify/sms") == "completed"
    assert story.status("notify") == "running"
    story.completes("notify/email/draw", 2)
    assert story.status("notify/email") == "running"
    story.completes("notify/email/send", 3)
    assert story.status() == "completed"
    assert story.output() == {"email": 3, "sms": 1}


def test_a_dispatch_names_the_path_of_its_step() -> None:
    story = given_yaml(TWO_BRANCHES)
    assert sorted(story.message(index).step for index in (0, 1)) == [
        "notify/email/draw",
        "notify/sms/text",
    ]


def test_a_failure_cancels_the_other_branches_at_once() -> None:
    story = given_yaml(TWO_BRANCHES)
    token = story.token("notify/email/draw")
    story.fails("notify/sms/text")
    assert story.status() == "failed"
    assert story.status("notify") == "failed"
    assert story.status("notify/sms") == "failed"
    assert story.status("notify/email") == "cancelled"
    assert story.status("notify/email/draw") == "cancelled"
    assert story.error().step == "notify/sms/text"
    assert story.status("last") == "skipped"
    assert "notify/email/send" not in story.steps, "what was never reached below has no row"
    assert story.completes("notify/email/draw", token=token).verdict == "stale"


def test_with_wait_all_every_branch_ends_before_the_whole_fails_with_the_first_failure() -> None:
    story = given_yaml(WAIT_ALL)
    story.fails("notify/sms/text", "First")
    assert story.status("notify") == "running"
    story.fails("notify/email/draw", "Second")
    assert story.status() == "failed"
    assert story.error().type == "First"
    errors = story.errors_of("notify")
    assert {name: error["type"] for name, error in errors.items()} == {
        "email": "Second",
        "sms": "First",
    }


def test_with_wait_all_one_failure_fails_the_whole_although_the_others_complete() -> None:
    story = given_yaml(WAIT_ALL)
    story.fails("notify/sms/text")
    story.completes("notify/email/draw", 1)
    story.completes("notify/email/send", 2)
    assert story.status("notify/email") == "completed"
    assert story.status("notify") == "failed"
    assert story.error().step == "notify/sms/text"


def test_a_catch_of_the_whole_takes_the_run_on() -> None:
    story = given_yaml("""
    - name: both
      parallel:
        branches: {a: [{name: one, task: one}], b: [{name: two, task: two}]}
      catch:
      - {errors: [Other], next: never}
      - {errors: [Boom], when: "error.step == 'both/b/two'", next: sorry}
    - {name: never, pass: 0, end: true}
    - name: sorry
      pass: {errors: "${ steps.both.errors }", status: "${ steps.both.status }"}
    """)
    story.fails("both/b/two")
    assert story.status() == "completed"
    output = story.output()
    assert isinstance(output, dict)
    assert output["status"] == "failed"
    assert output["errors"]["b"]["type"] == "Boom"
    assert story.status("both/a/one") == "cancelled"
    assert story.status("never") == "skipped"


def test_a_catch_inside_a_branch_keeps_the_branch_going() -> None:
    story = given_yaml("""
    - name: both
      parallel:
        branches:
          a:
          - {name: one, task: one, catch: [{next: instead}], end: true}
          - {name: instead, pass: "${ steps.one.error.type }"}
          b: [{name: two, task: two}]
    """)
    story.fails("both/a/one")
    story.completes("both/b/two", 2)
    assert story.output() == {"a": "Boom", "b": 2}


def test_end_in_a_branch_ends_the_branch_alone() -> None:
    story = given_yaml("""
    - name: both
      parallel:
        branches:
          a:
          - {name: early, choice: [{when: "true", next: stop}], default: more}
          - {name: stop, pass: stopped, end: true}
          - {name: more, task: more}
          b: [{name: two, task: two}]
    - {name: last, pass: "${ steps.both.output }"}
    """)
    story.completes("both/b/two")
    assert story.output() == {"a": "stopped", "b": None}


def test_a_skipped_whole_has_no_branches_and_a_delayed_one_waits_for_its_instant() -> None:
    story = given_yaml("""
    - name: never
      when: "false"
      parallel: {branches: {a: [{name: a1, task: t}]}}
    - name: later
      delay: 10s
      parallel: {branches: {a: [{name: a2, task: t}]}}
    """)
    assert story.status("never") == "skipped"
    assert story.status("later") == "waiting"
    assert story.status() == "waiting"
    story.time_passes_until_due("later")
    assert story.status("later") == "running"
    assert story.status() == "running"
    story.completes("later/a/a2", 5)
    assert story.output() == {"a": 5}


def test_a_run_waits_only_while_all_its_innermost_steps_wait() -> None:
    story = given_yaml("""
    - name: both
      parallel:
        branches: {a: [{name: ask, wait: {signal: go}}], b: [{name: two, task: two}]}
    """)
    assert story.status() == "running"
    story.completes("both/b/two")
    assert story.status() == "waiting"
    story.is_signalled("go", 1)
    assert story.status() == "completed"


def test_the_timer_of_a_step_in_a_branch_fires_and_its_retry_counts() -> None:
    story = given_yaml("""
    - name: both
      parallel:
        branches:
          a: [{name: one, task: one, retry: {max_attempts: 2, backoff: {initial: 5s, jitter: 0}}}]
          b: [{name: nap, sleep: 1m}]
    """)
    story.fails("both/a/one")
    assert story.status() == "waiting"
    story.time_passes_until_due("both/a/one")
    assert story.status("both/a/one") == "dispatched"
    story.completes("both/a/one", 1)
    story.time_passes_until_due("both/b/nap")
    assert story.output() == {"a": 1, "b": None}


def test_a_loop_over_a_whole_gives_its_parts_new_rows_and_new_keys() -> None:
    story = given_yaml("""
    - name: both
      limit: 3
      parallel: {branches: {a: [{name: one, task: one}], b: [{name: two, task: two}]}}
    - name: again
      choice: [{when: "steps.both.output.a < 2", next: both}]
      default: done
    - {name: done, pass: "${ steps.both.output }"}
    """)
    first = story.message().idempotency_key
    story.completes("both/a/one", 1)
    story.completes("both/b/two", "x")
    assert story.steps["both"].visit == 2
    assert story.open_paths() == [
        "both", "both~2/a", "both~2/a/one", "both~2/b", "both~2/b/two"
    ]  # fmt: skip
    assert story.message().step == "both/b/two", "workers are told the path alone"
    assert story.message().idempotency_key != first
    story.completes("both~2/a/one", 2)
    story.completes("both~2/b/two", "y")
    assert story.output() == {"a": 2, "b": "y"}
    assert story.output_of("both/a/one") == 1, "rows of the first visit stay"


def test_wholes_stand_in_branches_and_failures_come_up_through_all_of_them() -> None:
    text = """
    - name: outer
      parallel:
        branches:
          a:
          - name: inner
            parallel: {branches: {x: [{name: deep, task: deep}], y: [{name: other, task: other}]}}
          b: [{name: side, task: side}]
    """
    story = given_yaml(text)
    story.completes("outer/a/inner/x/deep", 1)
    story.completes("outer/a/inner/y/other", 2)
    story.completes("outer/b/side", 3)
    assert story.output() == {"a": {"x": 1, "y": 2}, "b": 3}

    story = given_yaml(text)
    story.fails("outer/a/inner/x/deep")
    assert story.status() == "failed"
    assert story.error().step == "outer/a/inner/x/deep"
    assert {path: step.status.value for path, step in story.steps.items()} == {
        "outer": "failed",
        "outer/a": "failed",
        "outer/a/inner": "failed",
        "outer/a/inner/x": "failed",
        "outer/a/inner/x/deep": "failed",
        "outer/a/inner/y": "cancelled",
        "outer/a/inner/y/other": "cancelled",
        "outer/b": "cancelled",
        "outer/b/side": "cancelled",
    }


def test_prev_is_of_the_list_of_the_place() -> None:
    story = given_yaml("""
    - {name: before, pass: outside}
    - name: both
      parallel:
        branches:
          a:
          - {name: first, pass: "${ prev }"}
          - {name: second, pass: "${ [prev, steps.before.output] }"}
          b: [{name: only, pass: "${ prev }"}]
    - {name: behind, pass: "${ prev }"}
    """)
    assert story.output() == {"a": [None, "outside"], "b": None}
