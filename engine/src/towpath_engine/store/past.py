"""Runs that have settled: reading their history for a replay, and their end.

A purge deletes runs with all that belongs to them, in bounded batches of a constant number of
statements: their steps, transitions, signals, logs, tags and request ids. It never touches a live
run, nor one whose parent or child is live. What is remembered for other reasons stays: workflow
versions, dead letters, the ids of signals by key for their seven days, and events that are not
published yet.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from towpath_engine.core.model import KeptSignal, Transition
from towpath_engine.core.payloads import RowsOutput


class PurgeSize(Struct, frozen=True, kw_only=True):
    """How much one transaction of a purge deletes at most: runs, and transitions of all of them
    together (a run with more is deleted alone)."""

    runs_max: int = 500
    transitions_max: int = 50_000


class PurgedBatch(Struct, frozen=True, kw_only=True):
    """What one transaction deleted. `more`: there is, or may be, more of the kind to delete."""

    purged: int = 0
    more: bool = False
    workflow: str | None = None


class Purge(StrEnum):
    """What became of the wish to purge one run."""

    PURGED = "purged"
    UNKNOWN = "unknown"
    LIVE = "live"
    """It has not settled, or its parent or a child of it has not."""


class PastTable(Protocol):
    """Histories and retention. Methods raise StoreUnavailable."""

    async def history(
        self, run_id: str, after_seq: int, limit: int, *, bytes_max: int
    ) -> list[Transition]:
        """As Store.get_history, with payloads: as many as have `bytes_max` bytes of payloads
        together, at least one."""
        ...

    async def outputs(
        self, run_id: str, paths: Sequence[str], *, bytes_max: int
    ) -> dict[str, RowsOutput]:
        """The outputs in the rows of these steps. In the order of `paths`, those that do not fit
        into `bytes_max` bytes together come without their value, with their size."""
        ...

    async def signals(
        self, run_id: str, numbers: Sequence[int], *, bytes_max: int
    ) -> dict[int, KeptSignal]:
        """Signals of the run by number, in the order of `numbers` as long as their payloads have
        `bytes_max` bytes together, at least one."""
        ...

    async def set_retention(self, workflow: str, retention_ms: int | None) -> bool:
        """How long settled runs of the workflow are kept: 0 for ever, None as the setting says.
        False: there is no such workflow."""
        ...

    async def purge_overdue(
        self, default_ms: int, size: PurgeSize, *, now: datetime | None = None
    ) -> PurgedBatch:
        """Delete the oldest runs of the workflow whose oldest run is the longest over its
        retention, which is `default_ms` (0: for ever) where the workflow has none of its own. Where
        somebody has all its overdue runs in hand, it is the turn of the next one."""
        ...

    async def purge_before(
        self, workflow: str, settled_before: datetime, size: PurgeSize
    ) -> PurgedBatch:
        """Delete runs of the workflow that settled before the instant, the oldest first."""
        ...

    async def purge_run(self, run_id: str) -> Purge:
        """Delete this run, once nobody else has it in hand."""
        ...

    async def count_before(self, workflow: str, settled_before: datetime, limit: int) -> int:
        """How many runs `purge_before` would delete, counted up to `limit`."""
        ...

    async def may_purge(self, run_id: str) -> Purge:
        """What `purge_run` would answer, without doing it."""
        ...


def in_one_batch(found: Sequence[tuple[str, int]], size: PurgeSize) -> Sequence[str]:
    """Of runs (id, number of transitions) the leading ones that one transaction deletes. Pure, for
    both stores."""
    taken: list[str] = []
    room = size.transitions_max
    for run_id, transitions in found[: size.runs_max]:
        room -= transitions
        if taken and room < 0:
            break
        taken.append(run_id)
    return taken


def as_outputs(rows: Sequence[tuple[str, int, bytes]], bytes_max: int) -> Mapping[str, RowsOutput]:
    """(path, visit, output) in order, values left out behind `bytes_max` bytes."""
    found: dict[str, RowsOutput] = {}
    total = 0
    for path, visit, output in rows:
        total += len(output)
        value = output if total <= bytes_max else None
        found[path] = RowsOutput(visit=visit, size=len(output), value=value)
    return found
