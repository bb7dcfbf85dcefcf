"""Every message handed over is confirmed exactly once, with what became of it."""

from collections import Counter

from tests.support.bus import BusUnderTest, bus_settings, running_bus
from tests.support.eventually import until
from tests.support.jetstream import JetStreamServer, unique_prefix
from tests.support.outsider import Outsider
from towpath_engine.bus.interface import OutboundMessage
from towpath_engine.bus.settings import MIB
from towpath_protocol import subjects


async def test_a_stored_message_is_confirmed_with_stream_and_sequence(
    jetstream_url: str, prefix: str
) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        first, second = await under_test.publish(
            under_test.dispatch("mail"), under_test.dispatch("mail")
        )
        stream = subjects.dispatch_stream(prefix)
        assert (first.ok, first.stream, first.seq, first.error) == (True, stream, 1, "")
        assert (second.ok, second.seq, second.duplicate) == (True, 2, False)


async def test_the_same_message_id_again_is_a_duplicate(jetstream_url: str, prefix: str) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        one = under_test.dispatch("mail", Nats_Msg_Id="t.1")
        two = under_test.dispatch("mail", Nats_Msg_Id="t.1")
        first, second = await under_test.publish(one, two)
        assert (first.ok, first.duplicate) == (True, False)
        assert (second.ok, second.duplicate, second.seq) == (True, True, first.seq)


async def test_a_full_stream_says_full_and_takes_more_after_a_purge(
    jetstream_url: str, prefix: str
) -> None:
    async with running_bus(jetstream_url, prefix, dispatch_bytes_max=MIB) as under_test:
        big = b"x" * (200 * 1024)
        messages = [under_test.dispatch("mail", big) for _ in range(8)]
        confirmations = await under_test.publish(*messages)
        refused = [c for c in confirmations if not c.ok]
        assert refused
        assert {c.error for c in refused} == {"full"}
        assert len(refused) < 8
        stream = subjects.dispatch_stream(prefix)
        assert await under_test.bus.purge_subject(stream, messages[0].subject) == 1
        (again,) = await under_test.publish(under_test.dispatch("mail", big))
        assert again.ok


async def test_what_overflows_the_queue_is_confirmed_as_full(
    jetstream_url: str, prefix: str
) -> None:
    async with running_bus(jetstream_url, prefix, publish_queue_max=10) as under_test:
        messages = [under_test.dispatch("mail") for _ in range(15)]
        confirmations = await under_test.publish(*messages)
        assert Counter(c.error for c in confirmations) == {"": 10, "full": 5}
        assert len(under_test.confirmations) == 15


async def test_a_subject_of_no_stream_says_no_stream(jetstream_url: str, prefix: str) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        stray = OutboundMessage(id="1", subject=f"{prefix}.nowhere", headers={}, body=b"")
        (confirmation,) = await under_test.publish(stray)
        assert (confirmation.ok, confirmation.error) == (False, "no_stream")


async def test_a_message_that_cannot_be_sent_fails_alone(jetstream_url: str, prefix: str) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        resets = under_test.resets
        subject = under_test.dispatch("mail").subject
        # The body alone would fit into max_payload; with its headers the server would close us.
        headers = {"Big": "h" * 1_000}
        large = OutboundMessage(id="a", subject=subject, headers=headers, body=b"x" * MIB)
        spaced = OutboundMessage(id="b", subject="not a subject", headers={}, body=b"")
        header = OutboundMessage(id="c", subject=subject, headers={"a b": "c"}, body=b"")
        fine = under_test.dispatch("mail")
        *bad, good = await under_test.publish(large, spaced, header, fine)
        assert [c.ok for c in bad] == [False, False, False]
        assert all(c.error not in {"down", "timeout", ""} for c in bad)
        assert good.ok
        assert under_test.resets == resets


async def test_line_breaks_in_headers_add_no_header(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with running_bus(jetstream_url, prefix) as under_test:
        sneaky = under_test.dispatch("mail", X_Note="one\r\nNats-TTL: 1s")
        (confirmation,) = await under_test.publish(sneaky)
        stream = subjects.dispatch_stream(prefix)
        found = await under_test.bus.find_message(stream, seq=confirmation.seq)
        assert found is not None
        assert set(found.headers) == {"X-Note"}


async def test_a_silent_server_ends_in_timeouts_not_in_hanging(
    own_jetstream: JetStreamServer,
) -> None:
    async with running_bus(
        own_jetstream.url, unique_prefix(), publish_timeout_s=0.5, publish_window=10
    ) as under_test:
        own_jetstream.pause()
        messages = [under_test.dispatch("mail") for _ in range(50)]
        confirmations = await under_test.publish(*messages)
        own_jetstream.resume()
        assert {(c.ok, c.error) for c in confirmations} == {(False, "timeout")}
        await until(lambda: under_test.bus.connected, "connected")
        # The late answers of the first ones change nothing: one outcome each.
        (late,) = await under_test.publish(under_test.dispatch("mail"))
        assert late.ok
        assert len(under_test.confirmations) == 51


async def test_before_start_and_after_close_messages_are_confirmed_as_down(
    jetstream_url: str, prefix: str
) -> None:
    under_test = BusUnderTest(bus_settings(jetstream_url, prefix))
    (before,) = await under_test.publish(under_test.dispatch("mail"))
    await under_test.bus.start()
    (between,) = await under_test.publish(under_test.dispatch("mail"))
    await under_test.bus.close()
    (after,) = await under_test.publish(under_test.dispatch("mail"))
    assert [(c.ok, c.error) for c in (before, between, after)] == [
        (False, "down"),
        (True, ""),
        (False, "down"),
    ]


async def test_close_waits_for_the_confirmations(jetstream_url: str, prefix: str) -> None:
    under_test = BusUnderTest(bus_settings(jetstream_url, prefix, drain_timeout_s=60.0))
    await under_test.bus.start()
    under_test.bus.publish([under_test.dispatch("mail") for _ in range(1_000)])
    await under_test.bus.close()
    assert [c.ok for c in under_test.confirmations] == [True] * 1_000
