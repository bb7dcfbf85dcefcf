"""Looks at queues for a person: what their consumers hold, who pulls from them."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from towpath_engine.bus.interface import ConsumerState
from towpath_engine.services.shell import Shell
from towpath_engine.store.admission import QueueFacts
from towpath_engine.store.workers import QueueWorkers
from towpath_protocol import subjects
from towpath_protocol.times import parse_instant

_UNDONE_MAX = 100_000
"""How far undone dispatches are counted: far beyond any window."""
_REQUESTS_MAX = 32
"""Questions to the server under way at once."""


class QueueState(Struct, frozen=True, kw_only=True):
    """A queue as its consumers and its workers show it.

    `pending` dispatches wait in the stream (each counts once, however many messages of it there
    are), `delivered` are with a worker, `pulls` are requests that wait for one. `workers` sent a
    heartbeat lately.
    """

    queue: str
    pending: int
    delivered: int
    pulls: int
    workers: int
    nobody_pulls_since: datetime | None
    """Since when, as far as is known; None while somebody pulls, or holds a dispatch."""


class QueueLook:
    """`at` asks for the four consumers of each queue. A worker is live that was seen within
    `live_seconds`."""

    def __init__(self, shell: Shell, *, live_seconds: float) -> None:
        self._shell = shell
        self._live = timedelta(seconds=live_seconds)
        self._stream = subjects.dispatch_stream(shell.prefix)

    def live_since(self) -> datetime:
        """Workers seen since then are live."""
        return self._shell.clock.now() - self._live

    async def at(self, queues: Iterable[str]) -> Mapping[str, QueueState]:
        """The queues by name; one without consumers is not among them.

        Raises BusUnavailable or StoreUnavailable.
        """
        names = sorted(set(queues))
        if not names:
            return {}
        workers = await self._shell.store.workers.of_queues(names, self.live_since())
        facts = await self._shell.store.admission.queues(names, _UNDONE_MAX)
        turn = asyncio.Semaphore(_REQUESTS_MAX)

        async def ask(queue: str, level: int) -> ConsumerState | None:
            async with turn:
                consumer = subjects.queue_consumer(queue, level)
                return await self._shell.bus.consumer_state(self._stream, consumer)

        levels = range(subjects.LEVEL_COUNT)
        answers = await asyncio.gather(*(ask(name, level) for name in names for level in levels))
        found: dict[str, QueueState] = {}
        for index, name in enumerate(names):
            first = index * subjects.LEVEL_COUNT
            states = [one for one in answers[first : first + subjects.LEVEL_COUNT] if one]
            if states:
                found[name] = _state(name, states, workers[name], facts[name])
        return found


def _state(
    queue: str, states: list[ConsumerState], workers: QueueWorkers, facts: QueueFacts
) -> QueueState:
    pulls = sum(state.waiting for state in states)
    delivered = sum(state.ack_pending for state in states)
    absent = not pulls and not delivered and not workers.live
    # Consumers are as old as the stream, which may have lost its data a moment ago.
    created = min(parse_instant(state.created) for state in states)
    since = workers.last_seen_at or facts.known_since or created
    return QueueState(
        queue=queue,
        pending=min(sum(state.pending for state in states), max(0, facts.undone - delivered)),
        delivered=delivered,
        pulls=pulls,
        workers=workers.live,
        nobody_pulls_since=since if absent else None,
    )
