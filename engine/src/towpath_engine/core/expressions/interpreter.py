"""The interpreter: a checked tree becomes nested closures, once; each evaluation then calls them.

Laws: every loop and every copy is paid for in fuel before it happens; errors carry the position of
the innermost node that has one; a map is always walked in the order of its sorted keys.
"""

from collections.abc import Callable, Mapping
from typing import Final

from towpath_engine.core.expressions.ast import (
    Call,
    Comprehension,
    Constant,
    ListLiteral,
    Local,
    MapLiteral,
    Node,
    Select,
    Variable,
)
from towpath_engine.core.expressions.folds import (
    Collect,
    Loop,
    Shape,
    caught,
    collect_list,
    collect_map,
    fold_shape,
    weight_of,
)
from towpath_engine.core.expressions.functions import FUNCTIONS, TYPE_VALUES
from towpath_engine.core.expressions.operators import BINARY, has_field, select
from towpath_engine.core.expressions.special import SPECIAL, Matcher, UnsupportedError
from towpath_engine.core.expressions.values import (
    BudgetExceededError,
    EvaluationError,
    Evaluator,
    Frame,
    Key,
    Optional,
    Uint,
    Value,
    insert,
    no_overload,
)

Scope = Mapping[str, int]


class Program:
    """An expression that is ready to run. Immutable; any number of evaluations may share it."""

    __slots__ = ("_run", "_slots")

    def __init__(self, run: Evaluator, slots: int) -> None:
        self._run = run
        self._slots = slots

    def evaluate(self, frame: Frame) -> Value:
        """The value. Raises EvaluationError; positions are filled in."""
        frame.slots = [None] * self._slots
        try:
            return self._run(frame)
        except RecursionError as error:
            msg = "too costly: values are nested too deeply"
            raise BudgetExceededError(msg) from error


def build_program(tree: Node, matcher: Callable[[str], Matcher]) -> Program:
    """Closures for `tree`. `matcher` compiles the pattern of a `matches`.

    Raises UnsupportedError, with a position, for a function that is not implemented.
    """
    builder = _Builder(matcher)
    run = builder.build(tree, {})
    return Program(run, builder.slot_count)


def _positioned(node: Node, run: Evaluator) -> Evaluator:
    position = node.position

    def positioned(frame: Frame) -> Value:
        try:
            return run(frame)
        except EvaluationError as error:
            if error.position is None:
                error.position = position
            raise

    return positioned


