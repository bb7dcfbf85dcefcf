"""What `save` writes beside the rows themselves, derived from the runs: pure, for both stores.

A step that is open has a row in open_step. A step or run that waits for an instant has a row in
timer. A step (or a run that may not begin) that something other than the run's own pause holds back
has a row in ready_step. All follow from the saved structs; with `SavedRun.before` at hand, rows
that would not change are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from towpath_engine.core.gate import HELD_BY_RUN
from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import OPEN_STEP, SETTLED_RUN, SETTLED_STEP, StepStatus, WaitReason
from towpath_engine.store.errors import StoreRejected
from towpath_engine.store.interface import SavedRun
from towpath_engine.store.leases import partition_of_run

RUN_PATH: Final = ""
"""Stands for the run itself where a timer's path is stored."""


class OpenStep(Struct, frozen=True, kw_only=True):
    """A row of open_step. `status` is where its attempt stands: Step.stage."""

    run_id: str
    path: str
    status: str
    token: str | None
    queue: str | None
    level: int
    dispatched_at: datetime | None
    reported: bool
    """True when a worker has said that it runs the attempt."""
    signal: str | None
    """The awaited signals, while they are awaited."""
    child_run_id: str | None = None
    """The awaited child run, while it is awaited."""
    cancelling: bool = False
    """Nothing follows on its attempt, which nobody needs to get any more."""


class Timer(Struct, frozen=True, kw_only=True):
    """A row of timer, and the run's last transition: an instant up to then has passed."""

    run_id: str
    path: str
    due_at: datetime
    preemptible: bool
    last_at: datetime
    partition: int
    """The run's, whose owner sweeps it."""


class ReadyStep(Struct, frozen=True, kw_only=True):
    """A row of ready_step; with an empty path it is about the beginning of the run."""

    run_id: str
    path: str
    held_by: str
    queue: str | None
    level: int
    ready_at: datetime


class Derived(Struct, frozen=True, kw_only=True):
    """Rows to write and (run id, path) pairs to delete."""

    opened: Sequence[OpenStep]
    closed: Sequence[tuple[str, str]]
    armed: Sequence[Timer]
    disarmed: Sequence[tuple[str, str]]
    held: Sequence[ReadyStep]
    admitted: Sequence[tuple[str, str]]
    settled_runs: Sequence[Run]


def derive(saved: Sequence[SavedRun]) -> Derived:
    """The rows that go with these runs."""
    opened: list[OpenStep] = []
    closed: list[tuple[str, str]] = []
    armed: list[Timer] = []
    disarmed: list[tuple[str, str]] = []
    for item in saved:
        for step, before in _changes(item):
            row = _open_step(item.run, step)
            if row is None:
                if item.before is None or (before is not None and not _settled(before)):
                    closed.append((item.run.id, step.path))
            elif before is None or row != _open_step(item.run, before):
                opened.append(row)
        for path, timer, had in _timers(item):
            if timer is not None:
                if had is None or not _covers(had, timer):
                    armed.append(timer)
            elif item.run.status not in SETTLED_RUN and (item.before is None or had is not None):
                disarmed.append((item.run.id, path))
    held, admitted = _held(saved)
    return Derived(
        opened=opened,
        closed=closed,
        armed=armed,
        disarmed=disarmed,
        held=held,
        admitted=admitted,
        settled_runs=[item.run for item in saved if item.run.status in SETTLED_RUN],
    )


def _changes(item: SavedRun) -> Iterator[tuple[Step, Step | None]]:
    known: Mapping[str, Step] = {}
    if item.before is not None:
        known = item.before.steps
    for step in item.steps:
        yield step, known.get(step.path)


def _settled(step: Step) -> bool:
    return step.status in SETTLED_STEP


def _open_step(run: Run, step: Step) -> OpenStep | None:
    if step.status not in OPEN_STEP:
        return None
    return OpenStep(
        run_id=run.id,
        path=step.path,
        status=step.stage.value,
        token=step.token,
        queue=step.queue,
        level=run.priority,
        dispatched_at=step.dispatched_at,
        reported=step.worker_id is not None,
        signal=step.signal if step.waiting_for is WaitReason.SIGNAL else None,
        child_run_id=step.child_run_id if step.waiting_for is WaitReason.CHILD else None,
        cancelling=step.status is StepStatus.CANCELLING,
    )


def _held(saved: Sequence[SavedRun]) -> tuple[list[ReadyStep], list[tuple[str, str]]]:
    """Rows of ready_step to write, and those to delete."""
    held: list[ReadyStep] = []
    admitted: list[tuple[str, str]] = []
    for item in saved:
        if _holds_nothing(item):
            continue
        for path, ready, was_ready in _ready_steps(item):
            if ready is not None:
                if ready != was_ready:
                    held.append(ready)
            elif was_ready is not None or _may_be_ready(item):
                admitted.append((item.run.id, path))
    return held, admitted


