"""Retry and redrive inside a batch: the key first, then the run, then the core decides."""

from collections.abc import Sequence

from msgspec import Struct

from towpath_engine.core.effects import Decision, Verdict
from towpath_engine.core.operators import done_again
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.services.batch import Batch, WorkPoisonedError
from towpath_engine.services.draft import RunDraft
from towpath_engine.services.signalling import nobody
from towpath_engine.services.work import Outcome, OutcomeKind, Revival, Work
from towpath_engine.store.interface import KeyClaim
from towpath_protocol.errors import ErrorCode


class Revived(Struct, frozen=True, kw_only=True):
    """Details of an outcome: the status that the run has now (of a dry run: would have), and the
    steps that are done again, in order of path; of a repeat they are not remembered."""

    status: str
    steps: tuple[str, ...]


async def claim_revived(batch: Batch, works: Sequence[Work]) -> None:
    """Claim the keys of the runs that are to go on, before any run is locked.

    Of two batches that each claim keys of starts and of revivals in different orders, Postgres may
    end one; it is tried again then, as after any deadlock.
    """
    wanted = {
        work.run_id: work.revival
        for work in works
        if work.revival is not None and work.run_id is not None and work.revival.key is not None
    }
    claims = [_claim(run_id, one) for run_id, one in sorted(wanted.items()) if not one.dry_run]
    if claims:
        holders = await batch.tx.claim_keys(claims)
        batch.revived_keys.update(
            (claim.run_id, holder.run_id) for claim, holder in zip(claims, holders, strict=True)
        )
    looked_at = {one.key: run_id for run_id, one in wanted.items() if one.dry_run and one.key}
    if looked_at:
        held = await batch.tx.find_keys(sorted(looked_at))
        batch.revived_keys.update((looked_at[name], run_id) for name, run_id in held.items())


async def confirm_revived(batch: Batch, works: Sequence[Work]) -> None:
    """Look at the requests, and at the keys again, now that the runs are locked.

    Whoever fulfilled a request has held the lock of its run, so that its repeat finds it. A claim
    that found the run's own key, since the run was live, is worth nothing if the run has settled
    before it was locked: its key was freed then, and may be another's. Of a run that is settled and
    locked, the key is its own only by the claim of this transaction.
    """
    requests = {
        work.revival.request
        for work in works
        if work.revival is not None and work.revival.request is not None
    }
    if requests:
        batch.revivals_done.update(await batch.tx.find_requests(sorted(requests)))
    names = {
        work.revival.key: work.run_id
        for work in works
        if work.revival is not None and work.revival.key is not None and work.run_id is not None
        if work.run_id in batch.drafts and batch.drafts[work.run_id].run.status in SETTLED_RUN
    }
    if not names:
        return
    held = await batch.tx.find_keys(sorted(names))
    for name, run_id in names.items():
        holder = held.get(name)
        if holder is None:
            batch.revived_keys.pop(run_id, None)
            batch.unclaimed.add(run_id)
        else:
            batch.revived_keys[run_id] = holder


def apply_revival(batch: Batch, work: Work, draft: RunDraft | None, revival: Revival) -> None:
    """Have the run go on, or say why it does not. A dry run leaves everything as it is."""
    decision = _decided(batch, work, draft, revival)
    if isinstance(decision, Outcome):
        _give_up(batch, work, decision)
        return
    assert draft is not None, "nothing is decided of a run that is not there"
    holder = _other_holder(batch, draft, revival)
    if holder is not None:
        other = batch.drafts.get(holder)
        if other is not None and other.run.status in SETTLED_RUN:
            batch.result.again.append(work)  # it settled in this batch, which frees the key
        else:
            batch.settle(work, _conflict(draft, holder))
        return
    if draft.run.id in batch.unclaimed and not revival.dry_run:
        batch.result.again.append(work)  # it settled after the claim: the next batch claims anew
        return
    details = Revived(status=decision.run.status.value, steps=done_again(decision))
    batch.settle(work, Outcome(kind=OutcomeKind.APPLIED, run_id=draft.run.id, details=details))
    if revival.dry_run:
        return
    batch.take(draft, decision)
    batch.reviving.add(draft.run.id)
    if revival.request is not None:
        batch.requests.append((*revival.request, draft.run.id))
        batch.revivals_done.add(revival.request)
    if revival.key is not None:
        batch.live_keys[revival.key] = draft.run.id


def _decided(
    batch: Batch, work: Work, draft: RunDraft | None, revival: Revival
) -> Decision | Outcome:
    """How the run goes on, or why it does not."""
    if draft is None or work.event is None:
        return nobody(work)
    if revival.request in batch.revivals_done:
        return _repeated(draft)
    decision = batch.try_decide(draft, work.event)
    if isinstance(decision, Outcome) or decision.verdict is Verdict.APPLIED:
        return decision
    return batch.told(draft, decision)


def _claim(run_id: str, revival: Revival) -> KeyClaim:
    assert revival.key is not None, "only keys are claimed"
    workflow, key = revival.key
    return KeyClaim(run_id=run_id, workflow=workflow, key=key)


def _give_up(batch: Batch, work: Work, outcome: Outcome) -> None:
    """The run does not go on. One that stays settled, or is gone, must not hold its key: then the
    claim has to go."""
    if _has_claimed(batch, work):
        raise WorkPoisonedError(work, outcome)
    batch.settle(work, outcome)


def _has_claimed(batch: Batch, work: Work) -> bool:
    """Whether this batch has claimed the key for a run that it then left settled, or that has been
    purged since the request was read."""
    run_id = work.run_id
    if run_id is None or batch.revived_keys.get(run_id) != run_id:
        return False
    draft = batch.drafts.get(run_id)
    return draft is None or (not draft.dirty and draft.run.status in SETTLED_RUN)


def _other_holder(batch: Batch, draft: RunDraft, revival: Revival) -> str | None:
    """Who else holds the key: since before, or by an earlier work of this batch."""
    if revival.key is None:
        return None
    run_id = draft.run.id
    holders = (batch.live_keys.get(revival.key), batch.revived_keys.get(run_id))
    return next((holder for holder in holders if holder not in (None, run_id)), None)


def _repeated(draft: RunDraft) -> Outcome:
    return Outcome(
        kind=OutcomeKind.APPLIED,
        run_id=draft.run.id,
        deduplicated=True,
        details=Revived(status=draft.run.status.value, steps=()),
    )


def _conflict(draft: RunDraft, holder: str) -> Outcome:
    run = draft.run
    return Outcome(
        kind=OutcomeKind.REFUSED,
        run_id=run.id,
        code=ErrorCode.KEY_CONFLICT,
        message=f"run {holder} of {run.workflow!r} is live and holds the key {run.key!r} by now",
        details={"run_id": holder},
    )
