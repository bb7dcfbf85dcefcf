"""The seam to storage: what the services ask of a store, whichever it is.

Two implementations, held to one contract suite: `store.postgres.PostgresStore` and
`store.memory.MemoryStore`. Everything is batch-shaped: the number of statements of a method does
not depend on the number of items.

The transaction of a batch runs its methods in this order, which is also the lock order:
`claim_keys` / `find_keys` (keys by (workflow, key)), `lock_runs` (by id), `load_runs`, `save`.

Errors: a method raises `StoreUnavailable` for lost connections, shutdown, resource shortage,
serialization failures and deadlocks (retry the whole batch with backoff), and `StoreRejected` for
a deterministic fault (constraint, data error): bisect the batch.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from towpath_engine.core.definition import Definition
from towpath_engine.core.model import KeptSignal, Run, Step, Transition
from towpath_engine.core.paths import owner_of, whole_of_item
from towpath_engine.core.states import PART, StepKind, StepStatus
from towpath_engine.store.admission import AdmissionTable
from towpath_engine.store.census import Census
from towpath_engine.store.insight import InsightTable
from towpath_engine.store.leases import PARTITIONS, LeaseTable
from towpath_engine.store.letters import LetterTable
from towpath_engine.store.past import PastTable
from towpath_engine.store.records import DeadLetter, DueTimer, LogLine, OpenDispatch, StreamEpoch
from towpath_engine.store.unfinished import UnfinishedTable
from towpath_engine.store.workers import WorkerTable


class KeyClaim(Struct, frozen=True, kw_only=True):
    """A start wants `key` and/or `request_id` of `workflow` for the new run `run_id`."""

    run_id: str
    workflow: str
    key: str | None = None
    request_id: str | None = None


class KeyHolder(Struct, frozen=True, kw_only=True):
    """Answer to a claim: `run_id` of whoever holds it. The claimer won iff it is its own id."""

    run_id: str
    by_request: bool = False
    """True when an earlier start with the same request id decided (live or settled)."""


class LockedRun(Struct, frozen=True, kw_only=True):
    """A run row, locked for the transaction: enough to see whether a cached copy is current."""

    run_id: str
    version: int
    workflow: str
    workflow_version: int
    last_step: str | None = None


class LoadRequest(Struct, frozen=True, kw_only=True):
    """Load this run with its open steps, its kept signals and the steps of these paths."""

    run_id: str
    definition: Definition
    paths: frozenset[str]


class RowsRequest(Struct, frozen=True, kw_only=True):
    """More rows of a run: of these paths, all parts whose paths begin so (`core.paths.parts_path`
    of their whole), all that have one of these statuses."""

    run_id: str
    paths: frozenset[str] = frozenset()
    parts_of: frozenset[str] = frozenset()
    statuses: frozenset[StepStatus] = frozenset()

    def wants(self, step: Step) -> bool:
        """Whether the row of this step is asked for."""
        if step.path in self.paths or step.status in self.statuses:
            return True
        if step.kind not in PART:
            return False
        whole = whole_of_item(step.path) if step.kind is StepKind.ITEM else owner_of(step.path)
        return whole in self.parts_of


class StoredSignal(Struct, frozen=True, kw_only=True):
    """A signal row to insert; `consumed_by` is the path of the wait that took it, or None."""

    run_id: str
    signal: KeptSignal
    consumed_by: str | None = None


class ConsumedSignal(Struct, frozen=True, kw_only=True):
    """A stored signal that a wait has taken now."""

    run_id: str
    number: int
    consumed_by: str


class SignalId(Struct, frozen=True, kw_only=True):
    """Identity for deduplication: per run and signal name for the life of the run."""

    run_id: str
    name: str
    message_id: str


class KeyedSignalId(Struct, frozen=True, kw_only=True):
    """Identity of a signal by key, remembered for 7 days whichever run took it."""

    workflow: str
    key: str
    name: str
    message_id: str


class ParkedSignal(Struct, frozen=True, kw_only=True):
    """A signal for a run or key that does not exist yet. Exactly one of run_id, key is set."""

    id: str
    run_id: str | None = None
    workflow: str | None = None
    key: str | None = None
    name: str
    payload: bytes
    message_id: str
    sent_by: str | None = None
    received_at: datetime
    expires_at: datetime


class OutboxRow(Struct, frozen=True, kw_only=True):
    """A message to publish. `token` is set on dispatches, None on events.

    `id` is a UUIDv7 made by the engine (so that the row needs no round trip), `level` is part of
    the subject already and kept for the sweep. `body` is the message, `headers` its NATS headers.
    """

    id: str
    run_id: str
    token: str | None = None
    subject: str
    msg_id: str
    headers: dict[str, str]
    body: bytes
    publish_after: datetime
    """The sweep leaves the row alone before this instant (its writer publishes it first)."""


class SavedRun(Struct, frozen=True, kw_only=True):
    """A run to write. `expected_version` None inserts it, else the row must still have it.

    `before` is the run as it was at `expected_version`, if the caller still has it: then what did
    not change (payloads above all) is neither sent nor written again. The result is the same.
    """

    run: Run
    expected_version: int | None
    before: Run | None = None
    steps: Sequence[Step] = ()
    transitions: Sequence[Transition] = ()
    signals: Sequence[StoredSignal] = ()
    consumed: Sequence[ConsumedSignal] = ()
    outbox: Sequence[OutboxRow] = ()
    revoked: Sequence[str] = ()
    """Tokens whose outbox rows must go."""
    logs: Sequence[LogLine] = ()
    letters: Sequence[DeadLetter] = ()
    """Signals that it had kept and nobody wants: as `BatchWrite.dead_letters`, if it is written."""


class BatchWrite(Struct, frozen=True, kw_only=True):
    """Everything a transaction writes. Steps carry their timers: the store derives the rows."""

    runs: Sequence[SavedRun] = ()
    published: Sequence[str] = ()
    """Outbox ids whose publication is confirmed: delete them."""
    keyed_signals: Sequence[tuple[KeyedSignalId, str]] = ()
    """Remember (identity, run_id of the run that took it)."""
    parked: Sequence[ParkedSignal] = ()
    unparked: Sequence[str] = ()
    """Ids of parked signals that were taken or have become dead letters."""
    pause_epoch: int | None = None
    """The number of the pauses that its dispatches were decided under: unless it still is theirs,
    nothing is written and PausesChanged raised. None: it has none."""
    dead_letters: Sequence[DeadLetter] = ()
    """Kept up to the store's cap in rows and bytes; see `StoreTransaction.refused_letter_count`."""
    requests: Sequence[tuple[str, str, str]] = ()
    """(workflow, request_id, run_id): a start was answered with that run, since it holds the key;
    a repeat of the request gets the same answer. A known request id is left alone."""


