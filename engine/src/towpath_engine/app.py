"""The composition root: builds everything from settings, starts it, stops it in reverse.

The only module that knows the concrete classes.
"""

import asyncio
import contextlib
import gc
import signal
from collections.abc import AsyncGenerator

import structlog

from towpath_engine.bus.errors import BusRefused, BusUnavailable
from towpath_engine.bus.nats_bus import NatsBus
from towpath_engine.core.parse import parse_definition
from towpath_engine.health import HealthServer
from towpath_engine.metrics import Metrics
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings
from towpath_engine.store.errors import SchemaMismatch, StoreUnavailable
from towpath_engine.store.postgres import open_postgres_store
from towpath_engine.store.transaction import StoreCaps
from towpath_engine.wiring import bus_settings, core_limits, expression_limits

log = structlog.get_logger(__name__)

EXIT_OK = 0
EXIT_REFUSED = 2
EXIT_UNAVAILABLE = 3

_COLLECT_AFTER = (20_000, 10, 20)
"""New containers before the youngest generation is collected; collections before the next ones."""


async def serve(settings: Settings) -> int:
    """Run one engine until SIGTERM or SIGINT; returns the process's exit code.

    2: the schema, the server or a setting is not fit, said in one sentence in the log; 3: Postgres
    or NATS could not be reached at start. Once started, lost servers are waited for.
    """
    stop = _StopSignal()
    try:
        async with started(settings):
            stop.begun()
            _relax_collector()
            await stop.wait()
            log.info("engine_stopping", drain_seconds=settings.drain_seconds)
    except asyncio.CancelledError:
        if not stop.came:
            raise
    except (SchemaMismatch, BusRefused) as error:
        log.error("engine_refused", reason=str(error))  # noqa: TRY400 - a sentence, not a bug
        return EXIT_REFUSED
    except (StoreUnavailable, BusUnavailable) as error:
        log.error("engine_unavailable", reason=str(error))  # noqa: TRY400 - the same
        return EXIT_UNAVAILABLE
    log.info("engine_stopped")
    return EXIT_OK


def _relax_collector() -> None:
    """Look for cyclic garbage more rarely. Nothing on the hot path makes any, and looking for it
    took a sixth of an engine's time, in pauses of up to 60 ms over all that is imported and cached.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


@contextlib.asynccontextmanager
async def started(settings: Settings) -> AsyncGenerator[Engine]:
    """An engine that runs while the context is open, with its health pages.

    Raises SchemaMismatch, BusRefused, PortUnavailable, StoreUnavailable or BusUnavailable if it
    can't start.
    """
    metrics = Metrics()
    stored = expression_limits(settings).for_stored()
    store = await open_postgres_store(
        settings.postgres_url,
        settings.postgres_schema,
        limits=core_limits(settings),
        pool_size=settings.postgres_pool_size,
        parse=lambda document: parse_definition(document, stored),
        statement_timeout_ms=int(settings.postgres_statement_timeout_seconds * 1_000),
        caps=StoreCaps(
            dead_letter_rows_max=settings.dead_letter_count_max,
            dead_letter_bytes_max=settings.dead_letter_bytes_max,
        ),
    )
    try:
        bus = NatsBus(bus_settings(settings))
        engine = Engine(settings=settings, store=store, bus=bus, metrics=metrics)
        health = HealthServer(metrics, engine.readiness_checks())
        try:
            port = await health.start(settings.http_host, settings.http_port)
            await engine.start()
            log.info("engine_ready", prefix=settings.prefix, http_port=port)
            yield engine
        finally:
            await health.stop()
            await engine.stop()
    finally:
        await store.close()


class _StopSignal:
    """SIGTERM and SIGINT, from before the start on: one that comes while the engine starts ends the
    start, a later one is what `wait` waits for. Make it in the task that serves."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._starting = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    @property
    def came(self) -> bool:
        """Whether a signal has come."""
        return self._event.is_set()

    def begun(self) -> None:
        """The start is over: signals no longer cancel it."""
        self._starting = None

    async def wait(self) -> None:
        """Return once a signal has come."""
        await self._event.wait()

    def _on_signal(self) -> None:
        self._event.set()
        if self._starting is not None:
            self._starting.cancel()
