"""Conditions: booleans and nothing else, and what they may name."""

from typing import Any, Final

import pytest

from tests.support.cel_oracle import Given
from towpath_engine.core.expressions.compiler import RESERVED_WORDS, compile_condition
from towpath_engine.core.expressions.interface import (
    Condition,
    ExpressionFailed,
    ExpressionRefused,
    Visible,
)
from towpath_engine.core.expressions.limits import RuntimeLimits

VISIBLE: Final = Visible(
    steps=frozenset({"charge", "reserve"}), names=frozenset({"error", "iteration"})
)
VALUES: Final[dict[str, Any]] = {
    "input": {"total": 1200, "country": "FR", "tags": ["a", "b"], "gone": None},
    "steps.charge.status": "completed",
    "steps.charge.attempts": 2,
    "steps.reserve.output": None,
    "error": {"type": "Timeout", "details": {"code": 402}},
    "iteration": 3,
    "run.tags": ["shop"],
    "run.version": 7,
}


def condition(source: Any, **limits: Any) -> Condition:
    runtime = RuntimeLimits(**limits)
    return compile_condition(source, VISIBLE, field="steps.ship.when", runtime=runtime)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("input.total > 1000 && input.country in ['FR', 'DE']", True),
        ("steps.charge.status == 'completed' && steps.charge.attempts < 3", True),
        ("steps.reserve.output == null", True),
        ("has(input.gone) && !has(input.never)", True),
        ("error.details.code != 402", False),
        ("iteration + 1 > 3", True),
        ("'shop' in run.tags && run.version == 7", True),
        ("false && input.never", False),
        ("input.never || true", True),
        ("input.?never.orValue(true)", True),
        ("input.tags.exists(t, t == 'b')", True),
        ("true", True),
    ],
)
def test_a_condition_gives_a_boolean(source: str, expected: bool) -> None:
    assert condition(source).evaluate(Given(VALUES)) is expected


@pytest.mark.parametrize("source", ["1", "'yes'", "input.tags.map(t, t)", "null", "{}", "now"])
def test_a_condition_that_can_be_no_boolean_is_refused(source: str) -> None:
    with pytest.raises(ExpressionRefused, match="must give true or false"):
        condition(source)


@pytest.mark.parametrize("source", [None, True, 1, ["a"], {"a": 1}])
def test_a_condition_that_is_no_string_is_refused(source: Any) -> None:
    with pytest.raises(ExpressionRefused, match="an expression in a string"):
        condition(source)


@pytest.mark.parametrize("source", ["input.total", "input.country", "input.tags", "input.gone"])
def test_there_is_no_truthiness(source: str) -> None:
    with pytest.raises(ExpressionFailed, match="must give true or false"):
        condition(source).evaluate(Given(VALUES))


def test_a_condition_knows_its_source_and_its_variables() -> None:
    source = "steps.charge.status == 'failed' && input.a == [1].map(now, now)"
    compiled = condition(source)
    assert compiled.source == source
    assert compiled.references == {"steps.charge.status", "input"}


def test_a_local_of_a_macro_hides_a_variable_and_a_dot_uncovers_it() -> None:
    source = "[1].all(input, input == 1 && .input.total == 1200)"
    assert condition(source).evaluate(Given(VALUES)) is True


def test_a_variable_is_looked_up_once_and_only_when_needed() -> None:
    class Counting(Given):
        asked: list[str]

        def lookup(self, name: str) -> Any:
            self.asked.append(name)
            return super().lookup(name)

    values = Counting(VALUES)
    values.asked = []
    source = "iteration == 3 || steps.charge.status == 'x' || input.total > input.total"
    assert condition(source).evaluate(values) is True
    assert values.asked == ["iteration"]
    values.asked = []
    assert condition("input.total + input.total > 0").evaluate(values) is True
    assert values.asked == ["input"]


def test_fuel_is_the_same_every_time() -> None:
    compiled = condition("input.tags.map(t, t + t).join() == 'aabb'", condition_fuel=40)
    for _ in range(3):
        assert compiled.evaluate(Given(VALUES)) is True
    with pytest.raises(ExpressionFailed, match="out of fuel"):
        condition(compiled.source, condition_fuel=5).evaluate(Given(VALUES))


def test_maps_are_walked_in_the_order_of_their_keys() -> None:
    forwards = {"input": {"a": 1, "b": 2, "é": 3, "Z": 4}}
    backwards = {"input": dict(reversed(forwards["input"].items()))}
    compiled = condition("input.map(k, k) == ['Z', 'a', 'b', 'é']")
    assert compiled.evaluate(Given(forwards)) is True
    assert compiled.evaluate(Given(backwards)) is True


@pytest.mark.parametrize("word", sorted(RESERVED_WORDS))
def test_a_reserved_word_is_no_name(word: str) -> None:
    visible = Visible(names=frozenset({word}))
    if word in ("true", "false"):
        assert compile_condition(word, visible, field="f").references == frozenset()
        return
    with pytest.raises(ExpressionRefused):
        compile_condition(f"{word} == 1", visible, field="f")
