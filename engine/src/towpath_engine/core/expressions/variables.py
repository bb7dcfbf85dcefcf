"""The variables that CEL is told about, and what to say of a name that is not among them."""

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from towpath_engine.core.expressions.cel_frontend import Complaint, Declared
from towpath_engine.core.expressions.interface import Visible

EVERYWHERE: Final[dict[str, Declared]] = {
    "input": Declared.DYN,
    "prev": Declared.DYN,
    "metadata": Declared.DYN,
    "now": Declared.TIMESTAMP,
    "run.id": Declared.STRING,
    "run.workflow": Declared.STRING,
    "run.version": Declared.INT,
    "run.key": Declared.DYN,
    "run.tags": Declared.STRINGS,
    "run.context": Declared.DYN,
    "run.started_at": Declared.TIMESTAMP,
    "run.parent_id": Declared.DYN,
}
STEP_FIELDS: Final[dict[str, Declared]] = {
    "output": Declared.DYN,
    "status": Declared.STRING,
    "error": Declared.DYN,
    "attempts": Declared.INT,
}
WHOLE_FIELDS: Final[dict[str, Declared]] = {**STEP_FIELDS, "errors": Declared.DYN}
"""Those of a parallel or map step: the errors of its branches or items."""
SITE_NAMES: Final = frozenset({"output", "error", "iteration", "last", "index", "signal"})
"""Names that only some places have."""
VARIABLES: Final = SITE_NAMES | {"steps"} | {name.partition(".")[0] for name in EVERYWHERE}
"""What no item of a map may be called."""
_SITE_INTEGERS: Final = frozenset({"iteration", "index"})

RESERVED_WORDS: Final = frozenset(
    {
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    }
)
"""Words of CEL that no step may be named by."""

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']*)'(?: \(in container '.*'\))?")
_NO_MATCH: Final = re.compile(r"found no matching overload for '([^']*)' applied to '(.*)'")
_OPERATOR: Final = re.compile(r"^@?_?\??\[?([^_\[\]@]+)\]?_?$")


def declarations(source: str, visible: Visible) -> dict[str, Declared]:
    """The variables to declare for one expression.

    Of the steps only those whose name occurs in the source are: with a thousand steps, declaring
    all of them for each expression would make a deploy take seconds.
    """
    result = dict(EVERYWHERE)
    for name in visible.names:
        result[name] = Declared.INT if name in _SITE_INTEGERS else Declared.DYN
    for step in visible.steps.intersection(_WORD.findall(source)):
        for field, type_ in _fields(step, visible).items():
            result[f"steps.{step}.{field}"] = type_
    return result


def _fields(step: str, visible: Visible) -> dict[str, Declared]:
    return WHOLE_FIELDS if step in visible.wholes else STEP_FIELDS


def explain(source: str, complaint: Complaint, visible: Visible) -> Complaint:
    """The complaint in the words of a workflow's author, at the start of what it is about."""
    if source.lstrip().startswith("${"):
        return Complaint(position=0, reason="write the expression alone here, without `${ }`")
    if (undeclared := _UNDECLARED.search(complaint.reason)) is not None:
        name = undeclared[1]
        at = _start(source, name, complaint.position)
        return Complaint(position=at, reason=_unknown(source, (name, at), visible))
    if (no_match := _NO_MATCH.search(complaint.reason)) is not None:
        return Complaint(position=complaint.position, reason=_mismatch(no_match[1], no_match[2]))
    reason = complaint.reason.removeprefix("Syntax error: ").partition(" expecting ")[0]
    return Complaint(position=complaint.position, reason=f"syntax error: {reason}")


def _start(source: str, name: str, position: int | None) -> int | None:
    """The checker points at the last dot of a qualified name, and at the bracket of a call."""
    if position is None:
        return None
    for back in (len(name.rpartition(".")[0]), len(name)):
        start = position - back
        if start >= 0 and source.startswith(name, start):
            return start
    return position


def _unknown(source: str, named: tuple[str, int | None], visible: Visible) -> str:
    name, at = named
    if at is not None and source[at + len(name) :].lstrip().startswith("("):
        return f"unknown function `{name}`"
    root, _, rest = name.partition(".")
    if root == "steps":
        return _unknown_step(rest, visible)
    if root == "run":
        fields = [n.removeprefix("run.") for n in EVERYWHERE if n.startswith("run.")]
        if not rest:
            return f"`run` alone is no value; it has {_list(fields)}"
        return f"`run` has no field `{rest}`{_near(rest, fields)}"
    names = {n.partition(".")[0] for n in EVERYWHERE} | visible.names | {"steps"}
    return f"`{root}` is not a variable here{_near(root, names)}"


def _unknown_step(rest: str, visible: Visible) -> str:
    step, _, field = rest.partition(".")
    if not step:
        return "`steps` alone is no value; name a step and a field, as in `steps.NAME.output`"
    if step not in visible.steps:
        return f"no step `{step}` can have run before this place{_near(step, visible.steps)}"
    fields = _fields(step, visible)
    if not field:
        return f"`steps.{step}` alone is no value; it has {_list(fields)}"
    return f"`steps.{step}` has no field `{field}`{_near(field, fields)}"


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else ""


def _list(names: Collection[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def _mismatch(function: str, types: str) -> str:
    if function == "_?_:_":
        return f"the branches of `?:` have different types {types}; wrap one of them in dyn()"
    operator = _OPERATOR.match(function)
    name = operator[1] if operator is not None else function
    return f"`{name}` does not take {types}"
