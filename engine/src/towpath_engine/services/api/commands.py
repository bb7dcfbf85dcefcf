"""run.start, start-many, signal, signal-with-start, cancel: requests that change something.

They go through the pipeline like every other event, and are answered after its commit.
"""

import asyncio
import hashlib
from datetime import datetime

from msgspec import UNSET, Raw, UnsetType

from towpath_engine.bus.answers import error_info
from towpath_engine.bus.interface import ApiRequest
from towpath_engine.core.events import CancelRequested
from towpath_engine.core.model import Cause
from towpath_engine.core.states import RunStatus
from towpath_engine.services.api.errors import (
    ApiFailureError,
    failure_of,
    of_protocol_error,
)
from towpath_engine.services.api.many import ItemRoom, in_turns
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.api.submitting import MakeWork, submitted
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import (
    Outcome,
    OutcomeKind,
    SignalSpec,
    StartSpec,
    Work,
)
from towpath_protocol import bounds, codec, headers
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.replies import (
    CancelledRun,
    SignalledRun,
    SignalledStart,
    StartedRun,
    StartManyResults,
    StartResult,
)
from towpath_protocol.requests import (
    CancelRun,
    OnConflict,
    SignalRun,
    SignalWithStart,
    StartManyItems,
    StartRun,
)
from towpath_protocol.times import parse_instant

_FINE = {OutcomeKind.APPLIED, OutcomeKind.IGNORED, OutcomeKind.DUPLICATE}


