"""Every metric of the engine, by name, in one list. The registry is our own and passed down.

Names are noun first and carry their unit; label values come from closed sets (or the names of
deployed workflows and queues, which are bounded), never from run ids or keys.
"""

from functools import cached_property
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000)


class _Counter(Counter):
    """A Counter that finds its children by one look: `labels` checks, converts and locks, a dozen
    times a step. Label values come from closed sets, so nothing is ever removed."""

    @cached_property
    def _found(self) -> dict[tuple[object, ...], Self]:
        return {}

    def labels(self, *labelvalues: object, **labelkwargs: object) -> Self:
        """As in Counter."""
        key = (*labelvalues, *labelkwargs.items())
        child = self._found.get(key)
        if child is None:
            child = self._found[key] = super().labels(*labelvalues, **labelkwargs)
        return child


class Metrics:
    """The engine's metrics. Attributes are prometheus-client objects; label names are keywords."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._messages()
        self._pipeline()
        self._runs()
        self._sweeps()
        self._edges()
        ProcessCollector(registry=self.registry)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format, of type CONTENT_TYPE."""
        return generate_latest(self.registry)

    def _messages(self) -> None:
        self.messages_received = self._counter(
            "message_received_total", "Messages taken from P_IN and P_ADV, by kind", "kind"
        )
        self.messages_redelivered = self._counter(
            "message_redelivered_total", "Messages delivered more than once, by kind", "kind"
        )
        self.messages_applied = self._counter(
            "message_outcome_total", "Messages by kind and what became of them", "kind", "outcome"
        )
        self.reports_stale = self._counter(
            "report_stale_total", "Reports with a token that is not the step's current one", "kind"
        )
        self.dead_letters = self._counter(
            "dead_letter_total", "Messages kept as dead letters, by reason", "reason"
        )
        self.dead_letters_dropped = self._counter(
            "dead_letter_dropped_total", "Dead letters not kept, the store of them being full"
        )
        self.messages_pending = self._gauge(
            "message_pending", "Messages of a partition that are not handled yet", "partition"
        )

    def _pipeline(self) -> None:
        self.batch_events = self._histogram("batch_events", "Events of one transaction", _SIZES)
        self.batch_seconds = self._histogram(
            "batch_seconds", "From the first statement of a batch to its commit", _FAST
        )
        self.batches_retried = self._counter(
            "batch_retried_total", "Batches tried again, by reason", "reason"
        )
        self.runs_lost = self._counter(
            "run_version_lost_total",
            "Runs decided again, another engine having written a version in between",
        )
        self.run_cache = self._counter(
            "run_cache_total",
            "Look-ups in the cache of runs, by result (`stale`: another engine has written it)",
            "result",
        )
        self.outbox_published = self._counter(
            "outbox_published_total", "Messages published, by stream and result", "stream", "result"
        )
        self.outbox_open = self._gauge("outbox_open", "Published messages without a PubAck")
        self.outbox_republished = self._counter(
            "outbox_republished_total", "Messages that the sweep published again"
        )

    def _runs(self) -> None:
        self.transitions = self._counter(
            "transition_total", "Transitions written, by what happened", "what"
        )
        self.runs_started = self._counter("run_started_total", "Runs created", "workflow")
        self.runs_settled = self._counter(
            "run_settled_total", "Runs settled, by status", "workflow", "status"
        )
        self.runs_purged = self._counter("run_purged_total", "Settled runs deleted")
        self.runs_open = self._gauge("run_open", "Runs that are not settled, by status", "status")
        self.runs_without_reason = self._gauge(
            "runs_without_reason", "Runs not settled for which nothing is expected; must stay 0"
        )
        self.steps_dispatched = self._counter(
            "step_dispatched_total", "Attempts handed to a queue", "queue"
        )

    def _sweeps(self) -> None:
        self.timers_fired = self._counter(
            "timer_fired_total", "Timers fired; `preemptible` ones asked the server first", "kind"
        )
        self.timer_late_seconds = self._histogram(
            "timer_late_seconds", "How late a timer fired", _FAST
        )
        self.timers_armed = self._gauge("timer_armed", "Timers armed in memory")
        self.dispatches_undone = self._gauge(
            "dispatch_undone", "Undone dispatches of a queue, when last counted", "queue"
        )
        self.dispatches_lost = self._counter(
            "dispatch_lost_total", "Dispatches found lost and published again, by cause", "cause"
        )
        self.streams_reset = self._counter(
            "stream_reset_total", "Streams found wiped or rolled back", "stream"
        )
        self.signals_parked = self._counter(
            "signal_parked_total", "Signals parked, and what became of them", "outcome"
        )
        self.partitions_owned = self._gauge(
            "partition_owned", "Partitions of P_IN that this engine owns; 16 over all engines"
        )
        self.partitions_moved = self._counter(
            "partition_moved_total",
            "Partitions acquired, inherited from a dead engine, released, or lost",
            "how",
        )
        self.engines_live = self._gauge("engine_live", "Engines that live, as this one sees them")
        self.wakes = self._counter(
            "wake_total",
            "Messages between engines about runs of the other's or settled ones, sent or received",
            "direction",
        )
        self.tick_failures = self._counter(
            "tick_failed_total", "Ticks of a service that failed", "service"
        )

    def _edges(self) -> None:
        self.api_requests = self._counter(
            "api_request_total",
            "API requests by verb and error code (`ok` is none)",
            "verb",
            "code",
        )
        self.api_seconds = self._histogram(
            "api_seconds", "How long an API request took", _FAST, "verb"
        )
        self.worker_heartbeats = self._counter(
            "worker_heartbeat_total", "Heartbeat requests of workers", "queue"
        )
        self.bus_reconnects = self._counter("bus_reconnected_total", "Connections to NATS made")
        self.bus_connected = self._gauge("bus_connected", "1 while connected to NATS")
        self.store_connected = self._gauge("store_connected", "1 while Postgres answers")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return _Counter(f"towpath_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"towpath_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(f"towpath_{name}", text, labels, registry=self.registry, buckets=buckets)
