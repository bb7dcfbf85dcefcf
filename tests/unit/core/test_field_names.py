"""An ExpressionError names the field by its place, whichever way the field went wrong."""

import msgspec
import pytest

from tests.support.builders import Json, a_definition, a_run
from tests.support.scenario import Story

FIELDS: dict[str, Json] = {
    "map.items": {"map": {"items": "${ VALUE }", "steps": [{"name": "z", "pass": 1}]}},
    "run.key": {"run": {"workflow": "other", "key": "${ VALUE }"}},
    "until": {"sleep": {"until": "${ VALUE }"}},
}


def field_of_the_error(kind: str, value: str) -> object:
    """What names the field, of a step in a branch of a parallel step."""
    text = msgspec.json.encode(FIELDS[kind]).decode().replace("VALUE", value)
    step = {"name": "q", **msgspec.json.decode(text, type=dict[str, object])}
    whole: Json = {"name": "p", "parallel": {"branches": {"x": [step]}}}
    story = Story(a_run(a_definition(whole), run_input={"n": 1}))
    story.begins()
    assert story.error().type == "ExpressionError"
    return msgspec.json.decode(story.error().details or b"{}")["field"]


@pytest.mark.parametrize("kind", list(FIELDS))
def test_a_value_of_the_wrong_type_names_the_field_as_one_that_is_missing_does(kind: str) -> None:
    assert field_of_the_error(kind, "input.n") == f"steps.p/x/q.{kind}"
    assert field_of_the_error(kind, "input.missing") == f"steps.p/x/q.{kind}"
