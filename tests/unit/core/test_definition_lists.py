"""How the lists of a definition are read: inner ones, those with `after`, and what each sees."""

from typing import Final

import pytest

from tests.support.builders import Json, a_choice, a_definition, a_document, a_pass, a_task
from tests.unit.core.test_definition import refusals
from towpath_engine.core.definition import (
    CatchRow,
    ListDef,
    MapSpec,
    ParallelSpec,
    RunSpec,
    TaskSpec,
    Timeouts,
    WaitMode,
    WaitSpec,
)
from towpath_engine.core.expressions.interface import ExpressionFailed
from towpath_engine.core.parse import parse_definition
from towpath_engine.core.parse_lists import DEPTH_MAX
from towpath_engine.core.states import StepKind

NESTED_YAML: Final = b"""
workflow: order
on_failure: fail
retry: {max_attempts: 7}
steps:
  - name: reserve
    task: inventory.reserve
    queue: inventory
    compensate: {task: inventory.release, input: {id: "${ output.id }", why: "${ error.type }"}}
    catch:
      - {errors: [OutOfStock], when: "error.details.final", next: apologise}
      - {next: apologise}
  - name: approval
    wait: {any: [approved, refused], schema: {type: object}, timeout: 1h}
  - name: votes
    wait: {signal: vote, count: 3}
  - name: papers
    wait: {all: [passport, visa]}
  - name: poll
    task: carrier.check
    repeat: {delay: 10s, limit: 100, while: "output.ready == false && iteration < 9 && last != 1"}
  - name: notify
    parallel:
      on_error: wait_all
      branches:
        mail:
          - {name: send, task: mail.send, queue: mail}
        prints:
          - name: pages
            map:
              items: "${ input.pages }"
              as: page
              max_concurrency: 5
              tolerate: {percent: 12.5}
              steps:
                - name: print
                  task: print
                  input: {page: "${ page }", n: "${ index }", id: "${ steps.reserve.output.id }"}
                  compensate:
                    task: shred
                    queue: shredder
                    retry: {max_attempts: 2}
                    timeouts: {attempt: 9s}
                - {name: stamp, pass: "${ steps.print.attempts }"}
  - name: child
    run: {workflow: invoice, version: 3, input: {a: 1}, key: "k-${ run.id }"}
  - name: loose
    run: {workflow: invoice, detached: true}
    end: true
  - name: apologise
    map:
      items: [1, 2]
      steps:
        - {name: first, pass: "${ item }"}
        - {name: second, pass: "${ item }"}
        - name: third
          pass: "${ steps.first.output + steps.second.output }"
          after: [second, first]
output: "${ steps.notify.errors }"
"""


def test_steps_are_kept_by_their_place_and_lists_by_theirs() -> None:
    definition = parse_definition(NESTED_YAML)
    assert list(definition.steps) == [
        "reserve", "approval", "votes", "papers", "poll",
        "notify", "notify/mail/send", "notify/prints/pages",
        "notify/prints/pages/print", "notify/prints/pages/stamp",
        "child", "loose",
        "apologise", "apologise/first", "apologise/second", "apologise/third",
    ]  # fmt: skip
    assert all(step.path == place for place, step in definition.steps.items())
    assert list(definition.lists) == [
        "", "notify/mail", "notify/prints", "notify/prints/pages", "apologise",
    ]  # fmt: skip
    assert all(one.place == place for place, one in definition.lists.items())
    assert definition.root.first == ("reserve",)
    assert definition.lists["notify/prints/pages"] == ListDef(
        place="notify/prints/pages", steps=("print", "stamp"), first=("print",)
    )
    assert not definition.undo_on_failure
    assert definition.queues == {"inventory", "mail", "default", "shredder"}


def test_each_kind_of_step_is_read() -> None:
    steps = parse_definition(NESTED_YAML).steps
    assert steps["notify"].kind is StepKind.PARALLEL
    assert steps["notify"].spec == ParallelSpec(branches=("mail", "prints"), wait_all=True)
    pages = steps["notify/prints/pages"].spec
    assert isinstance(pages, MapSpec)
    assert (pages.as_name, pages.max_concurrency) == ("page", 5)
    assert (pages.tolerate_count, pages.tolerate_percent) == (0, 12.5)
    child, loose = steps["child"].spec, steps["loose"].spec
    assert isinstance(child, RunSpec)
    assert (child.workflow, child.version, child.detached) == ("invoice", 3, False)
    assert child.input is not None
    assert child.key is not None
    assert loose == RunSpec(workflow="invoice", detached=True)
    assert steps["approval"].spec == WaitSpec(
        signals=("approved", "refused"), schema={"type": "object"}, timeout_ms=3_600_000
    )
    assert steps["votes"].spec == WaitSpec(signals=("vote",), mode=WaitMode.COUNT, count=3)
    assert steps["papers"].spec == WaitSpec(signals=("passport", "visa"), mode=WaitMode.ALL)
    poll = steps["poll"].spec
    assert isinstance(poll, TaskSpec)
    assert poll.repeat is not None
    assert poll.repeat.again_while is not None


