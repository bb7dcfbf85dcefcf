"""A worker that has effects and takes them back, and remembers both: the two must match.

An effect is known by its idempotency key, that of its undo by the key with `/undo` behind it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import nats.errors

from tests.support.wire_client import WireClient

Json = Any
_UNDO = "/undo"


class CardShop:
    """Takes all dispatches of one queue. `refuses(dispatch)` says which of them fail. It undoes as
    many as it is allowed to, and holds the next one in its hands."""

    def __init__(
        self,
        wire: WireClient,
        *,
        refuses: Callable[[Json], bool] = lambda dispatch: dispatch["task"] == "fail",
    ) -> None:
        self._wire = wire
        self._refuses = refuses
        self._tasks: list[asyncio.Task[None]] = []
        self._permits = asyncio.Semaphore(0)
        self.dispatches: list[Json] = []
        """In the order in which they came, those that came again, too."""

    def open(self, slots: int = 1) -> None:
        """Work from now on; `close` ends it."""
        self._tasks += [asyncio.create_task(self._work()) for _ in range(slots)]

    def allow(self, count: int) -> None:
        """So many more undos may be done (those that come again count, too)."""
        for _ in range(count):
            self._permits.release()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _work(self) -> None:
        while True:
            # Servers go down and come back under it.
            with contextlib.suppress(nats.errors.Error, AssertionError, OSError):
                dispatch, message = await self._wire.pull()
                if dispatch["compensation"] is not None:
                    await self._permits.acquire()
                self.dispatches.append(dispatch)
                if self._refuses(dispatch):
                    await self._wire.fail(dispatch, type="Refused", retryable=False)
                else:
                    await self._wire.complete(dispatch, f"{dispatch['step']} is done")
                await message.ack()

    def done(self) -> list[str]:
        """The keys of the effects that were not refused, once each, in order."""
        return self._keys(is_undo=False)

    def undone(self) -> list[str]:
        """The keys of the effects that were taken back, once each, in order."""
        return [key.removesuffix(_UNDO) for key in self._keys(is_undo=True)]

    def _keys(self, *, is_undo: bool) -> list[str]:
        keys = [
            one["idempotency_key"]
            for one in self.dispatches
            if (one["compensation"] is not None) is is_undo and not self._refuses(one)
        ]
        return list(dict.fromkeys(keys))
