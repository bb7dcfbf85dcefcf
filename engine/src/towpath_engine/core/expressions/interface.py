"""The seam to expressions: all that the rest of the core knows of them.

`Values` hands out variables by qualified name, decoded lazily by whoever implements it. Names:
`input`, `steps.NAME.output`, `steps.NAME.status`, `steps.NAME.error`, `steps.NAME.attempts`,
`steps.NAME.errors` (of a parallel or map step), `prev`, `metadata`, `now`, `run.id`,
`run.workflow`, `run.version`, `run.key`, `run.tags`,
`run.context`, `run.started_at`, `run.parent_id`, and, only at some sites, `output`, `error`,
`iteration`, `last`, `index`, `item` or whatever the map around the place calls its item.
`NAME` is the step's own name: of the list of the place, else of the nearest list around it. No two
of these have the same.
"""

from typing import Any, Final, Protocol

from msgspec import Struct

_SHOWN_BYTES: Final = 80
"""Of a value that can't be used."""


class Visible(Struct, frozen=True, kw_only=True):
    """What an expression at some place of a definition may name; anything else is refused.

    `input`, `metadata`, `run.*`, `now` and `prev` are visible everywhere; `steps` are the steps
    from which this place can be reached, `wholes` those of them that have `errors`; `names` are the
    site's own (`error`, `output`, ...) and the items of the maps around it.
    """

    steps: frozenset[str] = frozenset()
    wholes: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


class Values(Protocol):
    """Where an evaluation gets its variables from."""

    def lookup(self, name: str) -> Any:
        """The decoded JSON value (or, for `now` and `run.started_at`, an aware datetime) of a
        qualified name that the expression was allowed to use."""
        ...


class Condition(Protocol):
    """A compiled condition field."""

    @property
    def source(self) -> str:
        """The expression as written."""
        ...

    @property
    def references(self) -> frozenset[str]:
        """Qualified names of the variables it uses."""
        ...

    def evaluate(self, values: Values) -> bool:
        """The boolean. Raises ExpressionFailed, never returns anything but a bool."""
        ...


class Template(Protocol):
    """A compiled JSON template."""

    @property
    def references(self) -> frozenset[str]:
        """Qualified names of the variables it uses."""
        ...

    def render(self, values: Values) -> bytes:
        """The value as JSON text. Raises ExpressionFailed."""
        ...


class ExpressionFailed(Exception):  # noqa: N818 - named for what happened to the expression
    """An expression could not be evaluated; becomes error type `ExpressionError`.

    `field` is the path in the document (`steps.charge.when`), `position` a zero-based code point
    offset in `expression`, or None.
    """

    def __init__(self, *, field: str, expression: str, position: int | None, reason: str) -> None:
        self.field = field
        self.expression = expression
        self.position = position
        self.reason = reason
        at = "" if position is None else f" at {position}"
        super().__init__(f"{field}: `{expression}`{at}: {reason}")


def unusable(value: bytes, field: str, reason: str) -> ExpressionFailed:
    """What fails when a template was evaluated, but its value (JSON text) is not what its field
    takes."""
    shown = value[:_SHOWN_BYTES].decode(errors="replace")
    return ExpressionFailed(field=field, expression=shown, position=None, reason=reason)


class ExpressionRefused(Exception):  # noqa: N818 - the same
    """An expression does not compile, names something invisible or breaks a static limit."""

    def __init__(self, *, position: int | None, reason: str) -> None:
        self.position = position
        self.reason = reason
        super().__init__(reason if position is None else f"at {position}: {reason}")
