"""Long polls of run.result: woken by a commit here, or by what another engine says of its own.

A sweep finds what was said in vain.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.store.interface import Store

_SETTLED = frozenset(status.value for status in SETTLED_RUN)


class ResultWaiters:
    """`waiting` gives a future for a run; `sweep` costs one statement."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    @contextmanager
    def waiting(self, run_id: str) -> Generator[asyncio.Future[None]]:
        """A future that is done once the run has settled.

        Enter this before looking at the run: what settles in between is not missed then.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, set()).add(future)
        try:
            yield future
        finally:
            futures = self._waiting.get(run_id)
            if futures is not None:
                futures.discard(future)
                if not futures:
                    self._waiting.pop(run_id, None)

    def settled(self, run_id: str) -> None:
        """Wake everybody who waits for this run."""
        for future in self._waiting.pop(run_id, ()):
            if not future.done():
                future.set_result(None)

    async def sweep(self) -> int:
        """Look up the runs somebody waits for; returns how many had settled elsewhere."""
        if not self._waiting:
            return 0
        statuses = await self._store.run_statuses(sorted(self._waiting))
        done = [run_id for run_id, status in statuses.items() if status in _SETTLED]
        for run_id in done:
            self.settled(run_id)
        return len(done)
