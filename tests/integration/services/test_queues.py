"""Queues through a real engine: all that are allowed work, one too many harms nobody."""

import json

import pytest

from tests.support.engines import running
from tests.support.wire_client import RefusedError, connected
from towpath_engine.settings import Settings

QUEUES = 256
CONSUMERS = 4 * QUEUES


async def test_all_allowed_queues_have_their_consumers_and_outlive_a_restart(
    settings: Settings,
) -> None:
    names = [f"q{n}" for n in range(QUEUES)]
    steps = [{"name": f"s{n}", "task": "t", "queue": name} for n, name in enumerate(names)]
    stream = f"{settings.prefix.upper()}_DISPATCH"
    async with connected(settings.nats_url, settings.prefix) as wire:
        async with running(settings):
            await wire.deploy({"workflow": "wide", "steps": steps})
            info = await wire.client.jetstream().stream_info(stream)
            assert info.state.consumer_count == CONSUMERS
            more = [{"name": "more", "task": "t", "queue": "more"}]
            with pytest.raises(RefusedError) as refused:
                await wire.deploy({"workflow": "more", "steps": more})
            assert (refused.value.status, refused.value.code) == (409, "queues_full")
            beat = json.dumps({"worker_id": "w"}).encode()
            answer = await wire.client.request(f"{settings.prefix}.heartbeat.more", beat)
            assert json.loads(answer.data)["error"]["code"] == "queues_full"
        async with running(settings):
            await wire.start("wide")
            assert (await wire.take("q0"))["queue"] == "q0"


async def test_a_queue_that_the_server_refuses_is_not_kept(settings: Settings) -> None:
    stream = f"{settings.prefix.upper()}_DISPATCH"
    async with connected(settings.nats_url, settings.prefix) as wire:
        async with running(settings):
            js = wire.client.jetstream()
            config = (await js.stream_info(stream)).config
            config.max_consumers = 8
            await js.update_stream(config)
            await wire.deploy({"workflow": "one", "steps": [{"name": "a", "task": "t"}]})
            steps = [{"name": f"s{n}", "task": "t", "queue": f"q{n}"} for n in range(3)]
            with pytest.raises(RefusedError) as refused:
                await wire.deploy({"workflow": "three", "steps": steps})
            assert (refused.value.status, refused.value.code) == (409, "queues_full")
            assert "maximum consumers" in str(refused.value)
        async with running(settings):
            await wire.start("one")
            assert (await wire.take())["step"] == "a"
