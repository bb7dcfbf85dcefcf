"""Compiling the expressions of a definition: every fault noted, sizes added up."""

from collections.abc import Iterator, Mapping
from typing import Final

from towpath_engine.core.expressions.compiler import compile_condition, compile_template
from towpath_engine.core.expressions.interface import (
    Condition,
    ExpressionRefused,
    Template,
    Visible,
)
from towpath_engine.core.expressions.limits import ExpressionLimits
from towpath_engine.core.faults import FaultCode
from towpath_engine.core.fields import Fields, is_list, is_object, kind_of
from towpath_protocol.codec import JsonValue

ERROR: Final = frozenset({"error"})
ITERATION: Final = frozenset({"iteration", "last"})
AGAIN: Final = ITERATION | {"output"}
UNDO: Final = frozenset({"output", "error"})


class Tally:
    """What the expressions of a definition come to: the places of the steps that they name, and
    their size."""

    def __init__(self) -> None:
        self.referenced: set[str] = set()
        self.size = 0


class Expressions:
    """Compiles for one list of a definition: `places` are those of the steps that can be named in
    it. The tally is the definition's."""

    def __init__(
        self, limits: ExpressionLimits, tally: Tally, places: Mapping[str, str] | None = None
    ) -> None:
        self._limits = limits
        self._tally = tally
        self._places = places or {}

    def of_list(self, places: Mapping[str, str]) -> "Expressions":
        """The same for another list of the definition."""
        return Expressions(self._limits, self._tally, places)

    def condition(
        self, fields: Fields, name: str, *, visible: Visible, field: str
    ) -> Condition | None:
        """The compiled condition in a field; None when it is absent or faulty.

        `field` is how errors at run time name the place (`steps.charge.when`).
        """
        if not fields.has(name):
            return None
        source = fields.values[name]
        if not isinstance(source, str):
            message = f"must be an expression in a string, not {kind_of(source)}"
            fields.fault(name, message, FaultCode.WRONG_TYPE)
            return None
        self._count(source, fields, name)
        try:
            condition = compile_condition(
                source,
                visible,
                field=field,
                static=self._limits.static,
                runtime=self._limits.runtime,
            )
        except ExpressionRefused as refused:
            fields.fault(name, str(refused), FaultCode.BAD_EXPRESSION)
            return None
        self._note(condition.references)
        return condition

    def template(
        self, fields: Fields, name: str, *, visible: Visible, field: str
    ) -> Template | None:
        """The compiled template in a field; None when it is absent or faulty."""
        if not fields.has(name):
            return None
        value = fields.values[name]
        for _, text in _leaves(name, value):
            if "${" in text:
                self._count(text, fields, name)
        try:
            template = self._template(value, visible, field)
        except ExpressionRefused as refused:
            if not self._blame_leaves(fields, name, visible=visible, field=field):
                fields.fault(name, str(refused), FaultCode.BAD_EXPRESSION)
            return None
        self._note(template.references)
        return template

    def _blame_leaves(self, fields: Fields, name: str, *, visible: Visible, field: str) -> bool:
        """Note each faulty string of a refused template at its own place; false if none is."""
        found = False
        for place, text in _leaves(name, fields.values[name]):
            try:
                self._template(text, visible, field)
            except ExpressionRefused as refused:
                fields.fault(place, str(refused), FaultCode.BAD_EXPRESSION)
                found = True
        return found

    def _template(self, value: JsonValue, visible: Visible, field: str) -> Template:
        return compile_template(
            value, visible, field=field, static=self._limits.static, runtime=self._limits.runtime
        )

    def _count(self, source: str, fields: Fields, name: str) -> None:
        before = self._tally.size
        self._tally.size += len(source.encode(errors="replace"))
        bytes_max = self._limits.sources_bytes_max
        if before <= bytes_max < self._tally.size:
            message = f"with this, all expressions together have more than {bytes_max} bytes"
            fields.fault(name, message, FaultCode.TOO_LARGE)

    def _note(self, references: frozenset[str]) -> None:
        for name in references:
            if name.startswith("steps."):
                self._tally.referenced.add(self._places[name.split(".")[1]])


def _leaves(place: str, value: JsonValue) -> Iterator[tuple[str, str]]:
    """The strings of a JSON value with their places, in order."""
    pending: list[tuple[str, JsonValue]] = [(place, value)]
    while pending:
        here, item = pending.pop()
        if isinstance(item, str):
            yield here, item
        elif is_object(item):
            pending.extend((f"{here}.{key}", inner) for key, inner in reversed(item.items()))
        elif is_list(item):
            inners = list(enumerate(item))
            pending.extend((f"{here}[{index}]", inner) for index, inner in reversed(inners))
