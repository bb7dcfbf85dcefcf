"""Fixtures of the worker tests: a server, and a test that plays the engine."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient

from tests.support.engine_side import EngineSide
from tests.support.jetstream import jetstream_url, own_jetstream, prefix
from towpath_worker import Worker, WorkerOptions

__all__ = ["engine", "jetstream_url", "own_jetstream", "prefix", "serving"]

Serving = Callable[[Worker], AbstractAsyncContextManager[Worker]]


def worker_of(engine: EngineSide, url: str, **options: Any) -> Worker:
    """A worker of the queue `inventory`, with a short heartbeat interval."""
    chosen: dict[str, Any] = {"slots": 4, "heartbeat_interval_seconds": 0.2, **options}
    return Worker("inventory", nats_url=url, prefix=engine.prefix, options=WorkerOptions(**chosen))


async def silent(_error: Exception) -> None:
    """Servers come and go in these tests; the client need not tell."""


async def connect(url: str) -> NatsClient:
    client: Any = NatsClient()
    await client.connect(
        url, error_cb=silent, max_reconnect_attempts=-1, reconnect_time_wait=0.1, ping_interval=5
    )
    return client


@pytest.fixture
async def engine(jetstream_url: str, prefix: str) -> AsyncIterator[EngineSide]:
    client = await connect(jetstream_url)
    side = EngineSide(client, prefix)
    await side.create_streams()
    await side.create_consumers("inventory")
    await side.listen()
    try:
        yield side
    finally:
        js: Any = side.client.jetstream()
        await js.delete_stream(side.dispatch_stream)
        await js.delete_stream(f"{prefix.upper()}_IN")
        await client.close()


@asynccontextmanager
async def serving_worker(worker: Worker) -> AsyncGenerator[Worker]:
    serving = asyncio.create_task(worker.serve())
    try:
        yield worker
    finally:
        while not serving.done():
            worker.stop()
            await asyncio.wait([serving], timeout=0.2)
        await serving


class ThreadedWorker:
    """A worker in a thread with a loop of its own, which a task may block."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._thread = threading.Thread(target=lambda: asyncio.run(worker.serve()))
        self._thread.start()

    def stop(self) -> None:
        while self._thread.is_alive():
            self._worker.stop()
            self._thread.join(0.1)


@pytest.fixture
def serving() -> Serving:
    """Serve a worker inside `async with`; it is drained, then stopped, at the end."""
    return serving_worker
