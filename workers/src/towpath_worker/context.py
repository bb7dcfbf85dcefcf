"""What a task sees of its attempt, and how it speaks to the engine while it runs.

`ProcessContext` is what a task in any place has; `Context` adds what needs the worker's own
process. Every method but `still_mine` is plain (nothing to await) and quick; all are safe to call
from any thread.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Raw, Struct

from towpath_protocol.dispatch import StepDispatch
from towpath_protocol.reports import CustomEvent
from towpath_protocol.times import parse_instant
from towpath_worker.conversion import converter
from towpath_worker.logs import FACT_NAMES, AttemptLog, AttemptLogger
from towpath_worker.options import WorkerOptions
from towpath_worker.values import InvalidValueError, Json, JsonLike, Rich, from_json, to_json

if TYPE_CHECKING:
    # Only a checker needs the default, which 3.11 does not have.
    from typing_extensions import TypeVar as DefaultedTypeVar

    StateT_co = DefaultedTypeVar("StateT_co", default=object, covariant=True)
else:
    StateT_co = TypeVar("StateT_co", covariant=True)

T = TypeVar("T")

EVENTS_MAX: Final = 100
EVENT_BYTES_MAX: Final = 1_024
ANSWER_SECONDS: Final = 5.0


class LastError(Struct, frozen=True, kw_only=True):
    """The failure of the attempt before this one."""

    type: str
    message: str
    retryable: bool
    details: Json


class Compensation(Struct, frozen=True, kw_only=True):
    """What an attempt undoes: the `step` by its path, the `output` it completed with, and the
    `error` that had the run undone, None when somebody cancelled it.

    The error has `type`, `message`, `retryable`, `details`, `step` and `attempt`.
    """

    step: str
    output: Json
    error: Mapping[str, Json] | None


class CancelledFlag:
    """Whether somebody wants this attempt to stop. `reason` says why, once it is set.

    A plain function has to look, or to wait in it instead of sleeping.
    """

    def __init__(self) -> None:
        self._thread = threading.Event()
        self._listeners: list[Callable[[str], None]] = []
        self.reason: str | None = None

    def is_set(self) -> bool:
        """True once the attempt should stop; `reason` then says why."""
        return self._thread.is_set()

    def __bool__(self) -> bool:
        return self.is_set()

    def wait_in_thread(self, timeout_seconds: float) -> bool:
        """In a plain function: wait up to `timeout_seconds`; True when the attempt should stop."""
        return self._thread.wait(timeout_seconds)

    def on_set(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the reason once it is set, or now; for the worker."""
        self._listeners.append(listener)
        if self.reason is not None:
            listener(self.reason)

    def set(self, reason: str) -> None:
        """Called by the worker."""
        if not self._thread.is_set():
            self.reason = reason
            self._thread.set()
            for listener in self._listeners:
                listener(reason)


