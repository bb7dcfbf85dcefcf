"""Three engines under load, while one after the other is restarted, or one is killed or paused.

Nothing is lost and nothing happens twice. How long a signal waited is measured and said; what is
asserted of it is only that nothing hangs.
"""

import time
from collections.abc import AsyncGenerator

import pytest

from tests.support.eventually import eventually, let_pass
from tests.support.fleet import EngineProcess, Load, check_runs
from tests.support.jetstream import JetStreamServer, own_jetstream, prefix
from tests.support.measured import measured
from tests.support.postgres import fresh_schema
from tests.support.wire_client import WireClient, connected
from towpath_engine.store.migrate import migrate

__all__ = ["own_jetstream", "prefix"]

pytestmark = pytest.mark.slow

ENGINES = 3
ON_THE_WAY = 40
"""Signals that are taken before and after each blow."""
HANG_SECONDS = 20.0
DEATH_HANG_SECONDS = 100.0
PAUSE_SECONDS = 40.0


class Fleet:
    """The engines, and one more when one is needed."""

    def __init__(self, nats_url: str, postgres_url: str, prefix: str, schema: str) -> None:
        self._where = (nats_url, postgres_url, prefix, schema)
        self.engines: list[EngineProcess] = []

    def add(self) -> EngineProcess:
        engine = EngineProcess(*self._where)
        self.engines.append(engine)
        return engine.wait_ready()

    async def spread(self) -> None:
        """Until the partitions are spread evenly over those that run."""

        async def even() -> bool:
            shares = sorted(engine.owned() for engine in self.engines if engine.running())
            return sum(shares) == 16 and shares[-1] - shares[0] <= 1

        await eventually(even)

    def close(self) -> None:
        for engine in self.engines:
            engine.close()


@pytest.fixture
async def fleet(
    own_jetstream: JetStreamServer, postgres_url: str, prefix: str
) -> AsyncGenerator[Fleet]:
    async with fresh_schema(postgres_url) as schema:
        await migrate(postgres_url, schema)
        fleet = Fleet(own_jetstream.url, postgres_url, prefix, schema)
        try:
            for _ in range(ENGINES):
                fleet.add()
            await fleet.spread()
            yield fleet
        finally:
            fleet.close()


@pytest.fixture
async def wire(
    fleet: Fleet, own_jetstream: JetStreamServer, prefix: str
) -> AsyncGenerator[WireClient]:
    async with connected(own_jetstream.url, prefix) as wire:
        yield wire


async def _end(load: Load, wire: WireClient, what: str) -> None:
    await load.end()
    transitions = await check_runs(wire, load.run_ids)
    assert await wire.dead_letters() == []
    measured(f"{what}: {len(load.run_ids)} runs, {len(load.gaps)} signals, {transitions} rows")


async def test_a_rolling_restart_loses_nothing_and_holds_no_signal_up(
    fleet: Fleet, wire: WireClient
) -> None:
    load = Load(wire)
    await load.begin()
    await load.signals_taken(ON_THE_WAY)
    quiet = load.worst()
    began = time.monotonic()
    for old in list(fleet.engines):
        old.terminate()
        assert old.wait() == 0
        await load.signals_taken(ON_THE_WAY)
        fleet.add()
        await fleet.spread()
        await load.signals_taken(ON_THE_WAY)
    worst = load.worst(since=began)
    await _end(load, wire, "rolling restart")
    measured(f"rolling restart: a signal waited {worst:.3f} s at most (before: {quiet:.3f} s)")
    assert worst < HANG_SECONDS


async def test_an_engine_that_is_killed_under_load_is_replaced_within_seconds(
    fleet: Fleet, wire: WireClient
) -> None:
    load = Load(wire)
    await load.begin()
    await load.signals_taken(ON_THE_WAY)
    began = time.monotonic()
    fleet.engines[0].kill()
    await fleet.spread()
    took = time.monotonic() - began
    await load.signals_taken(ON_THE_WAY)
    worst = load.worst(since=began - HANG_SECONDS)
    await _end(load, wire, "death")
    measured(f"death: taken over after {took:.3f} s, a signal waited {worst:.3f} s at most")
    assert worst < DEATH_HANG_SECONDS


async def test_an_engine_that_is_paused_for_long_does_no_harm_when_it_wakes(
    fleet: Fleet, wire: WireClient
) -> None:
    load = Load(wire)
    await load.begin()
    await load.signals_taken(ON_THE_WAY)
    sleeper, *others = fleet.engines
    began = time.monotonic()
    sleeper.pause()

    async def taken_over() -> bool:
        return sum(engine.owned() for engine in others) == 16

    await eventually(taken_over)
    took = time.monotonic() - began
    await load.signals_taken(ON_THE_WAY)
    await let_pass(max(0.0, began + PAUSE_SECONDS - time.monotonic()))
    worst = load.worst(since=began - HANG_SECONDS)
    woken = time.monotonic()
    sleeper.resume()
    await load.signals_taken(ON_THE_WAY)
    await fleet.spread()
    await load.signals_taken(ON_THE_WAY)
    after = load.worst(since=woken)
    await _end(load, wire, "pause")
    measured(
        f"pause: taken over after {took:.3f} s, a signal waited {worst:.3f} s at most,"
        f" {after:.3f} s after the wake"
    )
    assert max(worst, after) < DEATH_HANG_SECONDS
