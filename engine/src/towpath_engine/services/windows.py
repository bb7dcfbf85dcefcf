"""How many dispatches of each queue are undone, and from which level on it takes no more.

At most `dispatches_max` undone dispatches of a queue are in JetStream, so that a pool that is away
fills the stream for nobody else. What the stream holds is read from the queue's consumers, but only
once there may be half as many; what was dispatched since is counted here. Where steps of a queue
wait in Postgres, no other of the same or a lower urgency goes before them.

With several engines each takes its share of the room. Between two readings a growing backlog may
so exceed the bound by about a quarter; it is one of memory and of the stream, not of fairness.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from towpath_engine.core.effects import DispatchStep
from towpath_engine.services.draft import RunDraft
from towpath_engine.services.shell import Shell
from towpath_protocol import subjects
from towpath_protocol.priorities import PRIORITIES

_READINGS_AT_ONCE: Final = 8
"""Queues asked about at the same time: four requests each."""
_DOUBTED_AFTER: Final = timedelta(seconds=10)
"""So long after its commit it is looked up whether somebody else has published a dispatch."""
_DOUBTED_MAX: Final = 1_000


class _Window:
    """One queue. `stored` is what the stream had at the last reading, the rest is since."""

    __slots__ = ("backlog", "confirmed", "deciding", "stored", "unconfirmed")

    def __init__(self) -> None:
        self.stored = 0
        self.deciding = 0
        """In transactions that have not committed yet."""
        self.unconfirmed: dict[str, datetime] = {}
        """Tokens that are committed, and not known to be in the stream; with when."""
        self.confirmed = 0
        self.backlog: int | None = None
        """The most urgent level of what waits in Postgres; None: nothing waits."""

    @property
    def since(self) -> int:
        return self.deciding + len(self.unconfirmed) + self.confirmed


class Windows:
    """`full` and `exhausted` are read by each decision; `refresh` asks the server.

    `engines` is how many engines share a queue, `tops_up` says whether this one takes what waits
    for a queue into the stream.
    """

    def __init__(
        self,
        shell: Shell,
        *,
        dispatches_max: int,
        engines: Callable[[], int],
        tops_up: Callable[[str], bool],
    ) -> None:
        self._shell = shell
        self._stream = subjects.dispatch_stream(shell.prefix)
        self._dispatches_max = dispatches_max
        self._engines = engines
        self._tops_up = tops_up
        self._windows: dict[str, _Window] = {}
        self._waiting: set[str] = set()
        self.full: Mapping[str, int] = {}
        """Queue → from which level on it takes nothing that is only now ready."""
        self.exhausted: Mapping[str, int] = {}
        """Queue → 0, where it takes nothing at all."""

    def room(self, queue: str) -> int:
        """How many dispatches this engine may still hand to the queue; never negative."""
        window = self._windows.get(queue) or _Window()
        free = self._dispatches_max - window.stored
        if window.backlog is None:
            free //= max(1, self._engines())
        elif not self._tops_up(queue):
            return 0  # what waits goes first, and another engine takes it
        return max(0, free - window.since)

    # What happens to dispatches

    def take(self, queue: str) -> None:
        """A dispatch was decided; it counts from now on."""
        self._window(queue).deciding += 1
        self._judge(queue)

    def give_back(self, taken: Mapping[str, int]) -> None:
        """The transaction that had decided these is over, whatever became of it."""
        for queue, count in taken.items():
            self._window(queue).deciding -= count
            self._judge(queue)

    def committed(self, draft: RunDraft) -> None:
        """Note the dispatches that a committed draft has written, and those that it has ended."""
        now = self._shell.clock.now()
        for effect in draft.dispatches:
            self._window(effect.queue).unconfirmed[effect.token] = now
            self._judge(effect.queue)
        for revoked in draft.revoked:
            self._window(revoked.queue).unconfirmed.pop(revoked.token, None)

    def stored(self, token: str, subject: str, seq: int) -> None:
        """The stream has the dispatch."""
        del seq
        queue = subjects.parse_dispatch(subject, self._shell.prefix).queue
        window = self._window(queue)
        window.confirmed += 1
        if window.unconfirmed.pop(token, None) is None:
            self._judge(queue)  # another engine had committed it

    # What the servers say

    def set_backlogs(self, levels: Mapping[str, int]) -> None:
        """What waits in Postgres: queue → its most urgent level. Others have nothing waiting."""
        for queue in levels.keys() | self._waiting:
            self._window(queue).backlog = levels.get(queue)
            self._judge(queue)
        self._waiting = set(levels)

    async def refresh(self, queues: Iterable[str] | None = None) -> int:
        """Ask about these queues, or about those that may be half full or have something waiting;
        returns how many were asked about. Raises BusUnavailable or StoreUnavailable."""
        wanted = sorted(self._windows) if queues is None else sorted(queues)
        if queues is None:
            wanted = [queue for queue in wanted if self._is_of_interest(self._windows[queue])]
        for first in range(0, len(wanted), _READINGS_AT_ONCE):
            chunk = wanted[first : first + _READINGS_AT_ONCE]
            await asyncio.gather(*(self._read(queue) for queue in chunk))
        await self._forget_published()
        return len(wanted)

    def _is_of_interest(self, window: _Window) -> bool:
        undone = window.stored + window.since * max(1, self._engines())
        return window.backlog is not None or 2 * undone > self._dispatches_max

    async def _read(self, queue: str) -> None:
        window = self._window(queue)
        # What is confirmed while the server answers may or may not be in its answer: it counts.
        known = window.confirmed
        states = await asyncio.gather(
            *(
                self._shell.bus.consumer_state(self._stream, subjects.queue_consumer(queue, level))
                for level in range(len(PRIORITIES))
            )
        )
        window.stored = sum(s.pending + s.ack_pending for s in states if s is not None)
        window.confirmed -= known
        self._shell.metrics.dispatches_undone.labels(queue=queue).set(window.stored)
        self._judge(queue)

    async def _forget_published(self) -> None:
        """Drop tokens that another engine has published, or whose step a loss has taken away."""
        before = self._shell.clock.now() - _DOUBTED_AFTER
        doubted = [
            (window, token)
            for window in self._windows.values()
            for token in _until(window.unconfirmed, before)
        ][:_DOUBTED_MAX]
        if not doubted:
            return
        waiting = await self._shell.store.admission.unpublished([token for _, token in doubted])
        for window, token in doubted:
            if token in waiting:
                window.unconfirmed.pop(token, None)
                window.unconfirmed[token] = self._shell.clock.now()
            else:
                window.unconfirmed.pop(token, None)

    def _window(self, queue: str) -> _Window:
        window = self._windows.get(queue)
        if window is None:
            window = self._windows[queue] = _Window()
        return window

    def _judge(self, queue: str) -> None:
        """Bring `full` and `exhausted` up to date; they are replaced, never changed."""
        none_left = self.room(queue) == 0
        self.exhausted = _with(self.exhausted, queue, 0 if none_left else None)
        self.full = _with(self.full, queue, 0 if none_left else self._window(queue).backlog)


def count_by_queue(effects: Iterable[object]) -> dict[str, int]:
    """How many new attempts the effects of a decision dispatch, by queue."""
    counts: dict[str, int] = {}
    for effect in effects:
        if isinstance(effect, DispatchStep) and effect.dispatch_no == 1:
            counts[effect.queue] = counts.get(effect.queue, 0) + 1
    return counts


def _until(tokens: Mapping[str, datetime], before: datetime) -> Sequence[str]:
    """The tokens from before this instant: they stand in order of time."""
    found: list[str] = []
    for token, at in tokens.items():
        if at > before or len(found) >= _DOUBTED_MAX:
            break
        found.append(token)
    return found


def _with(levels: Mapping[str, int], queue: str, level: int | None) -> Mapping[str, int]:
    if levels.get(queue) == level:
        return levels
    changed = {name: value for name, value in levels.items() if name != queue}
    if level is not None:
        changed[queue] = level
    return changed
