"""Pause and resume: of a run, a workflow, a version, a task, a queue; and the list of pauses.

There are at most `pause_count_max` pauses: every engine knows all of them.

All may be repeated: what is so already stays so, `changed` tells. A pause holds for every dispatch
that is committed after it was answered.
"""

import structlog
from msgspec import UNSET

from towpath_engine.bus.interface import ApiRequest
from towpath_engine.core.events import PauseRequested, ResumeRequested
from towpath_engine.core.gate import Scope, version_name
from towpath_engine.core.model import Cause
from towpath_engine.services.admission import Admission
from towpath_engine.services.api.errors import ApiFailureError, failure_of
from towpath_engine.services.api.lists import pause_view
from towpath_engine.services.api.pages import fitting_count
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.api.submitting import submitted
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import OutcomeKind, Work
from towpath_engine.store.admission import PauseMade
from towpath_protocol import codec
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.operation_replies import PauseChanged, PausedRun, PauseList
from towpath_protocol.operations import (
    ListPauses,
    PauseQueue,
    PauseRun,
    PauseTask,
    PauseWorkflow,
    ResumeQueue,
    ResumeRun,
    ResumeTask,
    ResumeWorkflow,
)

log = structlog.get_logger(__name__)

_DONE = {OutcomeKind.APPLIED, OutcomeKind.IGNORED}
_CURSOR_SEPARATOR = "/"

AnyPause = PauseWorkflow | PauseQueue | PauseTask
AnyResume = ResumeWorkflow | ResumeQueue | ResumeTask


