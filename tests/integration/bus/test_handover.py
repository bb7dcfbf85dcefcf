"""A partition goes from one engine to another: nothing is lost, and nothing waits for an ack_wait.

Every ack_wait here is an hour: whatever only came after it would never come.
"""

import asyncio

from tests.support.bus import BusUnderTest, run_id, running_bus, stream_is_empty
from tests.support.eventually import until
from tests.support.outsider import Outsider
from towpath_engine.bus.interface import InboundMessage
from towpath_protocol import subjects

HOUR = 3600.0
ALL = range(subjects.PARTITION_COUNT)


def signals(under_test: BusUnderTest, count: int, run: str, *, first: int = 0) -> list[bytes]:
    """Publish so many signals for one run; their bodies."""
    bodies = [str(number).encode() for number in range(first, first + count)]
    under_test.bus.publish([under_test.signal(body, run=run) for body in bodies])
    return bodies


async def test_an_engine_pulls_only_the_partitions_that_it_is_given(
    jetstream_url: str, prefix: str
) -> None:
    async with (
        running_bus(jetstream_url, prefix, credit=0) as one,
        running_bus(jetstream_url, prefix, credit=0) as two,
    ):
        one.bus.set_partitions(range(10))
        two.bus.set_partitions(range(10, 16))
        one.bus.set_credit(100)
        two.bus.set_credit(100)
        await one.publish(*[one.signal(str(n).encode()) for n in range(500)])
        await stream_is_empty(one, subjects.in_stream(prefix))
        assert {message.partition for message in one.messages} == set(range(10))
        assert {message.partition for message in two.messages} == set(range(10, 16))
        assert set((one.bodies + two.bodies).values()) == {1}


async def test_partitions_can_be_taken_away_and_given_back(jetstream_url: str, prefix: str) -> None:
    async with running_bus(jetstream_url, prefix, ack_wait_s=HOUR) as under_test:
        run = run_id()
        under_test.bus.set_partitions(set(ALL) - {subjects.partition_of(run)})
        await under_test.bus.let_go([subjects.partition_of(run)], timeout_s=5.0)
        await under_test.publish(under_test.signal(b"while away", run=run))
        other = run_id()
        while subjects.partition_of(other) == subjects.partition_of(run):
            other = run_id()
        await under_test.publish(under_test.signal(b"for another", run=other))
        await until(lambda: bool(under_test.messages), "the other partition is pulled")
        assert set(under_test.bodies) == {b"for another"}
        under_test.bus.set_partitions(ALL)
        await until(lambda: b"while away" in under_test.bodies, "what came meanwhile is delivered")


async def test_a_partition_let_go_of_under_load_loses_nothing_and_leaves_nothing_on_the_way(
    jetstream_url: str, prefix: str
) -> None:
    # Back and forth, in the middle of deliveries: one lost on the way would come after an hour.
    run = run_id()
    partition = subjects.partition_of(run)
    async with (
        running_bus(jetstream_url, prefix, credit=500, ack_wait_s=HOUR) as one,
        running_bus(jetstream_url, prefix, credit=500, ack_wait_s=HOUR) as two,
    ):
        two.bus.set_partitions(())
        await two.bus.let_go(ALL, timeout_s=5.0)
        sent: list[bytes] = []
        for _ in range(10):
            sent += signals(one, 400, run, first=len(sent))
            seen = len(one.messages)
            await until(lambda n=seen: len(one.messages) > n, "some are delivered here")
            await one.bus.let_go([partition], timeout_s=5.0)
            two.bus.set_partitions([partition])
            count = len(sent)
            await until(lambda n=count: len(one.bodies + two.bodies) == n, "all come")
            await two.bus.let_go([partition], timeout_s=5.0)
            one.bus.set_partitions(ALL)
        await stream_is_empty(one, subjects.in_stream(prefix))
        assert set(one.bodies + two.bodies) == set(sent)
        assert two.messages


async def test_what_is_not_settled_in_time_is_given_to_the_next_engine_at_once(
    jetstream_url: str, prefix: str
) -> None:
    run = run_id()
    async with (
        running_bus(jetstream_url, prefix, hold=True, ack_wait_s=HOUR) as one,
        running_bus(jetstream_url, prefix, credit=0, ack_wait_s=HOUR) as two,
    ):
        bodies = signals(one, 20, run)
        await until(lambda: len(one.messages) == 20, "all are delivered")
        await one.bus.let_go([subjects.partition_of(run)], timeout_s=0.1)
        assert one.nats_bus.in_flight == 0
        two.bus.set_credit(100)
        await until(lambda: set(two.bodies) == set(bodies), "the other engine has them all")
        await stream_is_empty(two, subjects.in_stream(prefix))


