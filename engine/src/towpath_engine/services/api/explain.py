"""run.explain: the reasons of a run, with what only the servers know about them, in words."""

from collections.abc import Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.bus.interface import ApiRequest
from towpath_engine.core import sentences
from towpath_engine.core.explain import Reason, ReasonKind, reasons_of, wake_at_of
from towpath_engine.core.model import Run
from towpath_engine.core.sentences import PauseFacts, ReasonFacts
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.services.api.errors import ApiFailureError
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.api.views import instant
from towpath_engine.services.queue_look import QueueLook, QueueState
from towpath_engine.services.shell import Shell
from towpath_engine.store.insight import HeldPlace, QueuePlace
from towpath_protocol.errors import ErrorCode
from towpath_protocol.operation_replies import ReasonView, RunExplanation
from towpath_protocol.operations import ExplainRun

REASONS_MAX = 100
"""Reasons in one answer."""
_PLACES_MAX = 10
"""Of how many it is counted what goes before them, and …"""
_AHEAD_MAX = 10_000
"""… how far."""


class Explain:
    """The handler. A constant number of statements, and four requests to NATS a queue."""

    def __init__(self, shell: Shell, *, look: QueueLook, reader: RequestReader) -> None:
        self._shell = shell
        self._look = look
        self._reader = reader

    async def explain(self, request: ApiRequest) -> RunExplanation:
        """run.explain"""
        body = self._reader.read(request, ExplainRun)
        store = self._shell.store
        run = await store.get_run(body.run_id)
        if run is None:
            raise ApiFailureError(ErrorCode.RUN_NOT_FOUND, f"run {body.run_id} does not exist")
        omitted = 0
        if run.status not in SETTLED_RUN:
            steps = await store.insight.open_steps(run.id, REASONS_MAX)
            run = replace(run, steps={step.path: step for step in steps})
            if len(steps) == REASONS_MAX:
                omitted = await store.insight.count_open_steps(run.id) - len(steps)
        reasons = reasons_of(run)
        facts = await self._facts(run, reasons)
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
        )

    async def _facts(self, run: Run, reasons: Sequence[Reason]) -> list[ReasonFacts]:
        if not reasons:
            return []
        queues = await self._queues(reasons)
        pauses = await self._pauses(reasons)
        ahead = await self._ahead(reasons)
        tokens = [one.token for one in reasons if one.kind is ReasonKind.DISPATCH and one.token]
        unsent = await self._shell.store.admission.unpublished(tokens) if tokens else set[str]()
        letters = await self._shell.store.insight.letters_of(run.id, REASONS_MAX)
        places = [(one.queue, one.worker_id) for one in reasons if one.queue and one.worker_id]
        heard = await self._shell.store.workers.last_seen(places)
        found: list[ReasonFacts] = []
        for index, reason in enumerate(reasons):
            queue = queues.get(reason.queue or "")
            before = ahead.get(index)
            found.append(
                ReasonFacts(
                    ahead=before,
                    ahead_is_bound=before == _AHEAD_MAX,
                    workers=None if queue is None else queue.workers,
                    pulls=None if queue is None else queue.pulls,
                    nobody_pulls_since=None if queue is None else queue.nobody_pulls_since,
                    last_heartbeat_at=heard.get((reason.queue or "", reason.worker_id or "")),
                    pause=pauses.get(reason.held_by or ""),
                    in_outbox=reason.token in unsent,
                    dead_letter_id=letters.get(reason.path),
                )
            )
        return found

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

    async def _ahead(self, reasons: Sequence[Reason]) -> dict[int, int]:
        """Index of a reason → how many go before it, for the first few that are in a queue."""
        queued: dict[int, QueuePlace] = {}
        held: dict[int, HeldPlace] = {}
        for index, one in enumerate(reasons):
            if one.since is None or one.level is None or len(queued) + len(held) >= _PLACES_MAX:
                continue
            if one.kind is ReasonKind.DISPATCH and one.queue is not None:
                place = QueuePlace(queue=one.queue, level=one.level, dispatched_at=one.since)
                queued[index] = place
            elif one.kind is ReasonKind.READY and one.held_by is not None:
                held[index] = HeldPlace(held_by=one.held_by, level=one.level, ready_at=one.since)
        insight = self._shell.store.insight
        found: dict[int, int] = {}
        if queued:
            counts = await insight.ahead_of(list(queued.values()), _AHEAD_MAX)
            found.update(zip(queued, counts, strict=True))
        if held:
            counts = await insight.held_ahead_of(list(held.values()), _AHEAD_MAX)
            found.update(zip(held, counts, strict=True))
        return found


def _view(reason: Reason, facts: ReasonFacts, text: str) -> ReasonView:
    return ReasonView(
        kind=reason.kind.value,
        text=text,
        step=reason.path,
        since=instant(reason.since),
        wake_at=instant(reason.wake_at),
        waiting_for=None if reason.waiting_for is None else reason.waiting_for.value,
        signal=reason.signal,
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
    )
