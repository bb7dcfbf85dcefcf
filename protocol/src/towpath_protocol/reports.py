"""Worker → engine: what a worker says about an attempt (PROTOCOL.md, "Reports").

The subject is authoritative for queue, run id and token. The body may repeat `run_id`, `step` and
`token`; what it repeats must agree, else the message is a dead letter (`subject_mismatch`). So
nothing but the outcome itself is required in a body, and `{"output": 1}` is a whole report.
Instants are RFC 3339 texts and informative only.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Raw, Struct, field

from towpath_protocol.failures import DurationMs, Failure
from towpath_protocol.ids import Count, WorkerId
from towpath_protocol.raw import OptionalRaw, forget_null, null
from towpath_protocol.versions import current_version

EVENTS_MAX: Final = 100
"""Events of one report."""


class ReleaseReason(StrEnum):
    """Why a worker gives a dispatch back without spending an attempt."""

    DRAIN = "drain"
    """The worker shuts down."""
    UNKNOWN_TASK = "unknown_task"
    """The worker has no code for the task; the engine backs off, 1 s to 60 s."""
    INTERRUPTED = "interrupted"
    """Something outside the task stopped it."""


class Again(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Run the same step once more, after `after_ms` (None: the step's `repeat.delay`)."""

    after_ms: DurationMs | None = None


class CustomEvent(Struct, frozen=True, kw_only=True):
    """An event that the worker wants announced as `custom`. `data` is any JSON value."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    data: Raw = field(default_factory=null)


CustomEvents = Annotated[tuple[CustomEvent, ...], Meta(max_length=EVENTS_MAX)]
"""The events of one report."""


class LogLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of an attempt's log. `fields` is a JSON object."""

    message: str
    at: str | None = None
    level: str = field(default="info")
    fields: OptionalRaw = None


class StepStarted(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="step.started"
):
    """The attempt runs. Sent when it still runs after 500 ms, or at once if it has a heartbeat
    timeout."""

    v: int = field(default_factory=current_version)
    run_id: str | None = None
    step: str | None = None
    token: str | None = None
    worker_id: WorkerId | None = None
    started_at: str | None = None


class StepHeartbeat(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="step.heartbeat"
):
    """Renews the lease. `n` counts the heartbeats of the attempt; `progress` is handed on."""

    v: int = field(default_factory=current_version)
    run_id: str | None = None
    step: str | None = None
    token: str | None = None
    worker_id: WorkerId | None = None
    n: Count = 0
    progress: OptionalRaw = None


class StepCompleted(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="step.completed"
):
    """The attempt succeeded. An absent `output` is null; `metadata` is an RFC 7396 patch."""

    v: int = field(default_factory=current_version)
    run_id: str | None = None
    step: str | None = None
    token: str | None = None
    worker_id: WorkerId | None = None
    output: Raw = field(default_factory=null)
    metadata: OptionalRaw = None
    again: Again | None = None
    events: CustomEvents = ()
    started_at: str | None = None
    finished_at: str | None = None
    logs: tuple[LogLine, ...] = ()

    def __post_init__(self) -> None:
        forget_null(self, "metadata")


class StepFailed(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="step.failed"
):
    """The attempt failed; the engine decides about a retry."""

    v: int = field(default_factory=current_version)
    run_id: str | None = None
    step: str | None = None
    token: str | None = None
    worker_id: WorkerId | None = None
    error: Failure
    events: CustomEvents = ()
    started_at: str | None = None
    finished_at: str | None = None
    logs: tuple[LogLine, ...] = ()


class StepReleased(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="step.released"
):
    """Given back: dispatched again, spends no attempt. Ignored from another than the running
    worker."""

    v: int = field(default_factory=current_version)
    run_id: str | None = None
    step: str | None = None
    token: str | None = None
    worker_id: WorkerId | None = None
    reason: ReleaseReason
    after_ms: DurationMs | None = None
    progress: OptionalRaw = None
    logs: tuple[LogLine, ...] = ()


Report = StepStarted | StepHeartbeat | StepCompleted | StepFailed | StepReleased
"""Any report."""

ReportType = (
    type[StepStarted]
    | type[StepHeartbeat]
    | type[StepCompleted]
    | type[StepFailed]
    | type[StepReleased]
)
"""The class of any report."""

REPORT_TYPES: Final[Mapping[str, ReportType]] = {
    "step-started": StepStarted,
    "step-heartbeat": StepHeartbeat,
    "step-completed": StepCompleted,
    "step-failed": StepFailed,
    "step-released": StepReleased,
}
"""Kind token of the subject → the class of the body."""

REPORT_KINDS: Final[Mapping[ReportType, str]] = {cls: kind for kind, cls in REPORT_TYPES.items()}
"""Class of the body → kind token of the subject."""
