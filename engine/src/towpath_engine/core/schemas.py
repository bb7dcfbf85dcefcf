"""JSON Schema of inputs and payloads: compiled when a definition is deployed, asked when a run is
started and when a signal comes.

Dialect 2020-12. `$ref` stays inside the schema, nothing is ever fetched; patterns run on a linear
engine, so that no input can make one slow. The only module that imports jsonschema_rs.
"""

from functools import lru_cache
from itertools import islice
from typing import Final

from jsonschema_rs import Draft202012Validator, ReferencingError, RegexOptions, ValidationError

from towpath_engine.core.definition import Definition, WaitSpec
from towpath_engine.core.fields import is_list, is_object
from towpath_protocol import codec

SCHEMA_BYTES_MAX: Final = 64 * 1024
PATTERN_BYTES_MAX: Final = 1024 * 1024
"""Memory of one compiled pattern: what a counted repetition may unfold to."""
PROBLEMS_MAX: Final = 20
_PROBLEM_LENGTH_MAX: Final = 300
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class SchemaRefused(Exception):  # noqa: N818 - named for what happened, as its siblings
    """The schema can't be used; the message says why, `place` where (`properties.a`)."""

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(reason)


def compile_schema(schema: object) -> Draft202012Validator:
    """The compiled schema. Raises SchemaRefused."""
    if not isinstance(schema, bool) and not is_object(schema):
        raise SchemaRefused("", "must be an object or a boolean")
    size = len(codec.dumps(schema))
    if size > SCHEMA_BYTES_MAX:
        raise SchemaRefused("", f"has {size} bytes, the limit is {SCHEMA_BYTES_MAX}")
    _refuse_references_out(schema)
    try:
        return Draft202012Validator(
            schema, pattern_options=RegexOptions(size_limit=PATTERN_BYTES_MAX)
        )
    except ValidationError as error:
        place = _place(error.instance_path)
        raise SchemaRefused(place, error.message[:_PROBLEM_LENGTH_MAX]) from error
    except (ReferencingError, ValueError) as error:
        raise SchemaRefused("", str(error)[:_PROBLEM_LENGTH_MAX]) from error


def _refuse_references_out(schema: object) -> None:
    pending: list[tuple[str, object]] = [("", schema)]
    while pending:
        place, value = pending.pop()
        if is_object(value):
            for name, item in value.items():
                here = f"{place}.{name}" if place else name
                _check_keyword(here, name, item)
                pending.append((here, item))
        elif is_list(value):
            pending.extend((f"{place}[{index}]", item) for index, item in enumerate(value))


def _check_keyword(place: str, name: str, value: object) -> None:
    if not isinstance(value, str):
        return
    if name in ("$ref", "$dynamicRef") and not value.startswith("#"):
        raise SchemaRefused(place, "must stay inside the document: begin it with '#'")
    if name == "$id":
        raise SchemaRefused(place, "would move the base of references, which is not allowed")
    if name == "$schema" and value.rstrip("#") != _DIALECT:
        raise SchemaRefused(place, f"must be {_DIALECT}, the only dialect")


def _place(path: list[str | int]) -> str:
    place = ""
    for part in path:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    return place


@lru_cache(maxsize=256)
def _input_validator(definition: Definition) -> Draft202012Validator | None:
    # Definitions are compared by identity, and the store keeps one object for each version.
    if definition.input_schema is None:
        return None
    return compile_schema(definition.input_schema)


@lru_cache(maxsize=1_024)
def _payload_validator(definition: Definition, place: str) -> Draft202012Validator | None:
    spec = definition.steps[place].spec
    if not isinstance(spec, WaitSpec) or spec.schema is None:
        return None
    return compile_schema(spec.schema)


def validate_input(definition: Definition, text: bytes) -> list[str]:
    """What is wrong with this input (JSON text) of a run: `path: problem`, at most twenty; empty
    when nothing is, or when the definition has no schema."""
    return _wrong(_input_validator(definition), text)


def validate_payload(definition: Definition, place: str, text: bytes) -> list[str]:
    """The same of the payload of a signal, for the wait at this place."""
    return _wrong(_payload_validator(definition, place), text)


def fits_payload(definition: Definition, place: str, text: bytes) -> bool:
    """Whether nothing is wrong with this payload; quicker than to know what."""
    validator = _payload_validator(definition, place)
    return validator is None or validator.is_valid(codec.loads(text))


def _wrong(validator: Draft202012Validator | None, text: bytes) -> list[str]:
    if validator is None:
        return []
    found = problems(validator, codec.loads(text))
    return [f"{place}: {message}" if place else message for place, message in found]


def problems(validator: Draft202012Validator, value: object) -> list[tuple[str, str]]:
    """What is wrong with `value` as (path, problem), at most twenty."""
    errors = islice(validator.iter_errors(value), PROBLEMS_MAX)
    return [(_place(error.instance_path), error.message[:_PROBLEM_LENGTH_MAX]) for error in errors]
