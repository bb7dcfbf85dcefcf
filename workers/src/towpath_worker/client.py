"""The client: start, signal, cancel, read and operate runs, and deploy workflows.

`async with Client() as client:` connects; every method raises ApiError when the engine refuses,
NoAnswerError or NotConnectedError (both TransportError) when nobody answers within the client's
timeout, MissingRightError at once when NATS lets this user not ask, and InvalidValueError for a
value that is no JSON or over its limit. Requests are repeated
under one id until they are answered, so nothing happens twice. `towpath_worker.SyncClient` is the
same for programs without an event loop.
"""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Self

from msgspec import Raw

from towpath_protocol import replies, requests
from towpath_protocol.limits import WireLimits
from towpath_protocol.priorities import Priority
from towpath_protocol.requests import OnConflict
from towpath_protocol.times import format_instant
from towpath_worker.calls import ApiCaller
from towpath_worker.operator_calls import OperatorCalls
from towpath_worker.options import ConnectionOptions, connection_options
from towpath_worker.run_reader import RunReader
from towpath_worker.runs import RunHandle
from towpath_worker.start_many import start_all, starts_of
from towpath_worker.starts import StartItem, start_of
from towpath_worker.transport import Connection
from towpath_worker.values import Json, to_json

LIMITS: Final = WireLimits()
DEFAULT_TIMEOUT_SECONDS: Final = 30.0
PAGE: Final = 100
LIVE: Final = ("pending", "running", "waiting", "compensating")
"""The statuses of a run that holds its key."""


