"""queue.list and worker.list: what an operator looks at first."""

from datetime import datetime

from msgspec import UNSET

from towpath_engine.bus.interface import ApiRequest
from towpath_engine.core.gate import Scope, holder
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.api.views import instant
from towpath_engine.services.queue_look import QueueLook
from towpath_engine.services.shell import Shell
from towpath_engine.store.admission import Pause
from towpath_engine.store.insight import HeldBacklog
from towpath_engine.store.workers import SeenWorker, WorkerPlace
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.ids import NAME_PATTERN
from towpath_protocol.operation_replies import (
    PauseView,
    QueueList,
    QueueView,
    WorkerList,
    WorkerView,
)
from towpath_protocol.operations import ListQueues, ListWorkers
from towpath_protocol.times import format_instant

_READY_MAX = 100_000
"""How far the held steps of a queue are counted."""
_NOTHING_HELD = HeldBacklog(count=0, oldest_at=None)
_CURSOR_SEPARATOR = "/"
assert _CURSOR_SEPARATOR not in NAME_PATTERN, "the name of a queue ends at the separator"


class Lists:
    """Handlers. They see committed data, and the consumers as they are now."""

    def __init__(self, shell: Shell, *, look: QueueLook, reader: RequestReader) -> None:
        self._shell = shell
        self._look = look
        self._reader = reader

    async def queues(self, request: ApiRequest) -> QueueList:
        """queue.list"""
        self._reader.read(request, ListQueues)
        store = self._shell.store
        names = await store.list_queues()
        states = await self._look.at(names)
        known = await store.admission.pauses()
        pauses = {one.name: one for one in known.pauses if one.scope is Scope.QUEUE}
        holders = [holder(scope, name) for name in names for scope in (Scope.QUEUE, Scope.WINDOW)]
        held = await store.insight.backlogs_of(holders, _READY_MAX)
        views: list[QueueView] = []
        for name in names:
            paused = held.get(holder(Scope.QUEUE, name), _NOTHING_HELD)
            full = held.get(holder(Scope.WINDOW, name), _NOTHING_HELD)
            state = states.get(name)
            pause = pauses.get(name)
            views.append(
                QueueView(
                    queue=name,
                    pause=None if pause is None else pause_view(pause),
                    ready=paused.count + full.count,
                    dispatched=0 if state is None else state.pending,
                    delivered=0 if state is None else state.delivered,
                    pulls=0 if state is None else state.pulls,
                    workers=0 if state is None else state.workers,
                    oldest_ready_at=instant(_earlier(paused.oldest_at, full.oldest_at)),
                    nobody_pulls_since=None if state is None else instant(state.nobody_pulls_since),
                )
            )
        return QueueList(queues=tuple(views))

    async def workers(self, request: ApiRequest) -> WorkerList:
        """worker.list"""
        body = self._reader.read(request, ListWorkers)
        after = _parse_cursor(body.cursor)
        rows = await self._shell.store.workers.page(body.queue, after, body.limit + 1)
        page = rows[: body.limit]
        live_since = self._look.live_since()
        more = len(rows) > body.limit
        return WorkerList(
            workers=tuple(_worker_view(row, live_since) for row in page),
            next_cursor=_format_cursor(page[-1]) if more else None,
        )


def pause_view(pause: Pause) -> PauseView:
    """A pause as the wire shows it."""
    return PauseView(
        scope=pause.scope.value,
        name=pause.name,
        at=format_instant(pause.at),
        by=pause.by,
        reason=pause.reason,
    )


def _worker_view(row: SeenWorker, live_since: datetime) -> WorkerView:
    newest = row.newest
    return WorkerView(
        worker_id=newest.worker_id,
        queue=newest.queue,
        tasks=newest.tasks,
        slots=newest.slots,
        running=newest.running,
        sdk=newest.sdk,
        first_seen_at=format_instant(row.first_seen_at),
        last_seen_at=format_instant(newest.seen_at),
        live=row.is_live(live_since),
        draining=True if newest.draining else UNSET,
    )


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((at for at in (one, other) if at is not None), default=None)


def _format_cursor(row: SeenWorker) -> str:
    return f"{row.newest.queue}{_CURSOR_SEPARATOR}{row.newest.worker_id}"


def _parse_cursor(cursor: str | None) -> WorkerPlace | None:
    if cursor is None:
        return None
    queue, separator, worker_id = cursor.partition(_CURSOR_SEPARATOR)
    if not separator:
        raise ProtocolError(
            ErrorCode.MALFORMED,
            "is no cursor that worker.list has given",
            field="cursor",
            fix="give next_cursor of the page before, or none",
        )
    return queue, worker_id