class _Builder:
    def __init__(self, matcher: Callable[[str], Matcher]) -> None:
        self._matcher = matcher
        self.slot_count = 0
        self._kinds: Final[dict[type[Node], Callable[..., Evaluator]]] = {
            Constant: self._constant,
            Variable: self._variable,
            Local: self._local,
            Select: self._select,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            Comprehension: self._fold,
        }

    def build(self, node: Node, scope: Scope) -> Evaluator:
        return self._kinds[type(node)](node, scope)

    def _constant(self, node: Constant, _: Scope) -> Evaluator:
        value = node.value
        if node.unsigned and isinstance(value, int):
            value = Uint(value)
        return lambda _frame: value

    def _variable(self, node: Variable, _: Scope) -> Evaluator:
        name = node.name
        if name in TYPE_VALUES:
            type_value = TYPE_VALUES[name]
            return lambda _frame: type_value
        return lambda frame: frame.variable(name)

    def _local(self, node: Local, scope: Scope) -> Evaluator:
        slot = scope[node.name]

        def read(frame: Frame) -> Value:
            value = frame.slots[slot]
            if isinstance(value, EvaluationError):
                # A fresh exception: raising one object again and again would grow its traceback.
                raise EvaluationError(value.reason, value.position)
            return value

        return read

    def _select(self, node: Select, scope: Scope) -> Evaluator:
        operand = self.build(node.operand, scope)
        field = node.field
        if node.test_only:
            return _positioned(node, lambda frame: has_field(operand(frame), field))
        position = node.position

        def read(frame: Frame) -> Value:
            container = operand(frame)
            if isinstance(container, dict) and field in container:
                return container[field]
            try:
                return select(container, field)
            except EvaluationError as error:
                error.position = position
                raise

        return read

    def _call(self, node: Call, scope: Scope) -> Evaluator:
        special = SPECIAL.get(node.function)
        if special is not None:
            arguments = [self.build(a, scope) for a in node.arguments]
            return _positioned(node, special(node, arguments, self._matcher))
        if node.function in BINARY:
            return self._binary(node, scope)
        overloads = FUNCTIONS.get(node.function)
        if overloads is None:
            msg = f"the function `{node.function}` is not supported"
            raise UnsupportedError(msg, node.position)
        name, arguments = node.function, tuple(self.build(a, scope) for a in node.arguments)
        generic = overloads.get(len(arguments))

        def call(frame: Frame) -> Value:
            values = [argument(frame) for argument in arguments]
            implementation = generic or overloads.get(tuple(map(type, values)))
            if implementation is None:
                raise no_overload(name, *values)
            return implementation(frame, *values)

        return _positioned(node, call)

    def _binary(self, node: Call, scope: Scope) -> Evaluator:
        apply, position = BINARY[node.function], node.position
        left, right = (self.build(a, scope) for a in node.arguments)

        def binary(frame: Frame) -> Value:
            try:
                return apply(frame, left(frame), right(frame))
            except EvaluationError as error:
                if error.position is None:
                    error.position = position
                raise

        return binary

    def _list(self, node: ListLiteral, scope: Scope) -> Evaluator:
        elements = [self.build(e, scope) for e in node.elements]
        if not node.optional:
            return lambda frame: [element(frame) for element in elements]
        optional = node.optional

        def build_list(frame: Frame) -> Value:
            result: list[Value] = []
            for at, element in enumerate(elements):
                value = element(frame)
                if at not in optional:
                    result.append(value)
                elif not isinstance(value, Optional):
                    raise no_overload("[?]", value)
                elif value.present:
                    result.append(value.value)
            return result

        return _positioned(node, build_list)

    def _map(self, node: MapLiteral, scope: Scope) -> Evaluator:
        entries = [
            (self.build(e.key, scope), self.build(e.value, scope), e.optional) for e in node.entries
        ]

        def build_map(frame: Frame) -> Value:
            result: dict[Key, Value] = {}
            for key_of, value_of, optional in entries:
                key, value = key_of(frame), value_of(frame)
                if optional:
                    if not isinstance(value, Optional):
                        raise no_overload("{?:}", value)
                    if not value.present:
                        continue
                    value = value.value
                insert(result, key, value)
            return result

        return _positioned(node, build_map)

    def _slot(self) -> int:
        self.slot_count += 1
        return self.slot_count - 1

    def _fold(self, node: Comprehension, scope: Scope) -> Evaluator:
        shape = fold_shape(node)
        if shape is Shape.BIND:
            return self._bind(node, scope)
        items = self.build(node.range, scope)
        variable = self._slot()
        inner = {**scope, node.variable: variable}
        second: int | None = None
        if node.second_variable is not None:
            second = self._slot()
            inner[node.second_variable] = second
        loop = Loop(items, variable, second, weight_of(node))
        if not isinstance(shape, Collect):
            return _positioned(node, self._generic(node, inner, loop))
        test = None if shape.test is None else self.build(shape.test, inner)
        produce = [self.build(p, inner) for p in shape.produce]
        if shape.into_map:
            return _positioned(node, collect_map(loop, test, produce))
        return _positioned(node, collect_list(loop, test, produce[0]))

    def _bind(self, node: Comprehension, scope: Scope) -> Evaluator:
        """`cel.bind`: an error of the bound value counts only where the value is used."""
        slot = self._slot()
        init = self.build(node.init, scope)
        result = self.build(node.result, {**scope, node.accumulator: slot})

        def bind(frame: Frame) -> Value:
            frame.slots[slot] = caught(frame, init)
            return result(frame)

        return bind

    def _generic(self, node: Comprehension, inner: dict[str, int], loop: Loop) -> Evaluator:
        """`all`, `exists`, `exists_one`: the accumulator may hold an error, which a later item
        can still absorb."""
        slot = self._slot()
        inner = {**inner, node.accumulator: slot}
        init = self.build(node.init, inner)
        condition = self.build(node.condition, inner)
        step = self.build(node.step, inner)
        result = self.build(node.result, inner)

        def fold(frame: Frame) -> Value:
            state: Value | EvaluationError = init(frame)
            for _ in loop.items(frame):
                frame.slots[slot] = state
                if condition(frame) is not True:
                    break
                state = caught(frame, step)
            frame.slots[slot] = state
            return result(frame)

        return fold
