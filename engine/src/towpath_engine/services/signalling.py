"""Signals inside a batch: repeats are no-ops, strangers are parked, the rest goes to the core."""

from collections.abc import Sequence

from msgspec.structs import replace

from towpath_engine.core.events import SignalReceived
from towpath_engine.core.model import Cause, KeptSignal
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.metrics import Metrics
from towpath_engine.services.batch import Batch
from towpath_engine.services.clock import Identity
from towpath_engine.services.draft import RunDraft
from towpath_engine.services.parking import Parking
from towpath_engine.services.signal_letters import letter_of_parked
from towpath_engine.services.work import Outcome, OutcomeKind, SignalSpec, Work
from towpath_engine.store.interface import KeyedSignalId, SignalId
from towpath_protocol.errors import ErrorCode


class Signalling:
    """`find_repeats` once the runs are known, `apply` in the order of the batch."""

    def __init__(
        self, *, prefix: str, identity: Identity, parking: Parking, metrics: Metrics
    ) -> None:
        self._prefix = prefix
        self._metrics = metrics
        self._identity = identity
        self._parking = parking

    @staticmethod
    async def find_repeats(batch: Batch, works: Sequence[Work]) -> None:
        """Ask once which of the batch's signals were seen before."""
        ids: list[SignalId] = []
        keyed: list[KeyedSignalId] = []
        for work in works:
            if work.signal is None:
                continue
            draft = batch.draft_of(work)
            if draft is not None:
                ids.append(_signal_id(draft.run.id, work.signal))
            if work.key is not None:
                keyed.append(_keyed_id(work.key, work.signal))
        if ids:
            batch.known = await batch.tx.known_signals(ids)
        if keyed:
            batch.known_keyed = await batch.tx.known_keyed_signals(keyed)

    def apply(
        self, batch: Batch, work: Work, draft: RunDraft | None, signal: SignalSpec
    ) -> Outcome:
        """Give the signal to its run, or say why not."""
        keyed = None if work.key is None else _keyed_id(work.key, signal)
        # A run that took it may have settled since: its repeat is not for the next one. Who waits
        # for an answer is told that nobody holds the key.
        if (draft is not None or signal.by_message) and self._is_repeat(
            batch, draft, signal, keyed
        ):
            self._unpark(batch, work)
            run_id = None if draft is None else draft.run.id
            return Outcome(kind=OutcomeKind.DUPLICATE, run_id=run_id)
        # A run that held the key may have settled within this batch: then nobody holds it.
        if draft is None or (work.key is not None and draft.run.status in SETTLED_RUN):
            return self._to_nobody(batch, work, signal)
        cause = work.cause or Cause(
            type="signal", kind=signal.name, message_id=signal.message_id, by=signal.sent_by
        )
        event = SignalReceived(
            seed=self._identity.new_seed(),
            cause=cause,
            signal=KeptSignal(
                number=0,
                name=signal.name,
                payload=signal.payload,
                message_id=signal.message_id,
                sent_by=signal.sent_by,
                received_at=signal.received_at,
            ),
        )
        outcome = batch.decide(draft, event)
        if outcome.kind is OutcomeKind.APPLIED:
            self._unpark(batch, work)
            batch.known.add(_signal_id(draft.run.id, signal))
            if keyed is not None:
                batch.known_keyed.add(keyed)
                batch.keyed_signals.append((keyed, draft.run.id))
        elif outcome.code == ErrorCode.SCHEMA_FAILED:
            self._bury_parked(batch, work, signal, outcome)
            return replace(outcome, details={"field": "payload"})
        return outcome

    async def take_parked(self, batch: Batch) -> None:
        """Signals that waited for runs that this batch creates go in with their first commit."""
        new = [draft for draft in batch.drafts.values() if draft.expected_version is None]
        if not new:
            return
        by_key = {(draft.run.workflow, draft.run.key or ""): draft for draft in new}
        keys = [(workflow, key) for workflow, key in by_key if key]
        taken = [
            (self._parking.unpark(row), self._parking.spec(row), row)
            for row in await batch.tx.take_parked([draft.run.id for draft in new], keys)
        ]
        keyed = [_keyed_id(work.key, signal) for work, signal, _ in taken if work.key is not None]
        if keyed:
            batch.known_keyed |= await batch.tx.known_keyed_signals(keyed)
        for work, signal, row in taken:
            draft = batch.drafts.get(row.run_id or "")
            if draft is None:
                draft = by_key.get((row.workflow or "", row.key or ""))
            outcome = self.apply(batch, work, draft, signal)
            if outcome.code == ErrorCode.SCHEMA_FAILED:
                continue  # the run does not want it: nothing is left to wait for
            if outcome.kind not in {OutcomeKind.APPLIED, OutcomeKind.DUPLICATE}:
                # The run settled in its first decision or has no room: the signal waits on, for
                # the next run with the key or for its end as a dead letter.
                batch.parked.append(row)
            else:
                self._metrics.signals_parked.labels(outcome="delivered").inc()

    @staticmethod
    def _is_repeat(
        batch: Batch, draft: RunDraft | None, signal: SignalSpec, keyed: KeyedSignalId | None
    ) -> bool:
        if draft is not None and _signal_id(draft.run.id, signal) in batch.known:
            return True
        return keyed is not None and keyed in batch.known_keyed

    @staticmethod
    def _unpark(batch: Batch, work: Work) -> None:
        if work.parked_id is not None:
            batch.unparked.append(work.parked_id)

    def _bury_parked(self, batch: Batch, work: Work, signal: SignalSpec, outcome: Outcome) -> None:
        """A parked signal has found its run, which does not want it. Of others, whoever brings them
        is told."""
        if work.parked_id is None:
            return
        row = replace(self._parking.park(work, signal, batch.now), id=work.parked_id)
        letter = letter_of_parked(
            row,
            prefix=self._prefix,
            at=batch.now,
            reason=ErrorCode.SCHEMA_FAILED,
            text=outcome.message,
        )
        batch.letters.append(letter)
        self._unpark(batch, work)
        self._metrics.signals_parked.labels(outcome="refused").inc()

    def _to_nobody(self, batch: Batch, work: Work, signal: SignalSpec) -> Outcome:
        """The run or key does not exist (yet)."""
        if work.parked_id is not None:
            return Outcome(kind=OutcomeKind.PARKED)
        if signal.by_message and not self._parking.full:
            batch.parked.append(self._parking.park(work, signal, batch.now))
            self._metrics.signals_parked.labels(outcome="parked").inc()
            return Outcome(kind=OutcomeKind.PARKED)
        return nobody(work)


def nobody(work: Work) -> Outcome:
    """The outcome of work for a run or key that does not exist."""
    if work.key is None:
        return Outcome(
            kind=OutcomeKind.UNKNOWN_RUN,
            code=ErrorCode.RUN_NOT_FOUND,
            message=f"there is no run {work.run_id}",
        )
    workflow, key = work.key
    return Outcome(
        kind=OutcomeKind.UNKNOWN_RUN,
        code=ErrorCode.KEY_NOT_FOUND,
        message=f"no live run of {workflow!r} has the key {key!r}",
    )


def _signal_id(run_id: str, signal: SignalSpec) -> SignalId:
    return SignalId(run_id=run_id, name=signal.name, message_id=signal.message_id)


def _keyed_id(key: tuple[str, str], signal: SignalSpec) -> KeyedSignalId:
    workflow, text = key
    return KeyedSignalId(
        workflow=workflow, key=text, name=signal.name, message_id=signal.message_id
    )
