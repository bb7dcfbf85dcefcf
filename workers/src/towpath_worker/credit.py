"""Which consumer to ask for how much: pure, facts in and asks out.

A queue has one consumer a level, 0 (critical) to 3 (low). Laws:

- While a slot is free, every level is watched: either it was asked a moment ago and was empty, or a
  standing request waits there.
- Messages in hand never exceed the slots by more than one a level, and only in the moment between
  a delivery and the withdrawal of the other standing requests.
- A higher level goes first; every eighth turn begins at a lower one, so that none starves.

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
FAIRNESS_EVERY: Final = 8


class Probe(Struct, frozen=True):
    """Take up to `batch` messages that wait at `level` now."""

    level: int
    batch: int


class Stand(Struct, frozen=True):
    """Wait at `level` for up to `batch` messages."""

    level: int
    batch: int


class Withdraw(Struct, frozen=True):
    """Take back every standing request at `level`."""

    level: int


Ask = Probe | Stand | Withdraw


class _Mode(Enum):
    IDLE = auto()
    PROBING = auto()
    STANDING = auto()


class _Level(Struct):
    mode: _Mode = _Mode.IDLE
    credit: int = 0
    empty_until_ms: int = 0
    blocked_until_ms: int = 0


class CreditPlan:
    """The open requests of one worker. Every method is a fact; `plan` says what to ask next."""

    def __init__(self) -> None:
        self._levels = [_Level() for _ in range(LEVEL_COUNT)]
        self._busiest = NORMAL_LEVEL
        self._turns = 0

    def plan(self, *, free: int, now_ms: int) -> list[Ask]:
        """What to ask for, given `free` slots. Assumes that what it returns is done."""
        if free <= 0:
            return self._withdraw_all(now_ms)
        if any(level.mode is _Mode.PROBING for level in self._levels):
            # Its answer is a round trip away and decides what is left for the others.
            return []
        probe = self._next_probe(free, now_ms)
        asks = self._trim(free, now_ms)
        if probe is not None:
            return [*asks, probe]
        return [*asks, *self._stand(free, now_ms)]

    def received(self, level: int, *, pending: int, now_ms: int) -> None:
        """A message came from an open request; `pending` more wait in its consumer."""
        state = self._levels[level]
        state.credit = max(0, state.credit - 1)
        self._busiest = level
        if state.credit == 0:
            state.mode = _Mode.IDLE
        state.empty_until_ms = 0 if pending else now_ms + EMPTY_TRUSTED_MS

    def probing(self, level: int) -> bool:
        """True while a probe at `level` may still bring something."""
        return self._levels[level].mode is _Mode.PROBING

    def standing(self, level: int) -> bool:
        """True while a standing request at `level` may still bring something."""
        return self._levels[level].mode is _Mode.STANDING

    def probe_ended(self, level: int, *, now_ms: int) -> None:
        """A probe found nothing (more)."""
        state = self._levels[level]
        if state.mode is _Mode.PROBING:
            state.mode, state.credit = _Mode.IDLE, 0
        state.empty_until_ms = now_ms + EMPTY_TRUSTED_MS

    def standing_ended(self, level: int, *, unused: int) -> None:
        """A standing request ended with `unused` messages not delivered."""
        state = self._levels[level]
        if state.mode is _Mode.STANDING:
            state.credit = max(0, state.credit - unused)
            if state.credit == 0:
                state.mode = _Mode.IDLE

    def lost(self, level: int, *, until_ms: int) -> None:
        """The requests at `level` are gone, or refused: nothing is asked before `until_ms`."""
        state = self._levels[level]
        state.mode, state.credit = _Mode.IDLE, 0
        state.empty_until_ms = 0
        state.blocked_until_ms = until_ms

    def _withdraw_all(self, now_ms: int) -> list[Ask]:
        asks: list[Ask] = []
        for number, level in enumerate(self._levels):
            if level.mode is _Mode.STANDING:
                self._withdraw(level, now_ms)
                asks.append(Withdraw(number))
        return asks

    def _trim(self, free: int, now_ms: int) -> list[Ask]:
        """Deliveries at one level have used slots that another level was promised."""
        if sum(level.credit for level in self._levels) <= free + LEVEL_COUNT - 1:
            return []
        asks: list[Ask] = []
        for number, level in enumerate(self._levels):
            if level.mode is _Mode.STANDING and level.credit > 1:
                self._withdraw(level, now_ms)
                asks.append(Withdraw(number))
        return asks

    def _withdraw(self, level: _Level, now_ms: int) -> None:
        level.mode, level.credit = _Mode.IDLE, 0
        # The request was standing, so nothing was there a moment ago.
        level.empty_until_ms = now_ms + EMPTY_TRUSTED_MS

    def _next_probe(self, free: int, now_ms: int) -> Probe | None:
        fair = self._turns % FAIRNESS_EVERY == FAIRNESS_EVERY - 1
        for number in self._fair_order() if fair else range(LEVEL_COUNT):
            level = self._levels[number]
            if level.mode is not _Mode.IDLE:
                continue
            if now_ms < level.empty_until_ms or now_ms < level.blocked_until_ms:
                continue
            batch = max(1, free // LEVEL_COUNT) if fair else free
            level.mode, level.credit = _Mode.PROBING, batch
            self._turns += 1
            return Probe(number, batch)
        return None

    def _fair_order(self) -> list[int]:
        """The lower levels take turns at being first."""
        first = LEVEL_COUNT - 1 - (self._turns // FAIRNESS_EVERY) % (LEVEL_COUNT - 1)
        return [first, *(level for level in range(LEVEL_COUNT) if level != first)]

    def _stand(self, free: int, now_ms: int) -> list[Ask]:
        asks: list[Ask] = []
        for number, level in enumerate(self._levels):
            if now_ms < level.blocked_until_ms:
                continue
            wanted = free if number == self._busiest else 1
            # Topped up in halves, so that a busy level does not cost a request a message.
            if level.credit * 2 > wanted or level.credit >= wanted:
                continue
            asks.append(Stand(number, wanted - level.credit))
            level.mode, level.credit = _Mode.STANDING, wanted
        return asks
