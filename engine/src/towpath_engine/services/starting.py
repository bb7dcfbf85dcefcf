"""Starts inside a batch: check against the workflow, claim keys; create, find or replace runs."""

from collections.abc import Sequence
from datetime import datetime

from towpath_engine.core.create import new_run
from towpath_engine.core.events import CancelRequested, RunBegun
from towpath_engine.core.instants import LATEST, plus_ms
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Cause
from towpath_engine.core.schemas import validate_input
from towpath_engine.core.states import SETTLED_RUN, RunStatus
from towpath_engine.services.batch import Batch, CheckedStart, WorkPoisonedError
from towpath_engine.services.clock import Identity
from towpath_engine.services.definitions import Definitions
from towpath_engine.services.draft import RunDraft
from towpath_engine.services.signalling import Signalling
from towpath_engine.services.work import Outcome, OutcomeKind, StartSpec, Work
from towpath_engine.store.interface import KeyClaim, KeyHolder
from towpath_protocol.errors import ErrorCode
from towpath_protocol.requests import OnConflict

_CLAIMS_MAX = 100


class Starting:
    """`claim` before the runs are loaded, `apply` in the order of the batch.

    A claim finds out who holds a key at the beginning of the batch. What a start then meets is
    decided in its turn: a run that an earlier work of the batch created, replaced or settled.
    """

    def __init__(
        self,
        *,
        definitions: Definitions,
        identity: Identity,
        signalling: Signalling,
        limits: CoreLimits,
    ) -> None:
        self._definitions = definitions
        self._identity = identity
        self._signalling = signalling
        self._limits = limits

    async def claim(self, batch: Batch, works: Sequence[Work]) -> None:
        """Claim the names of all starts, and point each at the run that it may be answered with.

        A start is checked before it claims: a refused start must not leave a claimed key behind.
        """
        starts = [(work, work.start) for work in works if work.start is not None]
        if not starts:
            return
        newest = await batch.tx.newest_versions(sorted({start.workflow for _, start in starts}))
        valid: list[CheckedStart] = []
        refused: list[tuple[Work, StartSpec, Outcome]] = []
        for work, start in starts:
            checked = await self._check(work, start, newest)
            if isinstance(checked, Outcome):
                refused.append((work, start, checked))
            else:
                valid.append(checked)
                batch.starts[start.run_id] = checked
        await _settle_refused(batch, refused)
        holders = await self._holders(batch, valid)
        seen: set[tuple[str, str]] = set()
        for item in valid:
            holder = holders.get(item.start.run_id)
            if holder is not None:
                _point(batch, item, holder, seen)

    def apply(self, batch: Batch, work: Work, start: StartSpec) -> None:
        """Begin the run, or answer with the one that is there; then its signal, if it has one."""
        request = _request(start)
        answered = batch.answered.get(request) if request is not None else None
        if answered is not None or work.same_request:
            self._answer_repeat(batch, work, start, answered or work.run_id or "")
            return
        item = batch.starts.get(start.run_id)
        if item is None:
            return  # refused by `claim`
        if item.repeats_batch:
            # The start that it repeats was not accepted, so this one has to claim for itself.
            batch.result.again.append(work)
            return
        holder = None if start.key is None else batch.live_keys.get((start.workflow, start.key))
        if holder is None or holder == start.run_id:
            self._begin(batch, item)
        else:
            self._meet(batch, item, holder)

    def _meet(self, batch: Batch, item: CheckedStart, holder: str) -> None:
        """Another run has the key."""
        work, start = item.work, item.start
        draft = batch.drafts.get(holder)
        if draft is not None and draft.run.status in SETTLED_RUN:
            if draft.dirty:
                # It settled in this batch, which frees the key when it is written.
                self._begin(batch, item)
            else:
                _claim_again(batch, work, holder)
            return
        match start.on_conflict:
            case OnConflict.EXISTING:
                work.run_id = holder
                if start.request_id is not None:
                    batch.requests.append((start.workflow, start.request_id, holder))
                self._answer(batch, work, start, draft)
            case OnConflict.REJECT:
                batch.settle(work, _conflict(start, holder))
            case OnConflict.REPLACE:
                self._replace(batch, item, draft, holder)

    def _replace(
        self, batch: Batch, item: CheckedStart, draft: RunDraft | None, holder: str
    ) -> None:
        """Cancel the live holder of the key, then begin.

        The holder is locked since before it was looked at, and only its end frees the key: nobody
        can take the key between the two writes of this transaction.
        """
        work, start = item.work, item.start
        if draft is None:
            batch.settle(work, _unreadable(holder))
            return
        if draft.run.status is RunStatus.COMPENSATING:
            batch.settle(work, _compensating(holder))
            return
        reason = f"replaced by run {start.run_id}"
        cause = Cause(type="cancel", kind="replaced", by=start.triggered_by, reason=reason)
        cancel = CancelRequested(
            seed=self._identity.new_seed(), cause=cause, by=start.triggered_by, reason=reason
        )
        outcome = batch.decide(draft, cancel)
        if outcome.kind is not OutcomeKind.APPLIED:
            batch.settle(work, outcome)
            return
        batch.replacing.add(start.run_id)
        self._begin(batch, item, replaced=holder)

    def _begin(self, batch: Batch, item: CheckedStart, *, replaced: str | None = None) -> None:
        work, start = item.work, item.start
        draft = self._draft(batch, item)
        work.run_id = start.run_id
        cause = work.cause or Cause(
            type="start",
            by=start.triggered_by,
            reason=None if replaced is None else f"replaces run {replaced}",
        )
        event = RunBegun(seed=self._identity.new_seed(), cause=cause)
        outcome = batch.decide(draft, event)
        if outcome.kind is not OutcomeKind.APPLIED:
            # Its key is claimed, and perhaps its predecessor cancelled: the transaction must go.
            raise WorkPoisonedError(work, outcome)
        if start.key is not None:
            batch.live_keys[start.workflow, start.key] = start.run_id
        self._answer(batch, work, start, draft)

    def _answer_repeat(self, batch: Batch, work: Work, start: StartSpec, run_id: str) -> None:
        """The request id was used before: what became of that request is the answer."""
        work.run_id = run_id
        draft = batch.drafts.get(run_id)
        if draft is not None and _was_another_request(draft, start):
            batch.settle(work, _request_conflict(start, run_id))
            return
        self._answer(batch, work, start, draft)

    def _answer(self, batch: Batch, work: Work, start: StartSpec, draft: RunDraft | None) -> None:
        request = _request(start)
        if request is not None and work.run_id is not None:
            batch.answered[request] = work.run_id
        kind, fate = OutcomeKind.APPLIED, None
        if work.signal is not None and draft is not None:
            outcome = self._signalling.apply(batch, work, draft, work.signal)
            if outcome.kind not in {OutcomeKind.APPLIED, OutcomeKind.DUPLICATE}:
                if outcome.code == ErrorCode.SCHEMA_FAILED and work.run_id == start.run_id:
                    # Both or neither: the run that it would have begun must go, too.
                    raise WorkPoisonedError(work, outcome)
                batch.settle(work, outcome)
                return
            kind, fate = outcome.kind, outcome.fate
        created = work.run_id == start.run_id
        batch.settle(
            work, Outcome(kind=kind, run_id=work.run_id, deduplicated=not created, fate=fate)
        )

    async def _check(
        self, work: Work, start: StartSpec, newest: dict[str, int]
    ) -> CheckedStart | Outcome:
        version = start.version or newest.get(start.workflow)
        definition = None
        if version is not None:
            definition = await self._definitions.get(start.workflow, version)
        if version is None or definition is None:
            return _not_deployed(start, known=start.workflow in newest)
        problems = validate_input(definition, start.input)
        if problems:
            return Outcome(
                kind=OutcomeKind.INVALID,
                code=ErrorCode.SCHEMA_FAILED,
                message=f"input does not fit the schema of {start.workflow!r}: {problems[0]}",
                details={"problems": [str(problem) for problem in problems]},
            )
        return CheckedStart(work=work, start=start, definition=definition, version=version)

    @staticmethod
    async def _holders(batch: Batch, valid: Sequence[CheckedStart]) -> dict[str, KeyHolder]:
        """Who holds the names that each start wants, by the id of the run that it would create."""
        wanting = [
            item.start
            for item in valid
            if item.start.key is not None or item.start.request_id is not None
        ]
        if not wanting:
            return {}
        holders = await batch.tx.claim_keys(
            [
                KeyClaim(
                    run_id=start.run_id,
                    workflow=start.workflow,
                    key=start.key,
                    request_id=start.request_id,
                )
                for start in wanting
            ]
        )
        return {start.run_id: holder for start, holder in zip(wanting, holders, strict=True)}

    def _draft(self, batch: Batch, item: CheckedStart) -> RunDraft:
        start = item.start
        run = new_run(
            run_id=start.run_id,
            definition=item.definition,
            workflow_version=item.version,
            limits=self._limits,
            now=batch.now,
            input=start.input,
            key=start.key,
            request_id=start.request_id,
            start_at=_start_at(start, batch.now),
            priority=start.priority,
            tags=start.tags or (),
            context=start.context,
            triggered_by=start.triggered_by,
            traceparent=start.traceparent,
            restarted_from=start.restarted_from,
            parent=start.parent,
        )
        draft = RunDraft(run, None)
        batch.drafts[run.id] = draft
        return draft


