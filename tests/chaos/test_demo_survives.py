"""The demo while something is killed or wiped in the middle of it: always the same table.

Each test freezes or watches its victim until deliveries are out that nobody has acked, so that the
kill bites; the redeliveries are shown by JetStream's counters, by the workers' logs, or by the new
consumers with which an engine begins what another has left.
"""

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.support.demo import (
    EXPECTED_RESERVATIONS,
    EXPECTED_TABLE,
    DemoProcess,
    Event,
    check_histories,
    partition_consumers,
    wait_unacked,
)
from tests.support.eventually import eventually_sync, let_pass
from tests.support.processes import Halted

pytestmark = pytest.mark.slow

# In the middle: some runs have settled, most have not.
IN_THE_MIDDLE = 150
LEASE_SECONDS = 8.0


@pytest.fixture
def demo() -> Iterator[DemoProcess]:
    process = DemoProcess()
    try:
        yield process
    finally:
        process.close()


def redelivered(result: Event) -> int:
    return int(result["redelivered"]) + int(result["repeated_attempts"])


async def check_the_same_table(demo: DemoProcess) -> Event:
    result = demo.result()
    assert result["differences"] == []
    assert result["outcomes"] == EXPECTED_TABLE
    assert result["reservations"] == EXPECTED_RESERVATIONS
    assert result["completed_by"]["node"] > 0
    assert await check_histories(demo) > 10_000
    return result


async def test_a_killed_engine_changes_nothing(demo: DemoProcess) -> None:
    demo.wait_settled(IN_THE_MIDDLE)
    engine = demo.server_pid("engine")
    halted = Halted(engine)
    await wait_unacked(demo, "IN", "")
    before = await partition_consumers(demo)
    os.kill(engine, signal.SIGKILL)
    halted.release()

    await check_the_same_table(demo)

    assert demo.server_pid("engine") != engine
    assert not before.items() & (await partition_consumers(demo)).items()


async def test_a_killed_worker_changes_nothing(demo: DemoProcess) -> None:
    demo.wait_settled(IN_THE_MIDDLE)
    worker = demo.child_pid("python-2")
    halted = Halted(worker)
    await wait_unacked(demo, "DISPATCH", "shipping")
    os.kill(worker, signal.SIGKILL)
    halted.release()

    result = await check_the_same_table(demo)

    assert demo.child_pid("python-2") != worker
    assert redelivered(result) > 0


async def test_a_killed_nats_server_changes_nothing(demo: DemoProcess) -> None:
    demo.wait_settled(IN_THE_MIDDLE)
    worker = demo.child_pid("python-2")
    halted = Halted(worker)
    await wait_unacked(demo, "DISPATCH", "shipping")
    server = demo.kill_server_and_keep_it_away("nats")
    os.kill(worker, signal.SIGKILL)
    halted.release()
    demo.let_servers_return("nats", server)

    result = await check_the_same_table(demo)

    assert redelivered(result) > 0


async def test_a_killed_postgres_changes_nothing(demo: DemoProcess) -> None:
    demo.wait_settled(IN_THE_MIDDLE)
    before = await partition_consumers(demo)
    await wait_unacked(demo, "IN", "")
    server = demo.kill_server_and_keep_it_away("postgres")
    await let_pass(LEASE_SECONDS + 2.0)
    await wait_unacked(demo, "IN", "")
    demo.let_servers_return("postgres", server)

    await check_the_same_table(demo)

    assert not before.items() & (await partition_consumers(demo)).items()


async def test_deleting_all_of_jetstreams_data_changes_nothing(demo: DemoProcess) -> None:
    demo.wait_settled(IN_THE_MIDDLE)
    await wait_unacked(demo, "DISPATCH", "")
    server = demo.kill_server_and_keep_it_away("nats")
    demo.delete_jetstream()
    demo.let_servers_return("nats", server)

    await check_the_same_table(demo)


async def test_killing_all_that_undoes_in_the_middle_of_it_releases_nothing_twice(
    demo: DemoProcess,
) -> None:
    """The undos wait for two workers that stand still; then these, the engine and the server with
    all of JetStream's data go, while Postgres alone knows what is still to be undone."""
    demo.wait_settled(IN_THE_MIDDLE)
    names = ("python-1", "node")
    old = {name: demo.child_pid(name) for name in names}
    halted = [Halted(pid) for pid in old.values()]
    demo.wait_undoing(4)
    await wait_unacked(demo, "DISPATCH", "inventory")
    engine = demo.server_pid("engine")
    server = demo.kill_server_and_keep_it_away("nats")
    os.kill(engine, signal.SIGKILL)
    for pid in old.values():
        os.kill(pid, signal.SIGKILL)
    demo.delete_jetstream()
    for one in halted:
        one.release()
    demo.let_servers_return("nats", server)

    await check_the_same_table(demo)

    assert demo.server_pid("engine") != engine
    assert {name: demo.child_pid(name) for name in names}.items().isdisjoint(old.items())


async def test_two_engines_make_the_same_table_and_no_transition_twice() -> None:
    demo = DemoProcess("--engines", "2")
    try:
        assert demo.server_pid("engine") != demo.server_pid("engine-2")
        await check_the_same_table(demo)
    finally:
        demo.close()


def test_nothing_is_left_of_a_demo_that_is_killed(demo: DemoProcess) -> None:
    demo.wait_settled(1)
    family = demo.family()
    assert len(family) > 8

    demo.kill()

    eventually_sync(lambda: not [one for one in family if _lives(one.pid, one.created)])


def _lives(pid: int, created: float) -> bool:
    try:
        return psutil.Process(pid).create_time() == created
    except psutil.NoSuchProcess:
        return False
