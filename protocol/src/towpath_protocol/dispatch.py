"""Engine → worker: the dispatch of an attempt, the push to cancel it, and the heartbeat exchange.

See PROTOCOL.md, "Dispatch" and "Cancellation". Every field of a dispatch is always present.
"""

from msgspec import UNSET, Raw, Struct, UnsetType, field

from towpath_protocol.failures import Failure
from towpath_protocol.ids import Count, WorkerId
from towpath_protocol.priorities import Priority
from towpath_protocol.raw import OptionalRaw
from towpath_protocol.versions import current_version


class CompensationOf(Struct, frozen=True, kw_only=True):
    """What a compensating attempt undoes: the step's path, its output, the error that led here."""

    step: str
    output: Raw
    error: OptionalRaw = None


class StepDispatch(Struct, frozen=True, kw_only=True, tag_field="type", tag="step.dispatch"):
    """One attempt handed to a queue.

    `token` is the fence: reports carry it back unchanged. `step` is the path of names from the
    top. `attempt` counts from 1, `iteration` from 0. `idempotency_key` is the same for all
    attempts of one iteration of one visit. `deadline` is an RFC 3339 instant. `reply` is the
    prefix of the subjects to report to. `context` and `metadata` are JSON objects.
    """

    v: int = field(default_factory=current_version)
    run_id: str
    workflow: str
    version: int
    key: str | None = None
    step: str
    task: str
    queue: str
    priority: Priority = Priority.NORMAL
    token: str
    attempt: int = 1
    max_attempts: int = 1
    iteration: int = 0
    input: Raw
    context: Raw
    metadata: Raw
    idempotency_key: str
    dispatched_at: str
    attempt_timeout_ms: int
    heartbeat_timeout_ms: int | None = None
    ack_wait_ms: int = 30_000
    deadline: str | None = None
    last_error: Failure | None = None
    last_progress: OptionalRaw = None
    compensation: CompensationOf | None = None
    reply: str


class StepCancel(Struct, frozen=True, kw_only=True, tag_field="type", tag="step.cancel"):
    """Push on `P.control.<queue>`: stop this attempt. May be lost; the heartbeat catches up."""

    v: int = field(default_factory=current_version)
    run_id: str
    step: str
    token: str
    reason: str = ""


class WorkerHeartbeat(Struct, frozen=True, kw_only=True):
    """Request on `P.heartbeat.<queue>`: who the worker is and which tokens it holds.

    `draining`: it takes no more. With that and without tokens it says goodbye.
    """

    worker_id: WorkerId
    tasks: tuple[str, ...] = ()
    slots: Count = 0
    sdk: str = ""
    tokens: tuple[str, ...] = ()
    draining: bool | UnsetType = UNSET


class WorkerHeartbeatReply(Struct, frozen=True, kw_only=True):
    """Of the tokens named: those to cancel, and those that are no longer live."""

    cancel: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


class DeliveryAdvisory(Struct, frozen=True, kw_only=True):
    """What the server writes to P_ADV when it gives a dispatch up. The message is still stored
    under `stream_seq` when it is MAX_DELIVERIES."""

    stream: str
    consumer: str
    stream_seq: int
    deliveries: int = 0
    reason: str = ""
