"""How many dispatches of each queue are undone, and from which level on it takes no more.

At most `dispatches_max` dispatches of a queue are undone, so that a pool that is away fills the
stream for nobody else. What is undone Postgres knows, whatever became of the messages; the stream
is only asked whether it holds more than that (what was cancelled and could not be purged). Between
two readings an engine counts what it dispatches itself. Where steps of a queue wait in Postgres, no
other of the same or a lower urgency goes before them.

The bound W is exact: a decision whose dispatches do not all fit is made again with the queue
closed, and its steps wait. Several engines do not ask each other, and yet do not exceed W together.
Each of n dispatches on its own only while less than half of the window is used, and of that half no
more than its share, W/2n: so what all may have dispatched that nobody has seen yet fits into the
other half. Beyond that steps wait, and one engine lets them out, leaving room for the shares of the
others. What is undone and what waits are read as of the same instant: who sees room has seen who
waits for it. Only while an engine does not know of another one that has just joined (a
`lease_tick_seconds`), W may be exceeded by the share of that one.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.core.effects import DispatchStep, RevokeToken
from towpath_engine.core.gate import Scope, holder
from towpath_engine.services.shell import Shell
from towpath_engine.store.admission import QueueFacts
from towpath_protocol import subjects
from towpath_protocol.priorities import PRIORITIES

_READINGS_AT_ONCE: Final = 8
"""Queues whose consumers are asked about at the same time: four requests each."""
_STREAM_SECONDS: Final = 10.0
"""So often the stream is looked at although Postgres knows of few dispatches."""
_REST_SECONDS_MIN: Final = 0.1
_REST_SECONDS_MAX: Final = 1.0
"""How long a full queue is left alone, unless one of its dispatches ends here."""
_ASKED_AFTER: Final = 256
"""Dispatches since a reading before another one is asked for out of turn."""
_ENDED_SHARE: Final = 8
"""The same when one in so many of a window has ended: a reading costs as much as the window has."""


class _Window:
    """One queue. `undone` was read, the rest is since."""

    __slots__ = (
        "asked", "backlog", "committed", "deciding", "ended", "enough", "rest_seconds",
        "rest_until", "stored", "stored_until", "undone",
    )  # fmt: skip

    def __init__(self) -> None:
        self.undone = 0
        """As Postgres had it, or the stream if that held more."""
        self.deciding = 0
        """In transactions that have not committed yet."""
        self.committed = 0
        """Dispatched by this engine since the reading began; it may be among what was read."""
        self.backlog: int | None = None
        """The most urgent level of what waits in Postgres; None: nothing waits."""
        self.stored = 0
        self.stored_until = 0.0
        """What the stream had, and when it is to be looked at again, by the monotonic clock."""
        self.rest_seconds = 0.0
        self.rest_until = 0.0
        self.asked = False
        self.ended = 0
        """Dispatches that have ended here since the reading."""
        self.enough = 0
        """As long as less is used, nothing has to be judged anew: each dispatch asks."""

    @property
    def used(self) -> int:
        return self.deciding + self.committed

    def rest(self, now: float) -> None:
        """The queue is full: look again after a while, a longer one each time."""
        seconds = min(max(_REST_SECONDS_MIN, 2 * self.rest_seconds), _REST_SECONDS_MAX)
        self.rest_seconds, self.rest_until = seconds, now + seconds

    def wake(self) -> None:
        """It need not be full any more."""
        self.rest_seconds = self.rest_until = 0.0


class Windows:
    """`full` and `exhausted` are read by each decision; `refresh` asks the servers.

    `engines` is how many engines share a queue, `tops_up` says whether this one lets out what waits
    for a queue. `on_low` is called when much was dispatched, or has ended, since the last
    reading: `refresh` should come soon.
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
        self._sharing = 1
        self.on_low: Callable[[], None] = lambda: None
        self.full: Mapping[str, int] = {}
        """Queue → from which level on it takes nothing that is only now ready."""
        self.exhausted: Mapping[str, int] = {}
        """Queue → 0, where it takes nothing at all."""

    def room(self, queue: str) -> int:
        """How many dispatches this engine may still hand to the queue; never negative."""
        window = self._windows.get(queue) or _Window()
        engines = max(1, self._engines())
        whole = self._dispatches_max
        # What each of several engines may have dispatched at most without having been seen.
        share = 0 if engines == 1 else whole // (2 * engines)
        if window.backlog is not None:
            if not self._tops_up(queue):
                return 0  # what waits goes first, and another engine takes it
            free = whole - (engines - 1) * share - window.undone
        elif engines == 1:
            free = whole - window.undone
        else:
            free = min(share, (whole // 2 - window.undone) // engines)
        return max(0, free - window.used)

    @property
    def has_backlog(self) -> bool:
        """Whether something waits for a queue, so that what comes now waits behind it."""
        return bool(self._waiting)

    @property
    def is_tight(self) -> bool:
        """Whether some queue that this engine tops up is so full that steps wait for a reading."""
        if self._engines() <= 1:
            return False
        return any(
            2 * (window.undone + window.used) > self._dispatches_max and self._tops_up(queue)
            for queue, window in self._windows.items()
        )

    # What happens to dispatches

    def fits(self, queue: str, count: int) -> bool:
        """Whether the queue has room for so many dispatches of one decision."""
        return count <= self.room(queue)

    def take(self, queue: str, count: int) -> None:
        """Dispatches were decided; they count from now on."""
        window = self._window(queue)
        window.deciding += count
        if window.used < window.enough:
            return
        if window.backlog is None and not window.asked and window.used >= _ASKED_AFTER:
            window.asked = True
            self.on_low()
        self._judge(queue)

    def spend(self, taken: Mapping[str, int]) -> None:
        """The transaction that had decided these has committed."""
        for queue, count in taken.items():
            window = self._window(queue)
            window.deciding -= count
            window.committed += count

    def give_back(self, taken: Mapping[str, int]) -> None:
        """The transaction that had decided these is over, and has written none of them."""
        for queue, count in taken.items():
            self._window(queue).deciding -= count
            if queue in self.exhausted:
                self._judge(queue)

    def ended(self, tokens: Iterable[RevokeToken]) -> None:
        """Dispatches have ended in a commit of this engine: full queues are worth a look, out of
        turn where much of the window is free for what waits."""
        for revoked in tokens:
            window = self._windows.get(revoked.queue)
            if window is None:
                continue
            window.wake()
            window.ended += 1
            enough = window.ended * _ENDED_SHARE >= self._dispatches_max
            if enough and window.backlog is not None and not window.asked:
                window.asked = True
                self.on_low()

    # What the servers say

    def set_backlogs(self, levels: Mapping[str, int]) -> None:
        """What waits in Postgres: queue → its most urgent level. Others have nothing waiting.

        To be told a tenth of a second later while anything waits: the engine that tops up may have
        let it out, and what comes here must not wait behind nothing.
        """
        for queue in levels.keys() | self._waiting:
            self._window(queue).backlog = levels.get(queue)
            self._judge(queue)
        self._waiting = set(levels)

    async def refresh(
        self, queues: Iterable[str] | None = None, *, paused: Collection[str] = ()
    ) -> int:
        """Read these queues, or those that are in use or have something waiting that this engine
        may let out; returns how many were read. `paused` are holders: what a paused queue holds
        does not stand in line.

        Raises StoreUnavailable. NATS may be away: what is undone is known without it.
        """
        self._share_anew()
        now = time.monotonic()
        if queues is None:
            wanted = [name for name in sorted(self._windows) if self._is_of_interest(name, now)]
        else:
            wanted = sorted(queues)
        if not wanted:
            return 0
        # What commits while the servers answer may or may not be in their answers: it counts.
        known = {queue: self._window(queue).committed for queue in wanted}
        facts = await self._shell.store.admission.queues(wanted, self._dispatches_max)
        await self._look_at_stream(
            [name for name in wanted if self._is_due(name, facts[name], now)]
        )
        for queue in wanted:
            window = self._window(queue)
            window.undone = max(facts[queue].undone, window.stored)
            window.committed -= known[queue]
            window.backlog = _backlog(queue, facts[queue], paused)
            window.asked, window.ended = False, 0
            if window.backlog is not None:
                self._waiting.add(queue)
            self._judge(queue)
            if self.room(queue):
                window.wake()
            else:
                window.rest(now)
            self._shell.metrics.dispatches_undone.labels(queue=queue).set(window.undone)
        return len(wanted)

    def _share_anew(self) -> None:
        """Engines have come or gone: the share of every queue is another one."""
        sharing = max(1, self._engines())
        if sharing != self._sharing:
            self._sharing = sharing
            for queue in self._windows:
                self._judge(queue)

    def _is_of_interest(self, queue: str, now: float) -> bool:
        window = self._windows[queue]
        if now < window.rest_until:
            return False
        if window.backlog is not None:
            return self._tops_up(queue)
        return bool(window.undone or window.used)

    def _is_due(self, queue: str, facts: QueueFacts, now: float) -> bool:
        """Whether the stream may hold more than Postgres knows of, and it matters."""
        window = self._window(queue)
        if facts.undone >= self._dispatches_max or not self._shell.bus.connected:
            return False
        half_full = 2 * max(facts.undone, window.stored) > self._dispatches_max
        waits = facts.window_level is not None or facts.pause_level is not None
        return half_full or waits or now >= window.stored_until

    async def _look_at_stream(self, queues: Sequence[str]) -> None:
        until = time.monotonic() + _STREAM_SECONDS
        for first in range(0, len(queues), _READINGS_AT_ONCE):
            chunk = queues[first : first + _READINGS_AT_ONCE]
            try:
                counts = await asyncio.gather(*(self._count_stored(queue) for queue in chunk))
            except BusUnavailable:
                return  # what was last seen has to do
            for queue, count in zip(chunk, counts, strict=True):
                window = self._window(queue)
                window.stored, window.stored_until = count, until

    async def _count_stored(self, queue: str) -> int:
        states = await asyncio.gather(
            *(
                self._shell.bus.consumer_state(self._stream, subjects.queue_consumer(queue, level))
                for level in range(len(PRIORITIES))
            )
        )
        return sum(state.pending + state.ack_pending for state in states if state is not None)

    def _window(self, queue: str) -> _Window:
        window = self._windows.get(queue)
        if window is None:
            window = self._windows[queue] = _Window()
        return window

    def _judge(self, queue: str) -> None:
        """Bring `full` and `exhausted` up to date; they are replaced, never changed."""
        window = self._window(queue)
        room = self.room(queue)
        # Where something waits, who may dispatch hangs on more than on numbers.
        until_asked = room if window.asked else room // 2
        window.enough = window.used + until_asked if window.backlog is None else 0
        self.exhausted = _with(self.exhausted, queue, None if room else 0)
        self.full = _with(self.full, queue, window.backlog if room else 0)


def count_by_queue(effects: Iterable[object]) -> dict[str, int]:
    """How many new attempts the effects of a decision dispatch, by queue."""
    counts: dict[str, int] = {}
    for effect in effects:
        if isinstance(effect, DispatchStep) and effect.dispatch_no == 1:
            counts[effect.queue] = counts.get(effect.queue, 0) + 1
    return counts


def _backlog(queue: str, facts: QueueFacts, paused: Collection[str]) -> int | None:
    levels = [facts.window_level]
    if holder(Scope.QUEUE, queue) not in paused:
        levels.append(facts.pause_level)
    return min((level for level in levels if level is not None), default=None)


def _with(levels: Mapping[str, int], queue: str, level: int | None) -> Mapping[str, int]:
    if levels.get(queue) == level:
        return levels
    changed = {name: value for name, value in levels.items() if name != queue}
    if level is not None:
        changed[queue] = level
    return changed
