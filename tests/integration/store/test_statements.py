"""Every statement file: that Postgres takes it, and that it is used."""

import re
from pathlib import Path

import pytest

from tests.support.stores import a_postgres_store
from towpath_engine.store import statements
from towpath_engine.store.rows import STEP_FIELDS
from towpath_engine.store.statements import load_statement, statement_names

STORE = Path(statements.__file__).parent
USE = re.compile(r"\b(?:fetch|fetch_row|fetch_value|execute)\(\s*[\w.]+,\s*\"(\w+)\"")
STEP_ROW = re.compile(
    r"\bSELECT\s+((?:step\.)?run_id, (?:step\.)?path, (?:step\.)?kind,.*?)\bFROM\b", re.DOTALL
)


@pytest.fixture(scope="module")
def sources() -> str:
    return "\n".join(file.read_text() for file in STORE.glob("*.py"))


async def test_postgres_prepares_every_statement_and_knows_all_its_types(
    postgres_url: str,
) -> None:
    async with a_postgres_store(postgres_url) as store, store.pool.acquire() as connection:
        for name in statement_names():
            statement = load_statement(name)
            prepared = await connection.prepare(statement.sql)
            assert len(prepared.get_parameters()) == len(statement.parameters), name
            types = [parameter.name for parameter in prepared.get_parameters()]
            assert "unknown" not in types, (name, types)
            columns = [attribute.name for attribute in prepared.get_attributes()]
            assert len(columns) == len(set(columns)), (name, columns)


def test_every_statement_is_used_and_every_used_one_exists(sources: str) -> None:
    assert set(USE.findall(sources)) == set(statement_names())


@pytest.mark.parametrize("name", statement_names())
def test_a_statement_says_what_it_guarantees_and_fits_the_loader(name: str) -> None:
    text = (STORE / "sql" / f"{name}.sql").read_text()
    lines = text.splitlines()
    body = "\n".join(line for line in lines if not line.startswith("-- "))
    comment = "\n".join(line for line in lines if line.startswith("-- "))
    assert text.startswith(comment), "the comment is the head"
    assert comment.rstrip().endswith("."), "the head is made of sentences"
    assert re.sub(r"'[^']*'", "", body).rstrip().count(";") == 1, "one statement a file"
    for literal in re.findall(r"'[^']*'", body):
        assert "--" not in literal, literal
        assert "@" not in literal, literal


def test_a_statement_that_reads_rows_of_steps_leaves_no_column_out() -> None:
    # What is left out would be taken for its default.
    lacking: dict[str, list[str]] = {}
    for name in statement_names():
        for columns in STEP_ROW.findall(load_statement(name).sql):
            absent = [field for field in STEP_FIELDS if not re.search(rf"\b{field}\b", columns)]
            lacking.setdefault(name, []).extend(absent)
    # One explains why a step is open, for which nobody asks where the run came from.
    assert lacking.pop("open_step_list") == ["came_from"]
    assert len(lacking) > 1
    assert [name for name, columns in lacking.items() if columns] == []


async def test_wrong_arguments_are_refused_before_they_reach_postgres() -> None:
    statement = load_statement("outbox_delete")
    with pytest.raises(TypeError, match="outbox_delete takes"):
        statement.arguments({"id": []})
    assert statement.arguments({"ids": [1]}) == [[1]]


async def test_a_parameter_keeps_its_number_when_it_is_named_again() -> None:
    statement = load_statement("run_list_by_key")
    assert len(statement.parameters) == len(set(statement.parameters))
    assert "@" not in statement.sql