class PauseHandlers:
    """Handlers of the verbs that hold dispatches back and let them go. There may be `pauses_max`
    pauses, but for those of runs."""

    def __init__(
        self, shell: Shell, *, admission: Admission, reader: RequestReader, pauses_max: int
    ) -> None:
        self._shell = shell
        self._store = shell.store
        self._admission = admission
        self._reader = reader
        self._pauses_max = pauses_max

    async def pause_run(self, request: ApiRequest) -> PausedRun:
        """run.pause"""
        body = self._reader.read(request, PauseRun)
        cause = Cause(type="pause", by=body.by, reason=body.reason)
        event = PauseRequested(seed=self._shell.identity.new_seed(), cause=cause)
        return await self._change_run(body.run_id, event)

    async def resume_run(self, request: ApiRequest) -> PausedRun:
        """run.resume"""
        body = self._reader.read(request, ResumeRun)
        cause = Cause(type="resume", by=body.by, reason=body.reason)
        event = ResumeRequested(seed=self._shell.identity.new_seed(), cause=cause)
        return await self._change_run(body.run_id, event)

    async def _change_run(self, run_id: str, event: PauseRequested | ResumeRequested) -> PausedRun:
        outcome = await submitted(
            self._shell, lambda settle: Work(settle=settle, run_id=run_id, event=event)
        )
        if outcome.kind not in _DONE:
            raise failure_of(outcome)
        status = (await self._store.run_statuses([run_id])).get(run_id)
        if status is None:
            # It has settled and was purged since.
            raise ApiFailureError(ErrorCode.RUN_NOT_FOUND, f"run {run_id} does not exist any more")
        return PausedRun(
            run_id=run_id,
            status=status,
            paused=isinstance(event, PauseRequested),
            changed=outcome.kind is OutcomeKind.APPLIED,
        )

    async def pause_workflow(self, request: ApiRequest) -> PauseChanged:
        """workflow.pause"""
        body = self._reader.read(request, PauseWorkflow)
        return await self._pause(*await self._workflow(body), body)

    async def resume_workflow(self, request: ApiRequest) -> PauseChanged:
        """workflow.resume"""
        body = self._reader.read(request, ResumeWorkflow)
        return await self._resume(*await self._workflow(body), body)

    async def pause_queue(self, request: ApiRequest) -> PauseChanged:
        """queue.pause"""
        body = self._reader.read(request, PauseQueue)
        return await self._pause(Scope.QUEUE, await self._queue(body.queue), body)

    async def resume_queue(self, request: ApiRequest) -> PauseChanged:
        """queue.resume"""
        body = self._reader.read(request, ResumeQueue)
        return await self._resume(Scope.QUEUE, await self._queue(body.queue), body)

    async def pause_task(self, request: ApiRequest) -> PauseChanged:
        """task.pause: also of a task that no workflow names yet"""
        body = self._reader.read(request, PauseTask)
        return await self._pause(Scope.TASK, body.task, body)

    async def resume_task(self, request: ApiRequest) -> PauseChanged:
        """task.resume"""
        body = self._reader.read(request, ResumeTask)
        return await self._resume(Scope.TASK, body.task, body)

    async def list_all(self, request: ApiRequest) -> PauseList:
        """pause.list: in pages, since the reasons of a thousand may not fit into one answer"""
        body = self._reader.read(request, ListPauses)
        after = _parse_cursor(body.cursor)
        known = await self._store.admission.pauses()
        views = [pause_view(one) for one in known.pauses if (one.scope.value, one.name) > after]
        page = views[: fitting_count(len(codec.encode(view)) for view in views)]
        last = page[-1] if len(page) < len(views) else None
        return PauseList(
            pauses=tuple(page),
            next_cursor=UNSET if last is None else f"{last.scope}{_CURSOR_SEPARATOR}{last.name}",
        )

    async def _pause(self, scope: Scope, name: str, body: AnyPause) -> PauseChanged:
        made = await self._store.admission.pause(
            scope, name, by=body.by, reason=body.reason, pauses_max=self._pauses_max
        )
        if made is PauseMade.FULL:
            raise ApiFailureError(
                ErrorCode.PAUSES_FULL,
                f"there are {self._pauses_max} pauses, no more are allowed; resume what need not be"
                " paused, or raise the setting pause_count_max",
                {"pauses_max": self._pauses_max},
            )
        if made is PauseMade.MADE:
            await self._admission.reload()
            log.info("pause_made", scope=scope.value, name=name, by=body.by, reason=body.reason)
        changed = made is PauseMade.MADE
        return PauseChanged(scope=scope.value, name=name, paused=True, changed=changed)

    async def _resume(self, scope: Scope, name: str, body: AnyResume) -> PauseChanged:
        changed = await self._store.admission.resume(scope, name)
        if changed:
            await self._admission.resumed(scope, name)
            log.info("pause_lifted", scope=scope.value, name=name, by=body.by, reason=body.reason)
        return PauseChanged(scope=scope.value, name=name, paused=False, changed=changed)

    async def _workflow(self, body: PauseWorkflow | ResumeWorkflow) -> tuple[Scope, str]:
        """What the pause is of. Raises ApiFailureError when there is no such thing."""
        name, version = body.workflow, body.version
        if await self._store.get_workflow(name, None) is None:
            raise ApiFailureError(
                ErrorCode.WORKFLOW_NOT_FOUND, f"workflow {name!r} is not deployed"
            )
        if version is None:
            return Scope.WORKFLOW, name
        if await self._store.get_workflow(name, version) is None:
            raise ApiFailureError(
                ErrorCode.VERSION_NOT_FOUND, f"workflow {name!r} has no version {version}"
            )
        return Scope.VERSION, version_name(name, version)

    async def _queue(self, queue: str) -> str:
        if queue not in await self._store.list_queues():
            raise ApiFailureError(
                ErrorCode.QUEUE_NOT_FOUND,
                f"there is no queue {queue!r}: no deployed workflow and no worker has named it",
            )
        return queue


def _parse_cursor(cursor: str | None) -> tuple[str, str]:
    """(scope, name) behind which the page begins. Raises ProtocolError."""
    if cursor is None:
        return "", ""
    scope, separator, name = cursor.partition(_CURSOR_SEPARATOR)
    if not separator:
        raise ProtocolError(
            ErrorCode.MALFORMED,
            "is no cursor that pause.list has given",
            field="cursor",
            fix="give next_cursor of the page before, or none",
        )
    return scope, name