class Client(OperatorCalls):
    """A connection to an installation, for programs that are no workers.

    `nats_url`, `prefix` and how NATS knows us come from the `TOWPATH_…` variables, which the
    command line reads, too, else from the running `towpath dev` of this folder, else they are its
    usual ones; `connection` replaces all of it.
    `timeout_seconds` is how long a call goes on trying. `by` is who this program is in the
    histories of the runs it touches. Raises ValueError for an option out of range.
    """

    def __init__(
        self,
        *,
        nats_url: str | None = None,
        prefix: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        connection: ConnectionOptions | None = None,
        by: str | None = None,
    ) -> None:
        options = connection or connection_options(nats_url, prefix)
        if timeout_seconds <= 0:
            raise ValueError("timeout_seconds must be more than 0")
        self._connection = Connection(options, name="towpath-client")
        caller = ApiCaller(self._connection, options, timeout_seconds=timeout_seconds)
        super().__init__(caller, by=by)
        self._reader = RunReader(caller)

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

    async def open(self, *, timeout_seconds: float | None = None) -> None:
        """Connect. Raises NotConnectedError when no NATS server takes us within the timeout, which
        is the client's when it is None."""
        limit = self._caller.timeout_seconds if timeout_seconds is None else timeout_seconds
        await self._connection.open(timeout_seconds=limit)

    async def close(self) -> None:
        """Disconnect; the client cannot be used afterwards."""
        await self._connection.close()

    async def deploy(
        self, definition: Mapping[str, object], *, dry_run: bool = False
    ) -> replies.DeployedWorkflow:
        """Deploy a workflow; the same content again is the same version.

        DefinitionRefusedError lists every fault, with its path, in `faults`. `dry_run` stores
        nothing, and answers the version that it would get.
        """
        text = to_json(definition, bytes_max=LIMITS.definition_bytes_max, field="definition")
        request = requests.DeployWorkflow(definition=Raw(text), dry_run=dry_run)
        return await self._caller.call("workflow.deploy", request, replies.DeployedWorkflow)

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

        `delay` is a timedelta or seconds. NotFoundError: `workflow_not_found`. ConflictError:
        `key_conflict`. InvalidRequestError: `schema_failed`. OutcomeUnknownError: no answer came,
        the run may still start; its `request_id`, given to a repeated call, starts nothing twice.
        ValueError for a bad name, key or instant.
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
        reply = await self._caller.call("run.start", start_of(item), replies.StartedRun)
        return self.handle(reply.run_id, deduplicated=reply.deduplicated)

    async def start_many(
        self, items: Sequence[StartItem | Mapping[str, object]]
    ) -> Sequence[RunHandle]:
        """Start any number of runs, each on its own; the handles are in the items' order.

        An item is a `StartItem` or a mapping with its fields. Raises StartManyError when some
        have no handle: it says of each item what is known; TypeError for an unknown field.
        """
        return await start_all(self._caller, starts_of(items), self.handle)

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

        A `message_id` that the run has seen changes nothing (`deduplicated`). NotFoundError:
        `run_not_found`, `key_not_found`. ConflictError: `run_settled`, `signals_full`.
        """
        request = requests.SignalRun(
            run_id=run_id,
            workflow=workflow,
            key=key,
            signal=signal,
            payload=Raw(to_json(payload, bytes_max=LIMITS.payload_bytes_max, field="payload")),
            message_id=message_id or str(uuid.uuid4()),
            sent_by=sent_by or self._by,
        )
        return await self._caller.call("run.signal", request, replies.SignalledRun)

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
            sent_by=sent_by or self._by,
        )
        reply = await self._caller.call("run.signal-with-start", request, replies.SignalledStart)
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

        Cancelling a cancelled run succeeds. ConflictError: `run_settled` names any other final
        state.
        """
        request = requests.CancelRun(
            run_id=run_id,
            workflow=workflow,
            key=key,
            compensate=compensate,
            by=by or self._by,
            reason=reason,
        )
        return await self._caller.call("run.cancel", request, replies.CancelledRun)

    def handle(self, run_id: str, *, deduplicated: bool = False) -> RunHandle:
        """A handle on a run that is known by its id; asks nobody."""
        return RunHandle(self._reader, run_id, deduplicated=deduplicated, by=self._by)

    async def find(self, workflow: str, key: str) -> RunHandle:
        """The live run of (`workflow`, `key`), else the newest one that had the key.

        Raises LookupError when no run has or had it.
        """
        newest = await self._first(workflow, key)
        if newest is None:
            raise LookupError(f"no run of workflow {workflow!r} has or had the key {key!r}")
        if newest.settled_at is None:
            return self.handle(newest.run_id)
        # An older run may be live again: a retry gave it its key back.
        for status in LIVE:
            live = await self._first(workflow, key, status=status)
            if live is not None:
                return self.handle(live.run_id)
        return self.handle(newest.run_id)

    async def _first(
        self, workflow: str, key: str, *, status: str | None = None
    ) -> replies.RunSummary | None:
        """The newest run with the key, or the newest in this status."""
        cursor: str | None = None
        while True:
            # A page may be short, and even empty, before the last one.
            page = await self.list_page(workflow, key=key, status=status, cursor=cursor, limit=1)
            cursor = page.next_cursor
            if page.runs or cursor is None:
                return page.runs[0] if page.runs else None

    async def get(
        self,
        run_id: str,
        *,
        inner: bool = True,
        under: str | None = None,
        steps_cursor: str | None = None,
    ) -> replies.RunView:
        """The run with a page of its steps. NotFoundError: `run_not_found`.

        Without `inner` only those of the workflow's own list; with `under` those below this step,
        branch (`notify/email`) or item (`lines[3]`): `step_not_found`.
        """
        return await self._reader.get(run_id, inner=inner, under=under, steps_cursor=steps_cursor)

    async def result(self, run_id: str, *, timeout: float | None = None) -> Json:
        """Wait until the run has settled; its output, as plain JSON.

        `timeout` is in seconds, None waits for ever. Raises RunFailed when the run ended in any
        way but completed, TimeoutError when it has not settled in time. NotFoundError:
        `run_not_found`. `handle(run_id).result(type=…)` converts the output.
        """
        return await self.handle(run_id).result(timeout=timeout)

    async def history(
        self, run_id: str, *, after_seq: int = 0, limit: int = 200, payloads: bool = False
    ) -> replies.RunHistory:
        """A page of the run's transitions. NotFoundError: `run_not_found`.

        `payloads`: with the values, and the limits of the engine, that a replay needs.
        """
        return await self._reader.history(
            run_id, after_seq=after_seq, limit=limit, payloads=payloads
        )

    async def logs(
        self, run_id: str, *, step: str | None = None, after: int = 0, limit: int = PAGE
    ) -> replies.RunLogs:
        """A page of the log lines of the run's attempts. NotFoundError: `run_not_found`."""
        return await self._reader.logs(run_id, step=step, after=after, limit=limit)

    async def list(
        self,
        workflow: str | None = None,
        *,
        status: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        created_from: datetime | str | None = None,
        created_to: datetime | str | None = None,
    ) -> AsyncIterator[replies.RunSummary]:
        """The runs that pass all filters, newest first: `async for run in client.list(…)`.

        `created_from` and `created_to` (exclusive) are datetimes with a time zone or RFC 3339.
        Pages are asked for as they are needed. ValueError for a bad key or instant.
        """
        cursor: str | None = None
        while True:
            page = await self.list_page(
                workflow,
                status=status,
                key=key,
                tag=tag,
                created_from=created_from,
                created_to=created_to,
                cursor=cursor,
            )
            for run in page.runs:
                yield run
            cursor = page.next_cursor
            if cursor is None:
                return

    async def list_page(
        self,
        workflow: str | None = None,
        *,
        status: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        created_from: datetime | str | None = None,
        created_to: datetime | str | None = None,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> replies.RunList:
        """A page of what `list` gives; its `next_cursor` gets the next."""
        request = requests.ListRuns(
            workflow=workflow,
            status=status,
            key=key,
            tag=tag,
            from_=_instant(created_from),
            to=_instant(created_to),
            cursor=cursor,
            limit=limit,
        )
        return await self._caller.call("run.list", request, replies.RunList)


def _instant(value: datetime | str | None) -> str | None:
    return format_instant(value) if isinstance(value, datetime) else value
