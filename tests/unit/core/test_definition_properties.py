"""Documents bent at random: each is read or refused, never anything else."""

import copy
import json

import jsonschema_rs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.drawn_definitions import definitions
from tests.unit.core.test_definition import FULL_YAML
from tests.unit.core.test_definition_lists import NESTED_YAML
from towpath_engine.core.definition import Definition
from towpath_engine.core.definition_schema import DEFINITION_SCHEMA
from towpath_engine.core.fields import is_list, is_object
from towpath_engine.core.parse import DefinitionRefused, Fault, FaultCode, parse_definition
from towpath_protocol.codec import JsonValue

FULL = parse_definition(FULL_YAML)
NESTED = parse_definition(NESTED_YAML)
WORDS = (
    "task", "wait", "sleep", "until", "choice", "pass", "name", "next", "end", "limit", "when",
    "delay", "retry", "timeouts", "repeat", "signal", "timeout", "on_timeout", "default", "only",
    "never", "backoff", "max_attempts", "input", "output", "map", "catch", "tags", "x",
    "parallel", "branches", "on_error", "items", "as", "max_concurrency", "tolerate", "count",
    "percent", "steps", "run", "workflow", "key", "detached", "after", "compensate", "while",
    "errors", "any", "all", "schema",
)  # fmt: skip
STRINGS = ("", "s0", "reserve", "1s", "-1s", "true", "${ input }", "${ x", "$${", "\u2028")
WHOLE = (json.loads(FULL.document), json.loads(NESTED.document))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(STRINGS)
    | st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)
    ),
    max_leaves=6,
)
BENDS = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 2), st.sampled_from(WORDS), VALUES),
    min_size=1,
    max_size=4,
)
UNHURRIED = settings(
    max_examples=600,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def places(value: object) -> list[tuple[object, object]]:
    """Every (container, key) of a JSON value, outermost first."""
    found: list[tuple[object, object]] = []
    pending = [value]
    while pending:
        item = pending.pop(0)
        if is_object(item):
            found += [(item, key) for key in item]
            pending += item.values()
        elif is_list(item):
            found += [(item, index) for index in range(len(item))]
            pending += item
    return found


def bend(document: object, where: int, how: int, bent: tuple[str, JsonValue]) -> None:
    """Replace, remove or add something somewhere."""
    known = places(document)
    if not known:
        return
    container, key = known[where % len(known)]
    name, value = bent
    if is_object(container) and isinstance(key, str):
        match how:
            case 0:
                container[key] = copy.deepcopy(value)
            case 1:
                del container[key]
            case _:
                container[name] = copy.deepcopy(value)


@given(st.sampled_from(WHOLE) | definitions(), BENDS)
@UNHURRIED
def test_a_bent_document_is_read_or_refused_with_faults_that_have_a_place(
    document: dict[str, object], bends: list[tuple[int, int, str, JsonValue]]
) -> None:
    document = copy.deepcopy(document)
    for where, how, name, value in bends:
        bend(document, where, how, (name, value))
    definition, faults = read(document)
    if definition is None:
        assert faults
        assert all(fault.message and fault.code in FaultCode for fault in faults)
    else:
        assert jsonschema_rs.Draft202012Validator(DEFINITION_SCHEMA).is_valid(document)
        again = parse_definition(definition.document)
        assert (again.document, again.fingerprint) == (definition.document, definition.fingerprint)


def read(document: dict[str, object]) -> tuple[Definition | None, tuple[Fault, ...]]:
    """The definition, or the faults."""
    try:
        return parse_definition(document), ()
    except DefinitionRefused as refused:
        return None, refused.faults
