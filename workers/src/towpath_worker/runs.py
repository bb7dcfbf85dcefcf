"""One run as its starter sees it: a handle with its result, its state, its events, its operation.

Everything a handle does raises ApiError when the engine refuses, and TransportError when nobody
answers (see `towpath_worker.api_errors`).
"""

import builtins
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Final, TypeVar, overload

from msgspec import UNSET, Raw, UnsetType

from towpath_protocol import operation_replies, operations, replies, requests
from towpath_protocol.limits import WireLimits
from towpath_worker.api_errors import ApiError
from towpath_worker.converting import converted
from towpath_worker.following import Event, LogLine, events_of, lines_of, log_lines_of
from towpath_worker.run_reader import SETTLED, RunReader
from towpath_worker.step_order import in_list_order
from towpath_worker.transport import TransportError
from towpath_worker.values import Json, from_json, to_json

T = TypeVar("T")

LIMITS: Final = WireLimits()


class RunFailed(Exception):  # noqa: N818 -- says what happened, as the run's status does
    """The run has settled, and not as completed.

    `status` is its final status (`failed`, `cancelled`, `timed_out`, …), `error` what made it fail,
    if anything did.
    """

    def __init__(self, run_id: str, status: str, error: replies.ErrorView | None) -> None:
        why = "" if error is None else f": {error.type}: {error.message}"
        super().__init__(f"run {run_id} is {status}{why}")
        self.run_id = run_id
        self.status = status
        self.error = error


