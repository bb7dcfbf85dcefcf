"""What a deploy accepts, what it refuses and where it says so, and what a fingerprint is of."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from tests.support.builders import a_choice, a_document, a_pass, a_task
from towpath_engine.core.definition import (
    ChoiceSpec,
    Repeat,
    RetryPolicy,
    SleepSpec,
    TaskSpec,
    Timeouts,
    WaitSpec,
)
from towpath_engine.core.definition_schema import DEFINITION_SCHEMA
from towpath_engine.core.durations import BadDuration, parse_duration
from towpath_engine.core.parse import DefinitionRefused, FaultCode, parse_definition
from towpath_engine.core.states import StepKind

Document = dict[str, object]

FULL_YAML: Final = b"""
expressions: cel/1
workflow: order
input: {type: object, required: [order_id, total]}
output: ${ steps.ship.output }
timeout: 2h
on_failure: compensate
priority: high
tags: [shop]
retry: {max_attempts: 3, backoff: {initial: 1s, factor: 2, max: 30s, jitter: 0.2}}
steps:
  - name: reserve
    task: inventory.reserve
    queue: inventory
    input: {sku: "${ input.sku }", qty: "${ input.qty }"}
    retry:
      max_attempts: 5
      only: [Timeout, HttpError]
      never: [OutOfStock]
      when: "error.details.code != 402"
    timeouts: {attempt: 30s, dispatch: 5m, step: 10m, heartbeat: 10s}
  - name: approval
    when: input.total > 1000
    wait: {signal: approved, timeout: 24h, on_timeout: {next: apologise}}
  - name: cool_off
    sleep: 24h
  - name: check
    task: carrier.check
    repeat: {delay: 10s, limit: 100}
  - name: route
    choice: [{when: "input.country == 'FR'", next: ship_fr}]
    default: ship
  - name: ship_fr
    task: ship
    end: true
  - name: ship
    task: ship
    end: true
  - name: apologise
    pass: {sorry: true}
