"""Whatever NATS does, nothing hangs, nothing is reported twice, and afterwards all goes on."""

import asyncio
import itertools
import json
import shutil

import pytest

from tests.support.bus import BusUnderTest, running_bus, stream_is_empty
from tests.support.eventually import let_pass, until, until_async
from tests.support.jetstream import JetStreamServer, unique_prefix
from tests.support.outsider import Outsider, connected_outsider
from towpath_protocol import subjects

QUEUES = ["mail", "print"]


async def goes_on(under_test: BusUnderTest, mark: str) -> None:
    """New messages are published, delivered and acknowledged on all partitions."""
    messages = [under_test.signal(f"{mark}{n}".encode()) for n in range(64)]

    async def published() -> bool:
        missing = [
            m for m in messages if not any(c.ok for c in under_test.confirmations if c.id == m.id)
        ]
        if missing:
            count = len(under_test.confirmations)
            under_test.bus.publish(missing)
            await until(lambda: len(under_test.confirmations) >= count + len(missing), "confirmed")
        return not missing

    await until_async(published, f"{mark} is published")
    wanted = {message.body for message in messages}
    await until(lambda: wanted <= set(under_test.bodies), f"{mark} is delivered")
    await stream_is_empty(under_test, subjects.in_stream(under_test.prefix))


async def has_all_consumers(under_test: BusUnderTest) -> bool:
    bus = under_test.bus
    stream = subjects.dispatch_stream(under_test.prefix)
    for queue, level in itertools.product(QUEUES, range(4)):
        if await bus.consumer_state(stream, subjects.queue_consumer(queue, level)) is None:
            return False
    stream = subjects.in_stream(under_test.prefix)
    for partition in range(subjects.PARTITION_COUNT):
        name = subjects.partition_consumer(partition)
        if await bus.consumer_state(stream, name) is None:
            return False
    return True


async def delete(outsider: Outsider, what: str) -> None:
    answer = await outsider.request(f"$JS.API.{what}")
    assert json.loads(answer.data)["success"] is True


async def test_a_client_that_the_server_closes_is_replaced(jetstream_url: str, prefix: str) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        await under_test.bus.ensure_queues(QUEUES)
        for _ in range(3):
            resets = under_test.resets
            # A control line that is too long: the server answers -ERR and closes.
            under_test.bus.send_core("x" * 5_000, b"")
            await until(lambda r=resets: under_test.resets > r, "a new client is there")
            assert under_test.bus.connected
            await goes_on(under_test, f"after {resets} ")


