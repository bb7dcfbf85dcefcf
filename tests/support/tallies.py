"""How often each change happened in each status, over many made-up histories."""

from collections import Counter

from msgspec import Struct, field

from tests.support.aims import Aim, aim_of, run_aims, step_aims
from towpath_engine.core.effects import Decision
from towpath_engine.core.events import Event
from towpath_engine.core.model import Run
from towpath_engine.core.transitions import RUN_TRANSITIONS, STEP_TRANSITIONS

Pair = tuple[str, str]
"""A status and a change that happened in it."""


class Tally(Struct):
    """What histories have covered."""

    histories: int = 0
    run_pairs: Counter[Pair] = field(default_factory=Counter[Pair])
    step_pairs: Counter[Pair] = field(default_factory=Counter[Pair])
    events: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    aims: Counter[Aim] = field(default_factory=Counter[Aim])
    """By the state of a row and the event: how often such an event found a row in that state."""
    ends: Counter[Pair] = field(default_factory=Counter[Pair])
    """By status and what became of the undoing."""
    loads: Counter[str] = field(default_factory=Counter[str])
    """By event: how often a decision asked for rows that were not loaded."""
    dispatches: int = 0
    transitions: int = 0

    def add(self, run: Run, event: Event, decision: Decision) -> None:
        """Count a decision."""
        self.events[(run.status.value, type(event).__name__, decision.verdict.value)] += 1
        aim = aim_of(run, event)
        if aim is not None:
            self.aims[aim] += 1
        for transition in decision.transitions:
            pairs = self.run_pairs if transition.step is None else self.step_pairs
            pairs[(transition.before or "", transition.what)] += 1
        self.transitions += len(decision.transitions)

    def end(self, run: Run) -> None:
        """Count a history that has come to its end."""
        self.histories += 1
        self.ends[(run.status.value, "" if run.compensation is None else run.compensation)] += 1

    def join(self, other: "Tally") -> None:
        """Add what another process has counted."""
        self.histories += other.histories
        self.dispatches += other.dispatches
        self.transitions += other.transitions
        self.run_pairs.update(other.run_pairs)
        self.step_pairs.update(other.step_pairs)
        self.events.update(other.events)
        self.aims.update(other.aims)
        self.ends.update(other.ends)
        self.loads.update(other.loads)

    def never_seen(self) -> list[Pair]:
        """The legal pairs of the tables that no history has shown."""
        return sorted(legal_pairs() - set(self.run_pairs) - set(self.step_pairs))

    def never_met(self) -> list[Aim]:
        """The events that no history has shown in a state of a run or row in which they may come,
        whatever becomes of them."""
        runs = {(status, event) for status, event, _ in self.events}
        return sorted((run_aims() - runs) | (step_aims() - set(self.aims)))

    def lines(self) -> list[str]:
        """The report."""
        ends = ", ".join(
            f"{count} {' '.join(filter(None, end))}" for end, count in sorted(self.ends.items())
        )
        lines = [f"{self.histories} histories, {self.transitions} transitions: {ends}"]
        for title, counts in (("run", self.run_pairs), ("step", self.step_pairs)):
            lines += [f"  {title} {a:<20} {b:<26} {n}" for (a, b), n in sorted(counts.items())]
        lines += [f"  {a:<14} {b:<18} {c:<8} {n}" for (a, b, c), n in sorted(self.events.items())]
        lines += [f"  row {a:<28} {b:<18} {n}" for (a, b), n in sorted(self.aims.items())]
        lines += [f"  rows asked for at {a:<18} {n}" for a, n in sorted(self.loads.items())]
        return lines


def legal_pairs() -> set[Pair]:
    """(status, change) of everything that the tables allow."""
    runs = {(a.value, change.value) for a, row in RUN_TRANSITIONS.items() for change in row}
    steps = {(a.value, change.value) for a, row in STEP_TRANSITIONS.items() for change in row}
    return runs | steps
