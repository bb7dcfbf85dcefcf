"""The working set of one batch while its transaction is open, and what it leaves behind."""

from collections.abc import Mapping
from datetime import datetime

import structlog
from msgspec import Struct
from msgspec.structs import replace

from towpath_engine.core.changes import StepsNeeded
from towpath_engine.core.decide import decide, step_of_token
from towpath_engine.core.definition import Definition, WaitSpec
from towpath_engine.core.effects import Decision, KeepSignal, Verdict
from towpath_engine.core.events import Event, ReportReceived, SignalReceived, TimerDue
from towpath_engine.core.model import Run
from towpath_engine.core.paths import told_path
from towpath_engine.services.admission import Admitting
from towpath_engine.services.asking import RowsMissing, rows_request
from towpath_engine.services.draft import RunDraft
from towpath_engine.services.work import Outcome, OutcomeKind, SignalFate, StartSpec, Work
from towpath_engine.store.interface import (
    KeyedSignalId,
    ParkedSignal,
    SignalId,
    StoreTransaction,
)
from towpath_engine.store.records import DeadLetter
from towpath_protocol.errors import ErrorCode

log = structlog.get_logger(__name__)


class WorkPoisonedError(Exception):
    """A work whose failure must roll the batch back; the others are applied again without it."""

    def __init__(self, work: Work, outcome: Outcome) -> None:
        self.work = work
        self.outcome = outcome
        super().__init__(outcome.message)


class CheckedStart(Struct, kw_only=True):
    """A start that fits its workflow version."""

    work: Work
    start: StartSpec
    definition: Definition
    version: int
    repeats_batch: bool = False
    """An earlier start of the same batch has its request id."""


class BatchResult:
    """What a committed batch leaves to do: publish, push, arm, answer."""

    def __init__(self) -> None:
        self.drafts: list[RunDraft] = []
        self.outcomes: list[tuple[Work, Outcome]] = []
        self.rearmed: list[tuple[Run, str | None]] = []
        """Runs and paths whose timer fired and was not due: to be armed in memory again."""
        self.letters: list[DeadLetter] = []
        """Dead letters that were written with it, but for those of a draft."""
        self.letters_dropped = 0
        """How many of all of them the store had no room for."""
        self.again: list[Work] = []
        """Work that met a newer version or a freed key and must be decided again."""


