"""One run as an engine keeps it: decided by the core, written by the store, and what each event
costs there.

Rows and bytes are those that Postgres itself counts for the tables of the schema (with what lies
beside them in TOAST) and for the WAL; no clock decides anything. The store must have one
connection: its numbers are read on the very connection that has written.
"""

import time
from datetime import timedelta
from itertools import islice
from statistics import median
from typing import Any

from msgspec import Raw, Struct

from tests.support.builders import BEGIN, a_cause, raw
from towpath_engine.core.changes import StepsNeeded
from towpath_engine.core.decide import decide
from towpath_engine.core.effects import Decision, DispatchStep, RevokeToken, Verdict
from towpath_engine.core.events import (
    DecisionContinued,
    Event,
    ReportReceived,
    RunBegun,
)
from towpath_engine.core.model import Run
from towpath_engine.core.paths import ROOT, owner_of
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.services.asking import rows_request
from towpath_engine.services.clock import Clock, Identity
from towpath_engine.services.draft import Drafting, RunDraft
from towpath_engine.store.interface import BatchWrite, LoadRequest, StoreTransaction
from towpath_engine.store.postgres import PostgresStore
from towpath_protocol.reports import StepCompleted

TOGETHER = 100
"""Reports of one batch, of which an engine takes that many of one run at once."""
_COUNTERS = """
SELECT
  sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint AS written,
  sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint AS read,
  (SELECT pg_current_wal_insert_lsn() - '0/0')::bigint AS wal
FROM pg_stat_all_tables
WHERE relid IN (
  SELECT unnest(ARRAY[oid, reltoastrelid]) FROM pg_class
  WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r')
"""


class Cost(Struct, frozen=True):
    """What one event has cost: rows and bytes in the store, seconds in this process and there."""

    written: int
    read: int
    wal: int
    seconds: float
    decided: float
    """The share of the seconds that is the core's."""


def typical(costs: list[Cost]) -> Cost:
    """The median of each number."""
    return Cost(
        written=round(median(cost.written for cost in costs)),
        read=round(median(cost.read for cost in costs)),
        wal=round(median(cost.wal for cost in costs)),
        seconds=median(cost.seconds for cost in costs),
        decided=median(cost.decided for cost in costs),
    )


class StoredRun:
    """A run that events happen to. While it `is_cold` it is loaded anew for each batch, as an
    engine does that has just started."""

    def __init__(self, store: PostgresStore, run: Run) -> None:
        self.store = store
        self.run = run
        self.is_cold = False
        self.is_stored = False
        self._is_locked = False
        self.dispatches: dict[str, DispatchStep] = {}
        """What is undone, by token, the oldest first."""
        self.largest = 0
        """Transitions of the largest decision."""
        self._now = BEGIN
        self._events = 0
        self._drafting = Drafting(
            prefix="towpath", identity=Identity(Clock(store)), grace=timedelta(seconds=5)
        )

    # Events

    async def begins(self) -> None:
        await self.happens(RunBegun(seed=self.seed(), cause=a_cause("start")))
        await self.goes_on()

    async def goes_on(self) -> None:
        """The rest of what was split."""
        while self.run.cursor is not None and self.run.status not in SETTLED_RUN:
            await self.continues()

    async def continues(self) -> None:
        await self.happens(DecisionContinued(seed=self.seed(), cause=a_cause()))

    def next_dispatch(self) -> DispatchStep:
        return next(iter(self.dispatches.values()))

    async def completes(self, output: object = None) -> Cost:
        """The oldest attempt succeeds."""
        return await self.measures(self._report(self.next_dispatch(), raw(output)))

    async def complete_many(self, count: int, output: object = None) -> None:
        """The oldest `count` attempts succeed, as many in one transaction as an engine takes."""
        while count and self.dispatches:
            first = list(islice(self.dispatches.values(), min(count, TOGETHER)))
            await self.happens(*(self._report(dispatch, raw(output)) for dispatch in first))
            count -= len(first)

    def _report(self, dispatch: DispatchStep, output: Raw) -> ReportReceived:
        report = StepCompleted(output=output)
        return ReportReceived(
            seed=self.seed(),
            cause=a_cause("report", report=report, token=dispatch.token),
            token=dispatch.token,
            queue=dispatch.queue,
            report=report,
        )

    async def measures(self, event: Event) -> Cost:
        """The event happens, and is paid for."""
        before = await self._counters()
        began = time.perf_counter()
        decided = await self.happens(event)
        seconds = time.perf_counter() - began
        after = await self._counters()
        return Cost(
            written=after["written"] - before["written"],
            read=after["read"] - before["read"],
            wal=after["wal"] - before["wal"],
            seconds=seconds,
            decided=decided,
        )

    async def happens(self, *events: Event) -> float:
        """Decide and save, as a batch does; returns the seconds of the core."""
        decided = 0.0
        async with self.store.transaction() as tx:
            self._is_locked = self.is_cold
            draft = await self._draft(tx)
            for event in events:
                began = time.perf_counter()
                decision = await self._decided(tx, draft, event)
                decided += time.perf_counter() - began
                assert decision.verdict is Verdict.APPLIED, decision
                draft.add(decision, self._now)
                self._take(decision)
            write = BatchWrite(runs=[draft.to_saved(self._drafting, self._now)])
            # As an engine does it: in one round trip, where nothing had to be read before.
            if self._is_locked or not await tx.save_alone(write):
                assert await tx.save(write) == {self.run.id}
        self.is_stored = True
        self.run = draft.to_keep()
        return decided

    # How

    def _take(self, decision: Decision) -> None:
        self.largest = max(self.largest, len(decision.transitions))
        for effect in decision.effects:
            if isinstance(effect, DispatchStep):
                self.dispatches[effect.token] = effect
            elif isinstance(effect, RevokeToken):
                self.dispatches.pop(effect.token, None)

    async def _draft(self, tx: StoreTransaction) -> RunDraft:
        if not self.is_stored:
            self._is_locked = False
            return RunDraft(self.run, None)
        if not self.is_cold:
            return RunDraft(self.run, self.run.version)
        row = (await tx.lock_runs([self.run.id]))[self.run.id]
        definition = self.run.definition
        paths = {place for place in definition.referenced if owner_of(place) == ROOT}
        if row.last_step is not None:
            paths.add(row.last_step)
        request = LoadRequest(run_id=self.run.id, definition=definition, paths=frozenset(paths))
        return RunDraft((await tx.load_runs([request]))[self.run.id], row.version)

    async def _decided(self, tx: StoreTransaction, draft: RunDraft, event: Event) -> Decision:
        while True:
            try:
                return decide(draft.run, event, self._now)
            except StepsNeeded as needed:
                request = rows_request(draft.run.id, needed)
            rows = (await tx.load_rows([request]))[draft.run.id]
            assert rows, f"there are no such rows: {request}"
            self._is_locked = True
            draft.know(rows)

    def seed(self) -> str:
        self._events += 1
        return f"{self._events:032x}"

    async def _counters(self) -> Any:
        async with self.store.pool.acquire() as connection:
            await connection.execute("SELECT pg_stat_force_next_flush()")
            return await connection.fetchrow(_COUNTERS)