class StoreTransaction(Protocol):
    """One open transaction. See the module for the order of calls."""

    async def claim_keys(self, claims: Sequence[KeyClaim]) -> list[KeyHolder]:
        """Claim keys and request ids; answers in order. Repeats within `claims` lose too.

        The request id decides before the key. A claim that loses its key does not keep its request
        id (see `BatchWrite.requests`).
        """
        ...

    async def find_requests(
        self, requests: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], str]:
        """(workflow, request id) -> id of the run it started; absent when it started none."""
        ...

    async def find_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """(workflow, key) -> run id of the live run that holds it; absent when none does."""
        ...

    async def newest_versions(self, workflows: Sequence[str]) -> dict[str, int]:
        """Workflow -> number of its newest version; unknown workflows are absent. A start reads
        it inside its transaction, so that a deploy that was answered before is never missed."""
        ...

    async def lock_runs(self, run_ids: Sequence[str]) -> dict[str, LockedRun]:
        """Lock the rows in id order; unknown ids are absent."""
        ...

    async def load_runs(self, requests: Sequence[LoadRequest]) -> dict[str, Run]:
        """Load whole runs (`limits` is the store's configured CoreLimits)."""
        ...

    async def load_rows(self, requests: Sequence[RowsRequest]) -> dict[str, dict[str, Step]]:
        """Steps by run and path; a path without a row is absent. One request a run."""
        ...

    async def known_signals(self, ids: Sequence[SignalId]) -> set[SignalId]:
        """Those of `ids` that the run already has, consumed or not."""
        ...

    async def known_keyed_signals(self, ids: Sequence[KeyedSignalId]) -> set[KeyedSignalId]:
        """Those of `ids` that were taken within the last 7 days."""
        ...

    async def take_parked(
        self, run_ids: Sequence[str], keys: Sequence[tuple[str, str]]
    ) -> list[ParkedSignal]:
        """Delete and return what is parked for these runs and (workflow, key) pairs, by arrival."""
        ...

    async def save(self, batch: BatchWrite) -> set[str]:
        """Write the batch; returns the ids of the runs whose version matched (and were written).

        Runs that settle free their key here. Rows of a run that did not match are not written. A
        new run does not match when its id exists or another run holds its request id or (unless it
        is settled) its key; it may take over a key that a run of the same batch frees.

        StoreRejected also means: a gap in the transitions' seq, a version that does not grow, a
        change of a settled run or step, a signal consumed twice.
        """
        ...

    async def save_alone(self, batch: BatchWrite) -> bool:
        """Write the batch as the whole transaction, in one round trip if it can be done.

        True: everything is written and committed, and no other call may follow. False: nothing is
        written, because a run has not its expected version any more, because the batch is of the
        wrong kind (new runs, signals, logs, timers to arm, …), or because it is to be rejected: go
        on as if it had not been called. Must be the first call of its transaction.
        """
        ...

    async def rearm_timers(self, timers: Sequence[tuple[str, str | None, datetime | None]]) -> None:
        """Set stored instants to what the step (or, with path None, the run) really waits for.

        For (run_id, path, due_at) of timers that fired and were not due: `save` only ever moves
        an instant to an earlier one. None disarms. Where the rows, as this transaction has saved
        them, say an earlier instant than the caller does, that one counts: a later event of the
        same batch may have moved it. The transaction must hold the runs' locks.
        """
        ...

    @property
    def refused_letter_count(self) -> int:
        """Dead letters of this transaction's saves that did not fit under the cap: count and log
        them."""
        ...

    async def steps_state(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Step]]:
        """All step rows of these runs in order of path, without inputs and outputs."""
        ...


