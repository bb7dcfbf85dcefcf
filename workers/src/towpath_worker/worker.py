"""The worker a user writes: tasks registered on a queue, then `run` or `serve`."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Final, Literal, overload

from towpath_protocol.ids import check_queue
from towpath_worker import capture, loops
from towpath_worker.credentials import ConnectionOptionsError
from towpath_worker.lifespans import L, Lifespan, LifespanFunction
from towpath_worker.links import Links
from towpath_worker.metrics import MetricsError, NoMetrics, PrometheusMetrics, WorkerMetrics
from towpath_worker.options import ConnectionOptions, WorkerOptions, connection_options
from towpath_worker.processes import check_importable
from towpath_worker.registry import F, P, Registry, RunIn
from towpath_worker.service import Service, StopRequest

METRICS_PORT: Final = "TOWPATH_WORKER_METRICS_PORT"
METRICS_HOST: Final = "TOWPATH_WORKER_METRICS_HOST"


class NoTasksError(RuntimeError):
    """A worker without a task was told to serve."""


class Worker:
    """Runs the tasks of one queue.

    `nats_url` and `prefix` default to the environment (`TOWPATH_NATS_URL`, `TOWPATH_PREFIX` and the
    other names of `ConnectionOptions`), then to what `towpath dev` uses; `connection` replaces all
    of that. `lifespan` opens what the tasks share, see `Worker.lifespan`. `metrics` replaces what
    `run_workers` gives. Raises ValueError for a bad queue name or option.
    """

    def __init__(
        self,
        queue: str = "default",
        *,
        nats_url: str | None = None,
        prefix: str | None = None,
        slots: int | None = None,
        options: WorkerOptions | None = None,
        connection: ConnectionOptions | None = None,
        lifespan: LifespanFunction | None = None,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        self.queue = check_queue(queue)
        self.metrics = metrics
        self._connection = connection
        self._nats_url = nats_url
        self._prefix = prefix
        chosen = options or WorkerOptions()
        self.options = chosen if slots is None else chosen.with_slots(slots)
        self.registry = Registry()
        self._lifespan = lifespan
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: StopRequest | None = None

    @overload
    def task(self, name: str) -> Callable[[F], F]: ...
    @overload
    def task(self, name: str, *, run_in: Literal["thread"]) -> Callable[[F], F]: ...
    @overload
    def task(self, name: str, *, run_in: Literal["process"]) -> Callable[[P], P]: ...
    def task(
        self, name: str, *, run_in: Literal["thread", "process"] | None = None
    ) -> Callable[[F], F] | Callable[[P], P]:
        """Register a function as a task; use it as a decorator, the function stays as it is.

        The function takes its input (converted to its annotation; without one, plain JSON; a
        default stands for a null input) and, if it wants one, a `Context`. It returns its output
        or `Again`. `async def` runs in the event loop, a plain function in a thread, or, with
        `run_in="process"`, in a process of its own, with a `ProcessContext`.

        Raises TaskTypeError (a TypeError) for a function that cannot be a task, TaskNameError (a
        ValueError) for a bad or repeated name.
        """

        def register(function: F) -> F:
            self.registry.add(name, function, run_in)
            return function

        return register

    def lifespan(self, function: L) -> L:
        """Register what to open before the first pull and to close after the drain; a decorator.

        An async generator with one `yield`, or a function that gives an async context manager.
        What it yields is `context.state` of every attempt:

            @worker.lifespan
            async def database() -> AsyncIterator[Pool]:
                async with create_pool() as pool:
                    yield pool

        When it raises at the start, `serve` raises LifespanError and nothing is pulled. Raises
        RuntimeError when this worker has one already.
        """
        if self._lifespan is not None:
            raise RuntimeError("this worker has a lifespan already; open both in one function")
        self._lifespan = function
        return function

    async def serve(self) -> None:
        """Work until `stop`, then drain: nothing new is pulled, what runs may end.

        Waits for NATS and for the engine as long as it takes. Installs no signal handlers. Raises
        RuntimeError when this worker is serving already; NoTasksError; LifespanError;
        ConnectionOptionsError for settings of the connection that cannot be used; TaskTypeError for
        a task that a process would not find.
        """
        await self.serve_over(Links(name=f"towpath-worker/{self.queue}/{os.getpid()}"))

    async def serve_over(self, links: Links) -> None:
        """`serve`, over connections that other workers of this process may use too."""
        if self._stop is not None:
            raise RuntimeError("this worker is serving already")
        if not self.registry.names:
            raise NoTasksError(
                f"the worker for queue {self.queue!r} has no task; register one with "
                "@worker.task(name)"
            )
        for task in self.registry:
            if task.run_in is RunIn.PROCESS:
                check_importable(task)
        options = self._connection or self._found_options()
        self._loop = asyncio.get_running_loop()
        self._stop = StopRequest()
        lifespan = Lifespan(self._lifespan, queue=self.queue)
        try:
            if await lifespan.open(self._stop.event):
                lifespan.check(self.registry)
                await self._serve(links, options, lifespan.state)
        finally:
            self._loop = self._stop = None
            await lifespan.close(timeout_seconds=self.options.lifespan_close_seconds)

    def _found_options(self) -> ConnectionOptions:
        try:
            return connection_options(self._nats_url, self._prefix)
        except ValueError as error:
            raise ConnectionOptionsError(f"the settings of the connection: {error}") from error

    async def _serve(self, links: Links, options: ConnectionOptions, state: object) -> None:
        assert self._stop is not None, "set by the caller"
        link = links.take(options)
        capture.install()  # after the lifespan, which may set up logging
        try:
            service = Service(
                self.queue,
                prefix=options.prefix,
                registry=self.registry,
                link=link,
                options=self.options,
                state=state,
                metrics=self.metrics or NoMetrics(),
            )
            await service.run(self._stop)
        finally:
            capture.uninstall()
            await links.give_back(options)

    @property
    def serving(self) -> bool:
        """True from the begin of `serve` until it has drained."""
        return self._stop is not None

    def stop(self) -> None:
        """Begin to drain; called again, give back at once what still runs.

        May be called from any thread and from a signal handler; does nothing when not serving.
        """
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(stop.add)

    def run(self) -> None:
        """Serve in a new event loop; SIGTERM and SIGINT drain, a second one does not wait. Raises
        what `serve` raises."""
        run_workers(self)


def run_workers(*workers: Worker, environ: Mapping[str, str] | None = None) -> None:
    """Serve several workers, of different queues, in one process; ends when all have drained.

    Workers with the same connection options share one connection. Slots are each worker's own, so
    that a queue with long tasks never keeps another from being served: their sum is what this
    process runs at once. SIGTERM and SIGINT drain all of them; when one fails to start, the
    others are drained, and its exception is raised.

    With `TOWPATH_WORKER_METRICS_PORT` in the environment it answers scrapes at that port (of
    `TOWPATH_WORKER_METRICS_HOST`, default 127.0.0.1). Raises what `Worker.serve` raises, and
    MetricsError when that page cannot be served.
    """
    source = os.environ if environ is None else environ
    port = source.get(METRICS_PORT)
    if not port:
        loops.run(serve_workers(*workers))
        return
    metrics, close = _served_metrics(port, source.get(METRICS_HOST) or "127.0.0.1")
    for worker in workers:
        worker.metrics = worker.metrics or metrics
    try:
        loops.run(serve_workers(*workers))
    finally:
        close()


def _served_metrics(port: str, host: str) -> tuple[PrometheusMetrics, Callable[[], None]]:
    if not port.isdecimal() or int(port) > 65_535:
        raise MetricsError(f"{METRICS_PORT} must be a port, not {port!r}")
    try:
        metrics = PrometheusMetrics()
        return metrics, metrics.serve(int(port), host)
    except ImportError as error:
        raise MetricsError(str(error)) from error
    except OSError as error:
        raise MetricsError(f"the metrics cannot be served at {host}:{port}: {error}") from error


async def serve_workers(*workers: Worker) -> None:
    """`run_workers` in a running event loop, for a program that has one. Raises what it raises."""
    links = Links(name=f"towpath-worker/{','.join(w.queue for w in workers)}/{os.getpid()}")

    def stop_all() -> None:
        for worker in workers:
            worker.stop()

    serving = [asyncio.create_task(worker.serve_over(links)) for worker in workers]
    try:
        with loops.on_stop_signals(stop_all):
            await asyncio.wait(serving, return_when=asyncio.FIRST_EXCEPTION)
            stop_all()
            await asyncio.gather(*serving)
    finally:
        await asyncio.gather(*serving, return_exceptions=True)
