"""Macros that loop: recognising what they are, walking their range, collecting their results.

The checker expands every macro to one general fold. Taken literally, `map` and `filter` would copy
the list for each item; here they are recognised and append to one list.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from towpath_engine.core.expressions.ast import (
    Call,
    Comprehension,
    Constant,
    ListLiteral,
    Local,
    MapLiteral,
    Node,
    Select,
)
from towpath_engine.core.expressions.values import (
    BudgetExceededError,
    EvaluationError,
    Evaluator,
    Frame,
    Key,
    Value,
    insert,
    key_value,
    no_overload,
    sorted_keys,
)

MAP_INSERT: Final = "cel.@mapInsert"


class Shape(Enum):
    """What a fold is, unless it is a `Collect`."""

    BIND = "cel.bind"
    GENERIC = "all, exists, exists_one"


class Collect(Struct, frozen=True, kw_only=True):
    """`map`, `filter` and their like: `produce` for each item for which `test` holds.

    `into_map`: `produce` is a key and a value, or one map with the entries to add.
    """

    test: Node | None
    produce: tuple[Node, ...]
    into_map: bool


def fold_shape(node: Comprehension) -> Shape | Collect:
    """What macro the fold came from."""
    if not loops(node):
        return Shape.BIND
    return _collect_shape(node) or Shape.GENERIC


def loops(node: Comprehension) -> bool:
    """Whether it walks over something; `cel.bind` is a fold over nothing."""
    return not (isinstance(node.range, ListLiteral) and not node.range.elements)


def _is_local(node: Node, name: str) -> bool:
    return isinstance(node, Local) and node.name == name


def _collect_shape(node: Comprehension) -> Collect | None:
    name = node.accumulator
    always = isinstance(node.condition, Constant) and node.condition.value is True
    if not always or not _is_local(node.result, name):
        return None
    test, step = None, node.step
    if isinstance(step, Call) and step.function == "_?_:_" and _is_local(step.arguments[2], name):
        test, step = step.arguments[0], step.arguments[1]
    if not isinstance(step, Call) or not _is_local(step.arguments[0], name):
        return None
    match node.init, step:
        case (
            ListLiteral(elements=()),
            Call(function="_+_", arguments=(_, ListLiteral(elements=(item,), optional=optional))),
        ) if not optional:
            return Collect(test=test, produce=(item,), into_map=False)
        case (MapLiteral(entries=()), Call(function="cel.@mapInsert", arguments=(_, *produce))):
            return Collect(test=test, produce=tuple(produce), into_map=True)
        case _:
            return None


def children(node: Node) -> Sequence[Node]:
    """The nodes directly below, in no particular order."""
    match node:
        case Select():
            return (node.operand,)
        case Call():
            return node.arguments
        case ListLiteral():
            return node.elements
        case MapLiteral():
            return [part for e in node.entries for part in (e.key, e.value)]
        case Comprehension():
            return (node.range, node.init, node.condition, node.step, node.result)
        case _:
            return ()


def count_nodes(node: Node) -> int:
    """The size of a tree."""
    count, todo = 0, [node]
    while todo:
        count += 1
        todo.extend(children(todo.pop()))
    return count


def weight_of(node: Comprehension) -> int:
    """The fuel that one item costs: a unit is four nodes, near enough a microsecond."""
    return 1 + (count_nodes(node.step) + count_nodes(node.condition)) // 4


class Loop:
    """The walk over the range of a fold: it fills the variables and charges for each item."""

    __slots__ = ("_range", "_second", "_variable", "_weight")

    def __init__(self, range_: Evaluator, variable: int, second: int | None, weight: int) -> None:
        self._range = range_
        self._variable = variable
        self._second = second
        self._weight = weight

    def items(self, frame: Frame) -> Iterator[None]:
        """Stops once per item, with the variables set. Raises EvaluationError."""
        container = self._range(frame)
        slots, charge, variable, second = frame.slots, frame.charge, self._variable, self._second
        weight = self._weight
        if isinstance(container, list):
            for at, item in enumerate(container):
                charge(weight)
                if second is None:
                    slots[variable] = item
                else:
                    slots[variable], slots[second] = at, item
                yield
        elif isinstance(container, dict):
            charge(len(container))
            for key in sorted_keys(container):
                charge(weight)
                slots[variable] = key_value(key)
                if second is not None:
                    slots[second] = container[key]
                yield
        else:
            msg = "a loop over"
            raise no_overload(msg, container)


def caught(frame: Frame, run: Evaluator) -> Value | EvaluationError:
    """The value, or the error as a value; running out of budget is never caught."""
    try:
        return run(frame)
    except BudgetExceededError:
        raise
    except EvaluationError as error:
        return EvaluationError(error.reason, error.position)


def _holds(frame: Frame, test: Evaluator | None) -> bool:
    if test is None:
        return True
    holds = test(frame)
    if not isinstance(holds, bool):
        msg = "the condition of a macro"
        raise no_overload(msg, holds)
    return holds


def collect_list(loop: Loop, test: Evaluator | None, produce: Evaluator) -> Evaluator:
    """The evaluator of `map` and `filter`."""

    def collect(frame: Frame) -> Value:
        result: list[Value] = []
        length_max = frame.limits.list_length_max
        for _ in loop.items(frame):
            if _holds(frame, test):
                result.append(produce(frame))
                if len(result) > length_max:
                    frame.charge_list(len(result))
        return result

    return collect


def collect_map(loop: Loop, test: Evaluator | None, produce: Sequence[Evaluator]) -> Evaluator:
    """The evaluator of `transformMap` and `transformMapEntry`."""

    def collect(frame: Frame) -> Value:
        result: dict[Key, Value] = {}
        for _ in loop.items(frame):
            if not _holds(frame, test):
                continue
            produced = [p(frame) for p in produce]
            if len(produced) == 2:
                insert(result, produced[0], produced[1])
            elif isinstance(produced[0], dict):
                frame.charge(len(produced[0]))
                for key, value in produced[0].items():
                    insert(result, key_value(key), value)
            if len(result) > frame.limits.list_length_max:
                frame.charge_list(len(result))
        return result

    return collect
