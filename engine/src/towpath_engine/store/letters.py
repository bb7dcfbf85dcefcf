"""Dead letters once they are kept: pages of them, single ones, and their end. See also `save`."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from towpath_engine.store.records import DeadLetter


class CutLetter(Struct, frozen=True, kw_only=True):
    """A dead letter with the beginning of its body, and how long the whole body is."""

    letter: DeadLetter
    body_bytes: int


class LetterTable(Protocol):
    """All dead letters of the installation. Methods raise StoreUnavailable."""

    async def page(self, cursor: str | None, limit: int, *, body_bytes_max: int) -> list[CutLetter]:
        """Newest first, those before `cursor` (an id), bodies cut to `body_bytes_max`. Raises
        CursorError for a malformed cursor."""
        ...

    async def get(self, ids: Sequence[str]) -> dict[str, DeadLetter]:
        """Those of `ids` that exist, whole, by id."""
        ...

    async def delete(self, ids: Sequence[str]) -> int:
        """Delete these, which gives their room under the cap back; how many there were."""
        ...

    async def steps_of(self, attempts: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
        """(run id, token) -> path of the open step whose live attempt has the token."""
        ...
