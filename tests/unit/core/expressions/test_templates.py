"""Templates: what stays as it is, what becomes a value, what becomes text."""

import json
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cel_oracle import Given
from towpath_engine.core.expressions.compiler import compile_template
from towpath_engine.core.expressions.interface import (
    ExpressionFailed,
    ExpressionRefused,
    Visible,
)

VISIBLE: Final = Visible(steps=frozenset({"charge"}))
VALUES: Final[dict[str, Any]] = {
    "input": {"a": 1, "f": 10.0, "n": None, "l": [1, 2], "s": "x", "u": "naïve 🎉", "b": False},
    "steps.charge.output": {"id": "c1"},
    "run.key": None,
    "now": datetime(2026, 1, 31, 12, 30, 0, 250_000, tzinfo=UTC),
}


def render(template: Any, values: dict[str, Any] = VALUES) -> str:
    compiled = compile_template(template, VISIBLE, field="steps.ship.input")
    return compiled.render(Given(values)).decode()


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ({"a": [1, 1.0, None, True, "x"], "b": {}}, '{"a":[1,1.0,null,true,"x"],"b":{}}'),
        (2**70, "1180591620717411303424"),
        ("no expression", '"no expression"'),
        ("", '""'),
        ("costs $5 or {5}", '"costs $5 or {5}"'),
        ("$${ input.a }", '"${ input.a }"'),
        ("$$${ input.a }", '"$${ input.a }"'),
        ("a $${b} ${ input.a }", '"a ${b} 1"'),
        ({"${ input.a }": 1}, '{"${ input.a }":1}'),
        ("${ input.a }", "1"),
        ("${input.f}", "10.0"),
        ("${ input.n }", "null"),
        ("${ input.b }", "false"),
        ("${ input.l }", "[1,2]"),
        ("${ input.u }", '"naïve 🎉"'),
        ("${ run.key }", "null"),
        (" ${ input.a }", '" 1"'),
        ("${ input.a }${ input.a }", '"11"'),
        ("${ input.a }/${ input.f }/${ input.b }/${ input.s }", '"1/10/false/x"'),
        ("at ${ now }", '"at 2026-01-31T12:30:00.250Z"'),
        ("${ '}' + \"}\" }", '"}}"'),
        ("${ '\\'}' }", '"\'}"'),
        ("${ r'\\d}' }", '"\\\\d}"'),
        ("${ '''}''' }", '"}"'),
        ("${ {'k': {'a': 1}} }", '{"k":{"a":1}}'),
        ("${ 1 // } not the end\n }", "1"),
        ("${ input.l.map(x, {'v': x}) }", '[{"v":1},{"v":2}]'),
        ("${ '$' + '{ input.a }' }", '"${ input.a }"'),
        ("${ now }", '"2026-01-31T12:30:00.250Z"'),
        ("${ duration('1h') }", '"3600s"'),
        ("${ b'ab' }", '"YWI="'),
        ("${ 5u }", "5"),
        ("${ input.?zz }", "null"),
        ("${ input.?n.orDefault(3) }", "3"),
        ("${ input.n.orDefault(3) }", "3"),
        ("${ input.?a.orDefault(3) }", "1"),
        ("${ {'b': 1, 'a': 2} }", '{"a":2,"b":1}'),
        ("${ {'a': 1}.merge({'a': 2, 'b': 3}) }", '{"a":2,"b":3}'),
        ("${ [1, 2].sum() }", "3"),
        ("${ [1, 2.5].map(x, dyn(x)).sum() }", "3.5"),
        ("${ [].sum() }", "0"),
        ("${ json.parse('[1, {\"a\": 1.0}]') }", '[1,{"a":1.0}]'),
        ("${ json.format(input.l) }", '"[1,2]"'),
        ("${ {'b': 1, 'a': 2}.transformMap(k, v, v + 1) }", '{"a":3,"b":2}'),
        ("${ {'b': 1, 'a': 2}.map(k, k) }", '["a","b"]'),
    ],
)
def test_a_template_renders(template: Any, expected: str) -> None:
    assert render(template) == expected


