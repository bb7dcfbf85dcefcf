"""run.restart: a settled run once more, as a new run with what it was started with."""

from towpath_engine.bus.interface import ApiRequest
from towpath_engine.core.model import Cause, Run
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.services.api.errors import ApiFailureError, failure_of
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.api.submitting import submitted
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import OutcomeKind, StartSpec, Work
from towpath_protocol.errors import ErrorCode
from towpath_protocol.operation_replies import RestartedRun
from towpath_protocol.operations import RestartRun
from towpath_protocol.requests import OnConflict


class Restarts:
    """Handler of run.restart. The new run goes the way of every start."""

    def __init__(self, shell: Shell, *, reader: RequestReader) -> None:
        self._shell = shell
        self._reader = reader

    async def restart(self, request: ApiRequest) -> RestartedRun:
        """run.restart: refused while the run is live, or while another one holds its key."""
        body = self._reader.read(request, RestartRun)
        run = await self._shell.store.get_run(body.run_id)
        if run is None:
            raise ApiFailureError(ErrorCode.RUN_NOT_FOUND, f"there is no run {body.run_id}")
        if run.status not in SETTLED_RUN and not await self._is_repeat(run, body.request_id):
            raise ApiFailureError(
                ErrorCode.RUN_NOT_SETTLED,
                f"run {run.id} is {run.status.value}: only a settled run can be restarted",
                {"status": run.status.value},
            )
        start = self._start_of(run, body)
        cause = Cause(
            type="start", kind="restart", by=body.by, reason=body.reason or f"restart of {run.id}"
        )
        outcome = await submitted(
            self._shell, lambda settle: Work(settle=settle, start=start, cause=cause)
        )
        if outcome.kind is not OutcomeKind.APPLIED or outcome.run_id is None:
            raise failure_of(outcome)
        return RestartedRun(run_id=outcome.run_id, deduplicated=outcome.deduplicated)

    async def _is_repeat(self, run: Run, request_id: str | None) -> bool:
        """Whether the request was answered before: the run may have been retried since, and its
        repeat still gets the same answer."""
        if request_id is None:
            return False
        async with self._shell.store.transaction() as tx:
            return bool(await tx.find_requests([(run.workflow, request_id)]))

    def _start_of(self, run: Run, body: RestartRun) -> StartSpec:
        return StartSpec(
            run_id=self._shell.identity.new_id(),
            workflow=run.workflow,
            version=body.version or run.workflow_version,
            input=run.input,
            key=run.key,
            request_id=body.request_id,
            priority=run.priority,
            tags=run.tags,
            context=run.context,
            triggered_by=body.by or run.triggered_by,
            traceparent=run.traceparent,
            on_conflict=OnConflict.REJECT,
            restarted_from=run.id,
        )
