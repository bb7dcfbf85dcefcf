"""The static limits of an expression, checked on its source and on its tree."""

import re
from typing import Final

from towpath_engine.core.expressions.ast import (
    Call,
    Comprehension,
    Constant,
    ListLiteral,
    MapLiteral,
    Node,
    Variable,
)
from towpath_engine.core.expressions.folds import children, loops
from towpath_engine.core.expressions.interface import ExpressionRefused
from towpath_engine.core.expressions.limits import StaticLimits

# Each of these macros writes its receiver twice: a chain of them doubles at every link, inside the
# checker, before any limit on nodes can be looked at.
_DOUBLING: Final = re.compile(r"\b(?:optMap|optFlatMap)\b")
_DOUBLING_MAX: Final = 4


def check_source(source: str, limits: StaticLimits) -> None:
    """What can be refused before the checker runs. Raises ExpressionRefused."""
    if not source.strip():
        raise ExpressionRefused(position=None, reason="the expression is empty")
    if len(source) > limits.source_length_max:
        reason = f"the expression is longer than {limits.source_length_max} characters"
        raise ExpressionRefused(position=None, reason=reason)
    for at, character in enumerate(source):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            reason = "NUL characters and lone surrogates are not allowed"
            raise ExpressionRefused(position=at, reason=reason)
    if len(_DOUBLING.findall(source)) > _DOUBLING_MAX:
        reason = f"more than {_DOUBLING_MAX} optMap and optFlatMap in one expression"
        raise ExpressionRefused(position=None, reason=reason)


def check_tree(tree: Node, source: str, limits: StaticLimits) -> None:
    """The limits on the tree of `source`. Raises ExpressionRefused."""
    nodes = folds = 0
    todo: list[tuple[Node, int, int]] = [(tree, 1, 0)]
    while todo:
        node, depth, fold_depth = todo.pop()
        nodes += 1
        _bounded(node, ("nodes", nodes, limits.nodes_max))
        _bounded(node, ("levels", depth, limits.depth_max))
        _check_node(node, limits)
        if isinstance(node, Variable):
            _check_not_tested(node, source)
        inner = fold_depth
        if isinstance(node, Comprehension) and loops(node):
            folds += 1
            inner += 1
            _bounded(node, ("looping macros", folds, limits.fold_count_max))
            _bounded(node, ("looping macros inside each other", inner, limits.fold_depth_max))
        for child in children(node):
            in_loop = isinstance(node, Comprehension) and (
                child is node.step or child is node.condition
            )
            # All that a macro expands to stands where the macro does.
            same_place = child.position is not None and child.position == node.position
            level = depth if same_place else depth + 1
            todo.append((child, level, inner if in_loop else fold_depth))


def _bounded(node: Node, counted: tuple[str, int, int]) -> None:
    what, count, limit = counted
    if count > limit:
        reason = f"the expression has more than {limit} {what}"
        raise ExpressionRefused(position=node.position, reason=reason)


def _check_node(node: Node, limits: StaticLimits) -> None:
    match node:
        case ListLiteral():
            _bounded(node, ("elements in a list", len(node.elements), limits.literal_entries_max))
        case MapLiteral():
            _bounded(node, ("entries in a map", len(node.entries), limits.literal_entries_max))
        case Call(function="matches", arguments=(_, Constant(value=str() as pattern))):
            length = len(pattern)
            _bounded(node, ("characters in a pattern", length, limits.pattern_length_max))
        case _:
            pass


def _check_not_tested(node: Variable, source: str) -> None:
    """`has(steps.x.output)` is turned into the plain variable by the checker. All that is left of
    `has` is the position, that of its bracket, where no variable can stand."""
    at = node.position
    if at is not None and source[at : at + 1] == "(":
        reason = f"has({node.name}) cannot be told; test a field below it, or {_status(node.name)}"
        raise ExpressionRefused(position=at, reason=reason)


def _status(name: str) -> str:
    return f"{name.rpartition('.')[0]}.status" if name.startswith("steps.") else "compare it"
