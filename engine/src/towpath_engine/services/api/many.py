"""Requests of many items: how many may stand in the engine at once, and taking turns over them."""

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from towpath_engine.services.api.errors import ApiFailureError
from towpath_protocol.errors import ErrorCode

T = TypeVar("T")

ITEMS_A_TURN: Final = 100
"""Items between two turns of the event loop: a few milliseconds of decoding."""
_RETRY_AFTER_MS: Final = 1_000


class ItemRoom:
    """Counts the items that are being handled, whatever the number of requests they came in."""

    def __init__(self, items_max: int) -> None:
        self._items_max = items_max
        self._standing = 0

    @property
    def standing(self) -> int:
        """Items that are being handled now."""
        return self._standing

    @contextmanager
    def taken(self, count: int) -> Generator[None]:
        """Hold the places of `count` items. Raises ApiFailureError (`overloaded`) if there are not
        so many free; a request that comes alone is never refused."""
        if self._standing and self._standing + count > self._items_max:
            raise ApiFailureError(
                ErrorCode.OVERLOADED,
                f"{self._standing} items of other requests are being handled; try again soon",
                {"retry_after_ms": _RETRY_AFTER_MS},
            )
        self._standing += count
        try:
            yield
        finally:
            self._standing -= count


async def in_turns(items: Sequence[T]) -> AsyncIterator[tuple[int, T]]:
    """(index, item), with a turn for everybody else between every `ITEMS_A_TURN` of them: timers
    and heartbeats must not wait for a request to be decoded."""
    for index, item in enumerate(items):
        if index and index % ITEMS_A_TURN == 0:
            await asyncio.sleep(0)
        yield index, item