class Cancelled(CancelledFlag):
    """`CancelledFlag`, for tasks in the worker's process. An async task is also cancelled
    (asyncio.CancelledError)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._async = asyncio.Event()
        self.on_set(lambda _reason: self._async.set())

    async def wait(self) -> None:
        """In an async task: wait until the attempt should stop."""
        await self._async.wait()


class ProcessContext:
    """One attempt, as a task in any place sees it. `idempotency_key` is the same for all attempts
    of one iteration: give it to whatever must not happen twice.

    `attempt` counts from 1, `iteration` (of a repeated step) from 0. `context` is what the start
    of the run brought along, `metadata` the run's own. `deadline` is the earlier of the step's and
    the run's, or None. `last_progress` is the last progress of the attempt before. `logger` writes
    to `logging` and to the run's log.
    """

    def __init__(
        self,
        dispatch: StepDispatch,
        *,
        options: WorkerOptions,
        cancelled: CancelledFlag,
        on_heartbeat: Callable[[], None],
    ) -> None:
        self._dispatch = dispatch
        self._options = options
        self._on_heartbeat = on_heartbeat
        self._lock = threading.Lock()
        self._progress: bytes | None = None
        self._patch: dict[str, JsonLike] = {}
        self._events: list[CustomEvent] = []
        facts = (dispatch.run_id, dispatch.step, dispatch.attempt)
        self.log = AttemptLog(options.logs_bytes_max, dict(zip(FACT_NAMES, facts, strict=True)))
        self.run_id: str = dispatch.run_id
        self.workflow: str = dispatch.workflow
        self.version: int = dispatch.version
        self.key: str | None = dispatch.key
        self.step: str = dispatch.step
        self.task: str = dispatch.task
        self.queue: str = dispatch.queue
        self.attempt: int = dispatch.attempt
        self.max_attempts: int = dispatch.max_attempts
        self.iteration: int = dispatch.iteration
        self.idempotency_key: str = dispatch.idempotency_key
        self._cancelled = cancelled
        self.logger: logging.LoggerAdapter[logging.Logger] = AttemptLogger(
            logging.getLogger(f"towpath.task.{dispatch.task}"), self.log
        )

    @property
    def cancelled(self) -> CancelledFlag:
        """Whether this attempt should stop; use it like an event."""
        return self._cancelled

    @property
    def dispatch(self) -> StepDispatch:
        """The message that this attempt came with; for the worker."""
        return self._dispatch

    @property
    def context(self) -> Mapping[str, Json]:
        """The context of the run: tenant, user, trace, whatever its start brought."""
        return _object(self._dispatch.context)

    @property
    def metadata(self) -> Mapping[str, Json]:
        """The metadata of the run when this attempt was dispatched."""
        return _object(self._dispatch.metadata)

    @property
    def deadline(self) -> datetime | None:
        """When the step or the run will be timed out, in UTC."""
        text = self._dispatch.deadline
        return None if text is None else parse_instant(text)

    @property
    def last_error(self) -> LastError | None:
        """Why the attempt before this one failed; None in a first attempt."""
        error = self._dispatch.last_error
        if error is None:
            return None
        details = None if error.details is None else from_json(bytes(error.details))
        return LastError(
            type=error.type, message=error.message, retryable=error.retryable, details=details
        )

    @property
    def compensation(self) -> Compensation | None:
        """What this attempt undoes; None for one that does a step's own work."""
        undone = self._dispatch.compensation
        if undone is None:
            return None
        error = None if undone.error is None else from_json(bytes(undone.error))
        return Compensation(
            step=undone.step,
            output=from_json(bytes(undone.output)),
            error=MappingProxyType(error) if isinstance(error, dict) else None,
        )

    @property
    def last_progress(self) -> Json:
        """What the attempt before this one last gave to `heartbeat` or `progress`, or None."""
        raw = self._dispatch.last_progress
        return None if raw is None else from_json(bytes(raw))

    def last_progress_as(self, type_: type[T]) -> T | None:
        """`last_progress` as a Struct, a dataclass or another type; None when there is none.

        Raises InvalidValueError when it does not fit, TypeError for a type that JSON cannot be
        converted to.
        """
        raw = self._dispatch.last_progress
        if raw is None or bytes(raw) == b"null":
            return None
        value = converter(type_)(bytes(raw))
        assert isinstance(value, type_), "converted to it"
        return value

    def heartbeat(self, progress: Rich = None) -> None:
        """Renew the lease of a step that has a heartbeat timeout, and remember `progress`.

        Call it as often as you like; heartbeats go out at a sensible rate, always with the newest
        progress. Raises InvalidValueError when `progress` is no JSON or over 16 KiB.
        """
        if progress is not None:
            self.progress(progress)
        self._on_heartbeat()

    def progress(self, value: Rich) -> None:
        """Remember how far this attempt is, without renewing its lease.

        It goes out with the next heartbeat, or when the attempt is given back; the next attempt
        finds it in `last_progress`. Raises InvalidValueError when `value` is no JSON or over
        16 KiB.
        """
        text = to_json(value, bytes_max=self._options.progress_bytes_max, field="progress")
        with self._lock:
            self._progress = text

    def take_progress(self, text: bytes) -> None:
        """Progress that is JSON text already; for the worker."""
        with self._lock:
            self._progress = text

    def set_metadata(self, patch: Mapping[str, JsonLike]) -> None:
        """Merge `patch` (RFC 7396: null removes) into the run's metadata when the step completes.

        Several patches of one attempt add up. Raises InvalidValueError when the sum is no JSON
        object or over 64 KiB.
        """
        with self._lock:
            merged = _merge_patches(self._patch, patch)
            to_json(merged, bytes_max=self._options.metadata_bytes_max, field="metadata")
            self._patch = merged

    def emit(self, name: str, data: Rich = None) -> None:
        """Announce an event `custom` with this attempt's report, should it be accepted.

        Raises InvalidValueError when there are more than 100, the name is not 1 to 128 characters
        long, or `data` is no JSON or over 1 KiB.
        """
        if not 1 <= len(name) <= 128:
            raise InvalidValueError("the name of an event must have 1 to 128 characters")
        to_json(name, bytes_max=EVENT_BYTES_MAX, field="the name of an event")
        raw = to_json(data, bytes_max=EVENT_BYTES_MAX, field="data")
        with self._lock:
            if len(self._events) >= EVENTS_MAX:
                raise InvalidValueError(f"an attempt may announce at most {EVENTS_MAX} events")
            self._events.append(CustomEvent(name=name, data=Raw(raw)))

    def taken(self) -> "ContextNotes":
        """What the task left here, for the report; called by the worker."""
        with self._lock:
            return ContextNotes(
                progress=self._progress,
                metadata=to_json(
                    self._patch, bytes_max=self._options.metadata_bytes_max, field="metadata"
                )
                if self._patch
                else None,
                events=tuple(self._events),
                log=self.log,
            )


