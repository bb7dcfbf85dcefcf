"""Deliveries: what they carry, how credit bounds them, how two engines share them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.bus import run_id, running_bus, stream_is_empty
from tests.support.eventually import until
from tests.support.jetstream import JetStreamServer, unique_prefix
from tests.support.outsider import Outsider
from towpath_protocol import subjects


async def test_a_delivery_carries_the_original_subject_and_its_facts(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        run = run_id()
        subject = f"{prefix}.in.signal.-.{run}.go"
        await outsider.publish(subject, b"[1]", headers={"Towpath-Sent-By": "test"})
        await until(lambda: bool(under_test.messages), "the message is delivered")
        (message,) = under_test.messages
        assert message.subject == subject
        assert message.body == b"[1]"
        assert message.headers == {"Towpath-Sent-By": "test"}
        assert message.partition == subjects.partition_of(run)
        assert message.stream_seq == 1
        assert message.deliveries == 1
        assert message.pending == 0
        assert abs(datetime.now(UTC) - message.stored_at) < timedelta(minutes=10)


async def test_the_long_form_of_ack_subjects_is_acknowledged_too(tmp_path: Path) -> None:
    config = "feature_flags { js_ack_fc_v2: true }"
    server = JetStreamServer(tmp_path / "nats", config=config).start()
    prefix = unique_prefix()
    try:
        async with running_bus(server.url, prefix) as under_test:
            await under_test.publish(under_test.signal(b"1"))
            await until(lambda: bool(under_test.messages), "the message is delivered")
            (message,) = under_test.messages
            assert len(message.ack_subject.split(".")) >= 11
            assert message.stream_seq == 1
            await stream_is_empty(under_test, subjects.in_stream(prefix))
    finally:
        server.kill()


async def test_every_message_arrives_once_and_leaves_the_stream(
    jetstream_url: str, prefix: str
) -> None:
    async with running_bus(jetstream_url, prefix, credit=200) as under_test:
        messages = [under_test.signal(str(n).encode()) for n in range(3_000)]
        assert all(c.ok for c in await under_test.publish(*messages))
        await until(lambda: len(under_test.messages) >= 3_000, "all are delivered")
        await stream_is_empty(under_test, subjects.in_stream(prefix))
        assert set(under_test.bodies.values()) == {1}
        assert {message.partition for message in under_test.messages} == set(range(16))


async def test_credit_bounds_what_is_delivered_and_not_acknowledged(
    jetstream_url: str, prefix: str
) -> None:
    async with running_bus(jetstream_url, prefix, credit=0, hold=True) as under_test:
        run = run_id()
        messages = [under_test.signal(str(n).encode(), run=run) for n in range(500)]
        await under_test.publish(*messages)
        assert under_test.messages == []

        credit = 100
        under_test.bus.set_credit(credit)
        while len(under_test.messages) < 500:
            seen = len(under_test.messages)
            await until(lambda s=seen: len(under_test.messages) > s, "more is delivered")
            held = under_test.nats_bus.in_flight
            assert held <= 2 * credit
            under_test.bus.acknowledge(under_test.messages[-held:])
        assert set(under_test.bodies.values()) == {1}


async def test_what_is_forgotten_gives_its_credit_back_and_comes_again(
    jetstream_url: str, prefix: str
) -> None:
    async with running_bus(
        jetstream_url, prefix, credit=1, hold=True, ack_wait_s=1.0
    ) as under_test:
        run = run_id()
        await under_test.publish(*[under_test.signal(b"x", run=run) for _ in range(5)])

        def each_came_twice() -> bool:
            under_test.bus.forget(under_test.messages)
            seen = [m.stream_seq for m in under_test.messages if m.deliveries > 1]
            return len(set(seen)) == 5

        await until(each_came_twice, "with credit 1, all five come and come again")
        under_test.hold = False
        under_test.bus.forget(under_test.messages)
        await stream_is_empty(under_test, subjects.in_stream(prefix))


async def test_an_ack_twice_is_one_ack(jetstream_url: str, prefix: str) -> None:
    async with running_bus(jetstream_url, prefix, hold=True) as under_test:
        await under_test.publish(under_test.signal(b"x"))
        await until(lambda: bool(under_test.messages), "the message is delivered")
        for _ in range(3):
            under_test.bus.acknowledge(under_test.messages)
        assert under_test.nats_bus.in_flight == 0
        await stream_is_empty(under_test, subjects.in_stream(prefix))


async def test_two_engines_share_the_partitions_without_conflict(
    jetstream_url: str, prefix: str
) -> None:
    async with (
        running_bus(jetstream_url, prefix) as one,
        running_bus(jetstream_url, prefix) as two,
    ):
        for batch in range(20):
            messages = [one.signal(f"{batch}/{n}".encode()) for n in range(100)]
            assert all(c.ok for c in await one.publish(*messages))
        await until(lambda: len(one.messages) + len(two.messages) >= 2_000, "all arrive")
        await stream_is_empty(one, subjects.in_stream(prefix))
        assert one.messages
        assert two.messages
        assert len(one.bodies + two.bodies) == 2_000
        assert set((one.bodies + two.bodies).values()) == {1}


async def test_close_gives_unfinished_messages_to_the_next_engine_at_once(
    jetstream_url: str, prefix: str
) -> None:
    async with running_bus(jetstream_url, prefix, credit=0, ack_wait_s=3600.0) as other:
        async with running_bus(jetstream_url, prefix, hold=True, ack_wait_s=3600.0) as closing:
            await closing.publish(*[closing.signal(b"x") for _ in range(20)])
            await until(lambda: len(closing.messages) == 20, "all are delivered")
        other.bus.set_credit(100)
        await until(lambda: len(other.messages) >= 20, "the other engine has them all")
        assert {message.deliveries for message in other.messages} == {2}


async def test_close_in_the_middle_of_deliveries_loses_none_of_them(
    jetstream_url: str, prefix: str
) -> None:
    # The server may send one to an inbox that has just gone: that one comes after its ack_wait.
    async with running_bus(jetstream_url, prefix, credit=200, ack_wait_s=2.0) as other:
        for round_ in range(5):
            async with running_bus(
                jetstream_url, prefix, credit=200, hold=True, ack_wait_s=2.0
            ) as closing:
                messages = [other.signal(f"{round_}/{n}".encode()) for n in range(500)]
                other.bus.publish(messages)
                await until(lambda c=closing: len(c.messages) > 0, "some are delivered here")
            await until(
                lambda n=round_: len(other.bodies) == 500 * (n + 1), "all are delivered there"
            )
        await stream_is_empty(other, subjects.in_stream(prefix))


async def test_an_advisory_of_a_given_up_dispatch_is_delivered(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        await under_test.bus.ensure_queues(["mail"])
        dispatch = under_test.dispatch("mail")
        (stored,) = await under_test.publish(dispatch)
        stream = subjects.dispatch_stream(prefix)
        delivered = await outsider.pull(stream, "mail_p2")
        await outsider.publish(delivered.reply, b"+TERM no use")
        await until(lambda: bool(under_test.messages), "the advisory is delivered")
        (advisory,) = under_test.messages
        assert advisory.partition == -1
        assert advisory.subject == (f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{stream}.mail_p2")
        assert f'"stream_seq":{stored.seq}'.encode() in advisory.body
        found = await under_test.bus.find_message(stream, seq=stored.seq)
        assert found is None