def _holds_nothing(item: SavedRun) -> bool:
    """Whether nothing of the run is or was held back: so it is with nearly every event."""
    if item.run.held_by is not None or _may_be_ready(item):
        return False
    if item.before is not None and item.before.held_by is not None:
        return False
    for step, was in _changes(item):
        if step.held_by is not None or (was is not None and was.held_by is not None):
            return False
    return True


def _may_be_ready(item: SavedRun) -> bool:
    """Whether nobody says what the steps of an existing run were before."""
    return item.before is None and item.expected_version is not None


def _ready_steps(item: SavedRun) -> Iterator[tuple[str, ReadyStep | None, ReadyStep | None]]:
    """(path, row now, row before) of the run and of its changed steps."""
    run, before = item.run, item.before
    yield RUN_PATH, _ready_run(run), None if before is None else _ready_run(before)
    for step, was in _changes(item):
        yield step.path, _ready_step(run, step), None if was is None else _ready_step(run, was)


def _ready_run(run: Run) -> ReadyStep | None:
    if run.held_by is None or run.held_by == HELD_BY_RUN:
        return None
    return ReadyStep(
        run_id=run.id,
        path=RUN_PATH,
        held_by=run.held_by,
        queue=None,
        level=run.priority,
        ready_at=run.created_at,
    )


def _ready_step(run: Run, step: Step) -> ReadyStep | None:
    if step.held_by is None or step.held_by == HELD_BY_RUN:
        return None
    return ReadyStep(
        run_id=run.id,
        path=step.path,
        held_by=step.held_by,
        queue=step.queue,
        level=run.priority,
        ready_at=run.created_at if step.ready_at is None else step.ready_at,
    )


def _timers(item: SavedRun) -> Iterator[tuple[str, Timer | None, Timer | None]]:
    """(path, timer now, timer before) of the run and of its changed steps."""
    run, before = item.run, item.before
    yield RUN_PATH, run_timer(run, run), None if before is None else run_timer(before, run)
    for step, was in _changes(item):
        yield step.path, step_timer(run, step), None if was is None else step_timer(run, was)


def run_timer(run: Run, now: Run) -> Timer | None:
    """The timer of `run` itself, as seen by the decision that led to `now`; None without one."""
    due_at = None if run.status in SETTLED_RUN else run.due_at
    if due_at is None:
        return None
    # No report and no signal makes a start, or the rest of a split decision, unnecessary.
    preemptible = run.cursor is None and run.start_at is None
    return _timer(now, RUN_PATH, due_at, preemptible=preemptible)


def step_timer(run: Run, step: Step) -> Timer | None:
    """The timer of a step of `run`; None without one."""
    due_at = None if _settled(step) or run.status in SETTLED_RUN else step.due_at
    if due_at is None:
        return None
    # A pure wait has no live attempt and no signal that could end it first.
    waits = step.waiting_for is not None and step.waiting_for is not WaitReason.SIGNAL
    return _timer(run, step.path, due_at, preemptible=not (waits and due_at == step.wake_at))


def _timer(run: Run, path: str, due_at: datetime, *, preemptible: bool) -> Timer:
    return Timer(
        run_id=run.id,
        path=path,
        due_at=due_at,
        preemptible=preemptible,
        last_at=run.last_at if run.last_at is not None else run.created_at,
        partition=partition_of_run(run.id),
    )


def _covers(had: Timer, timer: Timer) -> bool:
    """True when the stored row, which is no later than `had`, will do: it fires early and is armed
    again, or on time. One that has passed by the last transition is void."""
    return timer.last_at < had.due_at <= timer.due_at and had.preemptible == timer.preemptible


def check_saved(item: SavedRun) -> None:
    """Raises StoreRejected for what the tables can't see by themselves: a gap in the history, a
    version that does not grow."""
    run = item.run
    first = run.seq - len(item.transitions) + 1
    if [row.seq for row in item.transitions] != list(range(first, run.seq + 1)):
        message = f"run {run.id}: the transitions do not end at seq {run.seq} without a gap"
        raise StoreRejected(message, constraint="transition_seq_gapless")
    last = item.before.seq if item.before is not None else None
    if item.expected_version is None:
        last = 0
    if last is not None and first != last + 1:
        message = f"run {run.id}: the transitions do not begin after seq {last}"
        raise StoreRejected(message, constraint="transition_seq_gapless")
    if item.expected_version is not None and run.version <= item.expected_version:
        message = f"run {run.id}: version {run.version} does not grow"
        raise StoreRejected(message, constraint="run_version_grows")
