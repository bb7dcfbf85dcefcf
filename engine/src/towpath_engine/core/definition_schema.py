"""The published JSON Schema of a definition document (definition.schema.json is generated).

For editors, and as the second look of a deploy. It says what the shape of a document is; what a
name refers to, whether the graph is sound and whether expressions compile is `core.parse`'s.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from jsonschema_rs import Draft202012Validator

from towpath_engine.core.durations import DURATION_PATTERN
from towpath_engine.core.faults import FaultCode, Faults
from towpath_engine.core.fields import COUNT_MAX
from towpath_engine.core.schemas import compile_schema, problems

Schema = dict[str, object]

_NAME: Final = "^[A-Za-z][A-Za-z0-9_-]{0,63}$"
_TASK: Final = "^[A-Za-z][A-Za-z0-9_.-]{0,127}$"
_STEP: Final = "^[a-z][a-z0-9_]{0,62}$"


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    shape: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return shape | ({"required": required} if required else {})


def _text(description: str) -> Schema:
    return {"type": "string", "minLength": 1, "description": description}


def _names(description: str) -> Schema:
    return {
        "type": "array",
        "items": {"type": "string", "minLength": 1},
        "uniqueItems": True,
        "description": description,
    }


_TASK_FIELDS: Final[Schema] = {
    "task": {"type": "string", "pattern": _TASK},
    "queue": {"type": "string", "pattern": _NAME, "default": "default"},
    "input": {"description": "template; default: the input of the run"},
    "retry": _ref("retry"),
    "timeouts": _object(
        {name: _ref("duration") for name in ("attempt", "dispatch", "step", "heartbeat")}
    ),
}

_COMMON: Final[Schema] = {
    "name": {"type": "string", "pattern": _STEP},
    "when": _text("condition; false: the step is skipped and the run goes on"),
    "delay": _ref("duration"),
    "next": _text("the step to go to instead of the following one"),
    "end": {"type": "boolean", "description": "the list ends here"},
    "limit": _ref("count"),
    "after": _names("names of steps of this list: it starts when they have settled"),
    "catch": {
        "type": "array",
        "minItems": 1,
        "items": _object(
            {
                "errors": _names("error types; default: any") | {"minItems": 1},
                "when": _text("condition over `error`"),
                "next": _text("where to go"),
            },
            ["next"],
        ),
        "description": "the first row that fits says where the list goes on after a failure",
    },
    "compensate": _object(
        {
            **_TASK_FIELDS,
            "input": {"description": "template; default: the output of the step"},
        },
        ["task"],
    ),
}


def _wait_of(name: str, awaited: Schema, *, counted: bool = True) -> Schema:
    return _object(
        {
            name: awaited,
            **({"count": _ref("count") | {"maximum": 10_000}} if counted else {}),
            "schema": {
                "type": ["object", "boolean"],
                "description": "JSON Schema (2020-12) of the payload",
            },
            "timeout": _ref("duration"),
            "on_timeout": _object({"next": _text("where to go")}, ["next"]),
        },
        [name],
    )


_SIGNALS: Final[Schema] = {
    "type": "array",
    "items": {"type": "string", "pattern": _NAME},
    "minItems": 1,
    "uniqueItems": True,
}

_KINDS: Final[dict[str, tuple[Schema, list[str]]]] = {
    "task": (
        {
            **_TASK_FIELDS,
            "repeat": _object(
                {
                    "delay": _ref("duration"),
                    "limit": _ref("count"),
                    "while": _text("condition over `output`, `iteration`, `last`"),
                }
            ),
        },
        ["task"],
    ),
    "wait": (
        {
            "wait": {
                "oneOf": [
                    _wait_of("signal", {"type": "string", "pattern": _NAME}),
                    _wait_of("any", _SIGNALS),
                    _wait_of("all", _SIGNALS, counted=False),
                ]
            }
        },
        ["wait"],
    ),
    "sleep": (
        {
            "sleep": {
                "oneOf": [_ref("duration"), _object({"until": _ref("instant")}, ["until"])],
            }
        },
        ["sleep"],
    ),
    "until": ({"until": _ref("instant")}, ["until"]),
    "choice": (
        {
            "choice": {
                "type": "array",
                "minItems": 1,
                "items": _object(
                    {"when": _text("condition"), "next": _text("where to go if it holds")},
                    ["when", "next"],
                ),
            },
            "default": _text("where to go if no condition holds"),
        },
        ["choice"],
    ),
    "pass": ({"pass": {"description": "template: the output of the step"}}, ["pass"]),
    "parallel": (
        {
            "parallel": _object(
                {
                    "on_error": {"enum": ["fail_fast", "wait_all"], "default": "fail_fast"},
                    "branches": {
                        "type": "object",
                        "minProperties": 1,
                        "propertyNames": {"pattern": _STEP},
                        "additionalProperties": _ref("steps"),
                        "description": "each a list of steps; all run at once",
                    },
                },
                ["branches"],
            )
        },
        ["parallel"],
    ),
    "map": (
        {
            "map": _object(
                {
                    "items": {
                        "type": ["array", "string"],
                        "description": "template that gives a list",
                    },
                    "as": {"type": "string", "pattern": _STEP, "default": "item"},
                    "max_concurrency": _ref("count") | {"default": 100},
                    "tolerate": {
                        "oneOf": [
                            _object({"count": _ref("count")}, ["count"]),
                            _object(
                                {
                                    "percent": {
                                        "type": "number",
                                        "exclusiveMinimum": 0,
                                        "maximum": 100,
                                    }
                                },
                                ["percent"],
                            ),
                        ],
                        "description": "failed items that do not fail the step",
                    },
                    "steps": _ref("steps"),
                },
                ["items", "steps"],
            )
        },
        ["map"],
    ),
    "run": (
        {
            "run": _object(
                {
                    "workflow": {"type": "string", "pattern": _NAME},
                    "version": _ref("count"),
                    "input": {"description": "template; default: the input of this run"},
                    "key": _text("template of a string"),
                    "detached": {"type": "boolean", "default": False},
                },
                ["workflow"],
            )
        },
        ["run"],
    ),
}

_BACKOFF: Final = _object(
    {
        "initial": _ref("duration"),
        "factor": {"type": "number", "minimum": 1, "maximum": 10},
        "max": _ref("duration"),
        "jitter": {"type": "number", "minimum": 0, "maximum": 1},
    }
)

DEFINITION_SCHEMA: Final[Schema] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Towpath workflow definition",
    **_object(
        {
            "expressions": {"const": "cel/1"},
            "workflow": {"type": "string", "pattern": _NAME},
            "input": {
                "type": ["object", "boolean"],
                "description": "JSON Schema (2020-12) of the input of a run",
            },
            "output": {"description": "template; default: the output of the last step that ran"},
            "timeout": _ref("duration"),
            "on_failure": {"enum": ["compensate", "fail"], "default": "compensate"},
            "priority": {"enum": ["critical", "high", "normal", "low"], "default": "normal"},
            "tags": _names("tags of every run") | {"maxItems": 32},
            "retry": _ref("retry"),
            "steps": _ref("steps"),
        },
        ["workflow", "steps"],
    ),
    "$defs": {
        "steps": {
            "type": "array",
            "minItems": 1,
            "maxItems": 1000,
            "items": {"oneOf": [_ref(f"{kind}_step") for kind in _KINDS]},
        },
        "duration": {
            "type": "string",
            "minLength": 2,
            "pattern": DURATION_PATTERN,
            "description": "units from the largest, each once: 500ms, 1s, 1h30m, 7d",
        },
        "instant": {"type": "string", "description": "RFC 3339, or a template that gives it"},
        "count": {"type": "integer", "minimum": 1, "maximum": COUNT_MAX},
        "retry": _object(
            {
                "max_attempts": _ref("count"),
                "backoff": _BACKOFF,
                "only": _names("error types that are retried"),
                "never": _names("error types that are not"),
                "when": _text("condition over `error`"),
            }
        ),
        **{
            f"{kind}_step": _object({**_COMMON, **own}, ["name", *required])
            if kind != "choice"
            else _object(
                {
                    name: shape
                    for name, shape in {**_COMMON, **own}.items()
                    if name not in ("next", "end")
                },
                ["name", *required],
            )
            for kind, (own, required) in _KINDS.items()
        },
    },
}


@lru_cache(maxsize=1)
def _validator() -> Draft202012Validator:
    return compile_schema(DEFINITION_SCHEMA)


def check_against_schema(document: Mapping[str, object], faults: Faults) -> None:
    """Note everything in which the document departs from the published schema."""
    for place, message in problems(_validator(), document):
        faults.add(place, message, FaultCode.WRONG_TYPE)
