"""Expressions that try to run for ever or to fill the memory: fuel and caps stop every one.

Nothing here watches a clock: fuel bounds the work, and what is built is bounded before it is built.
"""

import tracemalloc
from typing import Any, Final

import pytest

from tests.support.cel_oracle import Given
from towpath_engine.core.expressions.compiler import compile_condition, compile_template
from towpath_engine.core.expressions.interface import (
    ExpressionFailed,
    ExpressionRefused,
    Visible,
)
from towpath_engine.core.expressions.limits import StaticLimits

VISIBLE: Final = Visible()
# Looser than any operator should set them, so that the run-time limits are what is tested.
LOOSE: Final = StaticLimits(fold_depth_max=6, fold_count_max=64, nodes_max=2_000)
MEMORY_MAX: Final = 64 * 1024 * 1024

DATA: Final[dict[str, Any]] = {
    "input": {
        "k1": list(range(1_000)),
        "k10": list(range(10_000)),
        "k300": list(range(300)),
        "objects": [{"id": i} for i in range(10_000)],
        "text": "a" * 100_000,
        "map": {f"k{i}": i for i in range(10_000)},
        "two": ["x", "y"],
    }
}

DOUBLING_LIST: Final = (
    "cel.bind(a0, [1], "
    + "".join(f"cel.bind(a{i}, a{i - 1} + a{i - 1}, " for i in range(1, 26))
    + "a25"
    + ")" * 26
)
SHARED: Final = (
    "cel.bind(a0, [1, 1], "
    + "".join(f"cel.bind(a{i}, [a{i - 1}, a{i - 1}], " for i in range(1, 26))
    + "a25"
    + ")" * 26
)
SHARED_COMPARED: Final = SHARED.replace("a25)", "a25 == [a24, a24])", 1)
DOUBLING_TEXT: Final = (
    "cel.bind(a0, input.text, "
    + "".join(f"cel.bind(a{i}, a{i - 1} + a{i - 1}, " for i in range(1, 26))
    + "a25"
    + ")" * 26
)


@pytest.mark.parametrize(
    "source",
    [
        "input.k1.map(x, input.k1.map(y, x * y))",
        "input.k300.map(x, input.k300.map(y, input.k300.map(z, 1)))",
        "input.k1.all(x, input.k1.all(y, input.k1.exists(z, z == 2)))",
        "[1,2,3,4,5,6,7,8,9,10].map(a, [1,2,3,4,5,6,7,8,9,10].map(b, [1,2,3,4,5,6,7,8,9,10]"
        ".map(c, [1,2,3,4,5,6,7,8,9,10].map(d, [1,2,3,4,5,6,7,8,9,10].map(e, 1)))))",
        SHARED_COMPARED,
        SHARED.replace("a25)", "a25.flatten(30))", 1),
        SHARED.replace("a25)", "[a25, a25].distinct())", 1),
        SHARED.replace("a25)", "a25 in [a25])", 1),
        SHARED.replace("a25)", "sets.contains([a25], [a25]))", 1),
        "input.objects.distinct()",
        "sets.equivalent(input.objects, input.objects.reverse())",
        "input.objects.filter(x, x in input.objects)",
        "input.k10.map(x, input.k10.sort())",
        "input.k1.map(x, input.map.map(k, k))",
        "input.k1.map(x, input.text.indexOf('b'))",
        "input.k1.map(x, input.text.lastIndexOf('ab' + input.text.substring(50000)))",
        "input.k10.map(x, input.text.startsWith(input.text))",
        "input.k10.map(x, input.text).sort()",
        "input.k1.map(x, input.text.matches('(a|b)*a(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)c'))",
        "input.k10.map(x, input.text.matches('^(a+)+$')).size()",
        "input.k1.transformMap(i, v, input.k1.transformMap(j, w, w))",
    ],
)
def test_an_attack_on_the_time_runs_out_of_budget(source: str) -> None:
    _assert_too_costly(source)


