"""Load → decide → save + outbox, one transaction a batch: where the shell meets the core.

The order inside the transaction is the lock order of the whole engine: keys by (workflow, key),
then runs by id. A batch costs a constant number of statements, whatever is in it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import structlog

from towpath_engine.core.model import Run
from towpath_engine.core.paths import ROOT, owner_of
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.metrics import Metrics
from towpath_engine.services.admission import Admission, Admitting
from towpath_engine.services.asking import Patience, Round, RowsMissing, broken
from towpath_engine.services.batch import Batch, BatchResult, WorkPoisonedError
from towpath_engine.services.clock import Clock
from towpath_engine.services.definitions import Definitions
from towpath_engine.services.draft import Drafting, RunDraft
from towpath_engine.services.reviving import apply_revival, claim_revived, confirm_revived
from towpath_engine.services.run_cache import RunCache
from towpath_engine.services.signalling import Signalling, nobody
from towpath_engine.services.starting import Starting
from towpath_engine.services.work import Work
from towpath_engine.store.errors import PausesChanged, StoreUnavailable
from towpath_engine.store.interface import BatchWrite, LoadRequest, Store

log = structlog.get_logger(__name__)


_DECISIONS_MAX = 10
"""How often a batch is decided again because pauses have changed, before it waits a moment."""


class Applier:
    """Applies batches of work. `published` ids ride along: their outbox rows are deleted."""

    def __init__(  # noqa: PLR0913 - one keyword per part of a batch
        self,
        *,
        store: Store,
        clock: Clock,
        admission: Admission,
        drafting: Drafting,
        definitions: Definitions,
        cache: RunCache,
        starting: Starting,
        signalling: Signalling,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._clock = clock
        self._admission = admission
        self._drafting = drafting
        self._definitions = definitions
        self._cache = cache
        self._starting = starting
        self._signalling = signalling
        self._lost = metrics.runs_lost

    async def apply(self, works: Sequence[Work], published: Sequence[str]) -> BatchResult:
        """Apply the works in order and commit.

        Raises StoreUnavailable (retry the batch), StoreRejected (bisect it) or WorkPoisonedError
        (apply the others without it). Other work that can't be applied for a reason of its own
        ends with outcome BROKEN and does not stop the rest.
        """
        for _ in range(_DECISIONS_MAX):
            with self._admission.admitting() as admitting:
                try:
                    return await self._apply(works, published, admitting)
                except PausesChanged:
                    admitting.forget()
                    for work in works:
                        work.reset()
            await self._admission.reload()
        message = "pauses have changed under every decision"
        raise StoreUnavailable(message)

    async def _apply(
        self, works: Sequence[Work], published: Sequence[str], admitting: Admitting
    ) -> BatchResult:
        async with self._store.transaction() as tx:
            batch = self._decide_cached(Batch(tx, self._clock.now(), admitting), works)
            if batch is not None and await tx.save_alone(self._to_write(batch, published)):
                return self._committed(batch)
            tried = (
                {}
                if batch is None
                else {key: d.expected_version for key, d in batch.drafts.items()}
            )
            admitting.forget()
            batch = Batch(tx, self._clock.now(), admitting)
            await self._starting.claim(batch, works)
            await claim_revived(batch, works)
            keys = sorted({work.key for work in works if work.key is not None})
            if keys:
                batch.live_keys.update(await tx.find_keys(keys))
            await self._load(batch, works, tried)
            await confirm_revived(batch, works)
            await self._signalling.find_repeats(batch, works)
            await self._apply_all(batch, works)
            await self._signalling.take_parked(batch)
            await self._save(batch, published)
        return self._committed(batch)

    def _committed(self, batch: Batch) -> BatchResult:
        for draft in batch.result.drafts:
            if draft.run.id in batch.reviving:
                self._cache.drop(draft.run.id)  # it was loaded with all its steps
            else:
                self._cache.put(draft.to_keep())
        return batch.result

    def _decide_cached(self, batch: Batch, works: Sequence[Work]) -> Batch | None:
        """Decide on cached copies without a look at the store, or None when that is not enough.

        Only what is written is fenced by its version. A work that changes nothing (a report that
        looks stale, a timer that is not due) must see the run as it is before it is told so.
        """
        for work in works:
            if work.event is None or work.run_id is None or work.signal is not None:
                return None
            if work.revival is not None:
                return None  # any step of the run may be needed
            if work.run_id not in batch.drafts:
                cached = self._cache.newest(work.run_id)
                if cached is None:
                    return None
                batch.drafts[cached.id] = RunDraft(cached, cached.version)
        try:
            for work in works:
                self._apply_one(batch, work)
        except RowsMissing:
            return None
        is_fenced = not batch.result.rearmed and all(draft.dirty for draft in batch.drafts.values())
        return batch if is_fenced else None

    async def _load(
        self, batch: Batch, works: Sequence[Work], tried: Mapping[str, int | None]
    ) -> None:
        """Lock the existing runs, take current copies from the cache and load the others.

        `tried` are the versions of copies that were decided on in vain.
        """
        wanted = {work.run_id for work in works if work.run_id is not None}
        wanted.update(batch.live_keys.values())
        wanted -= batch.starts.keys()
        if not wanted:
            return
        revived = {work.run_id for work in works if work.revival is not None}
        requests: list[LoadRequest] = []
        for run_id, row in (await batch.tx.lock_runs(sorted(wanted))).items():
            if tried.get(run_id, row.version) != row.version:
                self._lost.inc()
            cached = None if run_id in revived else self._cache.get(run_id, row.version)
            if cached is not None:
                batch.drafts[run_id] = RunDraft(cached, row.version)
                continue
            definition = await self._definitions.get(row.workflow, row.workflow_version)
            if definition is None:  # versions are immutable and stay as long as runs use them
                log.error("definition_missing", run_id=run_id, workflow=row.workflow)
                continue
            places = definition.steps if run_id in revived else definition.referenced
            # Of inner steps a decision asks for the rows that it needs: there may be many of each.
            paths = frozenset(place for place in places if owner_of(place) == ROOT)
            if row.last_step is not None:
                paths |= {row.last_step}
            requests.append(LoadRequest(run_id=run_id, definition=definition, paths=paths))
        if requests:
            for run_id, run in (await batch.tx.load_runs(requests)).items():
                batch.drafts[run_id] = RunDraft(run, run.version)

    async def _apply_all(self, batch: Batch, works: Sequence[Work]) -> None:
        """Apply the works in order, and read the rows that decisions ask for; see `asking`."""
        pending, patience = list(works), Patience()
        while pending:
            turn = Round()
            for work in pending:
                if turn.must_wait(work, batch.runs_of(work)):
                    continue
                try:
                    self._apply_one(batch, work)
                except RowsMissing as missing:
                    if patience.is_over(work, missing):
                        log.exception("decision_asks_in_vain", run_id=missing.request.run_id)
                        raise WorkPoisonedError(work, broken(missing)) from missing
                    turn.ask(work, missing)
            pending = turn.put_off
            if pending:
                found = await batch.tx.load_rows(list(turn.requests.values()))
                for run_id, rows in found.items():
                    batch.drafts[run_id].know(rows)

    def _apply_one(self, batch: Batch, work: Work) -> None:
        if work.start is not None:
            self._starting.apply(batch, work, work.start)
            return
        draft = batch.draft_of(work)
        if work.revival is not None:
            apply_revival(batch, work, draft, work.revival)
            return
        if work.signal is not None:
            outcome = self._signalling.apply(batch, work, draft, work.signal)
        elif draft is None or work.event is None:
            outcome = nobody(work)
        else:
            outcome = batch.decide(draft, work.event)
        batch.settle(work, outcome)

    def _to_write(self, batch: Batch, published: Sequence[str]) -> BatchWrite:
        """Everything that the batch has decided; its changed drafts are the result's."""
        dirty = [draft for _, draft in sorted(batch.drafts.items()) if draft.dirty]
        batch.result.drafts = dirty
        return BatchWrite(
            runs=[draft.to_saved(self._drafting, batch.now) for draft in dirty],
            published=list(published),
            keyed_signals=batch.keyed_signals,
            requests=batch.requests,
            parked=batch.parked,
            unparked=batch.unparked,
            dead_letters=batch.letters,
            pause_epoch=(
                batch.admitting.pause_epoch if any(draft.admitted for draft in dirty) else None
            ),
        )

    async def _save(self, batch: Batch, published: Sequence[str]) -> None:
        write = self._to_write(batch, published)
        if any(getattr(write, name) for name in write.__struct_fields__):
            written = await batch.tx.save(write)
            drafts = batch.result.drafts
            lost = {draft.run.id for draft in drafts} - written
            if lost & (batch.replacing | batch.reviving):
                # The locks rule it out. Should they fail, no run is cancelled for nothing, and no
                # key is held by a run that stays settled.
                message = "a run could not be written with the key that was claimed for it"
                raise StoreUnavailable(message)
            batch.result.letters_dropped = batch.tx.refused_letter_count
            if lost:
                self._lost.inc(len(lost))
                batch.drop_losers(lost)
                batch.result.drafts = [draft for draft in drafts if draft.run.id in written]
        rearmed = [(run.id, path, _due(run, path)) for run, path in batch.result.rearmed]
        if rearmed:
            await batch.tx.rearm_timers(rearmed)


def _due(run: Run, path: str | None) -> datetime | None:
    if run.status in SETTLED_RUN:
        return None
    if path is None:
        return run.due_at
    step = run.steps.get(path)
    return None if step is None else step.due_at
