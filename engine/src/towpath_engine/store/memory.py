"""The store over dictionaries: for fast tests, held to the same contract as the one on Postgres.

Transactions take turns. Reads outside see what is committed.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.core.states import StepStatus
from towpath_engine.store.cursors import format_run_cursor, parse_run_cursor
from towpath_engine.store.definitions import DefinitionCache, Parse
from towpath_engine.store.derive import RUN_PATH, OpenStep
from towpath_engine.store.interface import (
    OutboxRow,
    ParkedSignal,
    RunFilter,
    RunPage,
    WorkflowVersion,
)
from towpath_engine.store.leases import PARTITIONS
from towpath_engine.store.memory_admission import MemoryAdmission
from towpath_engine.store.memory_census import MemoryCensus
from towpath_engine.store.memory_insight import MemoryInsight
from towpath_engine.store.memory_leases import MemoryLeases
from towpath_engine.store.memory_letters import MemoryLetters
from towpath_engine.store.memory_past import MemoryPast
from towpath_engine.store.memory_state import MemoryState
from towpath_engine.store.memory_transaction import SIGNAL_ID_DAYS, MemoryTransaction
from towpath_engine.store.memory_unfinished import MemoryUnfinished
from towpath_engine.store.memory_workers import MemoryWorkers
from towpath_engine.store.records import DueTimer, LogLine, OpenDispatch, StreamEpoch
from towpath_engine.store.transaction import StoreCaps

REPUBLISH = timedelta(seconds=5)


def _system_clock() -> datetime:
    return datetime.now(UTC)


class MemoryStore:
    """See `store.interface.Store` for the contract. `clock` is its one clock."""

    def __init__(
        self,
        *,
        limits: CoreLimits,
        parse: Parse,
        caps: StoreCaps | None = None,
        clock: Callable[[], datetime] = _system_clock,
    ) -> None:
        self._limits = limits
        self._caps = caps or StoreCaps()
        self._clock = clock
        self._definitions = DefinitionCache(parse)
        self._state = MemoryState()
        self._turn = asyncio.Lock()
        self.leases = MemoryLeases(clock)
        self.census = MemoryCensus(lambda: self._state)
        self.letters = MemoryLetters(lambda: self._state, turn=self._turn)
        self.past = MemoryPast(lambda: self._state, turn=self._turn, clock=clock)
        """See Store."""
        self.admission = MemoryAdmission(lambda: self._state, turn=self._turn, clock=clock)
        self.insight = MemoryInsight(lambda: self._state)
        self.workers = MemoryWorkers()
        self.unfinished = MemoryUnfinished(lambda: self._state)
        """See Store."""

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[MemoryTransaction]:
        """See Store."""
        async with self._turn:
            tx = MemoryTransaction(
                self._state.fork(), limits=self._limits, caps=self._caps, now=self._clock()
            )
            yield tx
            self._state = tx.state

    async def now(self) -> datetime:
        """See Store."""
        return self._clock()

    async def close(self) -> None:
        """See Store."""

    async def deploy_workflow(
        self, workflow: str, fingerprint: str, document: bytes
    ) -> tuple[WorkflowVersion, bool]:
        """See Store."""
        async with self._turn:
            versions = self._state.workflows.get(workflow, ())
            for version in versions:
                if version.fingerprint == fingerprint:
                    return version, False
            added = WorkflowVersion(
                workflow=workflow,
                version=len(versions) + 1,
                fingerprint=fingerprint,
                document=document,
                created_at=self._clock(),
            )
            self._state.workflows[workflow] = (*versions, added)
            return added, True

    async def get_workflow(self, workflow: str, version: int | None) -> WorkflowVersion | None:
        """See Store."""
        versions = self._state.workflows.get(workflow, ())
        if version is None:
            return versions[-1] if versions else None
        return versions[version - 1] if 1 <= version <= len(versions) else None

    async def find_workflow(self, workflow: str, fingerprint: str) -> WorkflowVersion | None:
        """See Store."""
        versions = self._state.workflows.get(workflow, ())
        return next((one for one in versions if one.fingerprint == fingerprint), None)

    async def list_workflows(self) -> list[WorkflowVersion]:
        """See Store."""
        newest = [versions[-1] for _, versions in sorted(self._state.workflows.items())]
        return [replace(version, document=b"") for version in newest]

    async def list_queues(self) -> list[str]:
        """See Store."""
        return sorted(self._state.queues)

    async def add_queues(self, queues: Sequence[str], count_max: int) -> list[str] | None:
        """See Store."""
        async with self._turn:
            new = sorted(set(queues) - self._state.queues.keys())
            if new and len(self._state.queues) + len(new) > count_max:
                return None
            self._state.queues.update(dict.fromkeys(new, self._clock()))
            return new

    async def remove_queues(self, queues: Sequence[str]) -> None:
        """See Store."""
        async with self._turn:
            for queue in queues:
                self._state.queues.pop(queue, None)

    async def get_run(self, run_id: str) -> Run | None:
        """See Store."""
        run = self._state.runs.get(run_id)
        return None if run is None else self._with_definition(run)

    def _with_definition(self, run: Run) -> Run:
        definition = self._definitions.get(run.workflow, run.workflow_version)
        if definition is None:
            stored = self._state.workflows[run.workflow][run.workflow_version - 1]
            definition = self._definitions.add(run.workflow, stored.version, stored.document)
        return replace(run, definition=definition, limits=self._limits)

    async def run_statuses(self, run_ids: Sequence[str]) -> dict[str, str]:
        """See Store."""
        runs = self._state.runs
        return {run_id: runs[run_id].status.value for run_id in run_ids if run_id in runs}

    async def get_key(self, workflow: str, key: str) -> str | None:
        """See Store."""
        live = self._state.keys.get((workflow, key))
        if live is not None:
            return live
        runs = [r for r in self._state.runs.values() if (r.workflow, r.key) == (workflow, key)]
        return max(runs, key=_place).id if runs else None

    async def get_steps(self, run_id: str, after_path: str | None, limit: int) -> list[Step]:
        """See Store."""
        steps = sorted(self._state.steps.get(run_id, {}).items())
        return [step for path, step in steps if path > (after_path or "")][:limit]

    async def get_step(self, run_id: str, path: str) -> Step | None:
        """See Store."""
        return self._state.steps.get(run_id, {}).get(path)

    async def list_runs(self, where: RunFilter, cursor: str | None, limit: int) -> RunPage:
        """See Store."""
        before = parse_run_cursor(cursor)
        found = sorted(
            (r for r in self._state.runs.values() if _place(r) < before and _fits(r, where)),
            key=_place,
            reverse=True,
        )
        page = [self._with_definition(_light(run)) for run in found[:limit]]
        more = len(found) > limit and bool(page)
        return RunPage(runs=page, next_cursor=format_run_cursor(_place(page[-1])) if more else None)

    async def get_history(self, run_id: str, after_seq: int, limit: int) -> list[Transition]:
        """See Store."""
        rows = self._state.transitions.get(run_id, ())
        found = [row for row in rows if row.seq > after_seq][:limit]
        return [replace(row, payload=None) for row in found]

    async def get_logs(
        self, run_id: str, path: str | None, after: int, limit: int
    ) -> list[tuple[int, LogLine]]:
        """See Store."""
        rows = self._state.logs.get(run_id, ())
        return [r for r in rows if r[0] > after and path in {None, r[1].path}][:limit]

    async def due_timers(
        self,
        before: datetime,
        limit: int,
        *,
        after: DueTimer | None = None,
        partitions: Collection[int] = PARTITIONS,
    ) -> list[DueTimer]:
        """See Store."""
        rows = sorted(
            (
                row
                for row in self._state.timers.values()
                if row.due_at <= before and row.partition in partitions
            ),
            key=lambda row: (row.due_at, row.run_id, row.path),
        )
        if after is not None:
            last = (after.due_at, after.run_id, after.path or RUN_PATH)
            rows = [row for row in rows if (row.due_at, row.run_id, row.path) > last]
        return [
            DueTimer(
                run_id=row.run_id,
                path=None if row.path == RUN_PATH else row.path,
                due_at=row.due_at,
                preemptible=row.preemptible,
            )
            for row in rows[:limit]
        ]

    async def due_outbox(self, before: datetime, limit: int) -> list[OutboxRow]:
        """See Store."""
        async with self._turn:
            outbox = self._state.outbox
            due = sorted(
                (row for row in outbox.values() if row.publish_after <= before),
                key=lambda row: row.publish_after,
            )
            wanted: list[OutboxRow] = []
            for row in due[:limit]:
                if row.token is None or self._is_dispatched(row.run_id, row.token):
                    outbox[row.id] = replace(row, publish_after=before + REPUBLISH)
                    wanted.append(outbox[row.id])
                else:
                    del outbox[row.id]
            return sorted(wanted, key=lambda row: row.id)

    def _is_dispatched(self, run_id: str, token: str) -> bool:
        row = self._find_token(run_id, token)
        return row is not None and row.status == StepStatus.DISPATCHED and not row.cancelling

    def _find_token(self, run_id: str, token: str) -> OpenStep | None:
        rows = self._state.open_of(run_id).values()
        return next((row for row in rows if row.token == token), None)

    async def delete_outbox(self, ids: Sequence[str]) -> None:
        """See Store."""
        async with self._turn:
            for outbox_id in ids:
                self._state.outbox.pop(outbox_id, None)

    async def open_dispatches(
        self, older_than: datetime, after: tuple[str, str] | None, limit: int
    ) -> list[OpenDispatch]:
        """See Store."""
        found = [
            row
            for rows in self._state.open_steps.values()
            for row in rows.values()
            if row.token is not None
            and not row.reported
            and row.dispatched_at is not None
            and row.dispatched_at < older_than
            and (after is None or (row.run_id, row.path) > after)
        ]
        found.sort(key=lambda row: (row.run_id, row.path))
        return [self._state.dispatch_of(row) for row in found[:limit]]

    async def find_token(self, run_id: str, token: str) -> OpenDispatch | None:
        """See Store."""
        row = self._find_token(run_id, token)
        return None if row is None else self._state.dispatch_of(row)

    async def current_tokens(self, tokens: Sequence[tuple[str, str]]) -> dict[str, bool]:
        """See Store."""
        found = [(token, self._find_token(run_id, token)) for run_id, token in tokens]
        return {token: row.cancelling for token, row in found if row is not None}

    async def due_parked(self, limit: int) -> list[ParkedSignal]:
        """See Store."""
        now, state = self._clock(), self._state
        due = [
            row
            for row in state.parked.values()
            if row.expires_at <= now
            or row.run_id in state.runs
            or (row.workflow, row.key) in state.keys
        ]
        return sorted(due, key=lambda row: (row.received_at, row.id))[:limit]

    async def count_parked(self, limit: int) -> int:
        """See Store."""
        return min(limit, len(self._state.parked))

    async def prune_signal_ids(self, limit: int) -> int:
        """See Store."""
        async with self._turn:
            known = self._state.keyed_signals
            oldest = self._clock() - SIGNAL_ID_DAYS
            old = [identity for identity, (_, at) in known.items() if at <= oldest][:limit]
            for identity in old:
                del known[identity]
            return len(old)

    async def get_epoch(self, stream: str) -> StreamEpoch | None:
        """See Store."""
        return self._state.epochs.get(stream)

    async def put_epoch(self, epoch: StreamEpoch) -> None:
        """See Store."""
        async with self._turn:
            self._state.epochs[epoch.stream] = epoch


def _place(run: Run) -> tuple[datetime, str]:
    return run.created_at, run.id


def _light(run: Run) -> Run:
    return replace(run, input=b"null", context=b"{}", metadata=b"{}", output=None)


def _fits(run: Run, where: RunFilter) -> bool:
    return (
        where.workflow in {None, run.workflow}
        and where.status in {None, run.status.value}
        and where.key in {None, run.key}
        and (where.tag is None or where.tag in run.tags)
        and (where.created_from is None or run.created_at >= where.created_from)
        and (where.created_to is None or run.created_at < where.created_to)
    )
