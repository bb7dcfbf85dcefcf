"""The checked syntax tree of an expression, and its decoder.

The checker hands the tree over as a serialised `cel.expr.CheckedExpr`. Reading it takes only the
protobuf wire format, so no protobuf package is needed and the interpreter depends on nothing but
these nodes. Unknown fields are skipped, as protobuf wants it.
"""

import struct
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct


class Node(Struct, frozen=True, kw_only=True):
    """Any node. `id` is unique in its tree; `position` the zero-based code point offset in the
    source, or None."""

    id: int
    position: int | None


class Constant(Node, frozen=True, kw_only=True):
    """A literal. `unsigned` tells `1u` from `1`."""

    value: bool | int | float | str | bytes | None
    unsigned: bool = False


class Variable(Node, frozen=True, kw_only=True):
    """A declared variable, by its qualified name (`steps.charge.output`), or a type name."""

    name: str


class Local(Node, frozen=True, kw_only=True):
    """A variable of an enclosing macro."""

    name: str


class Select(Node, frozen=True, kw_only=True):
    """`operand.field`, or `has(operand.field)` when `test_only`."""

    operand: Node
    field: str
    test_only: bool


class Call(Node, frozen=True, kw_only=True):
    """A function or operator; the receiver of a method is the first of `arguments`."""

    function: str
    arguments: tuple[Node, ...]


class ListLiteral(Node, frozen=True, kw_only=True):
    """`[a, ?b]`; `optional` holds the indices of the `?` elements."""

    elements: tuple[Node, ...]
    optional: frozenset[int]


class Entry(Struct, frozen=True, kw_only=True):
    """One entry of a map literal."""

    key: Node
    value: Node
    optional: bool


class MapLiteral(Node, frozen=True, kw_only=True):
    """`{k: v, ?k: o}`."""

    entries: tuple[Entry, ...]


class Comprehension(Node, frozen=True, kw_only=True):
    """The expansion of a macro: fold `step` over `range` into `accumulator`, while `condition`."""

    variable: str
    second_variable: str | None
    range: Node
    accumulator: str
    init: Node
    condition: Node
    step: Node
    result: Node


class MalformedTreeError(Exception):
    """The bytes are not a checked expression: the checker library changed its format."""


Field = tuple[int, int | bytes]
Scope = frozenset[str]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        if at >= len(data) or shift > 63:
            msg = "truncated or overlong varint"
            raise MalformedTreeError(msg)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[Field]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
            case 1:
                yield tag >> 3, data[at : at + 8]
                at += 8
            case 2:
                size, at = _varint(data, at)
                yield tag >> 3, data[at : at + size]
                at += size
            case 5:
                at += 4
            case other:
                msg = f"unknown wire type {other}"
                raise MalformedTreeError(msg)


def _double(data: bytes) -> float:
    value: float
    (value,) = struct.unpack("<d", data)
    return value


