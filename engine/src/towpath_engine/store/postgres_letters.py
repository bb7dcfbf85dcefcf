"""Dead letters on Postgres."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from towpath_engine.store.cursors import is_id, parse_id_cursor
from towpath_engine.store.letters import CutLetter
from towpath_engine.store.records import DeadLetter
from towpath_engine.store.rows import letter_from_row
from towpath_engine.store.session import Connection, fetch, fetch_value


class PostgresLetters:
    """See `store.letters.LetterTable`."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Connection]]) -> None:
        self._connect = connect

    async def page(self, cursor: str | None, limit: int, *, body_bytes_max: int) -> list[CutLetter]:
        """See LetterTable."""
        before = parse_id_cursor(cursor)
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "dead_letter_list",
                before=before,
                limit=limit,
                body_bytes_max=body_bytes_max,
            )
        found: list[CutLetter] = []
        for row in rows:
            values: dict[str, Any] = dict(row.items())
            size = values.pop("body_bytes")
            found.append(CutLetter(letter=letter_from_row(values), body_bytes=size))
        return found

    async def get(self, ids: Sequence[str]) -> dict[str, DeadLetter]:
        """See LetterTable."""
        async with self._connect() as connection:
            rows = await fetch(connection, "dead_letter_get", ids=[i for i in ids if is_id(i)])
        return {row["id"]: letter_from_row(row) for row in rows}

    async def delete(self, ids: Sequence[str]) -> int:
        """See LetterTable."""
        async with self._connect() as connection:
            return await fetch_value(
                connection, "dead_letter_delete", ids=[i for i in ids if is_id(i)]
            )

    async def steps_of(self, attempts: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
        """See LetterTable."""
        asked = [(run_id, token) for run_id, token in attempts if is_id(run_id)]
        async with self._connect() as connection:
            rows = await fetch(
                connection,
                "open_step_paths",
                run_id=[run_id for run_id, _ in asked],
                token=[token for _, token in asked],
            )
        return {(row["run_id"], row["token"]): row["path"] for row in rows}
