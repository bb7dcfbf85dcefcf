"""Templates: JSON whose strings may hold `${ expression }`.

A string that is exactly one `${ }` becomes the value with its type; elsewhere values are put into
the text. `$${` is a literal `${`. A template is split once, into JSON text and expressions, and
what an expression gives is never looked at again.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from towpath_engine.core.expressions.functions import FUNCTIONS
from towpath_engine.core.expressions.interface import (
    ExpressionFailed,
    ExpressionRefused,
    Values,
)
from towpath_engine.core.expressions.interpreter import Program
from towpath_engine.core.expressions.limits import RuntimeLimits
from towpath_engine.core.expressions.results import encode, pass_through, to_json
from towpath_engine.core.expressions.scanner import Source, scan
from towpath_engine.core.expressions.values import (
    EvaluationError,
    Frame,
    Value,
    type_name,
)

_TO_STRING: Final = FUNCTIONS["string"]
_NEVER_TEXT: Final = ("LIST", "MAP", "NULL", "TYPE", "optional_type")


class CompiledExpression(Struct, frozen=True, kw_only=True, eq=False):
    """An expression, ready to run. `passes_through`: it is a variable or a part of one."""

    source: str
    type_name: str
    references: frozenset[str]
    program: Program
    passes_through: bool


class Leaf(Struct, frozen=True, kw_only=True, eq=False):
    """One string of a template that has expressions. `path` is where, as in `.items[0].sku`;
    `depth` how deep. `whole`: it is exactly one expression, and its value keeps its type."""

    path: str
    depth: int
    parts: tuple[str | CompiledExpression, ...]
    whole: bool


Pieces = tuple[bytes | Leaf, ...]
Compile = Callable[[str], CompiledExpression]


class CompiledTemplate:
    """A template, ready to be rendered any number of times."""

    def __init__(self, pieces: Pieces, *, field: str, runtime: RuntimeLimits) -> None:
        self._pieces = pieces
        self._field = field
        self._runtime = runtime
        self._references = frozenset[str]().union(
            *(
                part.references
                for piece in pieces
                if isinstance(piece, Leaf)
                for part in piece.parts
                if isinstance(part, CompiledExpression)
            )
        )

    @property
    def references(self) -> frozenset[str]:
        """Qualified names of the variables it uses."""
        return self._references

    def render(self, values: Values) -> bytes:
        """The value as JSON text. Raises ExpressionFailed."""
        frame = Frame(values, self._runtime, fuel=self._runtime.template_fuel)
        rendered: list[bytes] = []
        left = self._runtime.template_bytes_max
        for piece in self._pieces:
            text = piece if isinstance(piece, bytes) else self._render_leaf(frame, piece)
            left -= len(text)
            if left < 0:
                raise self._too_large(piece)
            rendered.append(text)
        return b"".join(rendered)

    def _too_large(self, piece: bytes | Leaf) -> ExpressionFailed:
        path, source = "", ""
        if isinstance(piece, Leaf):
            path = piece.path
            source = next(p.source for p in piece.parts if isinstance(p, CompiledExpression))
        reason = f"the result is larger than {self._runtime.template_bytes_max} bytes"
        return ExpressionFailed(
            field=self._field + path, expression=source, position=None, reason=reason
        )

    def _render_leaf(self, frame: Frame, leaf: Leaf) -> bytes:
        texts: list[str] = []
        for part in leaf.parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            try:
                value = part.program.evaluate(frame)
                if leaf.whole:
                    return _whole(frame, value, (part.passes_through, leaf.depth))
                texts.append(_text(frame, value))
            except EvaluationError as error:
                raise ExpressionFailed(
                    field=self._field + leaf.path,
                    expression=part.source,
                    position=error.position,
                    reason=error.reason,
                ) from error
        return encode("".join(texts))


def _whole(frame: Frame, value: Value, placed: tuple[bool, int]) -> bytes:
    passes_through, depth = placed
    if passes_through:
        return encode(pass_through(frame, value, depth))
    return encode(to_json(frame, value, depth))


def _text(frame: Frame, value: Value) -> str:
    convert = _TO_STRING.get((type(value),))
    if convert is None:
        msg = f"a value of type {type_name(value)} cannot be put into text"
        raise EvaluationError(msg, 0)
    text = convert(frame, value)
    assert isinstance(text, str), "string() gives a string"
    if "\0" in text:
        msg = "NUL characters are not allowed in results"
        raise EvaluationError(msg, 0)
    frame.charge_string(len(text))
    return text


Json: TypeAlias = str | bool | int | float | list["Json"] | dict[str, "Json"] | None


def split_template(value: Json, compile_: Compile, *, leaves_max: int) -> Pieces:
    """The pieces of a template, in order. Raises ExpressionRefused, naming the place in it."""
    splitter = _Splitter(compile_, leaves_max)
    splitter.add(value, "", 0)
    return splitter.pieces()


class _Splitter:
    def __init__(self, compile_: Compile, leaves_max: int) -> None:
        self._compile = compile_
        self._left = self._leaves_max = leaves_max
        self._pieces: list[bytes | Leaf] = []
        self._constant: list[bytes] = []

    def pieces(self) -> Pieces:
        self._close_constant()
        return tuple(self._pieces)

    def _close_constant(self) -> None:
        if self._constant:
            self._pieces.append(b"".join(self._constant))
            self._constant.clear()

    def add(self, value: Json, path: str, depth: int) -> None:
        match value:
            case str():
                self._string(value, path, depth)
            case dict():
                opening = b"{"
                for key, item in value.items():
                    self._constant.append(opening + encode(key) + b":")
                    self.add(item, f"{path}.{key}", depth + 1)
                    opening = b","
                self._constant.append(b"}" if value else b"{}")
            case list():
                opening = b"["
                for at, item in enumerate(value):
                    self._constant.append(opening)
                    self.add(item, f"{path}[{at}]", depth + 1)
                    opening = b","
                self._constant.append(b"]" if value else b"[]")
            case _:
                self._constant.append(encode(value))

    def _string(self, text: str, path: str, depth: int) -> None:
        try:
            leaf = self._leaf(text, path, depth)
        except ExpressionRefused as refused:
            if not path:
                raise
            reason = f"in `{path.removeprefix('.')}`: {refused.reason}"
            raise ExpressionRefused(position=refused.position, reason=reason) from refused
        if isinstance(leaf, str):
            self._constant.append(encode(leaf))
            return
        self._close_constant()
        self._pieces.append(leaf)

    def _leaf(self, text: str, path: str, depth: int) -> Leaf | str:
        scanned = scan(text)
        sources = sum(isinstance(part, Source) for part in scanned)
        if sources == 0:
            return "".join(scanned)
        self._left -= sources
        if self._left < 0:
            reason = f"a template may not have more than {self._leaves_max} expressions"
            raise ExpressionRefused(position=None, reason=reason)
        parts = tuple(self._compile(p) if isinstance(p, Source) else p for p in scanned)
        whole = len(parts) == 1
        for part in parts:
            if not whole and isinstance(part, CompiledExpression):
                _check_text(part)
        return Leaf(path=path, depth=depth, parts=parts, whole=whole)


def _check_text(part: CompiledExpression) -> None:
    kind = part.type_name.partition("<")[0]
    if kind in _NEVER_TEXT:
        reason = f"a value of type {part.type_name.lower()} cannot be put into text"
        raise ExpressionRefused(position=0, reason=reason)
