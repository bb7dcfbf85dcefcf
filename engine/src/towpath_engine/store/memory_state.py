"""The tables of the memory store: dictionaries of frozen rows.

`fork` copies the dictionaries, not the rows. A transaction works on a fork, which replaces the
committed state or is dropped: that is its rollback. What belongs to one run is replaced as a whole,
never changed in place, since a fork shares it.
"""

from datetime import datetime

from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.store.admission import Pause
from towpath_engine.store.derive import OpenStep, ReadyStep, Timer
from towpath_engine.store.interface import (
    KeyedSignalId,
    OutboxRow,
    ParkedSignal,
    StoredSignal,
    WorkflowVersion,
)
from towpath_engine.store.records import DeadLetter, LogLine, OpenDispatch, StreamEpoch

Name = tuple[str, str]


class MemoryState:
    """All rows. Run-owned tables are keyed by run id first."""

    def __init__(self) -> None:
        self.workflows: dict[str, tuple[WorkflowVersion, ...]] = {}
        self.queues: dict[str, datetime] = {}
        self.runs: dict[str, Run] = {}
        self.keys: dict[Name, str] = {}
        self.requests: dict[Name, str] = {}
        self.steps: dict[str, dict[str, Step]] = {}
        self.open_steps: dict[str, dict[str, OpenStep]] = {}
        self.timers: dict[tuple[str, str], Timer] = {}
        self.transitions: dict[str, tuple[Transition, ...]] = {}
        self.signals: dict[str, dict[int, StoredSignal]] = {}
        self.keyed_signals: dict[KeyedSignalId, tuple[str, datetime]] = {}
        self.parked: dict[str, ParkedSignal] = {}
        self.outbox: dict[str, OutboxRow] = {}
        self.logs: dict[str, tuple[tuple[int, LogLine], ...]] = {}
        self.log_count = 0
        self.letters: dict[str, DeadLetter] = {}
        self.retentions: dict[str, int | None] = {}
        self.epochs: dict[str, StreamEpoch] = {}
        self.ready: dict[tuple[str, str], ReadyStep] = {}
        self.pauses: dict[tuple[str, str], Pause] = {}
        self.pause_epoch = 0

    def fork(self) -> "MemoryState":
        """A copy that can be changed without being seen."""
        copy = MemoryState()
        for name, table in vars(self).items():
            setattr(copy, name, dict(table) if isinstance(table, dict) else table)  # pyright: ignore[reportUnknownArgumentType] - vars() has no types
        return copy

    def open_of(self, run_id: str) -> dict[str, OpenStep]:
        """The open steps of a run."""
        return self.open_steps.get(run_id, {})

    def dispatch_of(self, row: OpenStep) -> OpenDispatch:
        """The open dispatch of a step with a token."""
        assert row.token is not None
        assert row.queue is not None
        assert row.dispatched_at is not None
        return OpenDispatch(
            run_id=row.run_id,
            path=row.path,
            token=row.token,
            queue=row.queue,
            level=row.level,
            dispatched_at=row.dispatched_at,
            status=row.status,
            cancelling=row.cancelling,
            in_outbox=any(
                out.token == row.token and out.run_id == row.run_id for out in self.outbox.values()
            ),
        )