def test_catch_is_read_row_by_row() -> None:
    first, second = parse_definition(NESTED_YAML).steps["reserve"].catch
    assert (first.next, first.errors) == ("apologise", {"OutOfStock"})
    assert first.when is not None
    assert second == CatchRow(next="apologise")


def test_an_undo_goes_to_the_queue_of_its_step_and_has_the_default_policy_of_the_workflow() -> None:
    steps = parse_definition(NESTED_YAML).steps
    release = steps["reserve"].compensate
    assert release is not None
    assert (release.task, release.queue) == ("inventory.release", "inventory")
    assert release.retry.max_attempts == 7
    assert release.input is not None
    shred = steps["notify/prints/pages/print"].compensate
    assert shred is not None
    assert (shred.queue, shred.input) == ("shredder", None)
    assert shred.retry.max_attempts == 2
    assert shred.timeouts == Timeouts(attempt_ms=9_000)
    plain = a_definition(a_pass("a", compensate={"task": "undo"})).steps["a"].compensate
    assert plain == TaskSpec(task="undo")


def test_an_undo_may_take_longer_than_the_run_since_the_deadline_is_no_limit_to_it() -> None:
    undo = {"task": "undo", "timeouts": {"attempt": "2h"}}
    assert a_definition(a_task("a", compensate=undo), timeout="1h").steps["a"].compensate


def test_a_list_with_after_knows_who_begins_and_who_follows() -> None:
    definition = parse_definition(NESTED_YAML)
    dag = definition.lists["apologise"]
    assert dag.is_dag
    assert dag.first == ("first", "second")
    first, third = (definition.steps[f"apologise/{name}"] for name in ("first", "third"))
    assert (first.after, first.followers, first.following) == ((), ("third",), None)
    assert (third.after, third.followers, third.successor) == (("second", "first"), (), None)
    assert third.index == 2


def test_an_empty_after_makes_all_steps_of_a_list_begin_at_once() -> None:
    definition = a_definition(a_pass("a", after=[]), a_pass("b"))
    assert definition.root == ListDef(place="", steps=("a", "b"), first=("a", "b"), is_dag=True)


def test_a_step_with_after_sees_all_its_ancestors() -> None:
    definition = a_definition(
        a_pass("c", "${ steps.a.output }", after=["b"]),
        a_pass("b", after=["a"]),
        a_pass("a"),
    )
    assert definition.referenced == {"a", "b"}


def test_the_places_of_what_is_named_are_kept_at_hand() -> None:
    assert parse_definition(NESTED_YAML).referenced == {
        "reserve", "notify", "notify/prints/pages/print", "apologise/first", "apologise/second",
    }  # fmt: skip


def test_what_can_be_visited_again_in_an_inner_list_is_kept_at_hand_by_its_place() -> None:
    body = [a_pass("b", limit=3), a_choice("c", ("true", "b"), default="d"), a_pass("d")]
    definition = a_definition({"name": "a", "map": {"items": [1], "steps": body}})
    assert definition.referenced == {"a/b", "a/c"}


def test_a_name_may_stand_in_lists_that_do_not_see_each_other() -> None:
    one = [a_pass("a"), a_pass("b", "${ steps.a.output }")]
    definition = a_definition({"name": "p", "parallel": {"branches": {"x": one, "y": one}}})
    assert definition.referenced == {"p/x/a", "p/y/a"}


def test_a_branch_may_be_called_like_a_step() -> None:
    definition = a_definition(
        {"name": "p", "parallel": {"branches": {"p": [a_pass("x")], "x": [a_pass("y")]}}}
    )
    assert list(definition.steps) == ["p", "p/p/x", "p/x/y"]


