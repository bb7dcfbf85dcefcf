"""The only loop of the background services: interval, jitter, stop and error policy, once."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.metrics import Metrics
from towpath_engine.services.backoff import backoff_seconds
from towpath_engine.store.errors import StoreUnavailable

log = structlog.get_logger(__name__)

_BACKOFF_SECONDS = 0.4
_BACKOFF_SECONDS_MAX = 10.0


class Ticker:
    """Calls `run_once` every `interval` seconds until `stop()`.

    `interval` may also be a function that is asked after each tick how long to pause: then it is
    kept exactly, while a fixed one is spread by a tenth, so that engines do not march in step.
    A lost server is retried with growing pauses and said once; anything else that a tick raises
    is a bug of that tick: it is logged with its traceback, counted, and the ticker goes on.
    `wake()` makes the next tick happen at once.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[object]],
        *,
        interval: float | Callable[[], float],
        metrics: Metrics,
    ) -> None:
        self._name = name
        self._run_once = run_once
        self._interval = interval
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start ticking in the background."""
        self._task = asyncio.create_task(self._loop(), name=f"ticker-{self._name}")

    def wake(self) -> None:
        """Tick now instead of at the next interval."""
        self._wake.set()

    async def stop(self) -> None:
        """Finish the running tick and stop."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task

    async def _loop(self) -> None:
        failures = 0
        while not self._stopping:
            failures = await self._tick(failures)
            pause = self._pause()
            if failures:
                backoff = backoff_seconds(
                    failures, initial=_BACKOFF_SECONDS, longest=_BACKOFF_SECONDS_MAX
                )
                pause = max(pause, backoff)
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    def _pause(self) -> float:
        if callable(self._interval):
            return self._interval()
        return self._interval * random.uniform(0.9, 1.1)  # noqa: S311 - spreads load only

    async def _tick(self, failures: int) -> int:
        try:
            await self._run_once()
        except (StoreUnavailable, BusUnavailable) as error:
            if not failures:
                log.warning("tick_postponed", service=self._name, error=str(error))
            return failures + 1
        except Exception:
            self._metrics.tick_failures.labels(service=self._name).inc()
            log.exception("tick_failed", service=self._name)
            return failures + 1
        return 0
