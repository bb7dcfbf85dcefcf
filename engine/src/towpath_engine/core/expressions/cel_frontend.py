"""The one module that knows the CEL library: it parses, expands macros, checks types.

The library only ever runs at deploy, on sources that the limits have bounded, and for `matches`,
whose engine is linear in the text. Another parser could replace it by offering the same names.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from cel_expr_python import cel
from msgspec import Struct

from towpath_engine.core.expressions.ast import MalformedTreeError, Node, decode_checked
from towpath_engine.core.expressions.special import Matcher

_CONFIG: Final = cel.NewEnvConfigFromYaml(
    "extensions:\n"
    + "".join(
        f"- name: {name}\n"
        for name in (
            "strings",
            "math",
            "optional",
            "bindings",
            "lists",
            "sets",
            "two-var-comprehensions",
        )
    )
)
_TYPE: Final = cel.Type
_ANY_MAP: Final = _TYPE.Map(_TYPE.DYN, _TYPE.DYN)

# Declared for the checker; the interpreter implements them.
_FUNCTIONS: Final = [
    cel.FunctionDecl(
        "sum",
        [
            cel.Overload(
                "list_sum",
                return_type=_TYPE.DYN,
                parameters=[_TYPE.List(_TYPE.DYN)],
                is_member=True,
            )
        ],
    ),
    cel.FunctionDecl(
        "orDefault",
        [
            cel.Overload(
                "dyn_or_default",
                return_type=_TYPE.DYN,
                parameters=[_TYPE.DYN, _TYPE.DYN],
                is_member=True,
            )
        ],
    ),
    cel.FunctionDecl(
        "merge",
        [
            cel.Overload(
                "map_merge",
                return_type=_ANY_MAP,
                parameters=[_ANY_MAP, _ANY_MAP],
                is_member=True,
            )
        ],
    ),
    cel.FunctionDecl(
        "json.parse",
        [cel.Overload("json_parse", return_type=_TYPE.DYN, parameters=[_TYPE.STRING])],
    ),
    cel.FunctionDecl(
        "json.format",
        [cel.Overload("json_format", return_type=_TYPE.STRING, parameters=[_TYPE.DYN])],
    ),
]

# A checked expression within the limits on nodes is far smaller than this.
_TREE_BYTES_MAX: Final = 262_144

_ERROR: Final = re.compile(
    r"^(?:[A-Z_]+: )?ERROR: <input>:(-?\d+):(-?\d+): (.*?)(?: \[[A-Z_]+\])?$", re.MULTILINE
)


class Declared(StrEnum):
    """The type of a declared variable."""

    DYN = "dyn"
    INT = "int"
    STRING = "string"
    TIMESTAMP = "timestamp"
    STRINGS = "list(string)"


_DECLARED: Final = {
    Declared.DYN: _TYPE.DYN,
    Declared.INT: _TYPE.INT,
    Declared.STRING: _TYPE.STRING,
    Declared.TIMESTAMP: _TYPE.TIMESTAMP,
    Declared.STRINGS: _TYPE.List(_TYPE.STRING),
}


class Checked(Struct, frozen=True, kw_only=True):
    """A checked expression. `type_name` is its static type: `BOOL`, `DYN`, `LIST<INT>`, ..."""

    tree: Node
    type_name: str


class Complaint(Struct, frozen=True, kw_only=True):
    """One thing the checker does not like; `position` is a zero-based code point offset."""

    position: int | None
    reason: str


class CheckError(Exception):
    """The expression does not compile; there is at least one complaint."""

    def __init__(self, complaints: list[Complaint]) -> None:
        super().__init__("; ".join(c.reason for c in complaints))
        self.complaints = complaints


@lru_cache(maxsize=256)
def environment(declared: frozenset[tuple[str, Declared]]) -> cel.Env:
    """The checker for expressions over these variables; kept, since making one is slow."""
    variables = {name: _DECLARED[type_] for name, type_ in declared}
    return cel.NewEnv(config=_CONFIG, variables=variables, functions=_FUNCTIONS)


def check(source: str, variables: Mapping[str, Declared]) -> Checked:
    """Parse and check `source`, which must be encodable as UTF-8. Raises CheckError."""
    checker = environment(frozenset(variables.items()))
    try:
        expression = checker.compile(source)
        serialized = expression.serialize()
    except RuntimeError as error:
        raise CheckError(_complaints(source, str(error))) from error
    if len(serialized) > _TREE_BYTES_MAX:
        raise CheckError([Complaint(position=None, reason="the expression is too large")])
    try:
        tree = decode_checked(serialized)
    except MalformedTreeError as error:
        raise CheckError([Complaint(position=None, reason=str(error))]) from error
    return Checked(tree=tree, type_name=expression.return_type().name())


def _complaints(source: str, message: str) -> list[Complaint]:
    starts = [0, *(m.end() for m in re.finditer("\n", source))]
    complaints = [
        Complaint(position=_offset(starts, int(line), int(column)), reason=reason)
        for line, column, reason in _ERROR.findall(message)
    ]
    if complaints:
        return complaints
    first = message.partition("\n")[0]
    return [Complaint(position=None, reason=re.sub(r"^[A-Z_]+: | \[[A-Z_]+\]$", "", first))]


def _offset(starts: list[int], line: int, column: int) -> int | None:
    return starts[line - 1] + column - 1 if 1 <= line <= len(starts) else None


_PATTERNS: Final = cel.NewEnv(variables={"text": _TYPE.STRING})


def compile_pattern(pattern: str) -> Matcher:
    """A test whether the pattern is found in a text, in linear time. Raises CheckError when the
    pattern is not RE2 syntax."""
    literal = "".join(f"\\U{ord(c):08x}" for c in pattern)
    expression = _PATTERNS.compile(f'text.matches("{literal}")')

    def matches(text: str) -> bool:
        result = expression.eval(data={"text": text})
        if result.type() != _TYPE.BOOL:
            raise CheckError([Complaint(position=None, reason=str(result.value()))])
        return result.value() is True

    matches("")
    return matches