def test_inner_steps_see_the_items_and_indices_around_them() -> None:
    inner = {"items": "${ line.parts }", "as": "part", "steps": [a_pass("c", "${ [line, part] }")]}
    body = [a_pass("b", "${ index }"), {"name": "d", "map": inner, "when": "index > 0"}]
    assert a_definition({"name": "a", "map": {"items": [1], "as": "line", "steps": body}})


@pytest.mark.parametrize(
    "step",
    [
        a_task("a", limit=3, catch=[{"errors": ["Timeout"], "next": "a"}]),
        a_task("a", limit=3, catch=[{"errors": ["VisitLimit"], "next": "b"}, {"next": "a"}]),
        a_task("a", limit=3, catch=[{"next": "b"}, {"next": "a"}]),
        a_task("a", delay="1s", catch=[{"next": "a"}]),
        {"name": "a", "wait": {"signal": "s", "timeout": "1h"}, "catch": [{"next": "a"}]},
        {"name": "a", "until": "${ input }", "delay": "1s", "catch": [{"next": "a"}]},
        {
            "name": "a",
            "when": "input.x",
            "wait": {"signal": "s", "timeout": "1h"},
            "catch": [{"errors": ["Timeout"], "next": "a"}],
        },
    ],
)
def test_a_catch_may_lead_back_where_that_waits_or_is_limited(step: dict[str, object]) -> None:
    if "b" not in str(step["catch"]):
        assert a_definition(step, a_pass("b")).referenced == {"a"}
    else:
        assert a_definition(step, a_pass("b"))


def test_a_catch_is_a_way_to_a_step_and_lets_it_see_what_failed() -> None:
    definition = a_definition(
        a_task("a", catch=[{"next": "c"}]),
        a_pass("b", end=True),
        a_pass("c", "${ steps.a.error.type }"),
    )
    assert definition.referenced == {"a"}


def nested(depth: int) -> dict[str, object]:
    """A document with so many parallel steps inside each other."""
    step: Json = a_pass("innermost")
    for level in range(depth):
        step = {"name": f"s{level}", "parallel": {"branches": {"x": [step]}}}
    return a_document(step)


def test_steps_stand_inside_each_other_ten_deep_and_no_deeper() -> None:
    assert len(parse_definition(nested(DEPTH_MAX)).steps) == DEPTH_MAX + 1
    assert [code for _, code in refusals(nested(DEPTH_MAX + 1))] == ["too_large"]


def test_the_steps_of_all_lists_together_are_at_most_a_thousand() -> None:
    def document(count: int) -> dict[str, object]:
        body = [a_pass(f"s{n}", "${ item }") for n in range(count)]
        branches = {"x": [{"name": "m", "map": {"items": [1], "steps": body}}]}
        return a_document({"name": "p", "parallel": {"branches": branches}})

    assert len(parse_definition(document(998)).steps) == 1_000
    assert refusals(document(999)) == [("steps", "too_large")]


def test_an_error_at_run_time_names_the_field_by_the_place_of_its_step() -> None:
    class Nothing:
        def lookup(self, name: str) -> object:
            return {} if name == "item" else None

    body = [a_pass("b", when="item.nothing")]
    definition = a_definition({"name": "a", "map": {"items": [1], "steps": body}})
    when = definition.steps["a/b"].when
    assert when is not None
    with pytest.raises(ExpressionFailed) as failed:
        when.evaluate(Nothing())
    assert failed.value.field == "steps.a/b.when"


def test_the_order_of_branches_makes_no_other_version() -> None:
    first = a_definition(
        {"name": "p", "parallel": {"branches": {"x": [a_pass("a")], "y": [a_pass("b")]}}}
    )
    second = a_definition(
        {"name": "p", "parallel": {"branches": {"y": [a_pass("b")], "x": [a_pass("a")]}}}
    )
    assert first.fingerprint == second.fingerprint
    assert list(first.steps) == list(second.steps) == ["p", "p/x/a", "p/y/b"]
    assert list(first.lists) == list(second.lists) == ["", "p/x", "p/y"]


def test_a_definition_is_the_same_when_it_is_read_from_its_stored_text() -> None:
    first = parse_definition(NESTED_YAML)
    again = parse_definition(first.document)
    assert list(again.steps) == list(first.steps)
    assert list(again.lists.items()) == list(first.lists.items())
    assert again.referenced == first.referenced
    assert [step.spec for step in again.steps.values() if step.kind is StepKind.PARALLEL] == [
        step.spec for step in first.steps.values() if step.kind is StepKind.PARALLEL
    ]
