"""What one batch is about to write: one draft per run, filled by its decisions in order."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from towpath_engine.core.effects import (
    Announce,
    AppendLogs,
    CancelAttempt,
    CancelChild,
    ConsumeSignal,
    ContinueLater,
    Decision,
    DispatchStep,
    Effect,
    KeepSignal,
    RefuseSignal,
    RevokeToken,
    StartChild,
    TellParent,
)
from towpath_engine.core.forgetting import PARTS_KEPT_MAX
from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.core.paths import ROOT, upper_of
from towpath_engine.core.states import OPEN_STEP, PART, SETTLED_STEP
from towpath_engine.core.stepmap import StepMap
from towpath_engine.core.transitions import RunChange
from towpath_engine.services.between_runs import message_to_run
from towpath_engine.services.clock import Identity
from towpath_engine.services.signal_letters import letter_of_refused
from towpath_engine.services.work import Outcome, Work
from towpath_engine.store.interface import (
    ConsumedSignal,
    OutboxRow,
    RowsRequest,
    SavedRun,
    StoredSignal,
)
from towpath_engine.store.records import DeadLetter, LogLine
from towpath_protocol import codec, headers, subjects, times
from towpath_protocol.events import EventName, RunEvent


class Drafting(Struct, frozen=True, kw_only=True):
    """How rows are made: subjects begin with `prefix`; the sweep leaves a new outbox row alone for
    `grace`, since the engine that wrote it publishes it."""

    prefix: str
    identity: Identity
    grace: timedelta


class RunDraft:
    """The run as the batch has changed it so far, with everything that must be written with it.

    `expected_version` is None for a run that this batch creates.
    """

    def __init__(self, run: Run, expected_version: int | None) -> None:
        self.run = run
        self.expected_version = expected_version
        self.changed: dict[str, Step] = {}
        self.transitions: list[Transition] = []
        self.dispatches: list[DispatchStep] = []
        self.announcements: list[tuple[Announce, datetime]] = []
        self.revoked: list[RevokeToken] = []
        self.cancelled: list[CancelAttempt] = []
        self.signals: list[StoredSignal] = []
        self.consumed: list[ConsumedSignal] = []
        self.refused: list[RefuseSignal] = []
        self.letters: list[DeadLetter] = []
        self.logs: list[LogLine] = []
        self.to_runs: list[StartChild | CancelChild | TellParent] = []
        self.continues = False
        self.outcomes: list[tuple[Work, Outcome]] = []
        self.outbox: list[OutboxRow] = []
        self._original = run
        self._asked: set[str] = set()
        """Paths of rows that were read because a decision asked for them."""

    @property
    def dirty(self) -> bool:
        """True when there is anything to write."""
        return self.expected_version is None or self.run is not self._original

    @property
    def admitted(self) -> bool:
        """True when what it writes depends on what is paused: a dispatch, or one held back, or that
        the run begins (of a paused workflow it must not, whatever its steps are)."""
        return (
            bool(self.dispatches)
            or any(one.what == RunChange.STARTED for one in self.transitions)
            or self.run.held_by is not None
            or any(step.held_by is not None for step in self.changed.values())
        )

    def know(self, stored: Mapping[str, Step]) -> None:
        """Hold rows of the run that were read after it, as they are stored."""
        self._asked.update(stored)
        rows = [step for path, step in stored.items() if path not in self._original.steps]
        original = _with_steps(self._original, rows)
        if self.run is self._original:
            self.run = original
        else:
            now = [self.changed.get(path, step) for path, step in stored.items()]
            self.run = _with_steps(self.run, now)
        self._original = original

    def recall(self, wanted: RowsRequest) -> bool:
        """Hold rows again that this batch has written and that the run has let go of; whether there
        were any."""
        rows = [
            step
            for path, step in self.changed.items()
            if path not in self.run.steps and wanted.wants(step)
        ]
        if rows:
            self._asked.update(step.path for step in rows)
            self.run = _with_steps(self.run, rows)
        return bool(rows)

    def to_keep(self) -> Run:
        """The run as it is kept in memory: of the rows that were asked for, without the settled
        ones that no event to come will ask for, or only one that may load them."""
        gone = [path for path in self._asked if self._may_go(path)]
        if not gone:
            return self.run
        return replace(self.run, steps=StepMap.of(self.run.steps).derive((), gone))

    def _may_go(self, path: str) -> bool:
        run = self.run
        step = run.steps.get(path)
        if step is None or step.status not in SETTLED_STEP:
            return False
        upper = upper_of(path)
        if "#" in path or (step.kind in PART and len(self._asked) > PARTS_KEPT_MAX):
            return True
        if upper == ROOT:
            return path != run.last_step and path not in run.definition.referenced
        owner = run.steps.get(upper)
        return owner is None or owner.status not in OPEN_STEP

    def add(self, decision: Decision, at: datetime) -> None:
        """Take over the run and the effects of one decision, made at `at`."""
        self.run = decision.run
        for step in decision.changed:
            self.changed[step.path] = step
        self.transitions.extend(decision.transitions)
        for effect in decision.effects:
            self._take(effect, at)

    def _take(self, effect: Effect, at: datetime) -> None:
        match effect:
            case DispatchStep():
                self.dispatches.append(effect)
            case Announce():
                self.announcements.append((effect, at))
            case RevokeToken():
                self.revoked.append(effect)
            case CancelAttempt():
                self.cancelled.append(effect)
            case KeepSignal() | ConsumeSignal() | RefuseSignal():
                self._take_signal(effect)
            case AppendLogs():
                self.logs.append(self._log_line(effect, at))
            case StartChild() | CancelChild() | TellParent():
                self.to_runs.append(effect)
            case ContinueLater():
                self.continues = True

    def _take_signal(self, effect: KeepSignal | ConsumeSignal | RefuseSignal) -> None:
        match effect:
            case KeepSignal(signal=signal, consumed_by=by):
                row = StoredSignal(run_id=self.run.id, signal=signal, consumed_by=by)
                self.signals.append(row)
            case ConsumeSignal(number=number, consumed_by=by):
                self._consume(number, by)
            case RefuseSignal(signal=signal, path=path):
                self._consume(signal.number, path)
                self.refused.append(effect)

    def _log_line(self, effect: AppendLogs, at: datetime) -> LogLine:
        return LogLine(
            run_id=self.run.id,
            path=effect.path,
            attempt=effect.attempt,
            token=effect.token,
            at=at,
            lines=effect.lines,
        )

    def _consume(self, number: int, by: str) -> None:
        # A signal that came and was taken within this batch has no row to update yet.
        for index, row in enumerate(self.signals):
            if row.signal.number == number:
                self.signals[index] = replace(row, consumed_by=by)
                return
        self.consumed.append(ConsumedSignal(run_id=self.run.id, number=number, consumed_by=by))

    def to_saved(self, drafting: Drafting, now: datetime) -> SavedRun:
        """The rows of this run; its version counts on by one."""
        version = 1 if self.expected_version is None else self.expected_version + 1
        self.run = replace(self.run, version=version)
        dead = {effect.token for effect in self.revoked}
        self.outbox = [
            self._dispatch_row(effect, drafting, now)
            for effect in self.dispatches
            if effect.token not in dead
        ]
        self.outbox += [
            message_to_run(
                self.run,
                effect,
                prefix=drafting.prefix,
                row_id=drafting.identity.new_id(),
                publish_after=now + drafting.grace,
            )
            for effect in self.to_runs
        ]
        self.letters = [
            letter_of_refused(
                self.run.id,
                effect,
                prefix=drafting.prefix,
                letter_id=drafting.identity.new_id(),
                at=now,
            )
            for effect in self.refused
        ]
        for number in range(len(self.announcements)):
            self.outbox.append(self._event_row(number, drafting, now))
        return SavedRun(
            run=self.run,
            expected_version=self.expected_version,
            before=None if self.expected_version is None else self._original,
            steps=[self.changed[path] for path in sorted(self.changed)],
            transitions=self.transitions,
            signals=self.signals,
            consumed=self.consumed,
            outbox=self.outbox,
            revoked=sorted(dead),
            logs=self.logs,
            letters=self.letters,
        )

    def _dispatch_row(self, effect: DispatchStep, drafting: Drafting, now: datetime) -> OutboxRow:
        run = self.run
        msg_id = subjects.dispatch_msg_id(effect.token, effect.dispatch_no)
        extra = {headers.NATS_MSG_ID: msg_id}
        if effect.ttl_seconds is not None:
            extra[headers.NATS_TTL] = f"{effect.ttl_seconds}s"
        if run.traceparent is not None:
            extra[headers.TRACEPARENT] = run.traceparent
        return OutboxRow(
            id=drafting.identity.new_id(),
            run_id=run.id,
            token=effect.token,
            subject=subjects.dispatch_subject(
                drafting.prefix,
                subjects.DispatchSubject(
                    queue=effect.queue, level=effect.level, run_id=run.id, token=effect.token
                ),
            ),
            msg_id=msg_id,
            headers=extra,
            body=effect.body,
            publish_after=now + drafting.grace,
        )

    def _event_row(self, number: int, drafting: Drafting, now: datetime) -> OutboxRow:
        run = self.run
        effect, at = self.announcements[number]
        event = RunEvent(
            type=EventName(effect.event),
            run_id=run.id,
            workflow=run.workflow,
            version=run.workflow_version,
            key=run.key,
            seq=effect.seq,
            at=times.format_instant(at),
            step=effect.step,
            attempt=effect.attempt,
            data=Raw(msgspec.json.encode(effect.data)),
        )
        msg_id = f"{run.id}:{effect.seq}:{number}"
        extra = {headers.NATS_MSG_ID: msg_id}
        if run.traceparent is not None:
            extra[headers.TRACEPARENT] = run.traceparent
        return OutboxRow(
            id=drafting.identity.new_id(),
            run_id=run.id,
            subject=subjects.event_subject(drafting.prefix, run.workflow, run.id, effect.event),
            msg_id=msg_id,
            headers=extra,
            body=codec.encode(event),
            publish_after=now + drafting.grace,
        )


def _with_steps(run: Run, steps: Iterable[Step]) -> Run:
    return replace(run, steps=StepMap.of(run.steps).derive(steps))
