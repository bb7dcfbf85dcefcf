"""Attempts in progress: the task of each lease, its context, its heartbeats, its report."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, assert_never

import msgspec
from msgspec import Raw, Struct

from towpath_protocol.codec import encode
from towpath_protocol.failures import Failure
from towpath_protocol.reports import (
    ReleaseReason,
    Report,
    StepCompleted,
    StepFailed,
    StepHeartbeat,
    StepReleased,
    StepStarted,
)
from towpath_worker.background import Background
from towpath_worker.clock import now_ms, wall_text
from towpath_worker.context import Context
from towpath_worker.execution import Execution
from towpath_worker.links import Link
from towpath_worker.metrics import WorkerMetrics
from towpath_worker.options import WorkerOptions
from towpath_worker.outcomes import Completed, Dropped, Failed, Outcome, Released
from towpath_worker.registry import Registry, Task
from towpath_worker.reporting import Reporter, headers_of, subject_of
from towpath_worker.session import Action, Lease, LeaseState, Session
from towpath_worker.transport import TransportError

_log = logging.getLogger("towpath.worker.attempt")

HEARTBEAT_GAP_MAX_MS: Final = 1_000
HEADERS_ROOM_BYTES: Final = 16 * 1024
GIVE_BACK_SECONDS: Final = 30
CLEANUP_SECONDS: Final = 5.0
LEFT_SECONDS: Final = 1.0


class Surroundings(Struct, frozen=True, eq=False, kw_only=True):
    """What attempts have of their worker: what its lifespan gave, how to ask the engine about a
    token, what counts them."""

    state: object
    still_mine: Callable[[str, float], Awaitable[bool]]
    metrics: WorkerMetrics


# What the engine asks of these reports, asked before they are sent; the values in them are checked.
_SHAPES: Final[Mapping[type[Report], msgspec.json.Decoder[Report]]] = {
    shape: msgspec.json.Decoder(shape) for shape in (StepCompleted, StepFailed, StepReleased)
}


def _is_plain(report: Report) -> bool:
    """Whether all of it is ours or was checked when it was taken: most attempts just succeed."""
    return (
        isinstance(report, StepCompleted)
        and report.again is None
        and not report.events
        and not report.logs
    )


class _Running(Struct, eq=False):
    context: Context[object]
    started_at: str
    begun_ms: int
    task: asyncio.Task[None] | None = None
    executing: bool = True
    heartbeat_count: int = 0
    heartbeat_due_ms: int = 0
    heartbeat_timer: asyncio.TimerHandle | None = None


class Attempts:
    """Does what a session decides about its leases. `on_actions` gets what follows from it."""

    def __init__(
        self,
        *,
        session: Session,
        registry: Registry,
        execution: Execution,
        link: Link,
        reporter: Reporter,
        options: WorkerOptions,
        surroundings: Surroundings,
        on_actions: Callable[[list[Action]], None],
    ) -> None:
        self._session = session
        self._registry = registry
        self._execution = execution
        self._connection = link.connection
        self._reporter = reporter
        self._keeper = link.keeper
        self._options = options
        self._state = surroundings.state
        self._metrics = surroundings.metrics
        self._still_mine = surroundings.still_mine
        self._worker_id = reporter.worker_id
        self._on_actions = on_actions
        self._background = Background()
        self._running: dict[str, _Running] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def start(self, lease: Lease) -> None:
        """Run the lease's task; it has a slot."""
        task = self._registry.get(lease.dispatch.task)
        assert task is not None, "a lease of an unknown task never starts"
        running = _Running(self._context(lease), wall_text(), now_ms())
        self._running[lease.token] = running
        self._metrics.attempt_started(lease.dispatch.queue, task.name)
        self.keep(lease)
        running.task = self._background.start(self._run(lease, task, running))

    def keep(self, lease: Lease) -> None:
        """In-progress acks from now on; `step-started` too, once the attempt runs."""
        dispatch = lease.dispatch
        running = self._running.get(lease.token)
        at_once = dispatch.heartbeat_timeout_ms is not None
        self._keeper.keep(
            dispatch,
            lease.ack_subject,
            started=None if running is None else self._started(lease, running),
            started_after_ms=0 if at_once else round(self._options.started_after_seconds * 1000),
            traceparent=lease.traceparent,
        )

    def interrupt(self, lease: Lease) -> None:
        """Tell the task to stop: an async one is cancelled, a plain function may look."""
        running = self._running.get(lease.token)
        if running is None:
            return
        running.context.cancelled.set(lease.cancel_reason or "cancelled")
        task = self._registry.get(lease.dispatch.task)
        is_async = task is not None and task.is_async
        if is_async and running.executing and running.task is not None:
            self._ending.add(running.task)
            running.task.add_done_callback(self._ending.discard)
            running.task.cancel()

    def give_back(self, lease: Lease, reason: ReleaseReason) -> None:
        """Report `step-released`, then acknowledge."""
        if reason is ReleaseReason.UNKNOWN_TASK:
            dispatch = lease.dispatch
            _log.warning(
                "task_unknown task=%s queue=%s run_id=%s known=%s",
                dispatch.task,
                dispatch.queue,
                dispatch.run_id,
                ",".join(self._registry.names),
            )
        self._background.start(self._give_back(lease, reason))

    async def join(self) -> None:
        """Wait until nothing runs and nothing is reported any more."""
        await self._background.join()

    async def cancel(self) -> None:
        """Give up what still runs or is still being reported. An async task that was told to stop
        before may clean up for CLEANUP_SECONDS; what does not end at all is left behind."""
        if self._ending:
            await asyncio.wait(list(self._ending), timeout=CLEANUP_SECONDS)
        left = await self._background.cancel(timeout_seconds=LEFT_SECONDS)
        if left:
            _log.warning("attempts_left_behind count=%d: they ignore their cancellation", left)

    def _context(self, lease: Lease) -> Context[object]:
        return Context(
            lease.dispatch,
            options=self._options,
            loop=asyncio.get_running_loop(),
            on_heartbeat=lambda: self._heartbeat(lease),
            state=self._state,
            still_mine=lambda seconds: self._still_mine(lease.token, seconds),
        )

    def _started(self, lease: Lease, running: _Running) -> StepStarted:
        return StepStarted(
            run_id=lease.dispatch.run_id,
            step=lease.dispatch.step,
            token=lease.token,
            worker_id=self._worker_id,
            started_at=running.started_at,
        )

    async def _run(self, lease: Lease, task: Task, running: _Running) -> None:
        dispatch = lease.dispatch
        ended = "released"
        try:
            outcome = await self._execution.run(task, running.context, bytes(dispatch.input))
            if lease.state is LeaseState.RUNNING:
                ended = _how(outcome)
        finally:
            running.executing = False
            seconds = (now_ms() - running.begun_ms) / 1000
            self._metrics.attempt_ended(dispatch.queue, task.name, outcome=ended, seconds=seconds)
        if isinstance(outcome, Failed):
            _log_failure(lease, outcome)
        if running.heartbeat_timer is not None:
            running.heartbeat_timer.cancel()
        if lease.state is not LeaseState.RUNNING:
            return  # given back in the meantime
        self._session.ended(lease.token)
        reported = await self._report(lease, running, outcome)
        await self._close(lease, reported=reported)

    async def _report(self, lease: Lease, running: _Running, outcome: Outcome) -> bool:
        if lease.stale or lease.expired:
            outcome = Dropped(why="stale" if lease.stale else "attempt_timeout")
        notes = running.context.taken()
        report = self._reporter.build(lease.dispatch, outcome, notes, started_at=running.started_at)
        if report is None:
            return False
        fitting, text = self._fit(lease, report)
        return await self._reporter.send(
            lease.dispatch,
            fitting,
            until_ms=lease.ends_ms,
            traceparent=lease.traceparent,
            body=text,
        )

    async def _give_back(self, lease: Lease, reason: ReleaseReason) -> None:
        running = self._running.get(lease.token)
        progress = None if running is None else running.context.taken().progress
        report = self._reporter.released(lease.dispatch, Released(reason=reason), progress=progress)
        reported = await self._reporter.send(
            lease.dispatch,
            report,
            until_ms=now_ms() + GIVE_BACK_SECONDS * 1000,
            traceparent=lease.traceparent,
        )
        await self._close(lease, reported=reported)

    async def _close(self, lease: Lease, *, reported: bool) -> None:
        self._running.pop(lease.token, None)
        self._keeper.drop(lease.token)
        over = reported or lease.stale
        if over:
            await self._reporter.acknowledge(lease.ack_subject)
        self._on_actions(self._session.closed(lease.token, reported=over))

    def _fit(self, lease: Lease, report: Report) -> tuple[Report, bytes]:
        """The report, or the failure to report instead; and its text.

        The engine would take one of a wrong shape for a dead letter, and the attempt would run
        until its timeout. Every part has its limit; a server with a small `max_payload` may still
        refuse the sum, and would close the connection for it.
        """
        text = encode(report)
        shape = None if _is_plain(report) else _SHAPES.get(type(report))
        try:
            if shape is not None:
                shape.decode(text)
        except msgspec.ValidationError as error:
            instead = self._instead(lease, "InvalidOutput", f"the report is none: {error}")
            logs = () if isinstance(report, StepStarted | StepHeartbeat) else report.logs
            instead = msgspec.structs.replace(instead, logs=logs)
            return instead, encode(instead)
        size = len(text) + HEADERS_ROOM_BYTES
        if size <= self._connection.payload_bytes_max:
            return report, text
        message = f"the report has {size} bytes, NATS takes {self._connection.payload_bytes_max}"
        instead = self._instead(lease, "TooLarge", message)
        return instead, encode(instead)

    def _instead(self, lease: Lease, kind: str, message: str) -> StepFailed:
        return StepFailed(
            run_id=lease.dispatch.run_id,
            step=lease.dispatch.step,
            token=lease.token,
            worker_id=self._worker_id,
            error=Failure(type=kind, message=message, retryable=False),
        )

    def _heartbeat(self, lease: Lease) -> None:
        """Send a heartbeat now, or when the last one is old enough."""
        running = self._running.get(lease.token)
        if running is None or not running.executing or running.heartbeat_timer is not None:
            return
        now = now_ms()
        if now >= running.heartbeat_due_ms:
            self._send_heartbeat(lease, running, now)
            return

        def later() -> None:
            running.heartbeat_timer = None
            if running.executing:
                self._send_heartbeat(lease, running, now_ms())

        delay_seconds = (running.heartbeat_due_ms - now) / 1000
        running.heartbeat_timer = asyncio.get_running_loop().call_later(delay_seconds, later)

    def _send_heartbeat(self, lease: Lease, running: _Running, now: int) -> None:
        timeout_ms = lease.dispatch.heartbeat_timeout_ms
        gap_ms = HEARTBEAT_GAP_MAX_MS if timeout_ms is None else timeout_ms // 4
        running.heartbeat_due_ms = now + min(HEARTBEAT_GAP_MAX_MS, gap_ms)
        running.heartbeat_count += 1
        progress = running.context.taken().progress
        report = StepHeartbeat(
            run_id=lease.dispatch.run_id,
            step=lease.dispatch.step,
            token=lease.token,
            worker_id=self._worker_id,
            n=running.heartbeat_count,
            progress=None if progress is None else Raw(progress),
        )
        self._background.start(self._publish_heartbeat(lease, report))

    async def _publish_heartbeat(self, lease: Lease, report: StepHeartbeat) -> None:
        try:
            # Without waiting for a PubAck: the next heartbeat makes a lost one good.
            await self._connection.publish(
                subject_of(lease.dispatch, report),
                encode(report),
                headers=headers_of(lease.dispatch, report, lease.traceparent),
            )
        except TransportError:
            return


def _how(outcome: Outcome) -> str:
    """The word of the metrics."""
    match outcome:
        case Completed():
            return "completed"
        case Failed():
            return "failed"
        case Released():
            return "released"
        case Dropped():
            return "dropped"
        case _:
            assert_never(outcome)


def _log_failure(lease: Lease, failed: Failed) -> None:
    """A fact, no fault of the worker's: whether it is tried again is the engine's to decide."""
    dispatch = lease.dispatch
    _log.info(
        "attempt_failed task=%s run_id=%s step=%s attempt=%d/%d error=%s: %s%s",
        dispatch.task,
        dispatch.run_id,
        dispatch.step,
        dispatch.attempt,
        dispatch.max_attempts,
        failed.type,
        failed.message,
        "" if failed.stack is None else f"\n{failed.stack.rstrip()}",
    )