class Batch:
    """Drafts by run id, what the transaction found out about keys and signals, what it adds."""

    def __init__(self, tx: StoreTransaction, now: datetime, admitting: Admitting) -> None:
        self.tx = tx
        self.now = now
        self.admitting = admitting
        self.result = BatchResult()
        self.drafts: dict[str, RunDraft] = {}
        self.live_keys: dict[tuple[str, str], str] = {}
        """Who holds a key: at first as the transaction found it, then as the works leave it."""
        self.starts: dict[str, CheckedStart] = {}
        """Starts that may be carried out, by the id of the run that they would create."""
        self.answered: dict[tuple[str, str], str] = {}
        """(workflow, request id) of starts of this batch, and the run that is their answer."""
        self.replacing: set[str] = set()
        """New runs for which the holder of their key was cancelled: both are written, or none."""
        self.revived_keys: dict[str, str] = {}
        """Who holds the key of a run that is to go on, by the id of that run."""
        self.unclaimed: set[str] = set()
        """Settled runs that are to go on and whose keys nobody holds, not even they."""
        self.reviving: set[str] = set()
        """Settled runs that go on, and have claimed their keys for it."""
        self.revivals_done: set[tuple[str, str]] = set()
        """Requests for a run to go on that were fulfilled, before or by this batch."""
        self.known: set[SignalId] = set()
        self.known_keyed: set[KeyedSignalId] = set()
        self.keyed_signals: list[tuple[KeyedSignalId, str]] = []
        self.parked: list[ParkedSignal] = []
        self.unparked: list[str] = []
        self.letters = self.result.letters
        self.requests: list[tuple[str, str, str]] = []

    def settle(self, work: Work, outcome: Outcome) -> None:
        """Say how a work ended; its sender is told after the commit."""
        self.result.outcomes.append((work, outcome))

    def draft_of(self, work: Work) -> RunDraft | None:
        """The draft of the run that a work is for, or None when there is no such run."""
        run_id = work.run_id
        if run_id is None and work.key is not None:
            run_id = self.live_keys.get(work.key)
        # A run whose start comes later in this batch has no draft yet: it does not exist for what
        # comes before it.
        return None if run_id is None else self.drafts.get(run_id)

    def runs_of(self, work: Work) -> list[str]:
        """The runs that a work may change: its own, and who holds the key that it wants."""
        start = work.start
        key = work.key
        if start is not None and start.key is not None:
            key = (start.workflow, start.key)
        found = (work.run_id, None if key is None else self.live_keys.get(key))
        return [run_id for run_id in found if run_id is not None]

    def decide(self, draft: RunDraft, event: Event) -> Outcome:
        """Feed the event to the core and take over what it decides. Raises RowsMissing alone: then
        nothing has changed."""
        if isinstance(event, ReportReceived):
            mismatch = _mismatch(draft, event)
            if mismatch is not None:
                return mismatch
        decision = self.try_decide(draft, event)
        if isinstance(decision, Outcome):
            return decision
        if decision.verdict is Verdict.APPLIED:
            self.take(draft, decision)
            if isinstance(event, SignalReceived):
                return replace(self.told(draft, decision), fate=_fate(draft, event, decision))
        elif isinstance(event, TimerDue):
            self.result.rearmed.append((draft.run, event.path))
        return self.told(draft, decision)

    def try_decide(self, draft: RunDraft, event: Event) -> Decision | Outcome:
        """What the core decides, not taken over yet; an outcome when it fails. Raises RowsMissing
        alone: nothing has changed then."""
        try:
            return self._decide_with_rows(draft, event)
        except RowsMissing:
            raise
        except Exception as error:
            # A fault of this run alone, and the same every time: it must not stop the others.
            log.exception("decision_failed", run_id=draft.run.id, event_type=type(event).__name__)
            return Outcome(
                kind=OutcomeKind.BROKEN,
                run_id=draft.run.id,
                code=ErrorCode.POISON,
                message=f"{type(error).__name__}: {error}",
            )

    def _decide_with_rows(self, draft: RunDraft, event: Event) -> Decision:
        """Decide, and again with rows that the batch has written, but the run has let go of."""
        while True:
            try:
                return self._decide_within_windows(draft.run, event)
            except StepsNeeded as needed:
                request = rows_request(draft.run.id, needed)
                if draft.recall(request):
                    continue
                if draft.expected_version is None:
                    raise  # of a run that the batch creates there are no other rows
                raise RowsMissing(request, needed) from needed

    def _decide_within_windows(self, run: Run, event: Event) -> Decision:
        """Decide, and again with those queues closed that have no room for all of it: then their
        steps wait, and are let out as there is room."""
        closed: Mapping[str, int] = {}
        while True:
            decision = decide(run, self.admitting.through(event, closed=closed), self.now)
            overfull = self.admitting.overfull(decision)
            if overfull.keys() <= closed.keys():
                return decision
            closed = {**closed, **overfull}

    def take(self, draft: RunDraft, decision: Decision) -> None:
        """Take over what was decided: the draft has it, and its dispatches fill their queues."""
        draft.add(decision, self.now)
        self.admitting.count(decision)

    @staticmethod
    def told(draft: RunDraft, decision: Decision) -> Outcome:
        """The outcome that a decision means for whoever wanted it."""
        return Outcome(
            kind=OutcomeKind(decision.verdict.value),
            run_id=draft.run.id,
            code=decision.refusal,
            message=decision.message or "",
        )

    def drop_losers(self, lost: set[str]) -> None:
        """Have the work of runs that another engine was faster with decided again."""
        keep: list[tuple[Work, Outcome]] = []
        for work, outcome in self.result.outcomes:
            if outcome.run_id in lost:
                self.result.again.append(work)
            else:
                keep.append((work, outcome))
        self.result.outcomes = keep


_AWAITED_BY_MAX = 10
"""Steps that are named as waiting, some time, for a signal that is kept."""


def _fate(draft: RunDraft, event: SignalReceived, decision: Decision) -> SignalFate:
    """Who took the signal, or who may."""
    taken_by = next(one.consumed_by for one in decision.effects if isinstance(one, KeepSignal))
    if taken_by is not None:
        return SignalFate(taken_by=taken_by)
    waits = [
        step.path
        for step in draft.run.definition.steps.values()
        if isinstance(step.spec, WaitSpec) and event.signal.name in step.spec.signals
    ]
    return SignalFate(taken_by=None, awaited_by=tuple(sorted(waits)[:_AWAITED_BY_MAX]))


def _mismatch(draft: RunDraft, event: ReportReceived) -> Outcome | None:
    """The subject is authoritative; a body or queue that disagrees with the step is a fault."""
    step = step_of_token(draft.run, event.token)
    if step is None:
        return None  # stale: the core says so
    named = event.report.step
    told = told_path(step.path)
    if (named is None or named == told) and step.queue == event.queue:
        return None
    return Outcome(
        kind=OutcomeKind.MISMATCH,
        run_id=draft.run.id,
        code=ErrorCode.SUBJECT_MISMATCH,
        message=(
            f"the token belongs to step {told!r} of queue {step.queue!r}, "
            f"the report says {named!r} on {event.queue!r}"
        ),
    )
