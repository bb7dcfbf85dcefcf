"""Loads the SQL: one statement a file in `sql/`, named like what it does.

A file opens with comments that say what the statement guarantees. Its parameters are written
`@name` and become `$n` in order of first use; `@>` and `::casts` are left alone. A literal must
hold neither `--` nor `@word`: a test refuses them.
"""

import re
from functools import cache
from importlib.resources import files
from typing import Final, cast

from msgspec import Struct

_COMMENT: Final = re.compile(r"--[^\n]*")
_PARAMETER: Final = re.compile(r"@([a-z_][a-z0-9_]*)")


class Statement(Struct, frozen=True):
    """SQL as Postgres wants it, and the names of `$1`, `$2`, … in order."""

    name: str
    sql: str
    parameters: tuple[str, ...]
    names: frozenset[str]
    """The parameters once more."""

    def arguments(self, values: dict[str, object]) -> list[object]:
        """The values in the order of the parameters. Raises TypeError unless the names match.

        A column of nothing but NULL travels as an empty array, which unnest fills up again: asyncpg
        spends most of its time on the elements of arrays, and most columns of a batch are empty.
        """
        if values.keys() != self.names:
            message = f"{self.name} takes {self.parameters}, not {tuple(values)}"
            raise TypeError(message)
        return [_without_nulls(values[name]) for name in self.parameters]


def _without_nulls(value: object) -> object:
    if isinstance(value, list):
        column = cast("list[object]", value)
        return [] if column.count(None) == len(column) else column
    return value


@cache
def load_statement(name: str) -> Statement:
    """The statement of `sql/NAME.sql`. Raises FileNotFoundError if there is none."""
    source = files("towpath_engine.store").joinpath("sql", f"{name}.sql").read_text("utf-8")
    parameters: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in parameters:
            parameters.append(match[1])
        return f"${parameters.index(match[1]) + 1}"

    text = _COMMENT.sub("", source).strip().removesuffix(";")
    sql = _PARAMETER.sub(number, text)
    return Statement(name, sql, tuple(parameters), frozenset(parameters))


def statement_names() -> list[str]:
    """The names of all statements, sorted."""
    found = files("towpath_engine.store").joinpath("sql").iterdir()
    return sorted(file.name.removesuffix(".sql") for file in found if file.name.endswith(".sql"))