"""


def refusals(document: bytes | Mapping[str, object]) -> list[tuple[str, str]]:
    """(path, code) of every fault."""
    with pytest.raises(DefinitionRefused) as refused:
        parse_definition(document)
    return [(fault.path, fault.code.value) for fault in refused.value.faults]


def test_the_whole_language_is_read() -> None:
    definition = parse_definition(FULL_YAML)
    assert definition.workflow == "order"
    assert (definition.timeout_ms, definition.priority, definition.tags) == (
        7_200_000,
        1,
        ("shop",),
    )
    assert definition.queues == {"inventory", "default"}
    assert definition.root.first == ("reserve",)
    steps = definition.steps
    assert [step.kind for step in steps.values()] == [
        StepKind.TASK, StepKind.WAIT, StepKind.SLEEP, StepKind.TASK,
        StepKind.CHOICE, StepKind.TASK, StepKind.TASK, StepKind.PASS,
    ]  # fmt: skip
    reserve = steps["reserve"].spec
    assert isinstance(reserve, TaskSpec)
    assert (reserve.task, reserve.queue) == ("inventory.reserve", "inventory")
    assert reserve.timeouts == Timeouts(
        attempt_ms=30_000, dispatch_ms=300_000, step_ms=600_000, heartbeat_ms=10_000
    )
    retry = reserve.retry
    assert (retry.max_attempts, retry.initial_ms, retry.max_ms) == (5, 1_000, 30_000)
    assert retry.only == {"Timeout", "HttpError"}
    assert retry.never == {"OutOfStock"}
    assert steps["approval"].spec == WaitSpec(
        signals=("approved",), timeout_ms=86_400_000, on_timeout_next="apologise"
    )
    assert steps["cool_off"].spec == SleepSpec(duration_ms=86_400_000)
    check = steps["check"].spec
    assert isinstance(check, TaskSpec)
    assert check.repeat == Repeat(delay_ms=10_000, limit=100)
    route = steps["route"].spec
    assert isinstance(route, ChoiceSpec)
    assert (route.branches[0].next, route.default) == ("ship_fr", "ship")
    assert [steps[name].successor for name in ("reserve", "ship", "apologise")] == [
        "approval", None, None,
    ]  # fmt: skip


def test_a_task_has_the_documented_defaults() -> None:
    spec = parse_definition(a_document(a_task("work"))).steps["work"].spec
    assert spec == TaskSpec(task="work", retry=RetryPolicy(), timeouts=Timeouts())
    assert (RetryPolicy().max_attempts, Timeouts().attempt_ms) == (1, 300_000)


def test_the_same_content_has_the_same_fingerprint_however_it_is_written() -> None:
    from_yaml = parse_definition(FULL_YAML)
    parsed = json.loads(from_yaml.document)
    backwards = dict(reversed(parsed.items()))
    texts: list[bytes | Document] = [
        from_yaml.document,
        backwards,
        json.dumps(backwards, indent=4).encode(),
        FULL_YAML.replace(b"sleep: 24h", b'"sleep": "24h"   # a day'),
    ]
    assert {parse_definition(text).fingerprint for text in texts} == {from_yaml.fingerprint}
    assert {parse_definition(text).document for text in texts} == {from_yaml.document}


OTHERS: Final[tuple[object, ...]] = (1, 1.0, "1", None, True, [0], {"a": 0}, 2**70)


def test_other_content_has_another_fingerprint() -> None:
    texts = [a_document(a_pass("a", value)) for value in OTHERS]
    assert len({parse_definition(text).fingerprint for text in texts}) == len(texts)


def test_big_integers_and_unicode_survive_normalising() -> None:
    document = parse_definition(a_document(a_pass("a", {"é🎉": 2**70, "f": 1.0}))).document
    assert '"pass":{"f":1.0,"é🎉":1180591620717411303424}'.encode() in document


def test_all_faults_are_found_at_once_each_with_its_path() -> None:
    document = a_document(
        a_task("a", retry={"max_attempts": 0, "backoff": {"factor": 11, "initial": "-5s"}}),
        a_pass("Bad", "${ inptu }"),
        a_pass("c", next="nowhere"),
        timeout="0s",
        colour="blue",
    )
    assert set(refusals(document)) == {
        ("colour", "unknown_field"),
        ("timeout", "bad_value"),
        ("steps[0].retry.max_attempts", "bad_value"),
        ("steps[0].retry.backoff.factor", "bad_value"),
        ("steps[0].retry.backoff.initial", "bad_value"),
        ("steps[1].name", "bad_name"),
        ("steps[1].pass", "bad_expression"),
        ("steps[2].next", "unknown_target"),
    }


LOOP: Final = (a_pass("a"), a_choice("b", ("true", "a"), default="c"), a_pass("c"))


class Refusal(Struct, frozen=True):
    """A row of refusals.yaml."""

    name: str
    document: Document
    path: str
    code: str


REFUSED: Final = msgspec.yaml.decode(
    Path(__file__).with_name("refusals.yaml").read_bytes(), type=list[Refusal]
)


@pytest.mark.parametrize("row", REFUSED, ids=[row.name for row in REFUSED])
def test_a_deploy_refuses_it_by_path_and_code(row: Refusal) -> None:
    assert (row.path, row.code) in refusals(row.document)


def test_a_list_of_more_than_a_thousand_steps_is_refused() -> None:
    document = a_document(*(a_pass(f"s{n}") for n in range(1001)))
    assert refusals(document) == [("steps", "too_large")]


def test_more_than_thirty_two_tags_are_refused() -> None:
    document = a_document(a_pass("a"), tags=[f"t{n}" for n in range(33)])
    assert refusals(document) == [("tags", "bad_value")]


SHAPE_CODES: Final = {"unknown_field", "missing", "wrong_type", "bad_name"}
# What the schema does not say: which words the expression language keeps for itself, and which
# texts are expressions.
BEYOND_THE_SCHEMA: Final = {
    "a reserved word",
    "an item called like a variable",
    "an item called like a word of the language",
    "an item called like a type",
    "an expression without its brackets as items",
}


@pytest.mark.parametrize(
    "row",
    [row for row in REFUSED if row.code in SHAPE_CODES and row.name not in BEYOND_THE_SCHEMA],
    ids=lambda row: row.name,
)
def test_the_published_schema_refuses_every_wrong_shape_too(row: Refusal) -> None:
    assert not jsonschema_rs.Draft202012Validator(DEFINITION_SCHEMA).is_valid(row.document)


def test_every_code_of_a_fault_is_reached_by_a_refusal() -> None:
    reached = {row.code for row in REFUSED} | {"malformed", "too_large"}
    assert reached == {code.value for code in FaultCode}


def test_a_fault_reads_as_a_sentence_with_its_path() -> None:
    with pytest.raises(DefinitionRefused, match=r"steps\[0\]\.map\.items: is missing"):
        parse_definition(a_document({"name": "a", "map": {"steps": [a_pass("b")]}}))


@pytest.mark.parametrize(
    "step",
    [
        a_choice("b", ("true", "a"), default="c", limit=3),
        a_choice("b", ("true", "a"), default="c", delay="1s"),
    ],
)
def test_a_cycle_with_a_limited_or_waiting_step_is_accepted(step: Document) -> None:
    definition = parse_definition(a_document(a_pass("a"), step, a_pass("c")))
    assert definition.referenced == {"a", "b"}, "what can be visited again is loaded with a run"


def test_a_loop_back_makes_later_steps_visible_to_earlier_ones() -> None:
    definition = parse_definition(
        a_document(
            a_pass("a", "${ steps.b.output }"),
            a_pass("b", "${ steps.a.output }", limit=2),
            a_choice("more", ("true", "a"), default="c"),
            a_pass("c"),
        )
    )
    assert definition.referenced == {"a", "b", "more"}


def test_a_thousand_steps_are_accepted() -> None:
    steps = [a_pass(f"s{n}", "${ prev }" if n % 100 == 0 else n) for n in range(1000)]
    assert len(parse_definition(a_document(*steps)).steps) == 1000


def test_all_expressions_together_have_a_budget() -> None:
    source = "input.x == '" + "x" * 3_000 + "'"
    document = a_document(*(a_pass(f"s{n}", when=source) for n in range(30)))
    assert refusals(document) == [("steps[21].when", "too_large")]


def test_a_document_over_one_mebibyte_is_refused() -> None:
    document = a_document(a_pass("a", "x" * 1024 * 1024))
    assert refusals(document) == [("", "too_large")]
    assert refusals(json.dumps(document).encode()) == [("", "too_large")]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"just text",
        b'{"workflow": "w", "workflow": "w"}',
        b'{"workflow": "w", "steps": [{"name": "a", "pass": NaN}]}',
        b'{"workflow": "w", "steps": [{"name": "a", "pass": "\\u0000"}]}',
        b'{"workflow": "w"',
        b"\xff\xfe",
        b"workflow: w\nworkflow: w",
        b"a: &x [1]\nb: *x",
        b"steps: !!python/object:os.system {}",
        b"1: 2",
        b"a: 1\n---\nb: 2",
        b"a: True",
        b"{" * 100_000,
        b"- " * 5_000,
        b"a: " + b"[" * 100 + b"]" * 100,
    ],
)
def test_a_text_that_is_no_document_is_refused_in_one_sentence(text: bytes) -> None:
    assert refusals(text) == [("", "malformed")]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1ms", 1), ("500ms", 500), ("1s", 1_000), ("90m", 5_400_000), ("1h30m", 5_400_000),
        ("24h", 86_400_000), ("7d", 604_800_000), ("1d2h3m4s5ms", 93_784_005),
        ("36500d", 3_153_600_000_000),
    ],
)  # fmt: skip
def test_a_duration_is_whole_numbers_with_units(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    ["", "5", "1.5s", "1m1h", "1s 2s", " 1s", "1s ", "1S", "s", "PT1H", "1w", "0s", "0ms", "-1s",
     "1s1s", "٣s", "999999999d", "1h-5m", "1e3s"],
)  # fmt: skip
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(BadDuration):
        parse_duration(text)


@given(st.text(alphabet="0123456789dhms -.", max_size=12))
@settings(max_examples=500, deadline=None, derandomize=True, database=None)
def test_the_schema_and_the_parser_agree_on_what_a_duration_looks_like(text: str) -> None:
    schema = {"$ref": "#/$defs/duration", "$defs": DEFINITION_SCHEMA["$defs"]}
    shaped = jsonschema_rs.Draft202012Validator(schema).is_valid(text)
    try:
        parse_duration(text)
        parsed = True
    except BadDuration as refused:
        # Zero, negative and endless ones have the shape; they are refused for what they say.
        parsed = shaped and any(word in str(refused) for word in ("zero", "longer"))
    assert parsed == shaped
