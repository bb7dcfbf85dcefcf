"""run.history, run.purge and workflow.retention: what is kept of runs, and for how long."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, assert_never

import msgspec
import structlog
from msgspec import UNSET, Raw
from msgspec.structs import replace

from towpath_engine.bus.interface import ApiRequest
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import KeptSignal, Transition
from towpath_engine.core.payloads import (
    RowsOutput,
    signal_number,
    takes_output,
    whole_payloads,
)
from towpath_engine.services.api import views
from towpath_engine.services.api.errors import ApiFailureError
from towpath_engine.services.api.pages import REPLY_BYTES_MAX, fitting_count, size_of
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.retention import count_purged
from towpath_engine.services.shell import Shell
from towpath_engine.store.past import Purge, PurgedBatch, PurgeSize
from towpath_protocol.errors import ErrorCode
from towpath_protocol.operation_replies import PurgedRuns, RetentionView
from towpath_protocol.operations import PurgeRuns, SetRetention
from towpath_protocol.replies import RunHistory
from towpath_protocol.requests import GetHistory
from towpath_protocol.times import parse_instant

log = structlog.get_logger(__name__)

_PAYLOAD_ROWS_MAX: Final = 200
"""Transitions of one answer with payloads: each may name a row that must be looked at."""


class Records:
    """Handlers. `limits` are those under which this engine decides, `size` that of one batch."""

    def __init__(
        self, shell: Shell, *, reader: RequestReader, limits: CoreLimits, size: PurgeSize
    ) -> None:
        self._shell = shell
        self._store = shell.store
        self._reader = reader
        self._limits = limits
        self._size = size

    async def history(self, request: ApiRequest) -> RunHistory:
        """run.history"""
        body = self._reader.read(request, GetHistory)
        if body.payloads:
            return await self._whole_history(body)
        rows = await self._store.get_history(body.run_id, body.after_seq, body.limit)
        if not rows and not body.after_seq and await self._store.get_run(body.run_id) is None:
            raise _unknown(body.run_id)
        lines = tuple(views.transition_view(row) for row in rows)
        taken = lines[: fitting_count(len(line.cause) + size_of(line.data) for line in lines)]
        more = len(taken) < len(rows) or len(rows) == body.limit
        return RunHistory(transitions=taken, next_after_seq=taken[-1].seq if more else None)

    async def _whole_history(self, body: GetHistory) -> RunHistory:
        """With payloads: those of the transitions, and what the rows of steps and signals keep."""
        run = await self._store.get_run(body.run_id)
        if run is None:
            raise _unknown(body.run_id)
        past, room = self._store.past, REPLY_BYTES_MAX
        limit = min(body.limit, _PAYLOAD_ROWS_MAX)
        rows = await past.history(run.id, body.after_seq, limit, bytes_max=room)
        paths = list(dict.fromkeys(row.step or "" for row in rows if takes_output(row)))
        numbers = [number for row in rows if (number := signal_number(row)) is not None]
        outputs = await past.outputs(run.id, paths, bytes_max=room) if paths else {}
        signals = await past.signals(run.id, numbers, bytes_max=room) if numbers else {}
        rows = rows[: _whole_count(rows, outputs, signals)]
        payloads = whole_payloads(rows, outputs=outputs, signals=signals)
        lines = [
            replace(views.transition_view(row), payload=UNSET if payload is None else Raw(payload))
            for row, payload in zip(rows, payloads, strict=True)
        ]
        sizes = [
            len(line.cause) + size_of(line.data) + len(payload or b"")
            for line, payload in zip(lines, payloads, strict=True)
        ]
        taken = tuple(lines[: fitting_count(sizes)])
        more = bool(taken) and taken[-1].seq < run.seq
        return RunHistory(
            transitions=taken,
            next_after_seq=taken[-1].seq if more else None,
            limits=Raw(msgspec.json.encode(self._limits)),
        )

    async def purge(self, request: ApiRequest) -> PurgedRuns:
        """run.purge"""
        body = self._reader.read(request, PurgeRuns)
        if body.run_id is not None:
            await self._purge_run(body.run_id, body)
            return PurgedRuns(purged=1, more=False, dry_run=body.dry_run)
        assert body.workflow is not None
        assert body.settled_before is not None
        before = parse_instant(body.settled_before, "settled_before")
        if await self._store.get_workflow(body.workflow, None) is None:
            raise _undeployed(body.workflow)
        if body.dry_run:
            count = await self._store.past.count_before(body.workflow, before, body.limit + 1)
            limited = min(count, body.limit)
            return PurgedRuns(purged=limited, more=count > limited, dry_run=True)
        return await self._purge_before(body, body.workflow, before)

    async def _purge_run(self, run_id: str, body: PurgeRuns) -> None:
        past = self._store.past
        verdict = await (past.may_purge(run_id) if body.dry_run else past.purge_run(run_id))
        match verdict:
            case Purge.UNKNOWN:
                raise _unknown(run_id)
            case Purge.LIVE:
                raise ApiFailureError(
                    ErrorCode.RUN_NOT_SETTLED,
                    f"run {run_id}, its parent or a child of it is still live",
                )
            case Purge.PURGED:
                if not body.dry_run:
                    batch = PurgedBatch(purged=1)
                    count_purged(self._shell, batch, run_id=run_id, by=body.by, why=body.reason)
            case _:
                assert_never(verdict)

    async def _purge_before(self, body: PurgeRuns, workflow: str, before: datetime) -> PurgedRuns:
        """Batch after batch, up to the limit: a request that is cut off has done some of them."""
        purged = 0
        while True:
            size = replace(self._size, runs_max=min(self._size.runs_max, body.limit - purged))
            batch = await self._store.past.purge_before(workflow, before, size)
            count_purged(self._shell, batch, by=body.by, why=body.reason)
            purged += batch.purged
            if not batch.purged or not batch.more or purged >= body.limit:
                return PurgedRuns(purged=purged, more=batch.more, dry_run=False)

    async def retention(self, request: ApiRequest) -> RetentionView:
        """workflow.retention"""
        body = self._reader.read(request, SetRetention)
        if not await self._store.past.set_retention(body.workflow, body.retention_ms):
            raise _undeployed(body.workflow)
        log.info(
            "retention_set",
            workflow=body.workflow,
            retention_ms=body.retention_ms,
            by=body.by,
            reason=body.reason,
        )
        return RetentionView(workflow=body.workflow, retention_ms=body.retention_ms)


def _unknown(run_id: str) -> ApiFailureError:
    return ApiFailureError(ErrorCode.RUN_NOT_FOUND, f"there is no run {run_id}")


def _undeployed(workflow: str) -> ApiFailureError:
    return ApiFailureError(ErrorCode.WORKFLOW_NOT_FOUND, f"workflow {workflow!r} is not deployed")


def _whole_count(
    rows: Sequence[Transition],
    outputs: Mapping[str, RowsOutput],
    signals: Mapping[int, KeptSignal],
) -> int:
    """How many leading transitions have all values that belong to them; the first counts always.

    A value that was left out for want of room comes with the next page, where it is the first one.
    An output that does not fit alone, either, is said by its size.
    """
    first_output = True
    for count, row in enumerate(rows):
        number = signal_number(row)
        if number is not None and number not in signals and count:
            return count
        output = outputs.get(row.step or "") if takes_output(row) else None
        if output is None or output.visit != row.visit:
            continue
        if output.value is None and not (first_output and output.size > REPLY_BYTES_MAX):
            return max(1, count)
        first_output = False
    return len(rows)
