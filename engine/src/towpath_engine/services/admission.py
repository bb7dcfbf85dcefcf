"""Who may dispatch now: the pauses and full windows for every decision, and the second try for
what they have held back.

The pauses are cached; the transaction that writes a dispatch is refused when they have changed, and
decides again (`store.admission`). What is held waits in Postgres, by priority, then time. It is
tried again when its pause was lifted or its queue has room, by the one engine that owns the holder:
its name falls into one of the partitions, as a run's id does.
"""

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from towpath_engine.core.effects import Decision
from towpath_engine.core.events import Event, StepAdmitted
from towpath_engine.core.gate import Gate, Scope, holder, scope_of_holder
from towpath_engine.core.model import Cause
from towpath_engine.services.shell import Shell
from towpath_engine.services.windows import Windows, count_by_queue
from towpath_engine.services.work import Outcome, OutcomeKind, Work
from towpath_engine.store.admission import Backlog, HeldStep, Pauses
from towpath_protocol import subjects

_HOLDERS_MAX: Final = 4_096
"""Windows, workflows, and the rest of what holds something: so many of each are looked at. More
than there may be pauses (`pause_count_max`), so that something lifted is always among them."""
_TRIED_MAX: Final = 2_000
"""Steps that are in the pipeline to be tried again, of all holders together."""
_ONE_IN_TIME: Final = 10
"""One of so many is taken for its age alone, so that low priority never starves."""
WAKE_FOR_HELD: Final = b"[]"
"""A wake about no run: something that the owner of the partition admits may go by now."""
_NONE: Final[Mapping[str, int]] = {}
_BUSY_SECONDS: Final = 0.1
_IDLE_SECONDS: Final = 1.0


def partition_of_holder(held_by: str) -> int:
    """The partition whose owner tries again what this holds back; that of a queue is that of its
    window, too."""
    return subjects.partition_of(_queue_of(held_by) or held_by)


class Admitting:
    """What one batch may dispatch. Its dispatches count against their windows as soon as they are
    decided, and until the batch is over."""

    def __init__(
        self,
        windows: Windows,
        pauses: Pauses,
        paused: frozenset[str],
        *,
        on_held: Callable[[Collection[str]], None],
    ) -> None:
        self.pause_epoch = pauses.epoch
        self._on_held = on_held
        self._held: set[str] = set()
        self._windows = windows
        self._paused = paused
        self._taken: dict[str, int] = {}

    def through(self, event: Event, *, closed: Mapping[str, int] = _NONE) -> Event:
        """The event with the gate as it is now; queues that are `closed` (→ 0) take nothing. What
        was held before does not wait for itself."""
        windows = self._windows
        full = windows.exhausted if isinstance(event, StepAdmitted) else windows.full
        if closed:
            full = {**full, **closed}
        if not full and not self._paused:
            return event
        return replace(event, gate=Gate(paused=self._paused, full=full))

    def overfull(self, decision: Decision) -> Mapping[str, int]:
        """Queues that have no room for all that was decided (→ 0). The gate only says that there is
        some: what a decision may dispatch is known when it is made."""
        counts = count_by_queue(decision.effects)
        return {name: 0 for name, count in counts.items() if not self._windows.fits(name, count)}

    def count(self, decision: Decision) -> None:
        """The decision was taken over into the batch."""
        for queue, count in count_by_queue(decision.effects).items():
            self._taken[queue] = self._taken.get(queue, 0) + count
            self._windows.take(queue, count)
        for step in decision.changed:
            if step.held_by is not None and scope_of_holder(step.held_by) == Scope.WINDOW:
                self._held.add(step.held_by)

    def forget(self) -> None:
        """Nothing of what was counted will be written: the batch has failed, or decides again."""
        self._held.clear()
        taken, self._taken = self._taken, {}
        self._windows.give_back(taken)

    def spend(self) -> None:
        """What was counted is committed. Of a run that another engine was faster with it is not,
        but counts until the next reading all the same."""
        taken, self._taken = self._taken, {}
        self._windows.spend(taken)
        if self._held:
            self._on_held(self._held)


