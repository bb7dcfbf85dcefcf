"""An engine that is stopped in the middle finishes what it has begun; another one goes on."""

import asyncio
from typing import Any

from nats.errors import Error as NatsError

from tests.support.engines import running
from tests.support.eventually import until
from tests.support.wire_client import WireClient, connected
from tests.support.workflows import chain
from towpath_engine.settings import Settings

Json = Any
STARTS = 200


async def _start(wire: WireClient, number: int) -> str | None:
    """The run, or None when nobody answered."""
    try:
        return await wire.start("chain", number, request_id=f"start-{number}")
    except NatsError:
        return None


async def test_what_a_stopping_engine_has_answered_is_kept_and_goes_on_elsewhere(
    settings: Settings,
) -> None:
    async with connected(settings.nats_url, settings.prefix) as wire:
        async with running(settings):
            await wire.deploy(chain(length=2))
            wire.work("default", lambda dispatch: dispatch["input"])
            starts = [asyncio.create_task(_start(wire, number)) for number in range(STARTS)]
            await until(lambda: any(start.done() for start in starts), "one start is answered")
        answered = await asyncio.gather(*starts)
        assert any(answered)

        async with running(settings):
            for number, run_id in enumerate(answered):
                # A start without an answer is repeated under its id: it makes no second run.
                again = await wire.start("chain", number, request_id=f"start-{number}")
                assert run_id in {None, again}
                result = await wire.result(again)
                assert (result["status"], result["output"]) == ("completed", number)
            listed = await wire.api("run.list", workflow="chain", limit=1_000)
            assert len(listed["runs"]) == STARTS
