"""The steps of a run as a mapping that a decision derives in the size of its changes.

A plain dictionary would be copied whole for every event. This one is a hash array mapped trie: a
version shares all with the one before but the path to each change, so that an event costs the same
however many steps are in memory. Beside the steps it keeps what an event asks of the open ones
without looking at them all: which has a token, which stand below a whole or an owner, which wait
for a signal, and how many of them wait.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeGuard

import immutables

from towpath_engine.core.chunks import Chunks, Row, with_row, without_row
from towpath_engine.core.model import Step
from towpath_engine.core.paths import place_of, upper_of
from towpath_engine.core.states import OPEN_STEP, PART, WHOLE, StepStatus, WaitReason

Names = tuple[str, ...]

_SIGNAL: Final = WaitReason.SIGNAL
_LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)


class Counts(NamedTuple):
    """How many steps are open, and how they stand.

    A leaf does something itself, or waits: every open step but branches, items and the wholes that
    are open because of these.
    """

    open: int = 0
    leaves: int = 0
    waiting: int = 0
    """Leaves that wait."""
    cancelling: int = 0

    def changed(self, before: "Counts", after: "Counts") -> "Counts":
        """The counts once a step that added `before` adds `after`."""
        if before is after:
            return self
        return Counts(
            self.open - before.open + after.open,
            self.leaves - before.leaves + after.leaves,
            self.waiting - before.waiting + after.waiting,
            self.cancelling - before.cancelling + after.cancelling,
        )


_NONE: Final = Counts()
_UPPER: Final = Counts(open=1)
_WORKING: Final = Counts(open=1, leaves=1)
_WAITING: Final = Counts(open=1, leaves=1, waiting=1)
_CANCELLING: Final = Counts(open=1, leaves=1, cancelling=1)


def is_leaf(step: Step) -> bool:
    """Whether an open step is open for its own sake, not because of what is below it."""
    if step.kind in PART:
        return False
    return step.kind not in WHOLE or step.status is not StepStatus.RUNNING


def counts_of(step: Step | None) -> Counts:
    """What one step adds to the counts."""
    if step is None or step.status not in OPEN_STEP:
        return _NONE
    if step.status is StepStatus.CANCELLING:
        return _CANCELLING
    if not is_leaf(step):
        return _UPPER
    return _WAITING if step.status is StepStatus.WAITING else _WORKING


def _waiting_of(step: Step | None) -> Row | None:
    """Since when the step waits for signals, and its path; None: it does not."""
    if step is None or step.waiting_for is not _SIGNAL:
        return None
    return (step.ready_at or _LONG_AGO, step.path)


def _names_of(step: Step | None) -> Names:
    """What a message names an open step by: the token of its attempt, its child run."""
    if step is None or step.status not in OPEN_STEP:
        return ()
    if step.token is not None:
        return (step.token,)
    if step.waiting_for is WaitReason.CHILD and step.child_run_id is not None:
        return (step.child_run_id,)
    return ()


def payload_bytes(step: Step) -> int:
    """Bytes of the users' JSON that the row holds."""
    size = 0 if step.input is None else len(step.input)
    if step.output is not None:
        size += len(step.output)
    if step.last_output is not None:
        size += len(step.last_output)
    if step.progress is not None:
        size += len(step.progress)
    if step.errors is not None:
        size += len(step.errors)
    return size


def _is_step_map(steps: Mapping[str, Step]) -> "TypeGuard[StepMap]":
    return isinstance(steps, StepMap)


class _Indexes(NamedTuple):
    named: "immutables.Map[str, str]"
    """Path by token or child run."""
    below: "immutables.Map[str, immutables.Map[str, None]]"
    """Open steps by the path of what they belong to."""
    waits: "immutables.Map[str, Chunks]"
    """The steps that wait for signals, the earliest first, by place."""
    payload_bytes: int


