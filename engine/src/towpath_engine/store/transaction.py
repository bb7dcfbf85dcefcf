"""The transaction of a batch on Postgres: the seam's methods, each a statement or a few."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core.kept import Kept
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import KeptSignal, Run, Step
from towpath_engine.store import keys as key_table
from towpath_engine.store import saving
from towpath_engine.store.derive import RUN_PATH, check_saved
from towpath_engine.store.errors import StoreRejected
from towpath_engine.store.interface import (
    BatchWrite,
    KeyClaim,
    KeyedSignalId,
    KeyHolder,
    LoadRequest,
    LockedRun,
    ParkedSignal,
    RowsRequest,
    SignalId,
)
from towpath_engine.store.leases import partition_of_run
from towpath_engine.store.rows import kept_from_row, parked_from_row, run_from_row, step_from_row
from towpath_engine.store.session import Connection, Record, execute, fetch, translating


class StoreCaps(Struct, frozen=True, kw_only=True):
    """What the store itself bounds."""

    dead_letter_rows_max: int = 100_000
    dead_letter_bytes_max: int = 1024 * 1024 * 1024
    log_bytes_max: int = 256 * 1024
    """Log lines kept of one attempt."""


class PostgresTransaction:
    """One transaction on one connection; see StoreTransaction for the contract.

    Without `begun` it begins with its first statement: a batch that `save_alone` takes is a
    transaction by itself and costs one round trip.
    """

    def __init__(
        self, connection: Connection, limits: CoreLimits, caps: StoreCaps, *, begun: bool = True
    ) -> None:
        self._session = connection
        self.begun = begun
        """False as long as there is nothing to commit or to roll back."""
        self._limits = limits
        self._caps = caps
        self._claimed: set[tuple[key_table.Name, str]] = set()
        self._versions: dict[str, int] = {}
        self._refused_letter_count = 0

    @property
    def refused_letter_count(self) -> int:
        """See StoreTransaction."""
        return self._refused_letter_count

    async def _begin(self) -> Connection:
        if not self.begun:
            self.begun = True
            with translating():
                await self._session.execute("BEGIN")
        return self._session

    async def claim_keys(self, claims: Sequence[KeyClaim]) -> list[KeyHolder]:
        """See StoreTransaction."""
        connection = await self._begin()
        holders = await key_table.claim_keys(connection, claims)
        for claim, holder in zip(claims, holders, strict=True):
            if holder.run_id == claim.run_id:
                for name in (claim.key, claim.request_id):
                    if name is not None:
                        self._claimed.add(((claim.workflow, name), claim.run_id))
        return holders

    async def find_requests(
        self, requests: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], str]:
        """See StoreTransaction."""
        connection = await self._begin()
        return await key_table.find_requests(connection, requests)

    async def find_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """See StoreTransaction."""
        connection = await self._begin()
        return await key_table.find_keys(connection, keys)

    async def newest_versions(self, workflows: Sequence[str]) -> dict[str, int]:
        """See StoreTransaction."""
        connection = await self._begin()
        rows = await fetch(connection, "workflow_newest", names=list(workflows))
        return {row[0]: row[1] for row in rows}

    async def lock_runs(self, run_ids: Sequence[str]) -> dict[str, LockedRun]:
        """See StoreTransaction."""
        connection = await self._begin()
        rows = await fetch(connection, "run_lock", ids=sorted(set(run_ids)))
        self._versions.update((row[0], row[1]) for row in rows)
        return {
            row[0]: LockedRun(
                run_id=row[0],
                version=row[1],
                workflow=row[2],
                workflow_version=row[3],
                last_step=row[4],
            )
            for row in rows
        }

    async def load_runs(self, requests: Sequence[LoadRequest]) -> dict[str, Run]:
        """See StoreTransaction."""
        connection = await self._begin()
        ids = sorted({request.run_id for request in requests})
        if not ids:
            return {}
        run_rows = await fetch(connection, "run_load", ids=ids)
        steps = await self._load_steps(ids, requests)
        kept: dict[str, list[KeptSignal]] = {run_id: [] for run_id in ids}
        for row in await fetch(connection, "signal_load_kept", run_ids=ids):
            kept[row["run_id"]].append(kept_from_row(row))
        definitions = {request.run_id: request.definition for request in requests}
        return {
            row["id"]: replace(
                run_from_row(row, definitions[row["id"]], self._limits),
                steps=steps[row["id"]],
                kept=Kept.of(tuple(kept[row["id"]])),
            )
            for row in run_rows
        }

    async def _load_steps(
        self, ids: Sequence[str], requests: Sequence[LoadRequest]
    ) -> dict[str, dict[str, Step]]:
        found: dict[str, dict[str, Step]] = {run_id: {} for run_id in ids}
        rows = await fetch(self._session, "step_load_open", run_ids=ids)
        pairs = {(request.run_id, path) for request in requests for path in request.paths}
        if pairs:
            ordered = sorted(pairs)
            rows += await fetch(
                self._session,
                "step_load_named",
                run_ids=[run_id for run_id, _ in ordered],
                paths=[path for _, path in ordered],
            )
        for row in rows:
            found[row["run_id"]][row["path"]] = step_from_row(row)
        return {run_id: dict(sorted(steps.items())) for run_id, steps in found.items()}

    async def load_rows(self, requests: Sequence[RowsRequest]) -> dict[str, dict[str, Step]]:
        """See StoreTransaction."""
        connection = await self._begin()
        rows: list[Record] = []
        paths = sorted({(one.run_id, path) for one in requests for path in one.paths})
        if paths:
            ids, names = _unzipped(paths)
            rows += await fetch(connection, "step_load_named", run_ids=ids, paths=names)
        wholes = sorted({(one.run_id, whole) for one in requests for whole in one.parts_of})
        if wholes:
            ids, names = _unzipped(wholes)
            rows += await fetch(connection, "step_load_parts", run_ids=ids, wholes=names)
        statuses = sorted(
            {(one.run_id, status.value) for one in requests for status in one.statuses}
        )
        if statuses:
            ids, names = _unzipped(statuses)
            rows += await fetch(connection, "step_load_statuses", run_ids=ids, statuses=names)
        found: dict[str, dict[str, Step]] = {one.run_id: {} for one in requests}
        for row in rows:
            found[row["run_id"]][row["path"]] = step_from_row(row)
        return found

    async def known_signals(self, ids: Sequence[SignalId]) -> set[SignalId]:
        """See StoreTransaction."""
        connection = await self._begin()
        rows = await fetch(
            connection,
            "signal_known",
            run_id=[identity.run_id for identity in ids],
            name=[identity.name for identity in ids],
            message_id=[identity.message_id for identity in ids],
        )
        return {SignalId(run_id=row[0], name=row[1], message_id=row[2]) for row in rows}

    async def known_keyed_signals(self, ids: Sequence[KeyedSignalId]) -> set[KeyedSignalId]:
        """See StoreTransaction."""
        connection = await self._begin()
        rows = await fetch(
            connection,
            "keyed_signal_known",
            workflow=[identity.workflow for identity in ids],
            key=[identity.key for identity in ids],
            name=[identity.name for identity in ids],
            message_id=[identity.message_id for identity in ids],
        )
        return {
            KeyedSignalId(workflow=row[0], key=row[1], name=row[2], message_id=row[3])
            for row in rows
        }

    async def take_parked(
        self, run_ids: Sequence[str], keys: Sequence[tuple[str, str]]
    ) -> list[ParkedSignal]:
        """See StoreTransaction."""
        connection = await self._begin()
        rows = await fetch(
            connection,
            "parked_signal_take",
            run_ids=list(run_ids),
            workflow=[workflow for workflow, _ in keys],
            key=[key for _, key in keys],
        )
        taken = [parked_from_row(row) for row in rows]
        return sorted(taken, key=lambda signal: (signal.received_at, signal.id))

    async def save(self, batch: BatchWrite) -> set[str]:
        """See StoreTransaction."""
        connection = await self._begin()
        unlocked = {
            item.run.id for item in batch.runs if item.expected_version is not None
        } - self._versions.keys()
        if unlocked:
            await self.lock_runs(sorted(unlocked))
        written = await saving.save_runs(
            connection, batch, versions=self._versions, claimed=self._claimed
        )
        if written:
            await saving.save_signals(connection, written)
            await saving.save_logs(connection, written, self._caps.log_bytes_max)
        await saving.save_apart(connection, batch)
        self._refused_letter_count += await saving.save_letters(
            connection,
            [*batch.dead_letters, *(letter for item in written for letter in item.letters)],
            rows_max=self._caps.dead_letter_rows_max,
            bytes_max=self._caps.dead_letter_bytes_max,
        )
        return {item.run.id for item in written}

    async def save_alone(self, batch: BatchWrite) -> bool:
        """See StoreTransaction."""
        assert not self.begun, "save_alone comes first"
        derived = saving.derive_alone(batch)
        if derived is None:
            return False
        try:
            for item in batch.runs:
                check_saved(item)
            await saving.save_together(
                self._session,
                batch.runs,
                batch.published,
                pause_epoch=batch.pause_epoch,
                derived=derived,
            )
        except StoreRejected:
            return False  # a version has moved on, or it will be rejected once more
        return True

    async def rearm_timers(self, timers: Sequence[tuple[str, str | None, datetime | None]]) -> None:
        """See StoreTransaction."""
        connection = await self._begin()
        void = [(run_id, path or RUN_PATH) for run_id, path, due_at in timers if due_at is None]
        if void:
            await execute(
                connection,
                "timer_delete",
                run_id=[run_id for run_id, _ in void],
                path=[path for _, path in void],
            )
        if timers:
            latest = {(run_id, path or RUN_PATH): due_at for run_id, path, due_at in timers}
            await execute(
                connection,
                "timer_rearm",
                run_id=[run_id for run_id, _ in latest],
                path=[path for _, path in latest],
                due_at=list(latest.values()),
                partition=[partition_of_run(run_id) for run_id, _ in latest],
            )

    async def steps_state(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Step]]:
        """See StoreTransaction."""
        connection = await self._begin()
        found: dict[str, list[Step]] = {run_id: [] for run_id in run_ids}
        for row in await fetch(connection, "step_list_light", run_ids=list(run_ids)):
            found[row["run_id"]].append(step_from_row(row))
        return found


def _unzipped(pairs: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [run_id for run_id, _ in pairs], [name for _, name in pairs]
