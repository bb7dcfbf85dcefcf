"""Starts inside a batch: check against the workflow, claim keys, create or find the run."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from towpath_engine.core.create import new_run
from towpath_engine.core.definition import Definition
from towpath_engine.core.events import RunBegun
from towpath_engine.core.instants import LATEST, plus_ms
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Cause, Run
from towpath_engine.core.schemas import validate_input
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.services.batch import Batch, WorkPoisonedError
from towpath_engine.services.clock import Identity
from towpath_engine.services.definitions import Definitions
from towpath_engine.services.draft import RunDraft
from towpath_engine.services.signalling import Signalling
from towpath_engine.services.work import Outcome, OutcomeKind, StartSpec, Work
from towpath_engine.store.interface import KeyClaim, KeyHolder
from towpath_protocol.errors import ErrorCode


class _Checked(Struct, frozen=True, kw_only=True):
    """A start that fits its workflow version."""

    work: Work
    start: StartSpec
    definition: Definition
    version: int


class Starting:
    """`claim` before the runs are loaded, `apply` in the order of the batch."""

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
        """Create a draft for every start that wins, point the others at the holder.

        A start is checked before it claims: a refused start must not leave a claimed key behind.
        """
        starts = [(work, work.start) for work in works if work.start is not None]
        if not starts:
            return
        newest = await batch.tx.newest_versions(sorted({start.workflow for _, start in starts}))
        valid: list[_Checked] = []
        refused: list[tuple[Work, StartSpec, Outcome]] = []
        for work, start in starts:
            checked = await self._check(work, start, newest)
            if isinstance(checked, Outcome):
                refused.append((work, start, checked))
            else:
                valid.append(checked)
        await _settle_refused(batch, refused)
        holders = await self._holders(batch, valid)
        for item in valid:
            holder = holders.get(id(item.work))
            if holder is None or holder.run_id == item.start.run_id:
                run = self._create(batch, item)
                batch.drafts[run.id] = RunDraft(run, None)
                item.work.run_id = run.id
                continue
            item.work.run_id = holder.run_id
            item.work.same_request = holder.by_request
            if item.start.request_id is not None and not holder.by_request:
                batch.requests.append((item.start.workflow, item.start.request_id, holder.run_id))

    def apply(self, batch: Batch, work: Work, start: StartSpec) -> None:
        """Begin the run, or answer with the one that is there; then its signal, if it has one."""
        if work.run_id is None:
            return  # refused by `claim`
        created = work.run_id == start.run_id
        draft = batch.drafts.get(work.run_id)
        if not created and draft is not None and _is_freed(batch, work, start, draft):
            # The holder has settled since the claim and can't take the signal: its key is free now.
            _claim_again(batch, work, start, draft)
            return
        if created and draft is not None:
            cause = work.cause or Cause(type="start", by=start.triggered_by)
            event = RunBegun(seed=self._identity.new_seed(), cause=cause)
            draft.begun = True
            outcome = batch.decide(draft, event)
            if outcome.kind is not OutcomeKind.APPLIED:
                # Its key is claimed and its row would be written: the transaction must go.
                raise WorkPoisonedError(work, outcome)
        elif start.reject_existing and not work.same_request:
            batch.settle(work, _conflict(work, start))
            return
        kind = OutcomeKind.APPLIED
        if work.signal is not None and draft is not None:
            outcome = self._signalling.apply(batch, work, draft, work.signal)
            if outcome.kind not in {OutcomeKind.APPLIED, OutcomeKind.DUPLICATE}:
                batch.settle(work, outcome)
                return
            kind = outcome.kind
        batch.settle(work, Outcome(kind=kind, run_id=work.run_id, deduplicated=not created))

    async def _check(
        self, work: Work, start: StartSpec, newest: dict[str, int]
    ) -> _Checked | Outcome:
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
        return _Checked(work=work, start=start, definition=definition, version=version)

    @staticmethod
    async def _holders(batch: Batch, valid: Sequence[_Checked]) -> dict[int, KeyHolder]:
        wanting = [
            item
            for item in valid
            if item.start.key is not None or item.start.request_id is not None
        ]
        if not wanting:
            return {}
        holders = await batch.tx.claim_keys(
            [
                KeyClaim(
                    run_id=item.start.run_id,
                    workflow=item.start.workflow,
                    key=item.start.key,
                    request_id=item.start.request_id,
                )
                for item in wanting
            ]
        )
        return {id(item.work): holder for item, holder in zip(wanting, holders, strict=True)}

    def _create(self, batch: Batch, item: _Checked) -> Run:
        start = item.start
        return new_run(
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
        )


def _is_freed(batch: Batch, work: Work, start: StartSpec, draft: RunDraft) -> bool:
    """Whether a start with a signal was pointed by its key at a run that is not live any more.

    A start without one may be answered with a run that was live when it came.
    """
    if work.signal is None or draft.run.status not in SETTLED_RUN:
        return False
    if start.key is None or draft.run.key != start.key:
        return False
    return not work.same_request or (start.workflow, start.request_id) in batch.reclaimed


def _claim_again(batch: Batch, work: Work, start: StartSpec, draft: RunDraft) -> None:
    batch.result.again.append(work)
    if start.request_id is not None:
        batch.reclaimed.add((start.workflow, start.request_id))
        request = (start.workflow, start.request_id, draft.run.id)
        batch.requests = [other for other in batch.requests if other != request]


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


def _conflict(work: Work, start: StartSpec) -> Outcome:
    return Outcome(
        kind=OutcomeKind.REFUSED,
        run_id=work.run_id,
        code=ErrorCode.KEY_CONFLICT,
        message=f"a live run of {start.workflow!r} holds the key {start.key!r}",
        details={"run_id": work.run_id},
    )