async def test_letting_go_waits_for_what_is_still_being_settled(
    jetstream_url: str, prefix: str
) -> None:
    run = run_id()
    async with running_bus(jetstream_url, prefix, hold=True, ack_wait_s=HOUR) as one:
        signals(one, 20, run)
        await until(lambda: len(one.messages) == 20, "all are delivered")
        leaving = asyncio.create_task(one.bus.let_go([subjects.partition_of(run)], timeout_s=HOUR))
        for message in one.messages:
            assert not leaving.done()
            one.bus.acknowledge([message])
        await leaving
        await stream_is_empty(one, subjects.in_stream(prefix))
        assert {message.deliveries for message in one.messages} == {1}


async def test_a_reset_brings_back_at_once_what_a_dead_engine_had(
    jetstream_url: str, prefix: str
) -> None:
    run = run_id()
    partition = subjects.partition_of(run)
    async with (
        running_bus(jetstream_url, prefix, hold=True, ack_wait_s=HOUR) as dead,
        running_bus(jetstream_url, prefix, credit=0, ack_wait_s=HOUR) as heir,
    ):
        bodies = signals(dead, 50, run)
        await until(lambda: len(dead.messages) == 50, "all are delivered to the dead one")
        heir.bus.set_partitions([])
        heir.bus.set_credit(100)
        dead.bus.set_partitions([])
        await heir.bus.reset_partition(partition)
        heir.bus.set_partitions([partition])
        await until(lambda: set(heir.bodies) == set(bodies), "the heir has them all")
        await stream_is_empty(heir, subjects.in_stream(prefix))


async def test_late_acks_of_a_paused_engine_remove_only_what_it_has_committed(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    # The paused one has committed the first half, and acknowledges it when it wakes: before the
    # heir was delivered it (then the server ignores the ack) and after (then it is an ack).
    run = run_id()
    partition = subjects.partition_of(run)
    async with (
        running_bus(jetstream_url, prefix, hold=True, ack_wait_s=HOUR) as paused,
        running_bus(jetstream_url, prefix, credit=0, hold=True, ack_wait_s=HOUR) as heir,
    ):
        heir.bus.set_partitions([])
        heir.bus.set_credit(100)
        bodies = signals(paused, 40, run)
        await until(lambda: len(paused.messages) == 40, "all are delivered to the paused one")
        committed = paused.messages[:20]
        await heir.bus.reset_partition(partition)
        await _acknowledge(outsider, committed[:10])
        heir.bus.set_partitions([partition])
        await until(lambda: len(heir.messages) >= 30, "the heir has what nobody has committed")
        await _acknowledge(outsider, committed[10:])
        fresh = signals(heir, 10, run, first=40)
        await until(lambda: set(heir.bodies) >= {*bodies[20:], *fresh}, "and what comes later")
        heir.bus.acknowledge(heir.messages)
        await stream_is_empty(heir, subjects.in_stream(prefix))
        assert set(heir.bodies.values()) == {1}


async def test_an_engine_that_wakes_does_not_take_what_was_sent_to_it_before(
    jetstream_url: str, prefix: str
) -> None:
    run = run_id()
    async with (
        running_bus(jetstream_url, prefix, ack_wait_s=HOUR) as sleeper,
        running_bus(jetstream_url, prefix, credit=0, ack_wait_s=HOUR) as heir,
    ):
        valid = True
        sleeper.bus.guard_partitions(lambda: valid)
        await sleeper.publish(sleeper.signal(b"mine", run=run))
        await until(lambda: bool(sleeper.messages), "its pull is open")
        valid = False
        heir.bus.set_partitions([])
        heir.bus.set_credit(100)
        await heir.publish(heir.signal(b"too late", run=run))
        await heir.bus.reset_partition(subjects.partition_of(run))
        heir.bus.set_partitions(ALL)
        await until(lambda: b"too late" in heir.bodies, "the heir has it")
        await stream_is_empty(heir, subjects.in_stream(prefix))
        assert set(sleeper.bodies) == {b"mine"}


async def _acknowledge(outsider: Outsider, messages: list[InboundMessage]) -> None:
    for message in messages:
        await outsider.publish(message.ack_subject, b"+ACK")
