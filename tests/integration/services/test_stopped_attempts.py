"""Cancelling attempts whose effect would be undone: whether anybody has one decides how it ends."""

from typing import Any

from tests.support.engines import running
from tests.support.eventually import eventually
from tests.support.wire_client import WireClient, connected
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings

Json = Any


def undoable(name: str = "paid") -> Json:
    return {
        "workflow": name,
        "steps": [
            {
                "name": "charge",
                "task": "card.charge",
                "compensate": {"task": "card.refund"},
            }
        ],
    }


async def test_an_attempt_that_nobody_has_is_taken_back_and_over(wire: WireClient) -> None:
    await wire.deploy(undoable())
    run_id = await wire.start("paid")
    await wire.step_in(run_id, "charge", "dispatched")
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    run = await wire.result(run_id)
    assert run["status"] == "cancelled"
    assert (await wire.step(run_id, "charge"))["status"] == "cancelled"

    async def gone() -> bool:
        info = await wire.client.jetstream().stream_info(f"{wire.prefix.upper()}_DISPATCH")
        return info.state.messages == 0

    await eventually(gone)


async def test_what_a_worker_that_has_it_still_completes_is_undone(wire: WireClient) -> None:
    await wire.deploy(undoable())
    run_id = await wire.start("paid")
    dispatch = await wire.take()
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    assert (await wire.step_in(run_id, "charge", "cancelling"))["status"] == "cancelling"
    await wire.complete(dispatch, {"receipt": 7})
    undo = await wire.take()
    assert (undo["task"], undo["input"]) == ("card.refund", {"receipt": 7})
    await wire.complete(undo)
    run = await wire.result(run_id)
    assert (run["status"], run["compensation"]) == ("cancelled", "compensated")


async def test_an_attempt_that_a_stopped_engine_left_is_taken_back_by_the_next_one(
    settings: Settings,
) -> None:
    async with running(settings), connected(settings.nats_url, settings.prefix) as wire:
        await wire.deploy(undoable())
        run_id = await wire.start("paid")
        await wire.step_in(run_id, "charge", "dispatched")
    async with running(settings), connected(settings.nats_url, settings.prefix) as wire:
        # It does not know where the stream has the dispatch: it looks for it.
        await wire.api("run.cancel", run_id=run_id, compensate=True)
        assert (await wire.result(run_id))["status"] == "cancelled"


async def test_a_purged_dispatch_of_a_cancelling_attempt_is_not_sent_again(
    engine: Engine, wire: WireClient
) -> None:
    del engine
    await wire.deploy(undoable())
    run_id = await wire.start("paid")
    await wire.step_in(run_id, "charge", "dispatched")
    stream = f"{wire.prefix.upper()}_DISPATCH"

    async def stored() -> bool:
        return (await wire.client.jetstream().stream_info(stream)).state.messages == 1

    await eventually(stored)
    await wire.client.jetstream().purge_stream(stream)
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    assert (await wire.result(run_id))["status"] == "cancelled"
    rows = await wire.history(run_id)
    assert "step-redispatched" not in [row["what"] for row in rows]
