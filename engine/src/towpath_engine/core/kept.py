"""The signals that a run keeps, with what must be known of them without looking at them all."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Self

import immutables

from towpath_engine.core.model import KeptSignal


class Kept(tuple[KeptSignal, ...]):
    """Kept signals in order of their numbers: a tuple that knows its size and its names.

    Build it with `of`, derive it with `plus` and `without`.
    """

    size: int
    """Bytes of the payloads together."""
    _counts: "immutables.Map[str, int]"
    """How many have this name."""
    _fits: dict[tuple[str, str], int]
    """How many of a name fit the wait at a place, as far as it was asked (place, name)."""

    @classmethod
    def of(cls, signals: tuple[KeptSignal, ...]) -> "Kept":
        """The same signals as `Kept`: themselves when they already are. Costs as much as there
        are when a run was just loaded."""
        if isinstance(signals, Kept):
            return signals
        counts: dict[str, int] = {}
        for signal in signals:
            counts[signal.name] = counts.get(signal.name, 0) + 1
        size = sum(len(signal.payload) for signal in signals)
        return cls._make(signals, size, immutables.Map(counts), {})

    @classmethod
    def _make(
        cls,
        signals: Iterable[KeptSignal],
        size: int,
        counts: "immutables.Map[str, int]",
        fits: dict[tuple[str, str], int],
    ) -> Self:
        made = cls(signals)
        made.size, made._counts, made._fits = size, counts, fits
        return made

    def plus(self, signal: KeptSignal, fits: Mapping[str, bool]) -> "Kept":
        """With the newest signal, of which is known at which places it `fits` the wait."""
        name = signal.name
        known: dict[tuple[str, str], int] = {}
        for (place, asked), count in self._fits.items():
            if asked != name:
                known[place, asked] = count
            elif place in fits:
                known[place, asked] = count + fits[place]
        counts = self._counts.set(name, self.count_of(name) + 1)
        return self._make((*self, signal), self.size + len(signal.payload), counts, known)

    def without(self, gone: Collection[KeptSignal]) -> "Kept":
        """Without these, which are there."""
        if not gone:
            return self
        counts = self._counts.mutate()
        for signal in gone:
            counts[signal.name] -= 1
            if not counts[signal.name]:
                del counts[signal.name]
        names = {signal.name for signal in gone}
        known = {key: count for key, count in self._fits.items() if key[1] not in names}
        size = self.size - sum(len(signal.payload) for signal in gone)
        return self._make(self._left(gone), size, counts.finish(), known)

    def _left(self, gone: Collection[KeptSignal]) -> tuple[KeptSignal, ...]:
        if len(gone) == 1:
            (one,) = gone
            at = bisect_left(self, one.number, key=lambda signal: signal.number)
            return (*self[:at], *self[at + 1 :])
        numbers = {signal.number for signal in gone}
        return tuple(signal for signal in self if signal.number not in numbers)

    def count_of(self, name: str) -> int:
        """How many have this name."""
        return self._counts.get(name, 0)

    def count_fitting(self, place: str, name: str, fits: Callable[[KeptSignal], bool]) -> int:
        """How many of a name fit the wait at this place. `fits` is asked of each once, and not
        again while none of them is taken."""
        if not self.count_of(name):
            return 0
        found = self._fits.get((place, name))
        if found is None:
            found = sum(fits(signal) for signal in self if signal.name == name)
            self._fits[place, name] = found
        return found
