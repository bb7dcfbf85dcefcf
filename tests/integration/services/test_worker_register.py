"""What is remembered of workers is what they said last, however long their heartbeats waited."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.store_builders import LIMITS, parse
from towpath_engine.bus.nats_bus import NatsBus
from towpath_engine.metrics import Metrics
from towpath_engine.services.clock import Clock, Identity
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import Work
from towpath_engine.services.worker_register import WorkerRegister
from towpath_engine.settings import Settings
from towpath_engine.store.memory import MemoryStore
from towpath_engine.wiring import bus_settings
from towpath_protocol.dispatch import WorkerHeartbeat


class HandClock:
    """The database's clock, as the test sets it."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


@pytest.fixture
def shell(settings: Settings, hand: HandClock) -> Shell:
    def submit(work: Work) -> None:
        raise AssertionError(work)

    store = MemoryStore(limits=LIMITS, parse=parse, clock=hand)
    clock = Clock(store)
    return Shell(
        store=store, bus=NatsBus(bus_settings(settings)), clock=clock, identity=Identity(clock),
        metrics=Metrics(), prefix=settings.prefix, submit=submit,
    )  # fmt: skip


@pytest.fixture
async def register(shell: Shell) -> WorkerRegister:
    await shell.clock.sync()
    return WorkerRegister(shell, leads=lambda: True, forget_after_seconds=9, workers_max=9)


def said(**more: Any) -> WorkerHeartbeat:
    return WorkerHeartbeat(worker_id="w1", **more)


async def drains(shell: Shell) -> bool:
    (seen,) = await shell.store.workers.page(None, None, 9)
    return seen.newest.draining


@pytest.mark.parametrize("flushed", [True, False])
async def test_a_hello_that_is_noted_before_the_goodbye_that_came_first_stands(
    shell: Shell, register: WorkerRegister, flushed: bool
) -> None:
    """The goodbye had to wait, for a queue that was not known yet."""
    first, second = register.now(), register.now() + timedelta(milliseconds=1)
    register.saw("mail", said(), second)
    if flushed:
        await register.flush()
    register.saw("mail", said(draining=True), first)
    await register.flush()
    assert not await drains(shell)


async def test_a_hello_stands_although_the_clock_was_set_back_since_the_goodbye(
    shell: Shell, register: WorkerRegister, hand: HandClock
) -> None:
    register.saw("mail", said(draining=True), register.now())
    await register.flush()
    hand.at -= timedelta(seconds=1)
    await shell.clock.sync()
    register.saw("mail", said(), register.now())
    await register.flush()
    assert not await drains(shell)
