"""Which consumer to ask for how much: pure, facts in and asks out.

A queue has one consumer a level, 0 (critical) to 3 (low). Laws:

- While a slot is free, every level is watched: either it was asked a moment ago and was empty, or a
  standing request waits there.
- A higher level goes first. A lower one is owed a slot for every fifteen messages that the others
  were given while it may have had some: of sixteen slots at least one goes to each lower level that
  has a backlog, however many more urgent messages there are.
- A backlog is only probed for as many messages as slots are free. Standing requests exceed the free
  slots by at most one a level; what comes for them after the last slot was taken waits for a slot.
- One request a level is open at a time.
- Standing requests are short and run out by themselves. Taking one back (by ending the interest in
  its inbox) loses a message that the server is just sending, until its ack wait is over.

A *probe* takes what is there now and ends at once; a *standing* request waits for the first
message. Probes find backlogs in order of priority, standing requests make an idle worker quick.
Times are milliseconds of a monotonic clock.
"""

from enum import Enum, auto
from typing import Final

from msgspec import Struct

LEVEL_COUNT: Final = 4
NORMAL_LEVEL: Final = 2
EMPTY_TRUSTED_MS: Final = 50
"""How long "it was empty" is believed: the most that a busy worker delays a higher level."""
SHARE: Final = 16
"""A level with a backlog gets at least one of so many slots."""


class Probe(Struct, frozen=True):
    """Take up to `batch` messages that wait at `level` now."""

    level: int
    batch: int


class Stand(Struct, frozen=True):
    """Wait at `level` for up to `batch` messages."""

    level: int
    batch: int


Ask = Probe | Stand


class _Mode(Enum):
    IDLE = auto()
    PROBING = auto()
    STANDING = auto()


class _Level(Struct):
    mode: _Mode = _Mode.IDLE
    credit: int = 0
    empty_until_ms: int = 0
    blocked_until_ms: int = 0
    passed_over: int = 0
    """Messages that other levels were given since this one was last seen empty, less what it got
    for them."""

    def may_be_asked(self, now_ms: int) -> bool:
        """Whether a probe could find something that no open request will bring."""
        at_rest = self.mode is _Mode.IDLE
        return at_rest and now_ms >= max(self.empty_until_ms, self.blocked_until_ms)


class CreditPlan:
    """The open requests of one worker. Every method is a fact; `plan` says what to ask next."""

    def __init__(self) -> None:
        self._levels = [_Level() for _ in range(LEVEL_COUNT)]
        self._busiest = NORMAL_LEVEL

    def plan(self, *, free: int, now_ms: int) -> list[Ask]:
        """What to ask for, given `free` slots. Assumes that what it returns is done."""
        if free <= 0:
            return []
        if any(level.mode is _Mode.PROBING for level in self._levels):
            # Its answer is a round trip away and decides what is left for the others.
            return []
        probe = self._next_probe(free, now_ms)
        if probe is not None:
            return [probe]
        return self._stand(free, now_ms)

    def received(self, level: int, *, pending: int, now_ms: int) -> None:
        """A message came from an open request; `pending` more wait in its consumer."""
        state = self._levels[level]
        state.credit = max(0, state.credit - 1)
        self._busiest = level
        if state.credit == 0:
            state.mode = _Mode.IDLE
        state.empty_until_ms = 0 if pending else now_ms + EMPTY_TRUSTED_MS
        state.passed_over = max(0, state.passed_over - (SHARE - 1)) if pending else 0
        for other in self._levels[1:]:
            if other is not state and now_ms >= other.empty_until_ms:
                other.passed_over += 1

    def idle(self, level: int) -> bool:
        """True when no request is open at `level`."""
        return self._levels[level].mode is _Mode.IDLE

    def ended(self, level: int, *, now_ms: int) -> None:
        """The request at `level` ended before it was filled: there is nothing (more)."""
        state = self._levels[level]
        state.mode, state.credit = _Mode.IDLE, 0
        state.empty_until_ms = now_ms + EMPTY_TRUSTED_MS
        state.passed_over = 0

    def lost(self, level: int, *, until_ms: int) -> None:
        """The request at `level` is gone, or refused: nothing is asked there before `until_ms`."""
        state = self._levels[level]
        state.mode, state.credit = _Mode.IDLE, 0
        state.empty_until_ms = 0
        state.blocked_until_ms = until_ms
        state.passed_over = 0

    def _next_probe(self, free: int, now_ms: int) -> Probe | None:
        asked = [
            (number, level)
            for number, level in enumerate(self._levels)
            if level.may_be_asked(now_ms)
        ]
        if not asked:
            return None
        # The one that waited longest for its due goes first, else the most urgent.
        number, level = max(asked, key=lambda entry: (_owed(entry[1]), -entry[0]))
        batch = min(free, _owed(level)) or free
        level.mode, level.credit = _Mode.PROBING, batch
        return Probe(number, batch)

    def _stand(self, free: int, now_ms: int) -> list[Ask]:
        asks: list[Ask] = []
        for number, level in enumerate(self._levels):
            if level.mode is not _Mode.IDLE or now_ms < level.blocked_until_ms:
                continue
            batch = free if number == self._busiest else 1
            level.mode, level.credit = _Mode.STANDING, batch
            asks.append(Stand(number, batch))
        return asks


def _owed(level: _Level) -> int:
    """Slots that are due to the level before any more urgent one is asked."""
    return level.passed_over // (SHARE - 1)
