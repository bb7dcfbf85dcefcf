"""The Python worker SDK and client of Towpath."""

from towpath_worker.context import Cancelled, Context, LastError
from towpath_worker.options import ConnectionOptions, WorkerOptions
from towpath_worker.outcomes import Again, RetryAfter, TerminalError
from towpath_worker.values import InvalidValueError, Json
from towpath_worker.worker import Worker, run_workers

__all__ = [
    "Again",
    "Cancelled",
    "ConnectionOptions",
    "Context",
    "InvalidValueError",
    "Json",
    "LastError",
    "RetryAfter",
    "TerminalError",
    "Worker",
    "WorkerOptions",
    "run_workers",
]
