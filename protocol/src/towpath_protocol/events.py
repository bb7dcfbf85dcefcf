"""What the engine announces on P_EVENTS: at least once, to be ordered by `seq`."""

from enum import StrEnum

from msgspec import Raw, Struct, field

from towpath_protocol.raw import null
from towpath_protocol.versions import current_version


class EventName(StrEnum):
    """The closed list of events: last token of the subject, and `type` of the body."""

    RUN_STARTED = "run-started"
    RUN_COMPLETED = "run-completed"
    RUN_FAILED = "run-failed"
    RUN_CANCELLED = "run-cancelled"
    RUN_TIMED_OUT = "run-timed-out"
    RUN_COMPENSATING = "run-compensating"
    RUN_COMPENSATED = "run-compensated"
    RUN_COMPENSATION_FAILED = "run-compensation-failed"
    STEP_COMPLETED = "step-completed"
    STEP_FAILED = "step-failed"
    STEP_RETRYING = "step-retrying"
    STEP_SKIPPED = "step-skipped"
    CUSTOM = "custom"
    """Named by a worker: `data` is `{"name", "data"}`."""


class RunEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One announcement. `seq` is that of the transition it tells of; `at` is RFC 3339.

    `key` and `data` are always present; `step` and `attempt` only where there is one.
    """

    v: int = field(default_factory=current_version)
    type: EventName
    run_id: str
    workflow: str
    version: int
    key: str | None
    seq: int
    at: str
    step: str | None = None
    attempt: int | None = None
    data: Raw = field(default_factory=null)