@pytest.mark.parametrize(
    "source",
    [
        DOUBLING_LIST,
        DOUBLING_TEXT,
        SHARED,
        SHARED.replace("a25)", "json.format(a25))", 1),
        "input.text.replace('a', input.text)",
        "input.text.replace('', input.text)",
        "input.k300.map(x, input.text).join()",
        "input.k10.map(x, input.text).join(input.text)",
        "input.objects.map(x, input.objects)",
        "input.k10.map(x, input.map)",
        "input.k1.map(x, input.text.split('')).size()",
        "input.text.split('')",
        "input.k10 + [1]",
        "input.k10.map(x, [x, x]).flatten()",
        "input.k10.map(x, input.text.lowerAscii()).size()",
        "input.k10.map(x, json.format(input)).size()",
        "input.k10.map(x, bytes(input.text)).size()",
        "input.map.merge({'zz': 1})",
    ],
)
def test_an_attack_on_the_memory_is_stopped_before_it_is_there(source: str) -> None:
    tracemalloc.start()
    try:
        _assert_too_costly(source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_MAX


def _assert_too_costly(source: str) -> None:
    template = compile_template("${ " + source + " }", VISIBLE, field="f", static=LOOSE)
    with pytest.raises(ExpressionFailed, match="too costly"):
        template.render(Given(DATA))


@pytest.mark.parametrize("source", ["lists.range(100000000)", "lists.range(1001)"])
def test_a_range_is_limited(source: str) -> None:
    template = compile_template("${ " + source + " }", VISIBLE, field="f", static=LOOSE)
    with pytest.raises(ExpressionFailed, match="limited to 0 to 1000"):
        template.render(Given(DATA))


def test_running_out_of_fuel_is_not_absorbed_by_a_logical_operator() -> None:
    source = "input.k10.all(x, input.k10.exists(y, y < 0)) || true"
    condition = compile_condition(source, VISIBLE, field="f")
    with pytest.raises(ExpressionFailed, match="out of fuel"):
        condition.evaluate(Given(DATA))


def test_all_expressions_of_a_template_share_its_fuel() -> None:
    leaf = "${ input.k10.filter(x, x < 0).size() }"
    assert compile_template(leaf, VISIBLE, field="f").render(Given(DATA)) == b"0"
    leaves: list[Any] = [leaf] * 50
    many = compile_template(leaves, VISIBLE, field="f")
    with pytest.raises(ExpressionFailed, match="out of fuel"):
        many.render(Given(DATA))


def test_a_long_list_is_mapped_in_linear_time() -> None:
    template = compile_template("${ input.k10.map(x, x).size() }", VISIBLE, field="f")
    assert template.render(Given(DATA)) == b"10000"


def test_a_pattern_that_makes_other_engines_backtrack_is_linear() -> None:
    condition = compile_condition("input.text.matches('^(a+)+$')", VISIBLE, field="f")
    assert condition.evaluate(Given(DATA)) is True


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1 + " * 2_000 + "1", "longer than 4096 characters"),
        ("1" + " + 1" * 40, "recursion"),
        ("(" * 40 + "1" + ")" * 40, "recursion"),
        ("[" + ", ".join(["1"] * 257) + "].size() > 0", "256 elements in a list"),
        (" && ".join(["input.a"] * 300), "nodes"),
        ("input.all(a, input.all(b, input.all(c, true)))", "inside each other"),
        (" && ".join(["input.all(x, x)"] * 9), "8 looping macros"),
        ("input.?a" + ".optMap(x, x)" * 20 + " == optional.none()", "more than 4 optMap"),
        ("input.matches('" + "a" * 257 + "')", "characters in a pattern"),
        ("input.matches(input)", "must be a string literal"),
        ("'a'.matches('[')", "not a pattern"),
        ("'a'.matches('((a|b){30}){100}')", "the pattern is too large"),
        ("'a'.matches('(?:[ab]?){1000}c')", "the pattern is too large"),
        ("'a'.matches('\\\\Qa\\\\E')", "quotes"),
        ("now.getHours('Europe/Paris') > 1", "time zone"),
        ("now.getHours(input.zone) > 1", "time zone"),
        ("'%s'.format([1]) == '1'", "`format` is not supported"),
        ("google.protobuf.Timestamp{} == now", "not supported"),
        ("", "empty"),
        ("'\ud800' == ''", "surrogates"),
        ("'\0' == ''", "NUL"),
    ],
)
def test_a_source_beyond_the_static_limits_is_refused(source: str, reason: str) -> None:
    with pytest.raises(ExpressionRefused) as refused:
        compile_condition(source, VISIBLE, field="f")
    assert reason in refused.value.reason


def test_a_template_has_a_limited_number_of_expressions() -> None:
    leaves: list[Any] = ["${ 1 }"] * 1_001
    with pytest.raises(ExpressionRefused, match="1000 expressions"):
        compile_template(leaves, VISIBLE, field="f")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("'aaa'.matches('(?i:A{2,99})')", True),
        ("'ab@example.org'.matches('^[^@]+@[^@]+\\\\.[a-z]{2,10}$')", True),
        ("'+33 1 23'.matches('^\\\\+?[0-9 ()-]{5,20}$')", True),
        ("'SKU-123'.matches('^SKU-\\\\d{4}$')", False),
    ],
)
def test_an_ordinary_pattern_is_within_the_limits(source: str, expected: bool) -> None:
    assert compile_condition(source, VISIBLE, field="f").evaluate(Given({})) is expected


def test_macros_nested_as_deep_as_the_checker_lets_them_are_refused_and_not_a_crash() -> None:
    source = "true"
    for at in range(30):
        source = f"input.all(v{at}, {source})"
    with pytest.raises(ExpressionRefused, match="inside each other"):
        compile_condition(source, VISIBLE, field="f")


def test_depth_counts_what_the_author_wrote_and_not_what_macros_expand_to() -> None:
    source = "input.all(x, x.exists(y, y.a.b == 1))"
    static = StaticLimits(depth_max=7)
    assert compile_condition(source, VISIBLE, field="f", static=static).source == source
    with pytest.raises(ExpressionRefused, match="more than 4 levels"):
        compile_condition(source, VISIBLE, field="f", static=StaticLimits(depth_max=4))


def test_the_longest_chain_that_the_checker_lets_through_is_within_the_limits() -> None:
    source = "input" + ".a" * 30 + " == 1"
    assert compile_condition(source, VISIBLE, field="f").references == {"input"}