class Commands:
    """Handlers of the verbs that change runs. At most `items_max` items of run.start-many are
    handled at once."""

    def __init__(
        self,
        shell: Shell,
        *,
        reader: RequestReader,
        items_max: int,
    ) -> None:
        self._shell = shell
        self._reader = reader
        self._limits = reader.limits
        self._room = ItemRoom(items_max)

    async def start(self, request: ApiRequest) -> StartedRun:
        """run.start"""
        body = self._reader.read(request, StartRun)
        outcome = await self._run(self._start_work(body, _traceparent(request)))
        return _started(outcome)

    async def start_many(self, request: ApiRequest) -> StartManyResults:
        """run.start-many: each item on its own, answered in order."""
        # In a thread: reading a megabyte takes a tenth of a second.
        body = await asyncio.to_thread(self._reader.read, request, StartManyItems)
        if len(body.items) > self._limits.items_max:
            raise ProtocolError(
                ErrorCode.TOO_LARGE,
                f"{len(body.items)} items, at most {self._limits.items_max} are allowed",
                field="items",
                fix="split them over several requests",
            )
        traceparent = _traceparent(request)
        with self._room.taken(len(body.items)):
            pending = [
                self._start_item(raw, index, traceparent)
                async for index, raw in in_turns(body.items)
            ]
            results = [
                item if isinstance(item, StartResult) else _result(await item)
                async for _, item in in_turns(pending)
            ]
        return StartManyResults(results=tuple(results))

    async def signal(self, request: ApiRequest) -> SignalledRun:
        """run.signal, by run id or by key"""
        body = self._reader.read(request, SignalRun)
        signal = self._signal_spec(body.signal, body.payload, body.message_id, body.sent_by)
        key = _key(body.workflow, body.key)
        outcome = await self._run(
            lambda settle: Work(
                settle=settle,
                run_id=body.run_id,
                key=key,
                signal=signal,
            )
        )
        if outcome.kind not in _FINE or outcome.run_id is None:
            raise failure_of(outcome)
        taken_by, awaited_by = _fate(outcome)
        return SignalledRun(
            run_id=outcome.run_id,
            deduplicated=outcome.kind is OutcomeKind.DUPLICATE,
            taken_by=taken_by,
            awaited_by=awaited_by,
        )

    async def signal_with_start(self, request: ApiRequest) -> SignalledStart:
        """run.signal-with-start, in one transaction"""
        body = self._reader.read(request, SignalWithStart)
        start = self._start_spec(body, _traceparent(request))
        message_id = body.message_id
        if message_id is None and body.request_id is not None:
            # A repeat of the request is the same signal, too. A digest has a length of its own.
            digest = hashlib.sha256(body.request_id.encode()).hexdigest()
            message_id = f"request:{digest}"
        signal = self._signal_spec(body.signal, body.payload, message_id, body.sent_by)
        outcome = await self._run(lambda settle: Work(settle=settle, start=start, signal=signal))
        if outcome.kind not in _FINE or outcome.run_id is None:
            raise failure_of(outcome)
        taken_by, awaited_by = _fate(outcome)
        return SignalledStart(
            run_id=outcome.run_id,
            deduplicated=outcome.deduplicated,
            signal_deduplicated=outcome.kind is OutcomeKind.DUPLICATE,
            taken_by=taken_by,
            awaited_by=awaited_by,
        )

    async def cancel(self, request: ApiRequest) -> CancelledRun:
        """run.cancel, by run id or by key"""
        body = self._reader.read(request, CancelRun)
        key = _key(body.workflow, body.key)
        event = CancelRequested(
            seed=self._shell.identity.new_seed(),
            cause=Cause(type="cancel", by=body.by, reason=body.reason),
            by=body.by,
            reason=body.reason,
            compensate=body.compensate,
        )
        outcome = await self._run(
            lambda settle: Work(settle=settle, run_id=body.run_id, key=key, event=event)
        )
        if key is not None and outcome.kind is OutcomeKind.UNKNOWN_RUN:
            # Nobody holds the key by now: what is true of the run that had it is the answer, the
            # same as by its id. So a repeated cancel is no error, whichever way it names the run.
            run_id = await self._shell.store.get_key(*key)
            if run_id is not None:
                outcome = await self._run(
                    lambda settle: Work(settle=settle, run_id=run_id, event=event)
                )
        if outcome.kind not in _FINE or outcome.run_id is None:
            raise failure_of(outcome)
        return CancelledRun(run_id=outcome.run_id, status=await self._status(outcome.run_id))

    async def _status(self, run_id: str) -> str:
        """Where a cancelled run stands now: its steps may have to be undone first. One that has
        been purged since was cancelled."""
        statuses = await self._shell.store.run_statuses([run_id])
        return statuses.get(run_id, RunStatus.CANCELLED.value)

    # Building work

    def _start_item(
        self, raw: Raw, index: int, traceparent: str | None
    ) -> StartResult | asyncio.Future[Outcome]:
        try:
            body = codec.decode(bytes(raw), StartRun, limits=self._limits)
            bounds.check_bounds(body, self._limits)
            return submitted(self._shell, self._start_work(body, traceparent))
        except ProtocolError as error:
            code, text, details = of_protocol_error(error.within(f"items[{index}]"))
            return StartResult(error=error_info(code, text, details))
        except ApiFailureError as failure:
            return StartResult(error=error_info(failure.code, failure.message, failure.details))

    def _start_work(self, body: StartRun, traceparent: str | None) -> MakeWork:
        start = self._start_spec(body, traceparent)
        return lambda settle: Work(settle=settle, start=start)

    def _start_spec(self, body: StartRun | SignalWithStart, traceparent: str | None) -> StartSpec:
        context = b"{}" if body.context is None else bytes(body.context)
        return StartSpec(
            run_id=self._shell.identity.new_id(),
            workflow=body.workflow,
            input=bytes(body.input),
            key=body.key,
            request_id=body.request_id,
            version=body.version,
            delay_ms=body.delay_ms,
            start_at=None if body.at is None else parse_instant(body.at),
            priority=None if body.priority is None else body.priority.level,
            tags=body.tags,
            context=context,
            triggered_by=body.triggered_by,
            traceparent=traceparent,
            on_conflict=body.on_conflict if isinstance(body, StartRun) else OnConflict.EXISTING,
        )

    def _signal_spec(
        self, name: str, payload: Raw, message_id: str | None, sent_by: str | None
    ) -> SignalSpec:
        received_at: datetime = self._shell.clock.now()
        return SignalSpec(
            name=name,
            payload=bytes(payload),
            message_id=message_id or f"api:{self._shell.identity.new_id()}",
            sent_by=sent_by,
            received_at=received_at,
            by_message=False,
        )

    async def _run(self, make: MakeWork) -> Outcome:
        return await submitted(self._shell, make)


def _started(outcome: Outcome) -> StartedRun:
    if outcome.kind is not OutcomeKind.APPLIED or outcome.run_id is None:
        raise failure_of(outcome)
    return StartedRun(run_id=outcome.run_id, deduplicated=outcome.deduplicated)


def _result(outcome: Outcome) -> StartResult:
    if outcome.kind is not OutcomeKind.APPLIED or outcome.run_id is None:
        failure = failure_of(outcome)
        return StartResult(error=error_info(failure.code, failure.message, failure.details))
    return StartResult(run_id=outcome.run_id, deduplicated=outcome.deduplicated)


def _fate(outcome: Outcome) -> tuple[str | UnsetType | None, tuple[str, ...] | UnsetType]:
    """`taken_by` and `awaited_by` of the answer; of a repeat it is not remembered."""
    fate = outcome.fate
    if fate is None:
        return UNSET, UNSET
    return fate.taken_by, UNSET if fate.taken_by is not None else fate.awaited_by


def _key(workflow: str | None, key: str | None) -> tuple[str, str] | None:
    return None if workflow is None or key is None else (workflow, key)


def _traceparent(request: ApiRequest) -> str | None:
    return headers.decode_traceparent(headers.get(request.headers, headers.TRACEPARENT))
