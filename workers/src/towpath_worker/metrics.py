"""What a worker counts, and the Prometheus page of a process that has prometheus-client.

`towpath-worker[metrics]` brings that; a worker without it counts nothing and needs nothing. All
names are in this file. Labels have few values: queue, task, how an attempt ended.
"""

import importlib
from collections.abc import Callable
from typing import Final, Protocol

ATTEMPT_BUCKETS_SECONDS: Final = (0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0)


class MetricsError(RuntimeError):
    """The page of the metrics, which was asked for, cannot be served: a port that is none or taken,
    or the extra `metrics` is missing."""


class WorkerMetrics(Protocol):
    """What a worker tells; give your own to send it elsewhere. Called in the event loop."""

    def attempt_started(self, queue: str, task: str) -> None:
        """A task was begun; it has a slot."""
        ...

    def attempt_ended(self, queue: str, task: str, *, outcome: str, seconds: float) -> None:
        """It ended: `completed`, `failed`, `released` or `dropped`."""
        ...

    def report_unconfirmed(self, queue: str) -> None:
        """A report was published and not confirmed; it is repeated."""
        ...

    def connection_reset(self, queue: str) -> None:
        """The connection to NATS is new."""
        ...

    def slots_set(self, queue: str, count: int) -> None:
        """A worker of this queue serves with so many slots; 0 when it has stopped."""
        ...


class NoMetrics:
    """Counts nothing."""

    def attempt_started(self, queue: str, task: str) -> None:
        """See WorkerMetrics."""

    def attempt_ended(self, queue: str, task: str, *, outcome: str, seconds: float) -> None:
        """See WorkerMetrics."""

    def report_unconfirmed(self, queue: str) -> None:
        """See WorkerMetrics."""

    def connection_reset(self, queue: str) -> None:
        """See WorkerMetrics."""

    def slots_set(self, queue: str, count: int) -> None:
        """See WorkerMetrics."""


class PrometheusMetrics:
    """Counts into a registry of prometheus-client; one object may serve several workers.

    Raises ImportError, naming the extra to install, when prometheus-client is not there.
    """

    def __init__(self) -> None:
        try:
            library = importlib.import_module("prometheus_client")  # an extra
        except ModuleNotFoundError as error:
            raise ImportError(
                "metrics need prometheus-client: pip install 'towpath-worker[metrics]'"
            ) from error
        self._library = library
        registry = library.CollectorRegistry()
        self._registry = registry
        by_task = ("queue", "task")
        self._running = library.Gauge(
            "towpath_worker_attempts_running", "Attempts that run", by_task, registry=registry
        )
        self._ended = library.Counter(
            "towpath_worker_attempts",
            "Attempts that ended, by how",
            (*by_task, "outcome"),
            registry=registry,
        )
        self._seconds = library.Histogram(
            "towpath_worker_attempt_seconds",
            "How long attempts took",
            by_task,
            buckets=ATTEMPT_BUCKETS_SECONDS,
            registry=registry,
        )
        self._unconfirmed = library.Counter(
            "towpath_worker_reports_unconfirmed",
            "Reports that were published and not confirmed",
            ("queue",),
            registry=registry,
        )
        self._resets = library.Counter(
            "towpath_worker_connection_resets",
            "Connections to NATS that replaced a lost one",
            ("queue",),
            registry=registry,
        )
        self._slots = library.Gauge(
            "towpath_worker_slots", "Slots of this process", ("queue",), registry=registry
        )

    def attempt_started(self, queue: str, task: str) -> None:
        """See WorkerMetrics."""
        self._running.labels(queue, task).inc()

    def attempt_ended(self, queue: str, task: str, *, outcome: str, seconds: float) -> None:
        """See WorkerMetrics."""
        self._running.labels(queue, task).dec()
        self._ended.labels(queue, task, outcome).inc()
        self._seconds.labels(queue, task).observe(seconds)

    def report_unconfirmed(self, queue: str) -> None:
        """See WorkerMetrics."""
        self._unconfirmed.labels(queue).inc()

    def connection_reset(self, queue: str) -> None:
        """See WorkerMetrics."""
        self._resets.labels(queue).inc()

    def slots_set(self, queue: str, count: int) -> None:
        """See WorkerMetrics."""
        self._slots.labels(queue).set(count)

    def page(self) -> str:
        """What a scrape gets: Prometheus text."""
        written: bytes = self._library.generate_latest(self._registry)
        return written.decode()

    def serve(self, port: int, host: str = "127.0.0.1") -> Callable[[], None]:
        """Answer scrapes at http://host:port/metrics from a thread; the result ends it.

        Raises OSError when the port is taken.
        """
        server, thread = self._library.start_http_server(port, addr=host, registry=self._registry)

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return close