class Context(ProcessContext, Generic[StateT_co]):
    """One attempt, as a task in the event loop or in a thread sees it.

    `Context[Pool]` says that `state` is what a lifespan gave, a `Pool`; a worker whose lifespan
    gives something else does not start.
    """

    def __init__(
        self,
        dispatch: StepDispatch,
        *,
        options: WorkerOptions,
        loop: asyncio.AbstractEventLoop,
        on_heartbeat: Callable[[], None],
        state: StateT_co | None = None,
        still_mine: Callable[[float], Awaitable[bool]] | None = None,
    ) -> None:
        self._cancelled_async = Cancelled(loop)
        super().__init__(
            dispatch,
            options=options,
            cancelled=self._cancelled_async,
            on_heartbeat=lambda: _later(loop, on_heartbeat),
        )
        self._loop = loop
        self._state = state
        self._still_mine = still_mine

    @property
    def cancelled(self) -> Cancelled:
        """Whether this attempt should stop; use it like an event. An async task is cancelled as
        well (asyncio.CancelledError)."""
        return self._cancelled_async

    @property
    def state(self) -> StateT_co:
        """What the worker's lifespan gave: its pools and clients; None without a lifespan."""
        state: StateT_co = self._state  # pyright: ignore[reportAssignmentType] -- None: see above
        return state

    async def still_mine(self, *, timeout_seconds: float = ANSWER_SECONDS) -> bool:
        """Ask the engine, now, whether this attempt is still the step's: the check before an effect
        that must not happen twice.

        False when the attempt is over or shall stop. True is a statement about that moment: between
        it and the effect things may change, so the effect needs the idempotency key all the same.
        Raises NoAnswerError when no engine answers within `timeout_seconds`, NotConnectedError
        without a connection (both are TransportError): then nothing is known, and raising on fails
        the attempt, to be tried again.
        """
        if self.cancelled:
            return False
        if self._still_mine is None:
            return True
        return await self._still_mine(timeout_seconds) and not self.cancelled

    def still_mine_sync(self, *, timeout_seconds: float = ANSWER_SECONDS) -> bool:
        """`still_mine` for a plain function; blocks its thread. Raises what that raises, and
        RuntimeError in the event loop's thread, which it would block for ever."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            raise RuntimeError("still_mine_sync blocks the event loop; await still_mine() instead")
        asking = asyncio.run_coroutine_threadsafe(
            self.still_mine(timeout_seconds=timeout_seconds), self._loop
        )
        # The exchange has its own timeout; this one is for a loop that does not run any more.
        return asking.result(timeout_seconds + ANSWER_SECONDS)


class ContextNotes(Struct, frozen=True, kw_only=True):
    """What a task left in its context: JSON texts, events, log."""

    progress: bytes | None
    metadata: bytes | None
    events: tuple[CustomEvent, ...]
    log: AttemptLog


def _later(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)


def _object(raw: Raw) -> Mapping[str, Json]:
    value = from_json(bytes(raw))
    return MappingProxyType(value if isinstance(value, dict) else {})


def _merge_patches(
    first: Mapping[str, JsonLike], second: Mapping[str, JsonLike]
) -> dict[str, JsonLike]:
    """The patch that does what both do, one after the other; nulls stay, they remove."""
    merged = dict(first)
    for name, value in second.items():
        old = merged.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            merged[name] = _merge_patches(old, value)
        else:
            merged[name] = value
    return merged
