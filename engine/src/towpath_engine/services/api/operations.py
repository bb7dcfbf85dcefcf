"""run.retry and run.redrive: a settled run goes on because an operator wants it."""

from typing import Final

from msgspec import UNSET, Raw

from towpath_engine.bus.interface import ApiRequest
from towpath_engine.core.events import RedriveRequested, RetryRequested
from towpath_engine.core.model import Cause, Run
from towpath_engine.core.operations import Operation, refusal_of
from towpath_engine.services.api.errors import ApiFailureError, failure_of
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.api.submitting import submitted
from towpath_engine.services.reviving import Revived
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import OutcomeKind, Revival, Work
from towpath_protocol.errors import ErrorCode
from towpath_protocol.operation_replies import RetriedRun
from towpath_protocol.operations import RedriveRun, RetryRun

_REQUEST_SEPARATOR: Final = "\x1f"
_FOR_GOOD: Final = frozenset({ErrorCode.NOT_RETRYABLE, ErrorCode.ALREADY_COMPENSATED})


class Operations:
    """Handlers of the verbs with which operators have settled runs go on."""

    def __init__(self, shell: Shell, *, reader: RequestReader) -> None:
        self._shell = shell
        self._reader = reader

    async def retry(self, request: ApiRequest) -> RetriedRun:
        """run.retry"""
        body = self._reader.read(request, RetryRun)
        event = RetryRequested(
            seed=self._shell.identity.new_seed(),
            cause=Cause(type="retry", by=body.by, reason=body.reason),
            step=body.step,
            input=_text(body.input),
        )
        return await self._revive(body, event)

    async def redrive(self, request: ApiRequest) -> RetriedRun:
        """run.redrive"""
        body = self._reader.read(request, RedriveRun)
        event = RedriveRequested(
            seed=self._shell.identity.new_seed(),
            cause=Cause(type="redrive", by=body.by, reason=body.reason),
            step=body.step,
            input=_text(body.input),
        )
        return await self._revive(body, event)

    async def _revive(
        self, body: RetryRun | RedriveRun, event: RetryRequested | RedriveRequested
    ) -> RetriedRun:
        run = await self._shell.store.get_run(body.run_id)
        if run is None:
            raise ApiFailureError(ErrorCode.RUN_NOT_FOUND, f"there is no run {body.run_id}")
        operation = Operation.RETRY if isinstance(event, RetryRequested) else Operation.REDRIVE
        revival = Revival(
            key=_key_of(run, operation),
            dry_run=body.dry_run,
            request=_request_of(run, body, event.cause.type),
        )
        outcome = await submitted(
            self._shell,
            lambda settle: Work(settle=settle, run_id=run.id, event=event, revival=revival),
        )
        if outcome.kind is not OutcomeKind.APPLIED or not isinstance(outcome.details, Revived):
            raise failure_of(outcome)
        return RetriedRun(
            run_id=run.id,
            status=outcome.details.status,
            steps=outcome.details.steps,
            dry_run=body.dry_run,
            deduplicated=outcome.deduplicated or UNSET,
        )


def _key_of(run: Run, operation: Operation) -> tuple[str, str] | None:
    """The key that the run needs to go on. One that never does is refused without claiming it."""
    if run.key is None or refusal_of(operation, run.status, run.compensation) in _FOR_GOOD:
        return None
    return (run.workflow, run.key)


def _request_of(run: Run, body: RetryRun | RedriveRun, verb: str) -> tuple[str, str] | None:
    """The name under which the request is remembered. It stands in the table of starts, but in a
    namespace of its own: it says of this run that it went on, not that it was started."""
    if body.request_id is None or body.dry_run:
        return None
    return run.workflow, _REQUEST_SEPARATOR.join((verb, run.id, body.request_id))


def _text(value: Raw | None) -> bytes | None:
    return None if value is None else bytes(value)