class WorkflowVersion(Struct, frozen=True, kw_only=True):
    """An immutable deployed version. `document` is the normalised JSON text."""

    workflow: str
    version: int
    fingerprint: str
    document: bytes
    created_at: datetime


class RunPage(Struct, frozen=True, kw_only=True):
    """A page of runs, newest first, and the cursor of the next page, if there may be one.

    A page may have fewer runs than its limit, even none, and a cursor: rare hits are looked for
    among a bounded number of runs a page.

    The runs come without their steps, and without input, output, context and metadata (these are
    as for a run that has none), so that a page is small whatever the payloads are.
    """

    runs: Sequence[Run]
    next_cursor: str | None


class RunFilter(Struct, frozen=True, kw_only=True):
    """Filters of run.list; None matches all. Instants bound `created_at`, [from, to)."""

    workflow: str | None = None
    status: str | None = None
    key: str | None = None
    tag: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None


class Store(Protocol):
    """Storage as a whole. Reads outside `transaction()` see committed data only."""

    @property
    def leases(self) -> LeaseTable: ...  # noqa: D102 - see there
    @property
    def letters(self) -> LetterTable: ...  # noqa: D102 - see there
    @property
    def past(self) -> PastTable: ...  # noqa: D102 - see there
    @property
    def admission(self) -> AdmissionTable: ...  # noqa: D102 - see there
    @property
    def insight(self) -> InsightTable: ...  # noqa: D102 - see there
    @property
    def workers(self) -> WorkerTable: ...  # noqa: D102 - see there

    @property
    def unfinished(self) -> UnfinishedTable: ...  # noqa: D102 - see there

    @property
    def census(self) -> Census: ...  # noqa: D102 - see there

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        """Open a transaction; commits on a clean exit, rolls back on an exception."""
        ...

    async def now(self) -> datetime:
        """The one clock (Postgres')."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...

    async def deploy_workflow(
        self, workflow: str, fingerprint: str, document: bytes
    ) -> tuple[WorkflowVersion, bool]:
        """Store a version unless the newest... any version has this fingerprint; (it, created)."""
        ...

    async def get_workflow(self, workflow: str, version: int | None) -> WorkflowVersion | None:
        """The version, or the newest when `version` is None."""
        ...

    async def find_workflow(self, workflow: str, fingerprint: str) -> WorkflowVersion | None:
        """The version that has this content, if there is one."""
        ...

    async def list_workflows(self) -> list[WorkflowVersion]:
        """The newest version of every workflow, by name, with empty documents."""
        ...

    async def list_queues(self) -> list[str]:
        """Every queue that a deployed version or a worker named, by name."""
        ...

    async def add_queues(self, queues: Sequence[str], count_max: int) -> list[str] | None:
        """Remember queues; those that are new, or None, and nothing is remembered, when there
        would be more than `count_max`, however many engines add some at the same time."""
        ...

    async def remove_queues(self, queues: Sequence[str]) -> None:
        """Forget queues."""
        ...

    async def get_run(self, run_id: str) -> Run | None:
        """The run row alone (steps empty, definition of its version)."""
        ...

    async def run_statuses(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Status of each run that exists: one statement for any number of long polls."""
        ...

    async def get_key(self, workflow: str, key: str) -> str | None:
        """Run id of the live run with this key, else of the newest settled one, else None."""
        ...

    async def get_steps(self, run_id: str, after_path: str | None, limit: int) -> list[Step]:
        """Step rows in order of path, after the cursor."""
        ...

    async def get_step(self, run_id: str, path: str) -> Step | None:
        """One step row."""
        ...

    async def list_runs(self, where: RunFilter, cursor: str | None, limit: int) -> RunPage:
        """Runs newest first. Raises CursorError for a malformed cursor."""
        ...

    async def get_history(self, run_id: str, after_seq: int, limit: int) -> list[Transition]:
        """Transitions with seq > after_seq, in order, without payloads (`past` has them)."""
        ...

    async def get_logs(
        self, run_id: str, path: str | None, after: int, limit: int
    ) -> list[tuple[int, LogLine]]:
        """(row number, log lines) of attempts, in order of arrival, row number > after."""
        ...

    async def due_timers(
        self,
        before: datetime,
        limit: int,
        *,
        after: DueTimer | None = None,
        partitions: Collection[int] = PARTITIONS,
    ) -> list[DueTimer]:
        """Timers of these partitions with due_at <= before, the earliest first; with `after`,
        those that follow it."""
        ...

    async def due_outbox(self, before: datetime, limit: int) -> list[OutboxRow]:
        """Rows to publish again: publish_after <= before and, for dispatches, the token is the
        step's current one and the step is dispatched. Rows of dead tokens are deleted. The
        returned rows' publish_after is moved on by a few seconds, so two sweeps do not collide."""
        ...

    async def delete_outbox(self, ids: Sequence[str]) -> None:
        """Delete confirmed rows when no batch comes along to do it."""
        ...

    async def open_dispatches(
        self, older_than: datetime, after: tuple[str, str] | None, limit: int
    ) -> list[OpenDispatch]:
        """Open dispatches with dispatched_at < older_than, by (run_id, path) after the cursor."""
        ...

    async def find_token(self, run_id: str, token: str) -> OpenDispatch | None:
        """The open dispatch with this token, or None."""
        ...

    async def current_tokens(self, tokens: Sequence[tuple[str, str]]) -> dict[str, bool]:
        """Of these (run_id, token) pairs, the tokens that are live; true for those whose attempts
        are being cancelled."""
        ...

    async def due_parked(self, limit: int) -> list[ParkedSignal]:
        """Parked signals whose run or key exists now, or which have expired, oldest first."""
        ...

    async def count_parked(self, limit: int) -> int:
        """How many signals are parked, counted up to `limit`: to bound the parking."""
        ...

    async def prune_signal_ids(self, limit: int) -> int:
        """Forget at most `limit` identities of signals by key that are older than 7 days."""
        ...

    async def get_epoch(self, stream: str) -> StreamEpoch | None:
        """What was last stored for this stream."""
        ...

    async def put_epoch(self, epoch: StreamEpoch) -> None:
        """Remember it."""
        ...
