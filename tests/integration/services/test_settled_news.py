"""Who waits for a result hears of it from any engine, without waiting for a sweep."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.support.engines import engine_settings
from tests.support.eventually import DEADLINE_SECONDS
from tests.support.stores import a_postgres_store
from towpath_engine.bus.nats_bus import NatsBus
from towpath_engine.metrics import Metrics
from towpath_engine.services.clock import Clock, Identity
from towpath_engine.services.leases import Leases
from towpath_engine.services.result_waiters import ResultWaiters
from towpath_engine.services.settled_news import SettledNews
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import Work
from towpath_engine.settings import Settings
from towpath_engine.store.interface import Store
from towpath_engine.wiring import bus_settings

RUN = "01900000-0000-7000-8000-000000000001"


@pytest.fixture
def settings(jetstream_url: str, postgres_url: str, prefix: str, schema: str) -> Settings:
    return engine_settings(jetstream_url, postgres_url, prefix, schema)


@pytest.fixture
async def store(settings: Settings) -> AsyncGenerator[Store]:
    url, schema = settings.postgres_url, settings.postgres_schema
    async with a_postgres_store(url, schema=schema) as store:
        yield store


class Side:
    """What an engine has of results: nobody sweeps here."""

    def __init__(self, shell: Shell) -> None:
        self.leases = Leases(shell, lease_seconds=60.0, release_seconds=1.0)
        self.waiters = ResultWaiters(shell.store)
        self.news = SettledNews(shell, leases=self.leases, waiters=self.waiters)
        self.bus = shell.bus
        self.metrics = shell.metrics

    def wakes(self) -> float:
        text = self.metrics.render().decode()
        lines = [line for line in text.splitlines() if line.startswith("towpath_wake_total{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@asynccontextmanager
async def a_side(settings: Settings, store: Store) -> AsyncGenerator[Side]:
    bus, clock = NatsBus(bus_settings(settings)), Clock(store)
    await clock.sync()

    def submit(work: Work) -> None:
        raise AssertionError(work)

    side = Side(
        Shell(
            store=store, bus=bus, clock=clock, identity=Identity(clock), metrics=Metrics(),
            prefix=settings.prefix, submit=submit,
        )
    )  # fmt: skip
    await bus.start()
    try:
        yield side
    finally:
        await bus.close()


async def test_a_waiter_is_woken_by_the_engine_at_which_the_run_settles(
    settings: Settings, store: Store
) -> None:
    async with AsyncExitStack() as stack:
        writes = await stack.enter_async_context(a_side(settings, store))
        answers = await stack.enter_async_context(a_side(settings, store))
        for _ in range(2):  # each knows of the other once both have said that they live
            for side in (writes, answers):
                await side.leases.renew()
        with answers.waiters.waiting(RUN) as settled:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not settled.done():
                    writes.news.settled(RUN)
                    writes.news.send()
                    await asyncio.wait([settled], timeout=0.05)
            assert settled.done()
        assert answers.wakes() > 0


async def test_an_engine_that_is_alone_tells_nobody(settings: Settings, store: Store) -> None:
    async with a_side(settings, store) as alone:
        await alone.leases.renew()
        with alone.waiters.waiting(RUN) as settled:
            alone.news.settled(RUN)
            alone.news.send()
            assert settled.done()
        assert alone.wakes() == 0
