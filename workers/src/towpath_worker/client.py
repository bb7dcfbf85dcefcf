"""The client: start, signal, cancel and read runs, and deploy workflows, from any program.

`async with Client() as client:` connects; every method raises ApiError when the engine refuses,
NoAnswerError or NotConnectedError (both TransportError) when nobody answers within the client's
timeout, and InvalidValueError for a value that is no JSON or over its limit. Requests are repeated
under one id until they are answered, so nothing happens twice.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Self, TypeVar

from msgspec import Raw, Struct

from towpath_protocol import replies, requests
from towpath_protocol.limits import WireLimits
from towpath_protocol.priorities import Priority
from towpath_protocol.requests import OnConflict, StartRun
from towpath_worker.calls import ANSWER_SECONDS, ApiCaller
from towpath_worker.options import ConnectionOptions, connection_options
from towpath_worker.runs import RunHandle, RunReader, StartManyError
from towpath_worker.starts import StartItem, batches, start_of
from towpath_worker.transport import Connection
from towpath_worker.values import Json, to_json

T = TypeVar("T", bound=Struct)

LIMITS: Final = WireLimits()
DEFAULT_TIMEOUT_SECONDS: Final = 30.0


class Client:
    """A connection to an installation, for programs that are no workers.

    `nats_url` and `prefix` default to `TOWPATH_NATS_URL` and `TOWPATH_PREFIX`, then to what
    `towpath dev` uses; `connection` replaces both. `timeout_seconds` is how long a call goes on
    trying. Raises ValueError for an option out of range.
    """

    def __init__(
        self,
        *,
        nats_url: str | None = None,
        prefix: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        connection: ConnectionOptions | None = None,
    ) -> None:
        options = connection or connection_options(nats_url, prefix)
        if timeout_seconds <= 0:
            raise ValueError("timeout_seconds must be more than 0")
        self._connection = Connection(options, name="towpath-client")
        self._caller = ApiCaller(self._connection, prefix=options.prefix, url=options.nats_url)
        self._timeout_seconds = timeout_seconds
        self._reader = RunReader(self._caller, timeout_seconds=timeout_seconds)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect. Raises NotConnectedError when there is no NATS server within the timeout."""
        await self._connection.open(timeout_seconds=self._timeout_seconds)

    async def close(self) -> None:
        """Disconnect; the client cannot be used afterwards."""
        await self._connection.close()

    async def deploy(
        self, definition: Mapping[str, object], *, dry_run: bool = False
    ) -> replies.DeployedWorkflow:
        """Deploy a workflow; the same content again is the same version.

        ApiError `definition_refused` lists every fault, with its path, in `details`.
        """
        text = to_json(definition, bytes_max=LIMITS.definition_bytes_max, field="definition")
        request = requests.DeployWorkflow(definition=Raw(text), dry_run=dry_run)
        return await self._call("workflow.deploy", request, replies.DeployedWorkflow)

    async def start(  # noqa: PLR0913 -- the options of a start, by keyword
        self,
        workflow: str,
        input: object = None,  # noqa: A002 -- the word of the wire
        *,
        key: str | None = None,
        version: int | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        priority: Priority | str | None = None,
        tags: Sequence[str] | None = None,
        context: Mapping[str, object] | None = None,
        on_conflict: OnConflict | str = OnConflict.EXISTING,
        request_id: str | None = None,
        triggered_by: str | None = None,
    ) -> RunHandle:
        """Start a run; with a `key`, or find the live run that holds it (`deduplicated`).

        `delay` is a timedelta or seconds. ApiError: `workflow_not_found`, `schema_failed`,
        `key_conflict`. ValueError for a bad name, key or instant.
        """
        item = StartItem(
            workflow=workflow,
            input=input,
            key=key,
            version=version,
            delay=delay,
            at=at,
            priority=None if priority is None else Priority(priority),
            tags=tags,
            context=context,
            on_conflict=OnConflict(on_conflict),
            request_id=request_id,
            triggered_by=triggered_by,
        )
        reply = await self._call("run.start", start_of(item), replies.StartedRun)
        return self.handle(reply.run_id, deduplicated=reply.deduplicated)

    async def start_many(
        self, items: Sequence[StartItem | Mapping[str, object]]
    ) -> Sequence[RunHandle]:
        """Start up to any number of runs, each on its own; the handles are in the items' order.

        An item is a `StartItem` or a mapping with its fields. Raises StartManyError when some
        were refused: it holds the handle or the error of each; TypeError for an unknown field.
        """
        starts: list[StartRun] = [start_of(item) for item in items]
        results: list[replies.StartResult] = []
        for batch in batches(starts, bytes_max=self._connection.payload_bytes_max):
            reply = await self._call(
                "run.start-many", batch, replies.StartManyResults, answer_seconds=30.0
            )
            results.extend(reply.results)
        return StartManyError.unless_all_started(results, self.handle)

    async def signal(
        self,
        workflow: str | None = None,
        *,
        signal: str,
        key: str | None = None,
        run_id: str | None = None,
        payload: object = None,
        message_id: str | None = None,
        sent_by: str | None = None,
    ) -> replies.SignalledRun:
        """Signal the live run of (`workflow`, `key`), or the run `run_id`.

        A `message_id` that the run has seen changes nothing (`deduplicated`). ApiError:
        `run_not_found`, `key_not_found`, `run_settled`, `signals_full`.
        """
        request = requests.SignalRun(
            run_id=run_id,
            workflow=workflow,
            key=key,
            signal=signal,
            payload=Raw(to_json(payload, bytes_max=LIMITS.payload_bytes_max, field="payload")),
            message_id=message_id or str(uuid.uuid4()),
            sent_by=sent_by,
        )
        return await self._call("run.signal", request, replies.SignalledRun)

    async def signal_with_start(
        self,
        start: StartItem | Mapping[str, object],
        *,
        signal: str,
        payload: object = None,
        message_id: str | None = None,
        sent_by: str | None = None,
    ) -> RunHandle:
        """Start a run unless its key has a live one, and signal it, atomically.

        ValueError when the start has no key.
        """
        run = start_of(start)
        if run.key is None:
            raise ValueError("signal_with_start needs a key")
        request = requests.SignalWithStart(
            workflow=run.workflow,
            input=run.input,
            key=run.key,
            version=run.version,
            delay_ms=run.delay_ms,
            at=run.at,
            priority=run.priority,
            tags=run.tags,
            context=run.context,
            request_id=run.request_id,
            triggered_by=run.triggered_by,
            signal=signal,
            payload=Raw(to_json(payload, bytes_max=LIMITS.payload_bytes_max, field="payload")),
            message_id=message_id or str(uuid.uuid4()),
            sent_by=sent_by,
        )
        reply = await self._call("run.signal-with-start", request, replies.SignalledStart)
        return self.handle(reply.run_id, deduplicated=reply.deduplicated)

    async def cancel(
        self,
        workflow: str | None = None,
        *,
        key: str | None = None,
        run_id: str | None = None,
        compensate: bool | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> replies.CancelledRun:
        """Cancel the live run of (`workflow`, `key`), or the run `run_id`.

        Cancelling a cancelled run succeeds. ApiError: `run_settled` names any other final state.
        """
        request = requests.CancelRun(
            run_id=run_id,
            workflow=workflow,
            key=key,
            compensate=compensate,
            by=by,
            reason=reason,
        )
        return await self._call("run.cancel", request, replies.CancelledRun)

    def handle(self, run_id: str, *, deduplicated: bool = False) -> RunHandle:
        """A handle on a run that is known by its id; asks nobody."""
        return RunHandle(self._reader, run_id, deduplicated=deduplicated)

    async def get(self, run_id: str, *, steps_cursor: str | None = None) -> replies.RunView:
        """The run with a page of its steps. ApiError: `run_not_found`."""
        return await self._reader.get(run_id, steps_cursor=steps_cursor)

    async def result(self, run_id: str, *, timeout: float | None = None) -> Json:
        """Wait until the run has settled; its output, as plain JSON.

        `timeout` is in seconds, None waits for ever. Raises RunFailed when the run ended in any
        way but completed, TimeoutError when it has not settled in time. ApiError: `run_not_found`.
        `handle(run_id).result(output_type=…)` converts the output.
        """
        return await self.handle(run_id).result(timeout=timeout)

    async def history(
        self, run_id: str, *, after_seq: int = 0, limit: int = 200
    ) -> replies.RunHistory:
        """A page of the run's transitions. ApiError: `run_not_found`."""
        return await self._reader.history(run_id, after_seq=after_seq, limit=limit)

    async def logs(
        self, run_id: str, *, step: str | None = None, after: int = 0, limit: int = 100
    ) -> replies.RunLogs:
        """A page of the log lines of the run's attempts. ApiError: `run_not_found`."""
        request = requests.GetLogs(run_id=run_id, step=step, after=after, limit=limit)
        return await self._call("run.logs", request, replies.RunLogs)

    async def list(
        self,
        workflow: str | None = None,
        *,
        status: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        created_from: str | None = None,
        created_to: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> replies.RunList:
        """A page of runs, newest first; `next_cursor` gets the next. Instants are RFC 3339."""
        request = requests.ListRuns(
            workflow=workflow,
            status=status,
            key=key,
            tag=tag,
            from_=created_from,
            to=created_to,
            cursor=cursor,
            limit=limit,
        )
        return await self._call("run.list", request, replies.RunList)

    async def workflows(self) -> replies.WorkflowList:
        """The newest version of every workflow."""
        return await self._call("workflow.list", requests.ListWorkflows(), replies.WorkflowList)

    async def workflow(self, name: str, *, version: int | None = None) -> replies.WorkflowView:
        """A workflow with its document. ApiError: `workflow_not_found`, `version_not_found`."""
        request = requests.GetWorkflow(workflow=name, version=version)
        return await self._call("workflow.get", request, replies.WorkflowView)

    async def dead_letters(
        self, *, cursor: str | None = None, limit: int = 100
    ) -> replies.DeadLetterList:
        """A page of the messages that could not be applied, newest first."""
        request = requests.ListDeadLetters(cursor=cursor, limit=limit)
        return await self._call("dead-letter.list", request, replies.DeadLetterList)

    async def _call(
        self, verb: str, request: Struct, reply: type[T], *, answer_seconds: float = ANSWER_SECONDS
    ) -> T:
        return await self._caller.call(
            verb,
            request,
            reply,
            timeout_seconds=self._timeout_seconds,
            answer_seconds=answer_seconds,
        )
