"""Compiling what a definition holds: conditions and templates. The entry to expressions."""

from collections.abc import Collection

from towpath_engine.core.expressions.ast import Call, Constant, Node, Select, Variable
from towpath_engine.core.expressions.cel_frontend import CheckError, check, compile_pattern
from towpath_engine.core.expressions.checks import check_source, check_tree
from towpath_engine.core.expressions.folds import children
from towpath_engine.core.expressions.functions import TYPE_VALUES
from towpath_engine.core.expressions.interface import (
    Condition,
    ExpressionFailed,
    ExpressionRefused,
    Template,
    Values,
    Visible,
)
from towpath_engine.core.expressions.interpreter import Program, build_program
from towpath_engine.core.expressions.limits import (
    DEFAULT_RUNTIME_LIMITS,
    DEFAULT_STATIC_LIMITS,
    RuntimeLimits,
    StaticLimits,
)
from towpath_engine.core.expressions.special import Matcher, UnsupportedError
from towpath_engine.core.expressions.templates import (
    CompiledExpression,
    CompiledTemplate,
    Json,
    split_template,
)
from towpath_engine.core.expressions.values import EvaluationError, Frame, Value, type_name
from towpath_engine.core.expressions.variables import RESERVED_WORDS, declarations, explain

__all__ = ["RESERVED_WORDS", "compile_condition", "compile_template"]


class CompiledCondition:
    """A condition, ready to be evaluated any number of times."""

    def __init__(self, compiled: CompiledExpression, *, field: str, runtime: RuntimeLimits) -> None:
        self._compiled = compiled
        self._field = field
        self._runtime = runtime

    @property
    def source(self) -> str:
        """The expression as written."""
        return self._compiled.source

    @property
    def references(self) -> frozenset[str]:
        """Qualified names of the variables it uses."""
        return self._compiled.references

    def evaluate(self, values: Values) -> bool:
        """The boolean. Raises ExpressionFailed."""
        frame = Frame(values, self._runtime, fuel=self._runtime.condition_fuel)
        try:
            return _truth(self._compiled.program.evaluate(frame))
        except EvaluationError as error:
            raise ExpressionFailed(
                field=self._field,
                expression=self.source,
                position=error.position,
                reason=error.reason,
            ) from error


def _truth(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    msg = f"a condition must give true or false, not a value of type {type_name(value)}"
    raise EvaluationError(msg, 0)


def compile_condition(
    source: object,
    visible: Visible,
    *,
    field: str,
    static: StaticLimits = DEFAULT_STATIC_LIMITS,
    runtime: RuntimeLimits = DEFAULT_RUNTIME_LIMITS,
) -> Condition:
    """Compile a condition field. `field` is its path in the document, for error messages.

    Raises ExpressionRefused when it is no string or no CEL, names something that is not visible,
    cannot be a boolean, or breaks a static limit.
    """
    if not isinstance(source, str):
        reason = "a condition must be an expression in a string"
        raise ExpressionRefused(position=None, reason=reason)
    compiled = _compile(source, visible, static)
    if compiled.type_name not in ("BOOL", "DYN"):
        reason = f"a condition must give true or false, not {compiled.type_name.lower()}"
        raise ExpressionRefused(position=0, reason=reason)
    return CompiledCondition(compiled, field=field, runtime=runtime)


def compile_template(
    value: Json,
    visible: Visible,
    *,
    field: str,
    static: StaticLimits = DEFAULT_STATIC_LIMITS,
    runtime: RuntimeLimits = DEFAULT_RUNTIME_LIMITS,
) -> Template:
    """Compile a template: any decoded JSON value, with `${ ... }` in its strings.

    `field` is its path in the document; messages add the path inside the template. Raises
    ExpressionRefused as `compile_condition`, but for any static type.
    """
    pieces = split_template(
        value, lambda source: _compile(source, visible, static), leaves_max=static.leaves_max
    )
    return CompiledTemplate(pieces, field=field, runtime=runtime)


def _compile(source: str, visible: Visible, static: StaticLimits) -> CompiledExpression:
    check_source(source, static)
    declared = declarations(source, visible)
    try:
        checked = check(source, declared)
    except CheckError as error:
        complaints = [explain(source, c, visible) for c in error.complaints[:3]]
        reasons = list(dict.fromkeys(c.reason for c in complaints))
        raise ExpressionRefused(
            position=complaints[0].position, reason="; ".join(reasons)
        ) from error
    check_tree(checked.tree, source, static)
    return CompiledExpression(
        source=source,
        type_name=checked.type_name,
        references=_references(checked.tree, declared),
        program=_program(checked.tree),
        passes_through=_passes_through(checked.tree),
    )


def _program(tree: Node) -> Program:
    try:
        return build_program(tree, _matcher)
    except UnsupportedError as error:
        raise ExpressionRefused(position=error.position, reason=error.reason) from error


def _matcher(pattern: str) -> Matcher:
    try:
        return compile_pattern(pattern)
    except CheckError as error:
        reason = error.complaints[0].reason
        raise ExpressionRefused(position=None, reason=f"not a pattern: {reason}") from error


def _passes_through(tree: Node) -> bool:
    """Whether the value is a variable or a part of one, so JSON that came in as it is."""
    match tree:
        case Variable():
            return tree.name not in TYPE_VALUES
        case Select(test_only=False) | Call(function="_[_]", arguments=(_, Constant())):
            return _passes_through(children(tree)[0])
        case _:
            return False


def _references(tree: Node, declared: Collection[str]) -> frozenset[str]:
    """The variables that the tree uses. Raises ExpressionRefused for what only looks like one: the
    names of types without values, such as `dyn`."""
    found: set[str] = set()
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, Variable) and node.name in declared:
            found.add(node.name)
        elif isinstance(node, Variable) and node.name not in TYPE_VALUES:
            reason = f"`{node.name}` is not a value"
            raise ExpressionRefused(position=node.position, reason=reason)
        todo.extend(children(node))
    return frozenset(found)