def test_what_an_expression_gives_is_never_scanned_again() -> None:
    values = {"input": {"s": "${ input.secret } $${"}}
    assert render("${ input.s }", values) == '"${ input.secret } $${"'
    assert render("text ${ input.s }", values) == '"text ${ input.secret } $${"'


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner)
    ),
    max_leaves=12,
)


@given(value=json_values)
def test_the_whole_input_comes_back_unchanged(value: Any) -> None:
    assert repr(json.loads(render("${ input }", {"input": value}))) == repr(value)


@given(value=json_values)
def test_a_constant_template_comes_back_unchanged(value: Any) -> None:
    text = json.dumps(value).replace("${", "")
    assert repr(json.loads(render(json.loads(text)))) == repr(json.loads(text))


def test_integers_beyond_64_bits_pass_and_compare_but_do_not_compute() -> None:
    values = {"input": {"id": 2**70, "same": 2**70, "less": 2**69}}
    assert render("${ input.id }", values) == str(2**70)
    assert render("${ input.id == input.same && input.id > input.less }", values) == "true"
    with pytest.raises(ExpressionFailed, match="beyond 64 bits"):
        render("${ input.id + 1 }", values)


def test_a_list_of_many_numbers_passes_through_whatever_the_limit_on_computed_results() -> None:
    numbers = list(range(60_000))
    assert json.loads(render({"all": "${ input }"}, {"input": numbers})) == {"all": numbers}


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("x ${ input.n }", "a value of type null cannot be put into text"),
        ("x ${ input.l }", "a value of type list cannot be put into text"),
        ("x ${ input }", "a value of type map cannot be put into text"),
        ("x ${ input.?a }", "cannot be put into text"),
        ("${ 1.0 / 0.0 }", "NaN and infinities have no JSON form"),
        ("${ [0.0 / 0.0] }", "NaN and infinities have no JSON form"),
        ("${ {1: 2} }", "keys that are not strings"),
        ("${ {true: 2} }", "keys that are not strings"),
        ("${ type(1) }", "a value of type type has no JSON form"),
        ("${ [input.?a] }", "a value of type optional has no JSON form"),
        ("${ '\\u0000' }", "NUL"),
        ("x ${ '\\u0000' }", "NUL"),
        ("${ {'\\u0000': 1} }", "NUL"),
        ("${ json.parse('[1, 1') }", "no JSON that may be used here"),
        ('${ json.parse(\'{"a":1,"a":2}\') }', "no JSON that may be used here"),
        ("${ json.parse('1e400') }", "no JSON that may be used here"),
        ("${ dyn([1]).map(x, 'a').sum() }", "sum does not take (string)"),
    ],
)
def test_a_value_without_a_form_fails(template: Any, reason: str) -> None:
    with pytest.raises((ExpressionFailed, ExpressionRefused)) as raised:
        render(template)
    assert reason in str(raised.value)


def test_a_template_names_every_variable_it_uses() -> None:
    template: dict[str, Any] = {
        "a": "${ input.x + steps.charge.output.id }",
        "b": ["${ now } ${ [1].map(run, run) }"],
    }
    with pytest.raises(ExpressionRefused, match="list"):
        compile_template(template, VISIBLE, field="f")
    template["b"] = ["${ now } ${ [1].map(run, run).size() }"]
    compiled = compile_template(template, VISIBLE, field="f")
    assert compiled.references == {"input", "steps.charge.output", "now"}
    assert compile_template([1], VISIBLE, field="f").references == frozenset()


def test_nesting_is_limited_where_a_deep_value_is_put_into_a_deep_template() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    template: Any = "${ input }"
    for _ in range(4):
        template = [template]
    assert json.loads(render(template, {"input": deep}))
    with pytest.raises(ExpressionFailed, match="nested deeper than 64"):
        render([template], {"input": deep})


def test_a_result_larger_than_the_limit_fails() -> None:
    with pytest.raises(ExpressionFailed, match="larger than 524288 bytes"):
        render(["${ input }", "${ input }"], {"input": "x" * 300_000})
