"""Several engines share the partitions: evenly, and whatever becomes of one of them.

Every ack_wait here is an hour: what an engine that is gone had in its hands never comes back by
itself. Where an engine has to die, a lease of an engine that does not exist stands for its own.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.support.bus import running_bus
from tests.support.counted import counted
from tests.support.engines import engine_settings, running
from tests.support.eventually import eventually, until
from tests.support.measured import measured
from tests.support.stores import a_postgres_store
from tests.support.wire_client import WireClient, connected
from tests.support.workflows import chain, one_task, one_wait
from towpath_engine.bus.nats_bus import NatsBus
from towpath_engine.metrics import Metrics
from towpath_engine.services.clock import Clock, Identity
from towpath_engine.services.engine import Engine
from towpath_engine.services.leases import Leases
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import Work
from towpath_engine.settings import Settings
from towpath_engine.store.interface import Store
from towpath_engine.store.leases import LeaseTick, Origin, Standing
from towpath_engine.wiring import bus_settings

HOUR = 3600.0


@pytest.fixture
def settings(jetstream_url: str, postgres_url: str, prefix: str, schema: str) -> Settings:
    return engine_settings(jetstream_url, postgres_url, prefix, schema, ack_wait_seconds=HOUR)


@pytest.fixture
async def store(settings: Settings) -> AsyncGenerator[Store]:
    url, schema = settings.postgres_url, settings.postgres_schema
    async with a_postgres_store(url, schema=schema) as store:
        yield store


@pytest.fixture
async def outsider(settings: Settings) -> AsyncGenerator[WireClient]:
    """Connected before any engine runs."""
    async with connected(settings.nats_url, settings.prefix) as wire:
        yield wire


def owned(engine: Engine) -> int:
    return int(counted(engine, "partition_owned"))


async def spread(engines: Sequence[Engine], *shares: int) -> None:
    """Wait until the engines own so many partitions each."""
    await until(lambda: tuple(map(owned, engines)) == shares, f"the shares are {shares}")


async def a_dead_engine(store: Store, *, seconds_left: float) -> None:
    """The leases of all partitions, held by an engine that is no more."""
    said = LeaseTick(
        engine_id="01800000-0000-7000-8000-000000000000",
        standing=Standing.FIT,
        lease_seconds=seconds_left,
    )
    answer = await store.leases.tick(said)
    assert len(answer.acquired) == 16


async def test_one_engine_owns_everything_when_it_says_that_it_is_ready(
    settings: Settings,
) -> None:
    async with running(settings) as engine:
        assert owned(engine) == 16


async def test_partitions_spread_over_the_engines_that_come_and_go(settings: Settings) -> None:
    async with AsyncExitStack() as others:
        async with running(settings) as one:
            two = await others.enter_async_context(running(settings))
            await spread([one, two], 8, 8)
            three = await others.enter_async_context(running(settings))
            await spread([one, two, three], 6, 5, 5)
        await spread([two, three], 8, 8)
        assert counted(two, "partition_moved_total", how="inherited") == 0
        assert counted(three, "partition_moved_total", how="inherited") == 0


async def test_a_clean_stop_hands_over_at_once_and_no_signal_waits(
    settings: Settings, outsider: WireClient
) -> None:
    # The leases last a minute: nothing here can wait for one to expire.
    slow = engine_settings(
        settings.nats_url, settings.postgres_url, settings.prefix, settings.postgres_schema,
        ack_wait_seconds=HOUR, lease_seconds=60.0, lease_tick_seconds=1.0,
    )  # fmt: skip
    async with running(slow) as stays:
        async with running(slow) as leaves:
            await spread([stays, leaves], 8, 8)
            await outsider.deploy(one_wait())
            run_ids = await asyncio.gather(*(outsider.start("waiting") for _ in range(200)))
            signals = asyncio.create_task(_signal_each(outsider, run_ids))
            await until(lambda: _applied(leaves, "signal") > 5, "it has handled some")
            began = time.monotonic()
        stopped_after = time.monotonic() - began
        await until(lambda: owned(stays) == 16, "the other one owns everything")
        took = time.monotonic() - began
        await signals
        for run_id in run_ids:
            assert (await outsider.result(run_id))["status"] == "completed"
        assert counted(stays, "partition_moved_total", how="inherited") == 0
        assert await outsider.dead_letters() == []
    measured(f"clean stop: handed over within {took:.3f} s (stopped after {stopped_after:.3f} s)")


async def _signal_each(wire: WireClient, run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        await wire.put(f"in.signal.-.{run_id}.go", b"1")


def _applied(engine: Engine, kind: str) -> float:
    return counted(engine, "message_outcome_total", kind=kind, outcome="applied")


async def test_what_a_dead_engine_was_delivered_goes_to_its_heir_when_the_lease_is_over(
    settings: Settings, outsider: WireClient, store: Store, prefix: str
) -> None:
    async with running(settings):
        await outsider.deploy(one_wait())
        run_ids = [await outsider.start("waiting") for _ in range(30)]
    await a_dead_engine(store, seconds_left=3.0)
    began = time.monotonic()
    async with running_bus(
        settings.nats_url, prefix, hold=True, ack_wait_s=HOUR, ack_pending_max=10_000
    ) as dead:
        await _signal_each(outsider, run_ids)
        await until(lambda: len(dead.messages) == len(run_ids), "it was delivered them all")
        dead.bus.set_partitions([])
        async with running(settings) as heir:
            assert owned(heir) == 0
            await until(lambda: owned(heir) == 16, "the leases have passed")
            assert time.monotonic() - began >= 3.0
            for run_id in run_ids:
                assert (await outsider.result(run_id))["status"] == "completed"
            assert counted(heir, "partition_moved_total", how="inherited") == 16
            await _the_late_acks_change_nothing(outsider, dead.messages)


async def _the_late_acks_change_nothing(wire: WireClient, messages: Sequence[Any]) -> None:
    for message in messages:
        await wire.client.publish(message.ack_subject, b"+ACK")
    run_id = await wire.start("waiting")
    await wire.put(f"in.signal.-.{run_id}.go", b"1")
    assert (await wire.result(run_id))["status"] == "completed"


async def test_the_timers_of_a_dead_engine_are_fired_by_its_heir(
    settings: Settings, outsider: WireClient, store: Store
) -> None:
    async with running(settings):
        await outsider.deploy({"workflow": "nap", "steps": [{"name": "s", "sleep": "4s"}]})
        run_ids = [await outsider.start("nap") for _ in range(20)]
    await a_dead_engine(store, seconds_left=1.0)
    async with running(settings):
        for run_id in run_ids:
            assert (await outsider.result(run_id))["status"] == "completed"


async def test_near_timers_of_runs_that_another_engine_wrote_are_on_time(
    settings: Settings, outsider: WireClient
) -> None:
    # No sweep comes to help, and each start is answered by either engine.
    quick = engine_settings(
        settings.nats_url, settings.postgres_url, settings.prefix, settings.postgres_schema,
        timer_sweep_seconds=HOUR,
    )  # fmt: skip
    async with running(quick) as one, running(quick) as two:
        await spread([one, two], 8, 8)
        await outsider.deploy({"workflow": "nap", "steps": [{"name": "s", "sleep": "500ms"}]})
        run_ids = await asyncio.gather(*(outsider.start("nap") for _ in range(60)))
        for run_id in run_ids:
            assert (await outsider.result(run_id))["status"] == "completed"
        for engine in (one, two):
            assert counted(engine, "wake_total", direction="sent") > 0
            assert counted(engine, "wake_total", direction="received") > 0
            assert counted(engine, "timer_fired_total", kind="plain") > 0
        fired = sum(counted(engine, "timer_fired_total", kind="plain") for engine in (one, two))
        assert fired == len(run_ids)


async def test_an_engine_goes_on_with_runs_that_another_has_written_meanwhile(
    settings: Settings, outsider: WireClient
) -> None:
    async with running(settings) as one, running(settings) as two:
        await spread([one, two], 8, 8)
        await outsider.deploy(chain(length=3))
        run_ids = [await outsider.start("chain") for _ in range(20)]
        cancelled, completed = run_ids[:10], run_ids[10:]
        # The owner has copies of all of them; a cancel is answered by either engine.
        first = [await outsider.take() for _ in run_ids]
        for dispatch in first:
            await outsider.complete(dispatch, 1)
        second = [await outsider.take() for _ in run_ids]
        for run_id in cancelled:
            await outsider.api("run.cancel", run_id=run_id)
        for dispatch in second:
            await outsider.complete(dispatch, 2)
        for _ in completed:
            await outsider.complete(await outsider.take(), 3)
        for run_id in cancelled:
            assert (await outsider.run(run_id))["status"] == "cancelled"
        for run_id in completed:
            assert (await outsider.result(run_id))["output"] == 3


async def test_one_engine_counts_the_runs_for_all(settings: Settings, outsider: WireClient) -> None:
    often = engine_settings(
        settings.nats_url, settings.postgres_url, settings.prefix, settings.postgres_schema,
        reason_sweep_seconds=0.1,
    )  # fmt: skip
    async with AsyncExitStack() as later:
        async with running(often) as first:
            second = await later.enter_async_context(running(often))
            await spread([first, second], 8, 8)
            await outsider.deploy(one_task())
            for _ in range(5):
                await outsider.start("one")
            await until(lambda: counted(first, "run_open") == 5, "the first one counts")
            assert counted(second, "run_open") == 0
        await until(lambda: counted(second, "run_open") == 5, "now the second one counts")
        assert counted(first, "run_open") == 0
        assert counted(second, "runs_without_reason") == 0


# An engine that is paused


class HandClock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def leases_by_hand(
    settings: Settings, store: Store
) -> AsyncGenerator[tuple[Leases, HandClock]]:
    """The leases of an engine on a real store and bus, without the engine around them."""
    bus, clock, hand = NatsBus(bus_settings(settings)), Clock(store), HandClock()
    await clock.sync()
    await bus.start()

    def submit(work: Work) -> None:
        raise AssertionError(work)

    shell = Shell(
        store=store, bus=bus, clock=clock, identity=Identity(clock), metrics=Metrics(),
        prefix=settings.prefix, submit=submit,
    )  # fmt: skip
    try:
        yield Leases(shell, lease_seconds=8.0, release_seconds=1.0, clock=hand), hand
    finally:
        await bus.close()


async def test_an_engine_that_wakes_from_a_pause_owns_nothing_before_it_has_asked(
    settings: Settings, store: Store
) -> None:
    async with leases_by_hand(settings, store) as (leases, clock):
        lost: list[frozenset[int]] = []
        leases.on_lost.append(lost.append)
        await leases.renew()
        assert leases.owned == frozenset(range(16))
        assert leases.leads
        clock.now += 40.0
        assert leases.owned == frozenset()
        assert not leases.leads
        assert not any(leases.owns(partition) for partition in range(16))
        assert lost == []
        await leases.renew()
        assert lost == [frozenset(range(16))]
        assert len(leases.owned) == 16


async def test_partitions_that_were_lost_in_a_pause_are_begun_anew_when_they_come_back(
    settings: Settings, store: Store
) -> None:
    async with leases_by_hand(settings, store) as (leases, clock):
        moves: list[None] = []
        leases.on_moves = lambda: moves.append(None)
        await leases.renew()
        assert (await leases.move(), moves) == (0, [])
        clock.now += 9.0
        # Postgres has not waited as long: to it, these are still ours.
        await leases.renew()
        assert moves == [None]
        assert await leases.move() == 16
        assert await leases.move() == 0


async def test_an_engine_that_leaves_leaves_nothing_behind(
    settings: Settings, store: Store
) -> None:
    async with leases_by_hand(settings, store) as (leases, _):
        await leases.renew()
        await leases.leave()
        assert leases.owned == frozenset()
        heir = LeaseTick(
            engine_id="01900000-0000-7000-8000-000000000000",
            standing=Standing.FIT,
            lease_seconds=8.0,
        )
        answer = await store.leases.tick(heir)
        assert dict(answer.acquired) == dict.fromkeys(range(16), Origin.RELEASED)


async def test_an_engine_that_is_stopping_serves_requests_until_the_end(
    settings: Settings, outsider: WireClient
) -> None:
    async with running(settings) as stays:
        async with running(settings):
            await outsider.deploy(one_task())
        runs = [await outsider.start("one") for _ in range(5)]

        async def dispatched() -> bool:
            found = [await outsider.run(run_id) for run_id in runs]
            return all(run["status"] == "running" for run in found)

        await eventually(dispatched)
        assert owned(stays) == 16