class StepMap(Mapping[str, Step]):
    """An immutable mapping of path to step. Build it with `of`, derive it with `derive`."""

    __slots__ = ("_indexes", "_steps", "counts", "find", "open", "payload_bytes")

    def __init__(
        self,
        steps: "immutables.Map[str, Step]",
        opened: "immutables.Map[str, Step]",
        indexes: _Indexes,
        counts: Counts,
    ) -> None:
        self._steps = steps
        self._indexes = indexes
        self.find: Callable[[str], Step | None] = steps.get
        """The step, or None; quicker than `get` for one that is absent."""
        self.open: Mapping[str, Step] = opened
        """The steps that are neither settled nor pending, by path."""
        self.counts = counts
        self.payload_bytes = indexes.payload_bytes
        """Of all steps together: what the users' JSON takes of the memory."""

    @classmethod
    def of(cls, steps: Mapping[str, Step]) -> "StepMap":
        """The same mapping as a StepMap: itself when it already is one."""
        if _is_step_map(steps):
            return steps
        return _EMPTY.derive(steps.values())

    def derive(self, changed: Iterable[Step], forgotten: Iterable[str] = ()) -> "StepMap":
        """The mapping with `changed` put in and the paths `forgotten` taken out."""
        edit = _Edit(self._steps, self.open, self._indexes, self.counts)
        for step in changed:
            edit.put(step.path, step)
        for path in forgotten:
            edit.put(path, None)
        return StepMap(*edit.finish())

    def of_token(self, token: str) -> Step | None:
        """The open step whose live attempt has this token."""
        step = self._named(token)
        return step if step is not None and step.token == token else None

    def of_child(self, run_id: str) -> Step | None:
        """The open step that waits for this child run."""
        step = self._named(run_id)
        return step if step is not None and step.child_run_id == run_id else None

    def _named(self, name: str) -> Step | None:
        path = self._indexes.named.get(name)
        return None if path is None else self._steps[path]

    def below(self, path: str) -> Mapping[str, None]:
        """The paths of the open steps right below an owner (of the steps of its list) or a whole
        (of its parts)."""
        return self._indexes.below.get(path, _NO_PATHS)

    def waits(self, place: str) -> Iterable[str]:
        """The paths of the steps of this place that wait for signals: the one that has waited
        longest comes first, of those that began at the same instant the first path."""
        return (path for chunk in self._indexes.waits.get(place, ()) for _, path in chunk)

    def __getitem__(self, path: str) -> Step:
        return self._steps[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __repr__(self) -> str:
        return f"StepMap({dict(self)!r})"


class _Edit:
    """A StepMap while it is derived."""

    def __init__(
        self,
        steps: "immutables.Map[str, Step]",
        opened: Mapping[str, Step],
        indexes: _Indexes,
        counts: Counts,
    ) -> None:
        assert isinstance(opened, immutables.Map)
        self._steps = steps.mutate()
        self._open = opened.mutate()
        self._named = indexes.named.mutate()
        self._below = indexes.below
        self._waits = indexes.waits
        self._counts = counts
        self._bytes = indexes.payload_bytes
        self._opened: dict[str, dict[str, bool]] = {}
        self._waiting: dict[str, dict[Row, bool]] = {}

    def put(self, path: str, step: Step | None) -> None:
        """Put the step in, or take what is at the path out."""
        before = self._steps.get(path)
        if step is not None:
            self._steps[path] = step
            self._bytes += payload_bytes(step)
        elif before is not None:
            del self._steps[path]
        if before is not None:
            self._bytes -= payload_bytes(before)
        was_open = before is not None and before.status in OPEN_STEP
        is_open = step is not None and step.status in OPEN_STEP
        if not was_open and not is_open:
            return
        if step is not None and is_open:
            self._open[path] = step
        else:
            del self._open[path]
        self._counts = self._counts.changed(counts_of(before), counts_of(step))
        if was_open != is_open:
            self._opened.setdefault(upper_of(path), {})[path] = is_open
        self._name(path, _names_of(before), _names_of(step))
        waited, waits = _waiting_of(before), _waiting_of(step)
        if waited is not waits and waited != waits:
            at_place = self._waiting.setdefault(place_of(path), {})
            if waited is not None:
                at_place[waited] = False
            if waits is not None:
                at_place[waits] = True

    def _name(self, path: str, before: Names, after: Names) -> None:
        if before == after:
            return
        for name in before:
            if self._named.get(name) == path:
                del self._named[name]
        for name in after:
            self._named[name] = path

    def finish(
        self,
    ) -> "tuple[immutables.Map[str, Step], immutables.Map[str, Step], _Indexes, Counts]":
        """What a StepMap is made of."""
        below, waits = self._below, self._waits
        for upper, changes in self._opened.items():
            paths = below.get(upper, _NO_PATHS).mutate()
            for path, is_open in changes.items():
                if is_open:
                    paths[path] = None
                else:
                    paths.pop(path, None)
            found = paths.finish()
            if found:
                below = below.set(upper, found)
            elif upper in below:
                below = below.delete(upper)
        for place, changes in self._waiting.items():
            waiting_now = waits.get(place, ())
            for one, is_waiting in changes.items():
                waiting_now = (with_row if is_waiting else without_row)(waiting_now, one)
            if waiting_now:
                waits = waits.set(place, waiting_now)
            elif place in waits:
                waits = waits.delete(place)
        indexes = _Indexes(
            named=self._named.finish(), below=below, waits=waits, payload_bytes=self._bytes
        )
        return self._steps.finish(), self._open.finish(), indexes, self._counts


_NO_PATHS: "immutables.Map[str, None]" = immutables.Map()
_NO_STEPS: "immutables.Map[str, Step]" = immutables.Map()
_EMPTY = StepMap(
    _NO_STEPS,
    _NO_STEPS,
    _Indexes(
        named=immutables.Map(), below=immutables.Map(), waits=immutables.Map(), payload_bytes=0
    ),
    _NONE,
)
