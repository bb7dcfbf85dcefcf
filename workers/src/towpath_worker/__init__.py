"""The Python worker SDK and client of Towpath."""

from towpath_protocol.priorities import Priority
from towpath_protocol.requests import OnConflict
from towpath_worker.api_errors import (
    ApiError,
    ConflictError,
    DefinitionRefusedError,
    EngineError,
    Fault,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknownError,
    OverloadedError,
)
from towpath_worker.capture import capture_structlog
from towpath_worker.client import Client
from towpath_worker.context import (
    Cancelled,
    CancelledFlag,
    Compensation,
    Context,
    LastError,
    ProcessContext,
)
from towpath_worker.credentials import ConnectionOptionsError
from towpath_worker.following import Event, LogLine
from towpath_worker.lifespans import LifespanError
from towpath_worker.metrics import MetricsError, PrometheusMetrics, WorkerMetrics
from towpath_worker.options import ConnectionOptions, WorkerOptions
from towpath_worker.outcomes import Again, RetryAfter, TerminalError
from towpath_worker.runs import RunFailed, RunHandle, StartManyError
from towpath_worker.signatures import RegistrationError, TaskNameError, TaskTypeError
from towpath_worker.starts import StartItem
from towpath_worker.sync_client import SyncClient, SyncRunHandle
from towpath_worker.transport import (
    CredentialsRefusedError,
    MissingRightError,
    NoAnswerError,
    NotConnectedError,
    TransportError,
)
from towpath_worker.values import InvalidValueError, Json
from towpath_worker.worker import NoTasksError, Worker, run_workers

__all__ = [
    "Again",
    "ApiError",
    "Cancelled",
    "CancelledFlag",
    "Client",
    "Compensation",
    "ConflictError",
    "ConnectionOptions",
    "ConnectionOptionsError",
    "Context",
    "CredentialsRefusedError",
    "DefinitionRefusedError",
    "EngineError",
    "Event",
    "Fault",
    "InvalidRequestError",
    "InvalidValueError",
    "Json",
    "LastError",
    "LifespanError",
    "LogLine",
    "MetricsError",
    "MissingRightError",
    "NoAnswerError",
    "NoTasksError",
    "NotConnectedError",
    "NotFoundError",
    "OnConflict",
    "OutcomeUnknownError",
    "OverloadedError",
    "Priority",
    "ProcessContext",
    "PrometheusMetrics",
    "RegistrationError",
    "RetryAfter",
    "RunFailed",
    "RunHandle",
    "StartItem",
    "StartManyError",
    "SyncClient",
    "SyncRunHandle",
    "TaskNameError",
    "TaskTypeError",
    "TerminalError",
    "TransportError",
    "Worker",
    "WorkerMetrics",
    "WorkerOptions",
    "capture_structlog",
    "run_workers",
]
