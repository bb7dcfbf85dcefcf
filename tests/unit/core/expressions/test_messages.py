"""The messages, word for word, and the positions: people meet these more often than the docs."""

from typing import Any, Final

import pytest

from tests.support.cel_oracle import Given
from towpath_engine.core.expressions.compiler import compile_condition, compile_template
from towpath_engine.core.expressions.interface import (
    ExpressionFailed,
    ExpressionRefused,
    Visible,
)

VISIBLE: Final = Visible(steps=frozenset({"charge", "reserve"}), names=frozenset({"error"}))


@pytest.mark.parametrize(
    ("source", "position", "reason"),
    [
        ("inptu.x == 1", 0, "`inptu` is not a variable here; did you mean `input`?"),
        ("true && output.x", 8, "`output` is not a variable here"),
        ("'🎉é' == iteration", 8, "`iteration` is not a variable here"),
        (
            "input.a &&\n  steps.chrage.status == 'x'",
            13,
            "no step `chrage` can have run before this place; did you mean `charge`?",
        ),
        (
            "steps.charge.outptu == 1",
            0,
            "`steps.charge` has no field `outptu`; did you mean `output`?",
        ),
        (
            "steps.charge == 1",
            0,
            "`steps.charge` alone is no value; it has `output`, `status`, `error`, `attempts`",
        ),
        (
            "steps == 1",
            0,
            "`steps` alone is no value; name a step and a field, as in `steps.NAME.output`",
        ),
        ("run.keys == 'a'", 0, "`run` has no field `keys`; did you mean `key`?"),
        (
            "run == 1",
            0,
            "`run` alone is no value; it has `id`, `workflow`, `version`, `key`, `tags`,"
            " `context`, `started_at`, `parent_id`",
        ),
        ("dyn == input", 0, "`dyn` is not a value"),
        ("foo(1) == 1", 0, "unknown function `foo`"),
        ("input.foo(1) == 1", 6, "unknown function `foo`"),
        ("1 + 'a' == 2", 2, "`+` does not take (int, string)"),
        ("!1", 0, "`!` does not take (int)"),
        ("${ input.a }", 0, "write the expression alone here, without `${ }`"),
        ("input.a b", 8, "syntax error: extraneous input 'b'"),
        ("input.a &&", 10, "syntax error: mismatched input '<EOF>'"),
        (
            "(input.a ? 1 : null) == 1",
            9,
            "the branches of `?:` have different types (dyn, int, null_type); wrap one of them in"
            " dyn()",
        ),
        (
            "has(steps.charge.output)",
            3,
            "has(steps.charge.output) cannot be told; test a field below it, or"
            " steps.charge.status",
        ),
        ("a == 1 && b == 2", 0, "`a` is not a variable here; `b` is not a variable here"),
        ("'x'.format([1]) == 'x'", 10, "the function `format` is not supported"),
    ],
)
def test_a_source_is_refused_with_a_position_and_a_reason(
    source: str, position: int, reason: str
) -> None:
    with pytest.raises(ExpressionRefused) as refused:
        compile_condition(source, VISIBLE, field="f")
    assert (refused.value.position, refused.value.reason) == (position, reason)


@pytest.mark.parametrize(
    ("source", "position", "reason"),
    [
        ("input.nope == 1", 5, "no such key: 'nope'"),
        ("'🎉é' == input.a.nope", 15, "no such key: 'nope'"),
        ("input.n.x == 1", 7, "cannot read 'x' of a value of type null"),
        ("input.?n.?x.orValue(true)", 8, "cannot read 'x' of a value of type null"),
        ("input.l[7] == 1", 7, "index 7 is outside the list of 2"),
        ("input['x y'] == 1", 5, "no such key: 'x y'"),
        ("1 == 1 && input.a + 'x' == 'x'", 18, "+ does not take (map, string)"),
        ("input.l[0] / 0 == 1", 11, "divide by zero"),
        ("input.l.all(x, x.y == 1)", 16, "cannot read 'y' of a value of type int"),
        ("input.n.exists(x, true)", 14, "a loop over does not take (null)"),
        ("input.l[0] && true", 11, "&& does not take (int)"),
        ("input.n ? true : false", 8, "?: does not take (null)"),
        ("int(input.s) == 1", 3, "the string is not an integer"),
        ("input.s.substring(5) == ''", 17, "the range is outside the string"),
        ("input.l[0]", 0, "a condition must give true or false, not a value of type int"),
    ],
)
def test_an_evaluation_fails_with_a_position_and_a_reason(
    source: str, position: int, reason: str
) -> None:
    values: dict[str, Any] = {"input": {"n": None, "l": [1, 2], "a": {}, "s": "abc"}}
    condition = compile_condition(source, VISIBLE, field="steps.ship.when")
    with pytest.raises(ExpressionFailed) as failed:
        condition.evaluate(Given(values))
    assert (failed.value.position, failed.value.reason) == (position, reason)
    assert (failed.value.field, failed.value.expression) == ("steps.ship.when", source)
    assert str(failed.value) == f"steps.ship.when: `{source}` at {position}: {reason}"


def test_a_refused_template_says_where_in_it() -> None:
    template: Any = {"items": [1, {"sku": "a ${ inptu.x }"}]}
    with pytest.raises(ExpressionRefused) as refused:
        compile_template(template, VISIBLE, field="steps.ship.input")
    assert refused.value.reason == (
        "in `items[1].sku`: `inptu` is not a variable here; did you mean `input`?"
    )
    assert refused.value.position == 1


def test_a_failed_template_names_the_field_in_it() -> None:
    template: Any = {"items": [1, {"sku": "a ${ input.x }"}]}
    compiled = compile_template(template, VISIBLE, field="steps.ship.input")
    with pytest.raises(ExpressionFailed) as failed:
        compiled.render(Given({"input": {}}))
    assert failed.value.field == "steps.ship.input.items[1].sku"
    assert failed.value.expression == " input.x "
    assert failed.value.position == 6


@pytest.mark.parametrize("text", ["${ input.a", "a ${", "${ 'a }", "${ {'a': 1 }"])
def test_an_expression_that_is_never_closed_is_refused(text: str) -> None:
    with pytest.raises(ExpressionRefused):
        compile_template(text, VISIBLE, field="f")
