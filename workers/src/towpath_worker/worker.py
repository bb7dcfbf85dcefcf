"""The worker a user writes: tasks registered on a queue, then `run` or `serve`."""

import asyncio
import contextlib
import signal
from collections.abc import Callable

from towpath_protocol.ids import check_queue
from towpath_worker.options import ConnectionOptions, WorkerOptions, connection_options
from towpath_worker.registry import F, Registry
from towpath_worker.service import Service, StopRequest


class Worker:
    """Runs the tasks of one queue.

    `nats_url` and `prefix` default to `TOWPATH_NATS_URL` and `TOWPATH_PREFIX`, then to what
    `towpath dev` uses; `connection` replaces both. Raises ValueError for a bad queue name or
    option.
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
    ) -> None:
        self.queue = check_queue(queue)
        self._connection = connection
        self._nats_url = nats_url
        self._prefix = prefix
        chosen = options or WorkerOptions()
        self.options = chosen if slots is None else chosen.with_slots(slots)
        self.registry = Registry()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: StopRequest | None = None

    def task(self, name: str) -> Callable[[F], F]:
        """Register a function as a task; use it as a decorator, the function stays as it is.

        The function takes its input (converted to its annotation; without one, plain JSON) and,
        if it wants one, a `Context`. It returns its output or `Again`. `async def` runs in the
        event loop, a plain function in a thread. Raises ValueError for a bad or repeated name,
        TypeError for a function that takes something else.
        """

        def register(function: F) -> F:
            self.registry.add(name, function)
            return function

        return register

    async def serve(self) -> None:
        """Work until `stop`, then drain: nothing new is pulled, what runs may end.

        Waits for NATS and for the engine as long as it takes. Installs no signal handlers. Raises
        RuntimeError when this worker is serving already, or has no task.
        """
        if self._stop is not None:
            raise RuntimeError("this worker is serving already")
        if not self.registry.names:
            raise RuntimeError("this worker has no task; register one with @worker.task(name)")
        connection = self._connection or connection_options(self._nats_url, self._prefix)
        service = Service(
            self.queue, registry=self.registry, connection=connection, options=self.options
        )
        self._loop = asyncio.get_running_loop()
        self._stop = StopRequest()
        try:
            await service.run(self._stop)
        finally:
            self._loop = self._stop = None

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
        """Serve in a new event loop; SIGTERM and SIGINT drain, a second one does not wait."""
        run_workers(self)


def run_workers(*workers: Worker) -> None:
    """Serve several workers, of different queues, in one process; ends when all have drained.

    SIGTERM and SIGINT drain all of them. Raises what `Worker.serve` raises.
    """
    asyncio.run(_run_workers(workers))


async def _run_workers(workers: tuple[Worker, ...]) -> None:
    loop = asyncio.get_running_loop()

    def stop_all() -> None:
        for worker in workers:
            worker.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_all)
    try:
        await asyncio.gather(*(worker.serve() for worker in workers))
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