def _point(batch: Batch, item: CheckedStart, holder: KeyHolder, seen: set[tuple[str, str]]) -> None:
    """Note what the claim of one start found out; `seen` are the requests of starts before it."""
    work, start = item.work, item.start
    request = _request(start)
    if holder.by_request:
        # Of an earlier start of this batch the outcome is not known yet.
        item.repeats_batch = request in seen
        work.same_request = not item.repeats_batch
    elif start.key is not None:
        batch.live_keys[start.workflow, start.key] = holder.run_id
    if request is not None and not work.same_request:
        seen.add(request)
    if holder.run_id not in batch.starts:
        work.run_id = holder.run_id


def _claim_again(batch: Batch, work: Work, holder: str) -> None:
    """The holder has settled since the claim: its key is free by now, or claimed by somebody."""
    work.claim_count += 1
    if work.claim_count > _CLAIMS_MAX:
        # So often nobody loses a race: the key was not freed, and the start would never end.
        raise WorkPoisonedError(work, _unreadable(holder))
    batch.result.again.append(work)


def _request(start: StartSpec) -> tuple[str, str] | None:
    return None if start.request_id is None else (start.workflow, start.request_id)


def _was_another_request(draft: RunDraft, start: StartSpec) -> bool:
    """Whether the request id started the run by another verb, or as the restart of another run.

    A run that was only the answer to a request (as the holder of the key) says nothing of it.
    """
    if draft.run.request_id != start.request_id:
        return start.restarted_from is not None
    return draft.run.restarted_from != start.restarted_from


