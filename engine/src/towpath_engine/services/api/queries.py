"""run.get, output, result, list and logs: requests that only read."""

import asyncio

from msgspec import UNSET, Raw

from towpath_engine.bus.interface import ApiRequest
from towpath_engine.core.model import Run
from towpath_engine.core.states import SETTLED_RUN, RunStatus
from towpath_engine.services.api import views
from towpath_engine.services.api.errors import ApiFailureError
from towpath_engine.services.api.pages import bad_cursor, fitting_count
from towpath_engine.services.api.reading import existing, read_at_rest
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.api.steps import is_path, read_steps
from towpath_engine.services.result_waiters import ResultWaiters
from towpath_engine.store.errors import CursorError
from towpath_engine.store.interface import RunFilter, Store
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.replies import (
    LogBatch,
    OutputPiece,
    RunList,
    RunLogs,
    RunResult,
    RunView,
)
from towpath_protocol.requests import (
    GetLogs,
    GetOutput,
    GetResult,
    GetRun,
    ListRuns,
)
from towpath_protocol.times import format_instant, parse_instant

_PIECE_BYTES = 192 * 1024
"""Of JSON text in one answer of run.output; escaping can double it and must stay below 1 MiB."""


class Queries:
    """Handlers of the reading verbs. They see committed data only."""

    def __init__(self, *, store: Store, waiters: ResultWaiters, reader: RequestReader) -> None:
        self._store = store
        self._waiters = waiters
        self._reader = reader

    async def get(self, request: ApiRequest) -> RunView:
        """run.get"""
        body = self._reader.read(request, GetRun)
        if not body.steps:
            return views.run_view(await self._run(body.run_id), (), None)

        async def view(run: Run) -> RunView:
            page = await read_steps(self._store, run, body)
            return views.run_view(run, page.steps, page.cursor)

        return await read_at_rest(self._store, body.run_id, view)

    async def output(self, request: ApiRequest) -> OutputPiece:
        """run.output: a piece of the JSON text, cut between characters"""
        body = self._reader.read(request, GetOutput)
        run = await self._run(body.run_id)
        value = run.output
        if body.step is not None:
            step = await self._store.get_step(body.run_id, body.step)
            if step is None and not is_path(run.definition, body.step):
                raise ApiFailureError(
                    ErrorCode.STEP_NOT_FOUND, f"run {body.run_id} has no step {body.step!r}"
                )
            value = None if step is None else step.output
        if value is None:
            return OutputPiece(
                run_id=body.run_id,
                step=body.step,
                offset=body.offset,
                size=0,
                text=None,
                next_offset=None,
            )
        piece = _cut(value, body.offset)
        end = body.offset + len(piece)
        return OutputPiece(
            run_id=body.run_id,
            step=body.step,
            offset=body.offset,
            size=len(value),
            text=piece.decode(),
            next_offset=end if end < len(value) else None,
        )

    async def result(self, request: ApiRequest) -> RunResult:
        """run.result: a long poll"""
        body = self._reader.read(request, GetResult)
        with self._waiters.waiting(body.run_id) as settled:
            run = await self._run(body.run_id)
            if run.status not in SETTLED_RUN and body.wait_ms:
                await asyncio.wait([settled], timeout=body.wait_ms / 1_000)
                run = await self._run(body.run_id)
        return views.run_result(run)

    async def list_runs(self, request: ApiRequest) -> RunList:
        """run.list"""
        body = self._reader.read(request, ListRuns)
        if body.status is not None and body.status not in set(RunStatus):
            raise ProtocolError(
                ErrorCode.MALFORMED,
                f"{body.status[:40]!r} is no status of a run",
                field="status",
                fix="use one of " + ", ".join(RunStatus),
            )
        where = RunFilter(
            workflow=body.workflow,
            status=body.status,
            key=body.key,
            tag=body.tag,
            created_from=None if body.from_ is None else parse_instant(body.from_, "from"),
            created_to=None if body.to is None else parse_instant(body.to, "to"),
        )
        try:
            page = await self._store.list_runs(where, body.cursor, body.limit)
        except CursorError as error:
            bad_cursor(error)
        return RunList(
            runs=tuple(views.run_summary(run) for run in page.runs), next_cursor=page.next_cursor
        )

    async def logs(self, request: ApiRequest) -> RunLogs:
        """run.logs"""
        body = self._reader.read(request, GetLogs)
        rows = await self._store.get_logs(body.run_id, body.step, body.after, body.limit)
        if not rows and not body.after:
            await self._run(body.run_id)
        taken = tuple(
            LogBatch(
                number=number,
                step=row.path,
                attempt=row.attempt,
                token=row.token,
                at=format_instant(row.at),
                lines=Raw(row.lines),
                cut=row.cut or UNSET,
            )
            for number, row in rows[: fitting_count(len(row.lines) for _, row in rows)]
        )
        more = len(taken) < len(rows) or len(rows) == body.limit
        return RunLogs(logs=taken, next_after=taken[-1].number if more and taken else None)

    async def _run(self, run_id: str) -> Run:
        return await existing(self._store, run_id)


def _cut(value: bytes, offset: int) -> bytes:
    """At most a piece's worth of bytes from `offset`, ending between two characters."""
    if offset > len(value) or (offset < len(value) and value[offset] & 0xC0 == 0x80):
        raise ProtocolError(
            ErrorCode.MALFORMED,
            f"{offset} is not the beginning of a piece",
            field="offset",
            fix="use 0, then the next_offset of each answer",
        )
    end = min(len(value), offset + _PIECE_BYTES)
    while end < len(value) and value[end] & 0xC0 == 0x80:
        end -= 1
    return value[offset:end]
