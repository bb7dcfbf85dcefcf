"""Real engines in the test's process, on a real Postgres and a real nats-server."""

import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.census import count_runs_without_reason
from tests.support.stores import a_postgres_store
from towpath_engine.app import started
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings
from towpath_engine.store.errors import StoreUnavailable

MIB = 1024 * 1024


def engine_settings(
    nats_url: str, postgres_url: str, prefix: str, schema: str, **changes: Any
) -> Settings:
    """Settings for a test: small streams, quick sweeps, any free port."""
    values: dict[str, Any] = {
        "nats_url": nats_url,
        "postgres_url": postgres_url,
        "prefix": prefix,
        "postgres_schema": schema,
        "http_port": 0,
        "require_sender": False,
        "stream_dispatch_bytes_max": 64 * MIB,
        "stream_in_bytes_max": 64 * MIB,
        "stream_events_bytes_max": 16 * MIB,
        "stream_advisory_bytes_max": 4 * MIB,
        "outbox_sweep_seconds": 0.5,
        "timer_sweep_seconds": 0.5,
        "dispatch_audit_seconds": 0.5,
        "dispatch_watch_seconds": 0.2,
        "stream_check_seconds": 0.5,
        "drain_seconds": 10.0,
        **changes,
    }
    return Settings(**values)


@asynccontextmanager
async def running(settings: Settings) -> AsyncGenerator[Engine]:
    """An engine that runs while the context is open; afterwards every run has a reason to live."""
    async with started(settings) as engine:
        yield engine
    await assert_every_run_has_a_reason(settings)


async def assert_every_run_has_a_reason(settings: Settings) -> None:
    """Invariant 1, on what an engine has left behind. A database that is away proves nothing."""
    with contextlib.suppress(StoreUnavailable):
        async with a_postgres_store(
            settings.postgres_url, schema=settings.postgres_schema, pool_size=2
        ) as store:
            assert await count_runs_without_reason(store) == 0, "a run that nothing will ever move"
