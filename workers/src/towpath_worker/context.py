"""What a task sees of its attempt, and how it speaks to the engine while it runs.

Every method is plain (nothing to await), quick, and safe to call from any thread.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType

from msgspec import Raw, Struct

from towpath_protocol.dispatch import StepDispatch
from towpath_protocol.reports import CustomEvent
from towpath_protocol.times import parse_instant
from towpath_worker.logs import AttemptLog, AttemptLogger
from towpath_worker.options import WorkerOptions
from towpath_worker.values import InvalidValueError, Json, JsonLike, from_json, to_json

EVENTS_MAX = 100
EVENT_BYTES_MAX = 1_024


class LastError(Struct, frozen=True, kw_only=True):
    """The failure of the attempt before this one."""

    type: str
    message: str
    retryable: bool
    details: Json


class Cancelled:
    """Whether somebody wants this attempt to stop. Use it like an event.

    An async task is also cancelled (asyncio.CancelledError); a plain function has to look.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._async = asyncio.Event()
        self._thread = threading.Event()
        self.reason: str | None = None

    def is_set(self) -> bool:
        """True once the attempt should stop; `reason` then says why."""
        return self._thread.is_set()

    def __bool__(self) -> bool:
        return self.is_set()

    async def wait(self) -> None:
        """In an async task: wait until the attempt should stop."""
        await self._async.wait()

    def wait_in_thread(self, timeout_seconds: float) -> bool:
        """In a plain function: wait up to `timeout_seconds`; True when the attempt should stop."""
        return self._thread.wait(timeout_seconds)

    def set(self, reason: str) -> None:
        """Called by the worker, in its event loop."""
        if not self._thread.is_set():
            self.reason = reason
            self._thread.set()
            self._async.set()


class Context:
    """One attempt. `idempotency_key` is the same for all attempts of one iteration: give it to
    whatever must not happen twice.

    `attempt` counts from 1, `iteration` (of a repeated step) from 0. `context` is what the start
    of the run brought along, `metadata` the run's own. `deadline` is the earlier of the step's and
    the run's, or None. `last_progress` is the last progress of the attempt before.
    """

    def __init__(
        self,
        dispatch: StepDispatch,
        *,
        options: WorkerOptions,
        loop: asyncio.AbstractEventLoop,
        on_heartbeat: Callable[[], None],
    ) -> None:
        self._dispatch = dispatch
        self._options = options
        self._loop = loop
        self._on_heartbeat = on_heartbeat
        self._lock = threading.Lock()
        self._progress: bytes | None = None
        self._patch: dict[str, JsonLike] = {}
        self._events: list[CustomEvent] = []
        self._log = AttemptLog(options.logs_bytes_max)
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
        self.cancelled = Cancelled(loop)
        self.logger: logging.LoggerAdapter[logging.Logger] = AttemptLogger(
            logging.getLogger(f"towpath.task.{dispatch.task}"),
            self._log,
            {"run_id": dispatch.run_id, "step": dispatch.step, "attempt": dispatch.attempt},
        )

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
    def last_progress(self) -> Json:
        """What the attempt before this one last gave to `heartbeat` or `progress`, or None."""
        raw = self._dispatch.last_progress
        return None if raw is None else from_json(bytes(raw))

    def heartbeat(self, progress: JsonLike = None) -> None:
        """Renew the lease of a step that has a heartbeat timeout, and remember `progress`.

        Call it as often as you like; heartbeats go out at a sensible rate, always with the newest
        progress. Raises InvalidValueError when `progress` is no JSON or over 16 KiB.
        """
        if progress is not None:
            self.progress(progress)
        self._loop.call_soon_threadsafe(self._on_heartbeat)

    def progress(self, value: JsonLike) -> None:
        """Remember how far this attempt is, without renewing its lease.

        It goes out with the next heartbeat, or when the attempt is given back. Raises
        InvalidValueError when `value` is no JSON or over 16 KiB.
        """
        text = to_json(value, bytes_max=self._options.progress_bytes_max, field="progress")
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

    def emit(self, name: str, data: JsonLike = None) -> None:
        """Announce an event `custom` with this attempt's report, should it be accepted.

        Raises InvalidValueError when there are more than 100, the name is not 1 to 128 characters
        long, or `data` is no JSON or over 1 KiB.
        """
        if not 1 <= len(name) <= 128:
            raise InvalidValueError("the name of an event must have 1 to 128 characters")
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
                log=self._log,
            )


class ContextNotes(Struct, frozen=True, kw_only=True):
    """What a task left in its context: JSON texts, events, log."""

    progress: bytes | None
    metadata: bytes | None
    events: tuple[CustomEvent, ...]
    log: AttemptLog


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
