"""Dead letters over dictionaries."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from towpath_engine.store.cursors import parse_id_cursor
from towpath_engine.store.letters import CutLetter
from towpath_engine.store.memory_state import MemoryState
from towpath_engine.store.records import DeadLetter


class MemoryLetters:
    """See `store.letters.LetterTable`. `state` gives the committed state; whoever changes it holds
    `turn`, as transactions do."""

    def __init__(self, state: Callable[[], MemoryState], *, turn: asyncio.Lock) -> None:
        self._state = state
        self._turn = turn

    async def page(self, cursor: str | None, limit: int, *, body_bytes_max: int) -> list[CutLetter]:
        """See LetterTable."""
        before = parse_id_cursor(cursor)
        letters = self._state().letters
        ids = [i for i in sorted(letters, reverse=True) if before is None or i < before][:limit]
        return [
            CutLetter(
                letter=replace(letters[i], body=letters[i].body[:body_bytes_max]),
                body_bytes=len(letters[i].body),
            )
            for i in ids
        ]

    async def get(self, ids: Sequence[str]) -> dict[str, DeadLetter]:
        """See LetterTable."""
        letters = self._state().letters
        return {i: letters[i] for i in ids if i in letters}

    async def delete(self, ids: Sequence[str]) -> int:
        """See LetterTable."""
        async with self._turn:
            letters = self._state().letters
            found = [letters.pop(i) for i in dict.fromkeys(ids) if i in letters]
        return len(found)

    async def steps_of(self, attempts: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
        """See LetterTable."""
        state = self._state()
        return {
            (run_id, token): row.path
            for run_id, token in attempts
            for row in state.open_of(run_id).values()
            if row.token == token
        }
