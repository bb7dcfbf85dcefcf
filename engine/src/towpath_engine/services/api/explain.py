"""run.explain: the reasons of a run, with what only the servers know about them, in words."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from msgspec import UNSET
from msgspec.structs import replace

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.bus.interface import ApiRequest
from towpath_engine.core import sentences
from towpath_engine.core.definition import WaitMode, WaitSpec
from towpath_engine.core.explain import Reason, ReasonKind, reasons_of, wake_at_of
from towpath_engine.core.model import Run
from towpath_engine.core.paths import place_of
from towpath_engine.core.sentences import Outbox, PauseFacts, ReasonFacts
from towpath_engine.core.states import SETTLED_RUN, RunStatus, StepStatus, WaitReason
from towpath_engine.services.api.reading import read_at_rest
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.api.views import instant
from towpath_engine.services.queue_look import QueueLook, QueueState
from towpath_engine.services.shell import Shell
from towpath_engine.store.insight import HeldPlace, QueuePlace
from towpath_engine.store.interface import RowsRequest
from towpath_engine.store.workers import TaskPlace, TaskWorkers
from towpath_protocol.operation_replies import KeptSignalView, ReasonView, RunExplanation
from towpath_protocol.operations import ExplainRun
from towpath_protocol.times import format_instant

REASONS_MAX = 100
"""Reasons in one answer."""
_PLACES_MAX = 10
"""Of how many it is counted what goes before them, and …"""
_AHEAD_MAX = 10_000
"""… how far."""
_KEPT_NAMES_MAX = 20
_AWAITED_BY_MAX = 10
_PUBLISHED_WITHIN = timedelta(seconds=3)
"""A dispatch is published at once, and the outbox knows of it within a second: after this long
without that something is wrong."""


class Explain:
    """The handler. A constant number of statements, and four requests to NATS a queue."""

    def __init__(self, shell: Shell, *, look: QueueLook, reader: RequestReader) -> None:
        self._shell = shell
        self._look = look
        self._reader = reader

    async def explain(self, request: ApiRequest) -> RunExplanation:
        """run.explain"""
        body = self._reader.read(request, ExplainRun)
        run, omitted = await read_at_rest(self._shell.store, body.run_id, self._with_open_steps)
        reasons = reasons_of(run)
        kept = await self._kept(run)
        facts = await self._facts(run, reasons, kept)
        texts = [
            sentences.sentence(reason, fact) for reason, fact in zip(reasons, facts, strict=True)
        ]
        return RunExplanation(
            run_id=run.id,
            workflow=run.workflow,
            status=run.status.value,
            summary=sentences.summary(run, texts, omitted),
            wake_at=instant(wake_at_of(run, reasons)),
            reasons=tuple(
                _view(reason, fact, text)
                for reason, fact, text in zip(reasons, facts, texts, strict=True)
            ),
            reasons_omitted=omitted or UNSET,
            kept_signals=tuple(kept) or UNSET,
        )

    async def _with_open_steps(self, run: Run) -> tuple[Run, int]:
        """The run with its first open steps, and how many more there are; of a settled one, with
        the step whose undo has failed."""
        if run.compensation is RunStatus.COMPENSATION_FAILED:
            return await self._with_failed_undo(run), 0
        if run.status in SETTLED_RUN:
            return run, 0
        insight = self._shell.store.insight
        steps = await insight.open_steps(run.id, REASONS_MAX)
        opened = replace(run, steps={step.path: step for step in steps})
        if _may_wait_for_several(opened):
            opened = replace(opened, kept=await insight.kept_signals(run.id))
        if len(steps) < REASONS_MAX:
            return opened, 0
        return opened, await insight.count_open_steps(run.id) - len(steps)

    async def _with_failed_undo(self, run: Run) -> Run:
        statuses = frozenset({StepStatus.COMPENSATION_FAILED})
        async with self._shell.store.transaction() as tx:
            rows = await tx.load_rows([RowsRequest(run_id=run.id, statuses=statuses)])
        return replace(run, steps=rows.get(run.id, {}))

    async def _facts(
        self, run: Run, reasons: Sequence[Reason], kept: Sequence[KeptSignalView]
    ) -> list[ReasonFacts]:
        if not reasons:
            return []
        queues = await self._queues(reasons)
        able = await self._able(reasons)
        pauses = await self._pauses(reasons)
        ahead = await self._ahead(run, reasons)
        outbox = await self._outbox(reasons)
        children = await self._children(reasons)
        letters = await self._shell.store.insight.letters_of(run.id, REASONS_MAX)
        places = [(one.queue, one.worker_id) for one in reasons if one.queue and one.worker_id]
        heard = await self._shell.store.workers.last_seen(places)
        strays = tuple((one.signal, one.count) for one in kept if not one.awaited_by)
        live_since = self._look.live_since()
        found: list[ReasonFacts] = []
        for index, reason in enumerate(reasons):
            queue = queues.get(reason.queue or "")
            before = ahead.get(index)
            runs = reason.kind is ReasonKind.ATTEMPT
            workers = None if runs else able.get((reason.queue or "", reason.task or ""))
            sight = heard.get((reason.queue or "", reason.worker_id or ""))
            at = None if sight is None else sight.at
            if workers is not None:
                at = workers.last_seen_at
            found.append(
                ReasonFacts(
                    asked_at=self._shell.clock.now(),
                    ahead=before,
                    ahead_is_bound=before == _AHEAD_MAX,
                    workers=None if workers is None else workers.live,
                    workers_able=None if workers is None else workers.able,
                    pulls=None if queue is None else queue.pulls,
                    nobody_pulls_since=None if queue is None else queue.nobody_pulls_since,
                    last_heartbeat_at=at,
                    draining=runs and sight is not None and sight.draining,
                    silent=runs and at is not None and at < live_since,
                    pause=pauses.get(reason.held_by or ""),
                    outbox=outbox.get(reason.token or "", Outbox.DONE),
                    stray_signals=strays if reason.kind is ReasonKind.SIGNAL else (),
                    dead_letter_id=letters.get(reason.path),
                    child_status=children.get(reason.child_run_id or ""),
                )
            )
        return found

    async def _children(self, reasons: Sequence[Reason]) -> Mapping[str, str]:
        """Where the awaited children stand."""
        wanted = [one.child_run_id for one in reasons if one.child_run_id is not None]
        return await self._shell.store.run_statuses(wanted) if wanted else {}

    async def _able(self, reasons: Sequence[Reason]) -> Mapping[TaskPlace, TaskWorkers]:
        """Who may take what waits, or was given back: of the first few queues and tasks."""
        places = dict.fromkeys(
            (one.queue, one.task)
            for one in reasons
            if one.queue is not None
            and one.task is not None
            and (
                one.kind in {ReasonKind.DISPATCH, ReasonKind.READY}
                or one.waiting_for is WaitReason.RELEASED
            )
        )
        wanted = list(places)[:_PLACES_MAX]
        if not wanted:
            return {}
        return await self._shell.store.workers.of_tasks(wanted, self._look.live_since())

    async def _outbox(self, reasons: Sequence[Reason]) -> Mapping[str, Outbox]:
        """The dispatches that are not known to be in the stream, by token."""
        tokens = [one.token for one in reasons if one.kind is ReasonKind.DISPATCH and one.token]
        if not tokens:
            return {}
        late = self._shell.clock.now() - _PUBLISHED_WITHIN
        return {
            token: Outbox.LATE if at < late else Outbox.FRESH
            for token, at in (await self._shell.store.insight.written_at(tokens)).items()
        }

    async def _kept(self, run: Run) -> list[KeptSignalView]:
        """The signals that no step has taken, each with the steps that may."""
        waits: dict[str, list[str]] = {}
        for step in run.definition.steps.values():
            if isinstance(step.spec, WaitSpec):
                for name in step.spec.signals:
                    waits.setdefault(name, []).append(step.path)
        return [
            KeptSignalView(
                signal=one.name,
                count=one.count,
                newest_at=format_instant(one.newest_at),
                awaited_by=tuple(sorted(waits.get(one.name, []))[:_AWAITED_BY_MAX]),
            )
            for one in await self._shell.store.insight.kept_names(run.id, _KEPT_NAMES_MAX)
        ]

    async def _queues(self, reasons: Sequence[Reason]) -> Mapping[str, QueueState]:
        kinds = (ReasonKind.DISPATCH, ReasonKind.READY)
        names = {one.queue for one in reasons if one.kind in kinds and one.queue is not None}
        try:
            return await self._look.at(names)
        except BusUnavailable:
            return {}  # what Postgres knows is an answer, too: that NATS is away is one of them

    async def _pauses(self, reasons: Sequence[Reason]) -> Mapping[str, PauseFacts]:
        if not any(one.held_by for one in reasons):
            return {}
        known = await self._shell.store.admission.pauses()
        return {
            f"{pause.scope.value}:{pause.name}": PauseFacts(
                at=pause.at, by=pause.by, reason=pause.reason
            )
            for pause in known.pauses
        }

    async def _ahead(self, run: Run, reasons: Sequence[Reason]) -> dict[int, int]:
        """Index of a reason → how many go before it, for the first few that are in a queue."""
        queued: dict[int, QueuePlace] = {}
        held: dict[int, HeldPlace] = {}
        for index, one in enumerate(reasons):
            if one.since is None or one.level is None or len(queued) + len(held) >= _PLACES_MAX:
                continue
            path = one.path or ""
            if one.kind is ReasonKind.DISPATCH and one.queue is not None:
                queued[index] = QueuePlace(
                    queue=one.queue,
                    level=one.level,
                    dispatched_at=one.since,
                    run_id=run.id,
                    path=path,
                )
            elif one.kind is ReasonKind.READY and one.held_by is not None:
                held[index] = HeldPlace(
                    held_by=one.held_by,
                    level=one.level,
                    ready_at=one.since,
                    run_id=run.id,
                    path=path,
                )
        insight = self._shell.store.insight
        found: dict[int, int] = {}
        if queued:
            counts = await insight.ahead_of(list(queued.values()), _AHEAD_MAX)
            found.update(zip(queued, counts, strict=True))
        if held:
            counts = await insight.held_ahead_of(list(held.values()), _AHEAD_MAX)
            found.update(zip(held, counts, strict=True))
        return found


def _may_wait_for_several(run: Run) -> bool:
    """Whether an open step waits for more than one signal: what it has is among the kept ones."""
    waits = (one for one in run.steps.values() if one.waiting_for is WaitReason.SIGNAL)
    specs = (run.definition.steps[place_of(step.path)].spec for step in waits)
    return any(isinstance(spec, WaitSpec) and spec.mode is not WaitMode.ANY for spec in specs)


def _view(reason: Reason, facts: ReasonFacts, text: str) -> ReasonView:
    return ReasonView(
        kind=reason.kind.value,
        text=text,
        step=reason.path,
        since=instant(reason.since),
        wake_at=instant(reason.wake_at),
        waiting_for=None if reason.waiting_for is None else reason.waiting_for.value,
        signal=reason.signal,
        child_run_id=reason.child_run_id,
        queue=reason.queue,
        task=reason.task,
        attempt=reason.attempt,
        ahead=facts.ahead,
        held_by=None if reason.held_by is None else reason.held_by.partition(":")[0],
        worker_id=reason.worker_id,
        last_heartbeat_at=instant(facts.last_heartbeat_at),
        nobody_pulls_since=instant(facts.nobody_pulls_since),
        last_error=sentences.error_line(reason),
        dead_letter_id=facts.dead_letter_id,
        unknown_task=facts.unknown_task,
        release_count=reason.release_count,
    )
