"""The transaction of the memory store: the same contract on a fork of the dictionaries."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from towpath_engine.core.kept import Kept
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import SETTLED_RUN, SETTLED_STEP
from towpath_engine.store.derive import (
    RUN_PATH,
    Derived,
    Timer,
    check_saved,
    derive,
    run_timer,
    step_timer,
)
from towpath_engine.store.errors import PausesChanged, StoreRejected
from towpath_engine.store.interface import (
    BatchWrite,
    KeyClaim,
    KeyedSignalId,
    KeyHolder,
    LoadRequest,
    LockedRun,
    ParkedSignal,
    RowsRequest,
    SavedRun,
    SignalId,
)
from towpath_engine.store.invariants import (
    check_run,
    check_step,
    check_transition,
    may_change,
    may_go_on,
)
from towpath_engine.store.keys import resolve_claims
from towpath_engine.store.leases import partition_of_run
from towpath_engine.store.memory_state import MemoryState, Name
from towpath_engine.store.records import DeadLetter, LogLine
from towpath_engine.store.rows import letter_bytes
from towpath_engine.store.saving import cap_letters, derive_alone
from towpath_engine.store.transaction import StoreCaps

SIGNAL_ID_DAYS = timedelta(days=7)


class MemoryTransaction:
    """One open transaction; see StoreTransaction for the contract. `now` is its instant."""

    def __init__(
        self, state: MemoryState, *, limits: CoreLimits, caps: StoreCaps, now: datetime
    ) -> None:
        self._state = state
        self._limits = limits
        self._caps = caps
        self._now = now
        self._refused_letter_count = 0

    @property
    def state(self) -> MemoryState:
        """The fork, as changed so far."""
        return self._state

    @property
    def refused_letter_count(self) -> int:
        """See StoreTransaction."""
        return self._refused_letter_count

    async def claim_keys(self, claims: Sequence[KeyClaim]) -> list[KeyHolder]:
        """See StoreTransaction."""
        state = self._state
        for claim in claims:
            if claim.request_id is not None:
                state.requests.setdefault((claim.workflow, claim.request_id), claim.run_id)
        requests = dict(state.requests)
        for claim in claims:
            if claim.key is not None and (
                claim.request_id is None
                or requests[claim.workflow, claim.request_id] == claim.run_id
            ):
                state.keys.setdefault((claim.workflow, claim.key), claim.run_id)
        holders = resolve_claims(claims, requests, state.keys)
        for claim, holder in zip(claims, holders, strict=True):
            name = (claim.workflow, claim.request_id or "")
            if holder.run_id != claim.run_id and requests.get(name) == claim.run_id:
                del state.requests[name]
        return holders

    async def find_requests(self, requests: Sequence[Name]) -> dict[Name, str]:
        """See StoreTransaction."""
        held = self._state.requests
        return {name: held[name] for name in requests if name in held}

    async def find_keys(self, keys: Sequence[Name]) -> dict[Name, str]:
        """See StoreTransaction."""
        held = self._state.keys
        return {name: held[name] for name in keys if name in held}

    async def newest_versions(self, workflows: Sequence[str]) -> dict[str, int]:
        """See StoreTransaction."""
        known = self._state.workflows
        return {name: known[name][-1].version for name in workflows if name in known}

    async def lock_runs(self, run_ids: Sequence[str]) -> dict[str, LockedRun]:
        """See StoreTransaction."""
        runs = self._state.runs
        return {
            run_id: LockedRun(
                run_id=run_id,
                version=runs[run_id].version,
                workflow=runs[run_id].workflow,
                workflow_version=runs[run_id].workflow_version,
                last_step=runs[run_id].last_step,
            )
            for run_id in sorted(set(run_ids))
            if run_id in runs
        }

    async def load_runs(self, requests: Sequence[LoadRequest]) -> dict[str, Run]:
        """See StoreTransaction."""
        loaded: dict[str, Run] = {}
        for request in requests:
            run = self._state.runs.get(request.run_id)
            if run is None:
                continue
            opened = self._state.open_of(run.id)
            steps = self._state.steps.get(run.id, {})
            signals = self._state.signals.get(run.id, {})
            loaded[run.id] = replace(
                run,
                definition=request.definition,
                limits=self._limits,
                steps={
                    path: step
                    for path, step in sorted(steps.items())
                    if path in opened or path in request.paths
                },
                kept=Kept.of(
                    tuple(
                        signals[number].signal
                        for number in sorted(signals)
                        if signals[number].consumed_by is None
                    )
                ),
            )
        return loaded

    async def load_rows(self, requests: Sequence[RowsRequest]) -> dict[str, dict[str, Step]]:
        """See StoreTransaction."""
        return {
            request.run_id: {
                path: step
                for path, step in self._state.steps.get(request.run_id, {}).items()
                if request.wants(step)
            }
            for request in requests
        }

    async def known_signals(self, ids: Sequence[SignalId]) -> set[SignalId]:
        """See StoreTransaction."""
        return {identity for identity in ids if self._has_signal(identity)}

    def _has_signal(self, identity: SignalId) -> bool:
        return any(
            row.signal.name == identity.name and row.signal.message_id == identity.message_id
            for row in self._state.signals.get(identity.run_id, {}).values()
        )

    async def known_keyed_signals(self, ids: Sequence[KeyedSignalId]) -> set[KeyedSignalId]:
        """See StoreTransaction."""
        known = self._state.keyed_signals
        oldest = self._now - SIGNAL_ID_DAYS
        return {identity for identity in ids if identity in known and known[identity][1] > oldest}

    async def take_parked(self, run_ids: Sequence[str], keys: Sequence[Name]) -> list[ParkedSignal]:
        """See StoreTransaction."""
        runs, names = set(run_ids), set(keys)
        taken = [
            row
            for row in self._state.parked.values()
            if row.run_id in runs or (row.workflow, row.key) in names
        ]
        for row in taken:
            del self._state.parked[row.id]
        return sorted(taken, key=lambda signal: (signal.received_at, signal.id))

    async def save(self, batch: BatchWrite) -> set[str]:
        """See StoreTransaction."""
        if batch.pause_epoch not in {None, self._state.pause_epoch}:
            message = "the pauses have changed"
            raise PausesChanged(message)
        for item in batch.runs:
            check_saved(item)
        ordered = sorted(batch.runs, key=lambda item: item.run.id)
        known = [item for item in ordered if item.expected_version is not None]
        fresh = [item for item in ordered if item.expected_version is None]
        written = [item for item in known if self._update_run(item)]
        self._free_keys(written)
        self._free_keys(fresh)
        new = self._insert_runs(fresh)
        written += new
        for item in written:
            self._save_steps(item)
        self._save_derived(derive(written))
        for item in written:
            self._save_histories(item)
        self._save_logs([row for item in written for row in item.logs])
        self._save_outbox(written, batch.published)
        self._save_apart(batch)
        letters = [letter for item in written for letter in item.letters]
        self._save_letters([*batch.dead_letters, *letters])
        return {item.run.id for item in written}

    async def save_alone(self, batch: BatchWrite) -> bool:
        """See StoreTransaction."""
        if derive_alone(batch) is None:
            return False
        fork = MemoryTransaction(
            self._state.fork(), limits=self._limits, caps=self._caps, now=self._now
        )
        try:
            written = await fork.save(batch)
        except StoreRejected:
            return False
        if len(written) < len(batch.runs):
            return False
        self._state = fork.state
        return True

    def _update_run(self, item: SavedRun) -> bool:
        stored = self._state.runs.get(item.run.id)
        if stored is None or stored.version != item.expected_version:
            return False
        if stored.status in SETTLED_RUN and not may_go_on(stored, item.run):
            message = "run is settled and can't change"
            raise StoreRejected(message, constraint="run_settled_is_settled")
        check_run(item.run)
        self._state.runs[item.run.id] = replace(item.run, steps={}, kept=())
        return True

    def _insert_runs(self, fresh: Sequence[SavedRun]) -> list[SavedRun]:
        """As keys.claim_for_new_runs: of two that want one name the first gets it, and who lost
        one name does not keep the other."""
        state = self._state
        for item in fresh:
            for names, name in _names(state, item.run):
                names.setdefault(name, item.run.id)
        lost = [
            item
            for item in fresh
            if any(names[name] != item.run.id for names, name in _names(state, item.run))
        ]
        for item in lost:
            for names, name in _names(state, item.run):
                if names.get(name) == item.run.id:
                    del names[name]
        written = [item for item in fresh if item not in lost and item.run.id not in state.runs]
        for item in written:
            check_run(item.run)
            state.runs[item.run.id] = replace(item.run, steps={}, kept=())
        return written

    def _free_keys(self, written: Sequence[SavedRun]) -> None:
        for item in written:
            run = item.run
            if run.status in SETTLED_RUN and run.key is not None:
                name = (run.workflow, run.key)
                if self._state.keys.get(name) == run.id:
                    del self._state.keys[name]

    def _save_steps(self, item: SavedRun) -> None:
        steps = dict(self._state.steps.get(item.run.id, {}))
        for step in item.steps:
            check_step(step)
            stored = steps.get(step.path)
            if stored is None and item.before is not None and step.path in item.before.steps:
                message = "a step that the caller had loaded does not exist"
                raise StoreRejected(message, constraint="step_exists")
            if (
                stored is not None
                and stored.status in SETTLED_STEP
                and not may_change(stored, step)
            ):
                message = "step is settled and can't change"
                raise StoreRejected(message, constraint="step_settled_is_settled")
            steps[step.path] = step
        self._state.steps[item.run.id] = steps

    def _save_derived(self, derived: Derived) -> None:
        state = self._state
        for row in derived.opened:
            state.open_steps[row.run_id] = {**state.open_of(row.run_id), row.path: row}
        for run_id, path in derived.closed:
            rest = {p: row for p, row in state.open_of(run_id).items() if p != path}
            state.open_steps[run_id] = rest
        for timer in derived.armed:
            stored = state.timers.get((timer.run_id, timer.path))
            if stored is None or _replaces(timer, stored):
                state.timers[timer.run_id, timer.path] = timer
        for place in derived.disarmed:
            state.timers.pop(place, None)
        for ready in derived.held:
            state.ready[ready.run_id, ready.path] = ready
        for place in derived.admitted:
            state.ready.pop(place, None)
        settled = {run.id for run in derived.settled_runs}
        if settled:
            for place in [place for place in state.timers if place[0] in settled]:
                del state.timers[place]

    def _save_histories(self, item: SavedRun) -> None:
        state, run_id = self._state, item.run.id
        for row in item.transitions:
            check_transition(row)
        state.transitions[run_id] = (*state.transitions.get(run_id, ()), *item.transitions)
        signals = dict(state.signals.get(run_id, {}))
        for row in item.signals:
            if any(
                old.signal.name == row.signal.name
                and old.signal.message_id == row.signal.message_id
                for old in signals.values()
            ):
                message = "the run has this signal"
                raise StoreRejected(message, constraint="signal_message_id_once")
            if row.signal.number in signals:
                message = "the run has a signal of this number"
                raise StoreRejected(message, constraint="signal_pkey")
            signals[row.signal.number] = row
        for taken in item.consumed:
            old = signals.get(taken.number)
            if old is None or old.consumed_by is not None:
                message = "a signal is unknown or was consumed before"
                raise StoreRejected(message, constraint="signal_consumed_once")
            signals[taken.number] = replace(old, consumed_by=taken.consumed_by)
        state.signals[run_id] = signals

    def _save_logs(self, logs: Sequence[LogLine]) -> None:
        state = self._state
        for line in logs:
            state.log_count += 1
            numbered = (state.log_count, replace(line, cut=False))
            state.logs[line.run_id] = (*state.logs.get(line.run_id, ()), numbered)
        for run_id, path, attempt in {(r.run_id, r.path, r.attempt) for r in logs}:
            self._trim_logs(run_id, path, attempt)

    def _trim_logs(self, run_id: str, path: str, attempt: int) -> None:
        rows = self._state.logs[run_id]
        mine = [row for row in rows if (row[1].path, row[1].attempt) == (path, attempt)]
        size, stays = 0, list[int]()
        for number, line in reversed(mine):
            size += len(line.lines)
            if not stays or size <= self._caps.log_bytes_max:
                stays.append(number)
        if len(stays) == len(mine):
            return
        gone = {number for number, _ in mine} - set(stays)
        self._state.logs[run_id] = tuple(
            (number, replace(line, cut=True) if number == stays[-1] else line)
            for number, line in rows
            if number not in gone
        )

    def _save_outbox(self, written: Sequence[SavedRun], published: Sequence[str]) -> None:
        outbox = self._state.outbox
        dead = {(item.run.id, token) for item in written for token in item.revoked}
        for row in list(outbox.values()):
            if row.token is not None and (row.run_id, row.token) in dead:
                del outbox[row.id]
        for published_id in published:
            outbox.pop(published_id, None)
        for row in (row for item in written for row in item.outbox):
            if row.id in outbox:
                message = "the outbox has this id"
                raise StoreRejected(message, constraint="outbox_pkey")
            outbox[row.id] = row

    def _save_apart(self, batch: BatchWrite) -> None:
        state = self._state
        for workflow, request, run_id in batch.requests:
            state.requests.setdefault((workflow, request), run_id)
        for identity, run_id in batch.keyed_signals:
            state.keyed_signals[identity] = (run_id, self._now)
        for parked_id in batch.unparked:
            state.parked.pop(parked_id, None)
        for row in batch.parked:
            state.parked.setdefault(row.id, row)

    def _save_letters(self, letters: Sequence[DeadLetter]) -> None:
        stored = self._state.letters
        kept, refused = cap_letters(
            letters,
            rows_left=self._caps.dead_letter_rows_max - len(stored),
            bytes_left=self._caps.dead_letter_bytes_max - sum(map(letter_bytes, stored.values())),
        )
        self._refused_letter_count += refused
        for letter in kept:
            stored.setdefault(letter.id, letter)

    async def rearm_timers(self, timers: Sequence[tuple[str, str | None, datetime | None]]) -> None:
        """See StoreTransaction."""
        for run_id, path, due_at in timers:
            place = (run_id, path or RUN_PATH)
            if due_at is None:
                self._state.timers.pop(place, None)
            run = self._state.runs.get(run_id)
            if run is None or run.status in SETTLED_RUN:
                continue
            real = self._real_timer(run, path)
            instants = [at for at in (due_at, None if real is None else real.due_at) if at]
            if instants:
                due = min(instants)
                self._state.timers[place] = self._believed_timer(run, path, due)

    def _real_timer(self, run: Run, path: str | None) -> Timer | None:
        if path is None:
            return run_timer(run, run)
        step = self._state.steps.get(run.id, {}).get(path)
        return None if step is None else step_timer(run, step)

    def _believed_timer(self, run: Run, path: str | None, due_at: datetime) -> Timer:
        real = self._real_timer(run, path)
        preemptible = run.cursor is None and run.start_at is None
        if path is not None:
            preemptible = real is None or real.preemptible or real.due_at != due_at
        return Timer(
            run_id=run.id,
            path=path or RUN_PATH,
            due_at=due_at,
            preemptible=preemptible,
            last_at=due_at,
            partition=partition_of_run(run.id),
        )

    async def steps_state(self, run_ids: Sequence[str]) -> Mapping[str, Sequence[Step]]:
        """See StoreTransaction."""
        return {
            run_id: [
                replace(step, input=None, output=None)
                for _, step in sorted(self._state.steps.get(run_id, {}).items())
            ]
            for run_id in run_ids
        }


def _names(state: MemoryState, run: Run) -> list[tuple[dict[Name, str], Name]]:
    """The names that the run needs, each with the table of its kind."""
    names: list[tuple[dict[Name, str], Name]] = []
    if run.request_id is not None:
        names.append((state.requests, (run.workflow, run.request_id)))
    if run.key is not None and run.status not in SETTLED_RUN:
        names.append((state.keys, (run.workflow, run.key)))
    return names


def _replaces(fresh: Timer, stored: Timer) -> bool:
    """As timer_save.sql has it."""
    return (
        fresh.due_at < stored.due_at
        or (stored.due_at <= fresh.last_at and fresh.due_at != stored.due_at)
        or fresh.preemptible != stored.preemptible
    )
