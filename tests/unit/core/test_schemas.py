"""Schemas of inputs: 2020-12, closed in themselves, and never slow."""

import pytest

from tests.support.builders import a_definition, a_pass, json_of
from towpath_engine.core.schemas import SchemaRefused, compile_schema, validate_input


def test_an_input_is_held_to_its_schema_and_every_problem_has_its_path() -> None:
    definition = a_definition(
        a_pass("a"),
        input={
            "type": "object",
            "required": ["order_id"],
            "properties": {"lines": {"items": {"properties": {"qty": {"type": "integer"}}}}},
        },
    )
    assert validate_input(definition, json_of({"order_id": 1})) == []
    found = validate_input(definition, json_of({"lines": [{"qty": 1}, {"qty": "x"}]}))
    assert sorted(problem.partition(":")[0] for problem in found) == [
        '"order_id" is a required property',
        "lines[1].qty",
    ]


def test_without_a_schema_every_input_is_good() -> None:
    definition = a_definition(a_pass("a"))
    assert validate_input(definition, b"null") == []


def test_the_schema_false_refuses_every_input() -> None:
    assert validate_input(a_definition(a_pass("a"), input=False), b"1")


def test_big_integers_are_judged_exactly() -> None:
    definition = a_definition(a_pass("a"), input={"type": "integer", "maximum": 2**70})
    assert validate_input(definition, json_of(2**70)) == []
    assert validate_input(definition, b"1180591620717411303425")


def test_at_most_twenty_problems_are_told() -> None:
    definition = a_definition(a_pass("a"), input={"items": {"type": "string"}})
    assert len(validate_input(definition, json_of(list(range(1000))))) == 20


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"$ref": "https://example.com/schema"}, "$ref"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "properties.a.$ref"),
        ({"$ref": "#/nowhere"}, ""),
        ({"$id": "https://example.com/"}, "$id"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "$schema"),
        ({"pattern": "(?=a)b"}, "pattern"),
        ({"pattern": r"(a)\1"}, "pattern"),
        ({"pattern": "((a{1000}){1000}){1000}"}, "pattern"),
        ({"type": "objekt"}, "type"),
        ({"description": "x" * 65_536}, ""),
        ([], ""),
        ("string", ""),
    ],
)
def test_a_schema_that_could_fetch_or_hang_or_means_nothing_is_refused(
    schema: object, place: str
) -> None:
    with pytest.raises(SchemaRefused) as refused:
        compile_schema(schema)
    assert refused.value.place == place
    assert refused.value.reason


def test_references_inside_the_document_are_good() -> None:
    schema = {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
    }
    definition = a_definition(a_pass("a"), input=schema)
    assert validate_input(definition, b"[[],[[]]]") == []
    assert validate_input(definition, b"[[1]]")


def test_a_pattern_that_ruins_backtracking_engines_is_judged_at_once() -> None:
    definition = a_definition(a_pass("a"), input={"pattern": "^(a+)+$"})
    assert validate_input(definition, json_of("a" * 100_000 + "!"))
