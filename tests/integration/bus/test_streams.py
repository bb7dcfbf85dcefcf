"""Streams and consumers are what the wire says, whoever starts first and whatever was there."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.bus import BusUnderTest, bus_settings, running_bus
from tests.support.jetstream import JetStreamServer, unique_prefix
from tests.support.outsider import Outsider
from towpath_engine.bus.errors import BusRefused
from towpath_engine.bus.settings import MIB
from towpath_protocol import subjects

SECOND = 1_000_000_000


async def api(client: Outsider, call: str, request: Any = None) -> dict[str, Any]:
    body = b"" if request is None else json.dumps(request).encode()
    return json.loads((await client.request(f"$JS.API.{call}", body)).data)


async def stream_config(client: Outsider, name: str) -> dict[str, Any]:
    return (await api(client, f"STREAM.INFO.{name}"))["config"]


def holds(config: dict[str, Any], **wanted: Any) -> None:
    assert {name: config.get(name) for name in wanted} == wanted


async def test_the_four_streams_are_as_the_wire_says(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    upper = prefix.upper()
    async with running_bus(jetstream_url, prefix):
        common = {"storage": "file", "discard": "new", "max_msg_size": MIB}
        holds(
            await stream_config(outsider, f"{upper}_DISPATCH"),
            **common,
            subjects=[f"{prefix}.dispatch.*.*.*.*"],
            retention="workqueue",
            max_bytes=64 * MIB,
            duplicate_window=60 * SECOND,
            allow_msg_ttl=True,
        )
        holds(
            await stream_config(outsider, f"{upper}_IN"),
            **common,
            subjects=[f"{prefix}.in.*.*.*.*"],
            retention="workqueue",
            max_bytes=64 * MIB,
            duplicate_window=SECOND // 10,
            subject_transform={
                "src": f"{prefix}.in.*.*.*.*",
                "dest": f"{prefix}.inp.{{{{partition(16,3)}}}}.{{{{wildcard(1)}}}}"
                ".{{wildcard(2)}}.{{wildcard(3)}}.{{wildcard(4)}}",
            },
        )
        holds(
            await stream_config(outsider, f"{upper}_ADV"),
            **common,
            subjects=[
                f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{upper}_DISPATCH.*",
                f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{upper}_DISPATCH.*",
            ],
            retention="limits",
            max_age=86_400 * SECOND,
        )
        holds(
            await stream_config(outsider, f"{upper}_EVENTS"),
            **common,
            subjects=[f"{prefix}.events.*.*.*"],
            retention="limits",
            max_age=7 * 86_400 * SECOND,
        )


async def test_the_consumers_are_as_the_wire_says(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    common = {
        "ack_policy": "explicit",
        "ack_wait": 30 * SECOND,
        "max_ack_pending": 10_000,
        "max_waiting": 4096,
        "max_batch": 256,
        "max_expires": 60 * SECOND,
    }
    async with running_bus(jetstream_url, prefix) as under_test:
        await under_test.bus.ensure_queues(["mail"])
        for level in range(4):
            name = f"{prefix.upper()}_DISPATCH.mail_p{level}"
            info = await api(outsider, f"CONSUMER.INFO.{name}")
            wanted = f"{prefix}.dispatch.mail.{level}.*.*"
            holds(info["config"], **common, max_deliver=5, filter_subject=wanted)
        for number in range(16):
            name = subjects.partition_consumer(number)
            info = await api(outsider, f"CONSUMER.INFO.{prefix.upper()}_IN.{name}")
            wanted = f"{prefix}.inp.{number}.>"
            holds(info["config"], **common, max_deliver=-1, filter_subject=wanted)


async def test_a_second_start_changes_nothing(jetstream_url: str, prefix: str) -> None:
    stream = subjects.in_stream(prefix)
    consumer = subjects.partition_consumer(3)
    async with running_bus(jetstream_url, prefix) as first:
        await first.bus.ensure_queues(["mail"])
        await first.publish(first.dispatch("mail"))
        before = await first.bus.stream_state(stream)
        consumer_before = await first.bus.consumer_state(stream, consumer)
    async with running_bus(jetstream_url, prefix) as second:
        await second.bus.ensure_queues(["mail"])
        assert await second.bus.stream_state(stream) == before
        after = await second.bus.consumer_state(stream, consumer)
        assert after is not None
        assert consumer_before is not None
        assert after.created == consumer_before.created
        kept = await second.bus.stream_state(subjects.dispatch_stream(prefix))
        assert kept is not None
        assert kept.messages == 1


async def test_a_changed_setting_is_migrated_and_keeps_the_messages(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    async with running_bus(jetstream_url, prefix) as first:
        await first.publish(first.dispatch("mail"))
    async with running_bus(jetstream_url, prefix, dispatch_bytes_max=32 * MIB, ack_wait_s=7.0):
        info = await api(outsider, f"STREAM.INFO.{subjects.dispatch_stream(prefix)}")
        assert info["config"]["max_bytes"] == 32 * MIB
        assert info["state"]["messages"] == 1
        name = f"{subjects.in_stream(prefix)}.{subjects.partition_consumer(0)}"
        consumer = await api(outsider, f"CONSUMER.INFO.{name}")
        assert consumer["config"]["ack_wait"] == 7 * SECOND


async def test_a_stream_of_a_newer_layout_is_left_as_it_is(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    stream = subjects.event_stream(prefix)
    async with running_bus(jetstream_url, prefix):
        config = await stream_config(outsider, stream)
    config["metadata"]["towpath-layout"] = "2"
    config["max_bytes"] = 8 * MIB
    assert "error" not in await api(outsider, f"STREAM.UPDATE.{stream}", config)
    async with running_bus(jetstream_url, prefix):
        assert (await stream_config(outsider, stream))["max_bytes"] == 8 * MIB


async def test_a_stream_that_cannot_be_migrated_is_refused_in_one_sentence(
    jetstream_url: str, prefix: str, outsider: Outsider
) -> None:
    stream = subjects.in_stream(prefix)
    taken = {"name": stream, "subjects": [f"{prefix}.in.>"], "storage": "memory"}
    assert "error" not in await api(outsider, f"STREAM.CREATE.{stream}", taken)
    under_test = BusUnderTest(bus_settings(jetstream_url, prefix))
    with pytest.raises(BusRefused, match=f"refuses the stream {stream}"):
        await under_test.bus.start()


async def test_a_server_without_room_for_the_streams_is_refused_with_their_size(
    tmp_path: Path,
) -> None:
    small = "jetstream { max_file_store: 32MB, store_dir: "
    config = f'{small}"{tmp_path / "small"}" }}'
    server = JetStreamServer(tmp_path / "nats", jetstream=False, config=config).start()
    try:
        under_test = BusUnderTest(bus_settings(server.url, unique_prefix()))
        with pytest.raises(BusRefused, match=r"no room for the stream \w+ of 67108864 bytes"):
            await under_test.bus.start()
    finally:
        server.kill()


async def test_there_are_no_more_queues_than_the_limit(jetstream_url: str, prefix: str) -> None:
    async with running_bus(jetstream_url, prefix, queues_max=2) as under_test:
        await under_test.bus.ensure_queues(["a", "b"])
        with pytest.raises(BusRefused, match="at most 2 queues"):
            await under_test.bus.ensure_queues(["b", "c"])
        stream = subjects.dispatch_stream(prefix)
        assert await under_test.bus.consumer_state(stream, "c_p0") is None


async def test_messages_are_found_and_purged_by_their_exact_subject(
    jetstream_url: str, prefix: str
) -> None:
    stream = subjects.dispatch_stream(prefix)
    async with running_bus(jetstream_url, prefix) as under_test:
        bus = under_test.bus
        kept = under_test.dispatch("mail", b'{"n":1}', Nats_Msg_Id="m1", X_Note="caf\u00e9")
        gone = under_test.dispatch("mail", b'{"n":2}')
        first, _ = await under_test.publish(kept, gone)

        found = await bus.find_message(stream, subject=kept.subject)
        assert found is not None
        assert found == await bus.find_message(stream, seq=first.seq)
        assert (found.subject, found.body, found.seq) == (kept.subject, kept.body, first.seq)
        assert found.headers == {"Nats-Msg-Id": "m1", "X-Note": "caf\u00e9"}
        assert found.stored_at.tzinfo is not None

        assert await bus.purge_subject(stream, gone.subject) == 1
        assert await bus.purge_subject(stream, gone.subject) == 0
        assert await bus.find_message(stream, subject=gone.subject) is None
        assert await bus.find_message(stream, seq=4_711) is None
        state = await bus.stream_state(stream)
        assert state is not None
        assert (state.messages, state.last_seq) == (1, 2)
        assert await bus.stream_state("NO_SUCH_STREAM") is None
        assert await bus.consumer_state(stream, "nobody") is None