class RunHandle:
    """A run. `deduplicated`: a start found it instead of creating it. `by` is who the operations
    are said to come from, unless they say another."""

    def __init__(
        self,
        reader: RunReader,
        run_id: str,
        *,
        deduplicated: bool = False,
        by: str | None = None,
    ) -> None:
        self._reader = reader
        self._caller = reader.caller
        self._by = by
        self.run_id = run_id
        self.deduplicated = deduplicated

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r}, deduplicated={self.deduplicated})"

    # Reading it

    @overload
    async def result(self, *, timeout: float | None = None) -> Json: ...

    @overload
    async def result(self, *, timeout: float | None = None, type: type[T]) -> T: ...

    async def result(
        self,
        *,
        timeout: float | None = None,
        type: builtins.type[T] | None = None,  # noqa: A002 -- the word that reads best
    ) -> Json | T:
        """Wait until the run has settled; its output, as plain JSON or as `type`.

        `timeout` is in seconds, None waits for ever. `type` is a msgspec Struct, a dataclass, a
        TypedDict, a pydantic model or a builtin type. Raises RunFailed when the run ended in any
        way but completed, TimeoutError when it has not settled in time (it goes on), and
        InvalidValueError when the output is no `type`.
        """
        result = await self._reader.settled(self.run_id, timeout)
        if result.status != "completed":
            raise RunFailed(self.run_id, result.status, result.error)
        text: bytes | None = None if result.output is None else bytes(result.output)
        if result.output_omitted is not UNSET:
            text = await self._reader.output(self.run_id)
        value: Json = from_json(b"null" if text is None else text)
        if type is None:
            return value
        return converted(value, type, field=f"the output of run {self.run_id}")

    async def get(self, *, steps: bool = True) -> replies.RunView:
        """The run with the first page of its steps, or without them."""
        return await self._reader.get(self.run_id, steps=steps)

    async def status(self) -> str:
        """The run's status now: `pending`, `running`, `waiting`, `completed`, …"""
        return (await self._reader.get(self.run_id, steps=False)).status

    async def settled(self) -> bool:
        """Whether the run has settled."""
        return await self.status() in SETTLED

    async def steps(
        self, *, inner: bool = True, under: str | None = None
    ) -> Sequence[replies.StepView]:
        """All steps of the run, in the order of the workflow's lists (by path, where this program
        may not read the workflow).

        Without `inner` only those of the workflow's own list; with `under` those below this step,
        branch (`notify/email`) or item (`lines[3]`). A map of many items has many.
        """
        run = await self._reader.get(self.run_id, inner=inner, under=under)
        found = list(run.steps)
        while run.steps_cursor is not None:
            run = await self._reader.get(
                self.run_id, inner=inner, under=under, steps_cursor=run.steps_cursor
            )
            found.extend(run.steps)
        request = requests.GetWorkflow(workflow=run.workflow, version=run.version)
        reading = self._caller.call("workflow.get", request, replies.WorkflowView)
        return await in_list_order(reading, found)

    async def output(self, *, step: str | None = None) -> Json:
        """The output of the run, or of a step, however large; None, too, when there is none."""
        text = await self._reader.output(self.run_id, step=step)
        return None if text is None else from_json(text)

    async def history(
        self, *, after_seq: int = 0, payloads: bool = False
    ) -> Sequence[replies.TransitionView]:
        """All transitions of the run so far, in order, or those after `after_seq`.

        `payloads`: with the values (outputs, errors, signals) that a replay of the history needs.
        """
        found = self._reader.transitions(self.run_id, after_seq=after_seq, payloads=payloads)
        return [transition async for transition in found]

    def events(self, *, after_seq: int = 0) -> AsyncGenerator[Event]:
        """What happened and happens to the run, in order of `seq` without gaps or repeats.

        Begins with the first event after `after_seq` and ends when the run has settled. Lost
        messages and reconnections are made up for from the history; an outage longer than the
        client's timeout raises TransportError, and a new call with the last `seq` goes on. Leave it
        early inside `contextlib.aclosing`, else its subscription ends when it is collected.
        """
        return events_of(self._reader, self.run_id, after_seq=after_seq)

    async def logs(self, *, step: str | None = None) -> Sequence[LogLine]:
        """The log lines of the run's attempts so far, or of one step, in order of arrival."""
        found: list[LogLine] = []
        after: int | None = 0
        while after is not None:
            page = await self._reader.logs(self.run_id, step=step, after=after)
            for batch in page.logs:
                found.extend(lines_of(batch))
            after = page.next_after
        return found

    def follow_logs(self, *, step: str | None = None) -> AsyncGenerator[LogLine]:
        """As `logs`, then every new line, until the run has settled. Lines come with the report
        that ends an attempt."""
        return log_lines_of(self._reader, self.run_id, step=step)

    async def explain(self) -> operation_replies.RunExplanation:
        """Why the run is not settled: everything it waits for, and when it wakes."""
        return await self._reader.explain(self.run_id)

    # Changing it

    async def signal(
        self,
        signal: str,
        payload: object = None,
        *,
        message_id: str | None = None,
        sent_by: str | None = None,
    ) -> replies.SignalledRun:
        """Signal the run; a `message_id` that it has seen changes nothing (`deduplicated`).

        ConflictError: `run_settled`, `signals_full`.
        """
        request = requests.SignalRun(
            run_id=self.run_id,
            signal=signal,
            payload=_raw(payload, "payload", LIMITS.payload_bytes_max),
            message_id=message_id or str(uuid.uuid4()),
            sent_by=sent_by or self._by,
        )
        return await self._caller.call("run.signal", request, replies.SignalledRun)

    async def cancel(
        self,
        *,
        compensate: bool | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> replies.CancelledRun:
        """Cancel the run. Cancelling a cancelled run succeeds.

        ConflictError: `run_settled` names any other final state.
        """
        request = requests.CancelRun(
            run_id=self.run_id, compensate=compensate, by=by or self._by, reason=reason
        )
        return await self._caller.call("run.cancel", request, replies.CancelledRun)

    async def retry(
        self,
        *,
        step: str | None = None,
        input: object = UNSET,  # noqa: A002 -- the word of the wire
        dry_run: bool = False,
        request_id: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> operation_replies.RetriedRun:
        """Go on from the failed step or steps, with a fresh budget and deadline.

        `input` replaces that of the failed step; `step` says which when several failed. A repeat
        with the same `request_id` does nothing (`deduplicated`).
        ConflictError: `run_not_settled`, `not_retryable`, `already_compensated`, `key_conflict`.
        """
        request = operations.RetryRun(
            run_id=self.run_id,
            step=step,
            input=_edited(input),
            dry_run=dry_run,
            request_id=request_id or str(uuid.uuid4()),
            by=by or self._by,
            reason=reason,
        )
        return await self._caller.call("run.retry", request, operation_replies.RetriedRun)

    async def redrive(
        self,
        step: str,
        *,
        input: object = UNSET,  # noqa: A002 -- the word of the wire
        dry_run: bool = False,
        request_id: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> operation_replies.RetriedRun:
        """As `retry`, but from any earlier step, which is done again with all after it."""
        request = operations.RedriveRun(
            run_id=self.run_id,
            step=step,
            input=_edited(input),
            dry_run=dry_run,
            request_id=request_id or str(uuid.uuid4()),
            by=by or self._by,
            reason=reason,
        )
        return await self._caller.call("run.redrive", request, operation_replies.RetriedRun)

    async def restart(
        self,
        *,
        version: int | None = None,
        request_id: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> "RunHandle":
        """Start a new run with what this settled one was started with; its handle.

        ConflictError: `run_not_settled`, `key_conflict`.
        """
        request = operations.RestartRun(
            run_id=self.run_id,
            version=version,
            request_id=request_id or str(uuid.uuid4()),
            by=by or self._by,
            reason=reason,
        )
        reply = await self._caller.call("run.restart", request, operation_replies.RestartedRun)
        return RunHandle(self._reader, reply.run_id, deduplicated=reply.deduplicated, by=self._by)

    async def pause(
        self, *, by: str | None = None, reason: str | None = None
    ) -> operation_replies.PausedRun:
        """Dispatch nothing new of the run; running attempts finish, timers go on."""
        request = operations.PauseRun(run_id=self.run_id, by=by or self._by, reason=reason)
        return await self._caller.call("run.pause", request, operation_replies.PausedRun)

    async def resume(
        self, *, by: str | None = None, reason: str | None = None
    ) -> operation_replies.PausedRun:
        """Lift the pause of the run."""
        request = operations.ResumeRun(run_id=self.run_id, by=by or self._by, reason=reason)
        return await self._caller.call("run.resume", request, operation_replies.PausedRun)


class StartManyError(ApiError):
    """Some starts did not succeed. `results` has for each item, in order, the StartedRun (its
    `run_id`), the ApiError that refused it, or the TransportError for which nothing is known of
    it: an OutcomeUnknownError with its `request_id` when it may have started, another when it was
    not sent. `code` and `message` are those of the first failure."""

    def __init__(
        self,
        results: Sequence[replies.StartedRun | ApiError | TransportError],
        first: ApiError,
    ) -> None:
        super().__init__(first.code, first.message, first.details, status=first.status)
        self.results = results


def _raw(value: object, field: str, bytes_max: int) -> Raw:
    return Raw(to_json(value, bytes_max=bytes_max, field=field))


def _edited(value: object | UnsetType) -> Raw | None:
    """An edited input; None where it stays, since null is an input, too."""
    return None if value is UNSET else _raw(value, "input", LIMITS.input_bytes_max)