class _Message:
    """The fields of one message, by number."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        for number, value in _fields(data):
            self._fields.setdefault(number, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def integer(self, number: int) -> int:
        value = self._fields.get(number, [0])[-1]
        return value if isinstance(value, int) else 0

    def raw(self, number: int) -> bytes:
        value = self._fields.get(number, [b""])[-1]
        return value if isinstance(value, bytes) else b""

    def text(self, number: int) -> str:
        return self.raw(number).decode("utf-8")

    def message(self, number: int) -> "_Message":
        return _Message(self.raw(number))

    def messages(self, number: int) -> "list[_Message]":
        return [_Message(v) for v in self._fields.get(number, []) if isinstance(v, bytes)]

    def integers(self, number: int) -> list[int]:
        """A repeated integer field, packed or not."""
        result: list[int] = []
        for value in self._fields.get(number, []):
            if isinstance(value, int):
                result.append(value)
                continue
            at = 0
            while at < len(value):
                item, at = _varint(value, at)
                result.append(item)
        return result


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


class _Decoder:
    def __init__(self, names: Mapping[int, str], positions: Mapping[int, int]) -> None:
        self._names = names
        self._positions = positions
        self._kinds: dict[int, Callable[[int, _Message, Scope], Node]] = {
            3: self._constant,
            4: self._ident,
            5: self._select,
            6: self._call,
            7: self._list,
            8: self._map,
            9: self._comprehension,
        }

    def node(self, expr: _Message, scope: Scope) -> Node:
        for number, read in self._kinds.items():
            if number in expr:
                return read(expr.integer(2), expr.message(number), scope)
        msg = "a node of no known kind"
        raise MalformedTreeError(msg)

    def _constant(self, ident: int, const: _Message, _: Scope) -> Constant:
        value: bool | int | float | str | bytes | None = None
        if 2 in const:
            value = bool(const.integer(2))
        elif 3 in const:
            value = _signed(const.integer(3))
        elif 4 in const:
            value = const.integer(4)
        elif 5 in const:
            value = _double(const.raw(5))
        elif 6 in const:
            value = const.text(6)
        elif 7 in const:
            value = const.raw(7)
        position = self._positions.get(ident)
        return Constant(id=ident, position=position, value=value, unsigned=4 in const)

    def _ident(self, ident: int, named: _Message, scope: Scope) -> Node:
        position = self._positions.get(ident)
        name = named.text(1)
        if name in scope:
            return Local(id=ident, position=position, name=name)
        return self._variable(ident, self._names.get(ident, name))

    def _variable(self, ident: int, name: str) -> Variable:
        # `.input` names the variable where a macro has a local of the same name.
        position = self._positions.get(ident)
        return Variable(id=ident, position=position, name=name.removeprefix("."))

    def _list(self, ident: int, items: _Message, scope: Scope) -> ListLiteral:
        return ListLiteral(
            id=ident,
            position=self._positions.get(ident),
            elements=tuple(self.node(e, scope) for e in items.messages(1)),
            optional=frozenset(items.integers(2)),
        )

    def _select(self, ident: int, select: _Message, scope: Scope) -> Node:
        test_only = bool(select.integer(3))
        name = self._names.get(ident)
        if name is not None and not test_only:
            return self._variable(ident, name)
        # `has(a.b)` where `a.b` itself is a variable: the checks refuse it, whatever the operand.
        operand = (
            self.node(select.message(1), scope) if name is None else self._variable(ident, name)
        )
        return Select(
            id=ident,
            position=self._positions.get(ident),
            operand=operand,
            field=select.text(2),
            test_only=test_only,
        )

    def _call(self, ident: int, call: _Message, scope: Scope) -> Call:
        arguments = [self.node(a, scope) for a in call.messages(3)]
        function = call.text(2)
        if 1 in call:
            arguments.insert(0, self.node(call.message(1), scope))
        return Call(
            id=ident,
            position=self._positions.get(ident),
            function=function,
            arguments=tuple(arguments),
        )

    def _map(self, ident: int, struct_: _Message, scope: Scope) -> MapLiteral:
        if 1 in struct_:
            msg = f"messages such as {struct_.text(1)} are not supported"
            raise MalformedTreeError(msg)
        entries = tuple(
            Entry(
                key=self.node(e.message(3), scope),
                value=self.node(e.message(4), scope),
                optional=bool(e.integer(5)),
            )
            for e in struct_.messages(2)
        )
        return MapLiteral(id=ident, position=self._positions.get(ident), entries=entries)

    def _comprehension(self, ident: int, fold: _Message, scope: Scope) -> Comprehension:
        variable, accumulator = fold.text(1), fold.text(3)
        second = fold.text(8) or None
        inner = scope | {accumulator}
        body = inner | {variable, second or variable}
        return Comprehension(
            id=ident,
            position=self._positions.get(ident),
            variable=variable,
            second_variable=second,
            range=self.node(fold.message(2), scope),
            accumulator=accumulator,
            init=self.node(fold.message(4), scope),
            condition=self.node(fold.message(5), body),
            step=self.node(fold.message(6), body),
            result=self.node(fold.message(7), inner),
        )


def decode_checked(data: bytes) -> Node:
    """The tree in a serialised `google.protobuf.Any` of `CheckedExpr`.

    Raises MalformedTreeError.
    """
    checked = _Message(data).message(2)
    names = {
        entry.integer(1): reference.text(1)
        for entry in checked.messages(2)
        if 1 in (reference := entry.message(2))
    }
    positions = {p.integer(1): p.integer(2) for p in checked.message(5).messages(4)}
    return _Decoder(names, positions).node(checked.message(4), frozenset())