async def test_a_deleted_partition_consumer_is_made_again(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        await goes_on(under_test, "before ")
        resets = under_test.resets
        stream = subjects.in_stream(prefix)
        for partition in (2, 7):
            name = subjects.partition_consumer(partition)
            await delete(outsider, f"CONSUMER.DELETE.{stream}.{name}")
        await until(lambda: under_test.resets > resets, "the services are told")
        await goes_on(under_test, "after ")


async def test_a_deleted_queue_consumer_is_made_again(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        await under_test.bus.ensure_queues(QUEUES)
        stream = subjects.dispatch_stream(prefix)
        before = await under_test.bus.consumer_state(stream, "mail_p1")
        assert before is not None
        await delete(outsider, f"CONSUMER.DELETE.{stream}.mail_p1")

        async def made_again() -> bool:
            state = await under_test.bus.consumer_state(stream, "mail_p1")
            return state is not None and state.created != before.created

        await until_async(made_again, "the consumer is there again")


@pytest.mark.parametrize("name", ["in_stream", "dispatch_stream", "event_stream"])
async def test_a_deleted_stream_is_made_again(
    jetstream_url: str, prefix: str, outsider: Outsider, name: str
) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        await under_test.bus.ensure_queues(QUEUES)
        resets = under_test.resets
        stream = {
            "in_stream": subjects.in_stream,
            "dispatch_stream": subjects.dispatch_stream,
            "event_stream": subjects.event_stream,
        }[name](prefix)
        await delete(outsider, f"STREAM.DELETE.{stream}")
        await until(lambda: under_test.resets > resets, "the services are told")
        await until_async(lambda: has_all_consumers(under_test), "all consumers are there")
        await goes_on(under_test, "after ")
        (dispatch,) = await under_test.publish(under_test.dispatch("mail"))
        assert dispatch.ok


async def test_a_wiped_store_is_set_up_again_with_all_queues(
    own_jetstream: JetStreamServer,
) -> None:
    async with running_bus(own_jetstream.url, unique_prefix()) as under_test:
        await under_test.bus.ensure_queues(QUEUES)
        await goes_on(under_test, "before ")
        stream = subjects.in_stream(under_test.prefix)
        before = await under_test.bus.stream_state(stream)
        resets = under_test.resets
        await asyncio.to_thread(own_jetstream.wipe)
        await until(lambda: under_test.resets > resets, "the services are told")
        after = await under_test.bus.stream_state(stream)
        assert before is not None
        assert after is not None
        assert after.created != before.created
        assert await has_all_consumers(under_test)
        await goes_on(under_test, "after ")


async def test_an_ack_of_a_wiped_message_does_not_take_a_new_one(
    own_jetstream: JetStreamServer,
) -> None:
    async with running_bus(
        own_jetstream.url, unique_prefix(), hold=True, ack_wait_s=1.0
    ) as under_test:
        run = "a-run"
        await under_test.publish(under_test.signal(b"old", run=run))
        await until(lambda: len(under_test.messages) == 1, "the old one is delivered")
        (old,) = under_test.messages
        resets = under_test.resets
        await asyncio.to_thread(own_jetstream.wipe)
        await until(lambda: under_test.resets > resets, "the services are told")

        await under_test.publish(under_test.signal(b"new", run=run))
        await until(lambda: len(under_test.messages) == 2, "the new one is delivered")
        new = under_test.messages[1]
        assert (new.stream_seq, new.partition) == (old.stream_seq, old.partition)
        under_test.bus.acknowledge([old])
        await until(
            lambda: any(m.body == b"new" and m.deliveries > 1 for m in under_test.messages),
            "the new one was not acknowledged by the old one's ack",
        )


async def test_an_ack_given_while_the_client_is_away_is_sent_by_the_next(
    jetstream_url: str, prefix: str
) -> None:
    async with running_bus(
        jetstream_url, prefix, hold=True, ack_wait_s=3600.0, reconnect_backoff_min_s=1.0
    ) as under_test:
        await under_test.publish(under_test.signal(b"x"))
        await until(lambda: len(under_test.messages) == 1, "it is delivered")
        under_test.bus.send_core("x" * 5_000, b"")
        await until(lambda: not under_test.bus.connected, "the client is closed")
        under_test.bus.acknowledge(under_test.messages)
        await until(lambda: under_test.bus.connected, "the next one is there")
        await stream_is_empty(under_test, subjects.in_stream(prefix))
        assert len(under_test.messages) == 1


async def test_after_a_rollback_of_the_store_no_old_ack_takes_a_new_message(
    own_jetstream: JetStreamServer,
) -> None:
    async with running_bus(
        own_jetstream.url, unique_prefix(), hold=True, ack_wait_s=1.0
    ) as under_test:
        store, copy = own_jetstream.folder / "store", own_jetstream.folder / "copy"
        resets = under_test.resets
        own_jetstream.stop()
        shutil.copytree(store, copy)
        own_jetstream.start()
        await until(lambda: under_test.resets > resets, "connected again")
        await under_test.publish(under_test.signal(b"old", run="a-run"))
        await until(lambda: len(under_test.messages) == 1, "the old one is delivered")
        (old,) = under_test.messages

        # What happens when the disk had not seen it: the same stream, without its last message…
        resets = under_test.resets
        own_jetstream.kill()
        shutil.rmtree(store)
        copy.rename(store)
        own_jetstream.start()
        # …and somebody reuses its sequence before we look.
        async with connected_outsider(own_jetstream.url) as sender:
            subject = under_test.signal(b"new", run="a-run").subject
            await sender.publish(subject, b"new")
            await sender.flush()
        await until(lambda: under_test.resets > resets, "connected again")
        under_test.bus.acknowledge([old])
        await until(
            lambda: any(m.body == b"new" and m.deliveries > 1 for m in under_test.messages),
            "the new one was not acknowledged by the old one's ack",
        )
        assert {m.stream_seq for m in under_test.messages} == {old.stream_seq}


async def test_a_killed_server_comes_back_with_what_it_had(
    own_jetstream: JetStreamServer,
) -> None:
    async with running_bus(own_jetstream.url, unique_prefix(), credit=0) as under_test:
        messages = [under_test.signal(b"%d" % n) for n in range(200)]
        assert all(c.ok for c in await under_test.publish(*messages))
        resets = under_test.resets
        own_jetstream.kill()
        own_jetstream.start()
        await until(lambda: under_test.resets > resets, "the services are told")
        under_test.bus.set_credit(100)
        await until(lambda: len(under_test.bodies) == 200, "all are delivered")


async def load(under_test: BusUnderTest, stop: asyncio.Event) -> list[str]:
    """Publish a little all the time; the ids of what was handed over."""
    ids: list[str] = []
    while not stop.is_set():
        message = under_test.signal(b"load %d" % len(ids))
        ids.append(message.id)
        under_test.bus.publish([message])
        await let_pass(0.002)
    return ids


async def away_under_load(server: JetStreamServer, seconds: float) -> None:
    async with running_bus(server.url, unique_prefix(), publish_timeout_s=1.0) as under_test:
        await under_test.bus.ensure_queues(QUEUES)
        stop = asyncio.Event()
        loading = asyncio.create_task(load(under_test, stop))
        await until(lambda: len(under_test.messages) > 100, "the load runs")
        await asyncio.to_thread(server.kill)
        await until(lambda: not under_test.bus.connected, "the bus notices")
        await let_pass(seconds)
        assert not under_test.bus.connected
        await asyncio.to_thread(server.start)
        await until(lambda: under_test.bus.connected, "the bus is back")
        seen = len(under_test.messages)
        await until(lambda: len(under_test.messages) > seen + 100, "the load goes on")
        stop.set()
        ids = await loading
        await until(lambda: under_test.nats_bus.unconfirmed == 0, "everything is confirmed")
        outcomes = list(under_test.confirmations)
        assert [c.id for c in sorted(outcomes, key=lambda c: ids.index(c.id))] == ids
        assert {c.error for c in outcomes if not c.ok} <= {"down", "timeout"}
        assert sum(not c.ok for c in outcomes) > 100
        await goes_on(under_test, "after ")
        delivered = {m.stream_seq for m in under_test.messages}
        assert {c.seq for c in outcomes if c.ok} <= delivered


async def test_a_server_that_is_away_for_a_while_under_load(
    own_jetstream: JetStreamServer,
) -> None:
    await away_under_load(own_jetstream, 2.0)


@pytest.mark.slow
async def test_a_server_that_is_away_for_a_minute_under_load(
    own_jetstream: JetStreamServer,
) -> None:
    await away_under_load(own_jetstream, 60.0)


async def test_a_server_that_stands_still_for_five_seconds(
    own_jetstream: JetStreamServer,
) -> None:
    async with running_bus(own_jetstream.url, unique_prefix()) as under_test:
        await goes_on(under_test, "before ")
        own_jetstream.pause()
        under_test.bus.publish([under_test.signal(b"meanwhile")])
        await let_pass(5.0)
        own_jetstream.resume()
        await goes_on(under_test, "after ")
        await until(lambda: under_test.bodies[b"meanwhile"] >= 1, "delivered")


async def test_a_server_that_stands_still_for_good_is_left_even_with_full_buffers(
    own_jetstream: JetStreamServer,
) -> None:
    async with running_bus(
        own_jetstream.url, unique_prefix(), ping_interval_s=0.3, publish_timeout_s=1.0
    ) as under_test:
        own_jetstream.pause()
        # More than the socket's and the client's buffers hold: nobody reads any more.
        body = b"x" * 500_000
        messages = [under_test.dispatch("mail", body) for _ in range(100)]
        confirmations = await under_test.publish(*messages)
        assert not any(c.ok for c in confirmations)
        await until(lambda: not under_test.bus.connected, "the bus gives it up")
        resets = under_test.resets
        own_jetstream.resume()
        await until(lambda: under_test.resets > resets, "the bus is back")
        await goes_on(under_test, "after ")


async def test_workers_pull_again_after_a_wipe(own_jetstream: JetStreamServer) -> None:
    async with running_bus(own_jetstream.url, unique_prefix()) as under_test:
        await under_test.bus.ensure_queues(QUEUES)
        resets = under_test.resets
        await asyncio.to_thread(own_jetstream.wipe)
        await until(lambda: under_test.resets > resets, "the services are told")
        dispatch = under_test.dispatch("print", b'{"n":1}')
        (confirmation,) = await under_test.publish(dispatch)
        assert confirmation.ok
        async with connected_outsider(own_jetstream.url) as worker:
            stream = subjects.dispatch_stream(under_test.prefix)
            received = await worker.pull(stream, "print_p2")
            assert received.subject == dispatch.subject
            assert received.data == dispatch.body