async def _settle_refused(batch: Batch, refused: Sequence[tuple[Work, StartSpec, Outcome]]) -> None:
    """Refuse these, unless an earlier start with the same request id was accepted: what became of
    that one is the answer, whatever has been deployed since."""
    names = {(start.workflow, start.request_id) for _, start, _ in refused if start.request_id}
    known = await batch.tx.find_requests(sorted(names)) if names else {}
    for work, start, outcome in refused:
        run_id = known.get((start.workflow, start.request_id or ""))
        if run_id is None:
            batch.settle(work, outcome)
        else:
            work.run_id, work.same_request = run_id, True


def _start_at(start: StartSpec, now: datetime) -> datetime | None:
    if start.start_at is not None:
        return min(LATEST, start.start_at)
    return None if start.delay_ms is None else plus_ms(now, start.delay_ms)


def _not_deployed(start: StartSpec, *, known: bool) -> Outcome:
    which = f" version {start.version}" if known else ""
    return Outcome(
        kind=OutcomeKind.UNKNOWN_WORKFLOW,
        code=ErrorCode.VERSION_NOT_FOUND if known else ErrorCode.WORKFLOW_NOT_FOUND,
        message=f"workflow {start.workflow!r}{which} is not deployed",
    )


def _conflict(start: StartSpec, holder: str) -> Outcome:
    return Outcome(
        kind=OutcomeKind.REFUSED,
        run_id=holder,
        code=ErrorCode.KEY_CONFLICT,
        message=f"a live run of {start.workflow!r} holds the key {start.key!r}",
        details={"run_id": holder},
    )


def _request_conflict(start: StartSpec, run_id: str) -> Outcome:
    return Outcome(
        kind=OutcomeKind.REFUSED,
        run_id=run_id,
        code=ErrorCode.REQUEST_CONFLICT,
        message=f"the request id {start.request_id!r} was used for something else: run {run_id}",
        details={"run_id": run_id},
    )


def _compensating(holder: str) -> Outcome:
    return Outcome(
        kind=OutcomeKind.REFUSED,
        run_id=holder,
        code=ErrorCode.COMPENSATING,
        message=f"run {holder} holds the key and is undoing its steps: it can't be replaced",
        details={"run_id": holder},
    )


def _unreadable(holder: str) -> Outcome:
    return Outcome(
        kind=OutcomeKind.BROKEN,
        run_id=holder,
        code=ErrorCode.POISON,
        message=f"run {holder} holds the key, and is settled or can't be read",
    )