class Admission:
    """`admitting` for each batch, `run_once` to try again what was held back.

    `owns` says whether this engine owns a partition. `on_more` is called when there is more to be
    tried at once: the ticker must wake.
    """

    def __init__(
        self, shell: Shell, *, windows: Windows, owns: Callable[[int], bool], page: int
    ) -> None:
        self._shell = shell
        self._table = shell.store.admission
        self._windows = windows
        self._owns = owns
        self._page = page
        self._pauses = Pauses(epoch=-1)
        self._paused: frozenset[str] = frozenset()
        self._backlogs: Sequence[Backlog] = ()
        self._tried: dict[str, int] = {}
        self._looks = 0
        self._let_out: dict[str, int] = {}
        """How many steps each holder has let go since it began to hold any: of ten, one goes by
        its time alone."""
        self._told_until = 0.0
        self._told: dict[str, float] = {}
        """When the owner was told last of what a window holds, by the monotonic clock."""
        self.on_more: Callable[[], None] = lambda: None

    @contextmanager
    def admitting(self) -> Generator[Admitting]:
        """For the decisions of one batch, until it is committed or has failed with an exception."""
        admitting = Admitting(self._windows, self._pauses, self._paused, on_held=self._held)
        try:
            yield admitting
        except BaseException:
            admitting.forget()
            raise
        admitting.spend()

    async def reload(self) -> None:
        """Read the pauses. Raises StoreUnavailable."""
        self._pauses = await self._table.pauses()
        self._paused = frozenset(holder(one.scope, one.name) for one in self._pauses.pauses)

    async def catch_up(self, queues: Sequence[str]) -> None:
        """What an engine must know before it decides anything: the pauses, and how full every
        queue is. Raises StoreUnavailable."""
        await self.reload()
        await self._look_at_backlogs()
        await self._windows.refresh(queues, paused=self._paused)

    def pause_seconds(self) -> float:
        """How long the ticker pauses: not long while something could be admitted, or something
        waits here behind what another engine admits."""
        windows = self._windows
        if windows.is_tight or windows.has_backlog or any(map(self._may_go, self._backlogs)):
            return _BUSY_SECONDS
        if time.monotonic() < self._told_until:
            return _BUSY_SECONDS
        return _IDLE_SECONDS

    async def resumed(self, scope: Scope, name: str) -> None:
        """A pause was lifted through this engine: what it has held goes now, from whichever engine
        tries it again. Raises StoreUnavailable."""
        await self.reload()
        self._tell_owner(partition_of_holder(holder(scope, name)))

    def told(self) -> None:
        """Something may go, or was held just now: look at once, and again a moment later, since of
        all that is held in the meantime this is the only word."""
        self._told_until = time.monotonic() + 2 * _BUSY_SECONDS
        self.on_more()

    def _held(self, windows: Collection[str]) -> None:
        """Windows have held steps in a batch that was committed. Who lets them out may not look for
        a second, since nothing waited: it is told, ten times a second at most."""
        now = time.monotonic()
        for held_by in windows:
            if now >= self._told.get(held_by, 0.0) + _BUSY_SECONDS:
                self._told[held_by] = now
                self._tell_owner(partition_of_holder(held_by))

    def _tell_owner(self, partition: int) -> None:
        """Have the owner of the partition try again what is held there."""
        if self._owns(partition):
            self.told()
        else:
            subject = subjects.wake_subject(self._shell.prefix, partition)
            self._shell.bus.send_core(subject, WAKE_FOR_HELD)

    async def run_once(self) -> int:
        """Look at pauses, windows and what waits; try again what may go. Returns how many are
        tried. Raises StoreUnavailable."""
        await self.reload()
        await self._look_at_backlogs()
        await self._windows.refresh(paused=self._paused)
        tried = 0
        # Each time another one comes first: together they may want more than may be tried.
        self._looks += 1
        ready = [backlog for backlog in self._backlogs if self._may_go(backlog)]
        start = self._looks % len(ready) if ready else 0
        for backlog in [*ready[start:], *ready[:start]]:
            tried += await self._try_again(backlog.held_by)
        return tried

    async def _look_at_backlogs(self) -> None:
        self._backlogs = await self._table.backlogs(_HOLDERS_MAX)
        levels: dict[str, int] = {}
        for backlog in self._backlogs:
            queue = _queue_of(backlog.held_by)
            # What a paused queue holds does not stand in line: nothing goes to it anyhow.
            if queue is not None and holder(Scope.QUEUE, queue) not in self._paused:
                levels[queue] = min(backlog.level, levels.get(queue, backlog.level))
        self._windows.set_backlogs(levels)
        holding = {backlog.held_by for backlog in self._backlogs} | self._tried.keys()
        self._let_out = {name: n for name, n in self._let_out.items() if name in holding}

    def _may_go(self, backlog: Backlog) -> bool:
        """Whether this engine tries again what the holder holds, and it is of any use."""
        held_by = backlog.held_by
        queue = _queue_of(held_by)
        return (
            self._owns(partition_of_holder(held_by))
            and held_by not in self._paused
            and (queue is None or holder(Scope.QUEUE, queue) not in self._paused)
        )

    async def _try_again(self, held_by: str) -> int:
        """Hand a page to the pipeline, one at a time, so that no step is in it twice."""
        budget = min(self._page, _TRIED_MAX - sum(self._tried.values()))
        queue = _queue_of(held_by)
        if queue is not None:
            budget = min(budget, self._windows.room(queue))
        if budget <= 0 or held_by in self._tried:
            return 0
        gone = self._let_out.get(held_by, 0)
        by_time = (gone + budget) // _ONE_IN_TIME - gone // _ONE_IN_TIME
        rows = await self._table.held(held_by, by_level=budget, by_time=by_time)
        chosen = choose(rows, budget=budget, by_time=by_time)
        if chosen:
            self._tried[held_by] = len(chosen)
        for row in chosen:
            self._submit(held_by, row, is_last_page=len(chosen) < budget)
        return len(chosen)

    def _submit(self, held_by: str, row: HeldStep, *, is_last_page: bool) -> None:
        def settle(outcome: Outcome) -> None:
            self._tried[held_by] -= 1
            if outcome.kind is OutcomeKind.APPLIED:
                self._let_out[held_by] = self._let_out.get(held_by, 0) + 1
            if not self._tried[held_by]:
                del self._tried[held_by]
                # Behind the last page others may wait, held by the window since they came later.
                if not is_last_page or outcome.kind is OutcomeKind.APPLIED:
                    self.on_more()

        event = StepAdmitted(
            seed=self._shell.identity.new_seed(), cause=Cause(type="admitted"), path=row.path
        )
        self._shell.submit(Work(settle=settle, run_id=row.run_id, event=event))


def choose(rows: Sequence[HeldStep], *, budget: int, by_time: int) -> list[HeldStep]:
    """At most `budget` of the rows: the `by_time` oldest of all, whatever their level, then the
    most urgent. Where there is no room for all, it is not the oldest that stay behind again."""
    oldest = sorted(rows, key=_by_time)[: min(by_time, budget)]
    places = {(row.run_id, row.path) for row in oldest}
    others = [row for row in sorted(rows, key=_by_level) if (row.run_id, row.path) not in places]
    return [*oldest, *others[: budget - len(oldest)]]


def _by_time(row: HeldStep) -> tuple[object, ...]:
    return row.ready_at, row.run_id, row.path or ""


def _by_level(row: HeldStep) -> tuple[object, ...]:
    return row.level, *_by_time(row)


def _queue_of(held_by: str) -> str | None:
    """The queue that a holder is, or is the window of; None: it is something else."""
    scope, _, name = held_by.partition(":")
    return name if scope in {Scope.WINDOW.value, Scope.QUEUE.value} else None
