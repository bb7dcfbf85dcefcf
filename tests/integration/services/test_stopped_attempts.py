"""Cancelling attempts whose effect would be undone: whether anybody has one decides how it ends."""

import json
from typing import Any

import asyncpg
import pytest

from tests.support.engines import running
from tests.support.eventually import eventually
from tests.support.wire_client import WireClient, connected
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings

Json = Any


def undoable(**more: Json) -> Json:
    charge = {
        "name": "charge",
        "task": "card.charge",
        "compensate": {"task": "card.refund"},
        **more,
    }
    return {"workflow": "paid", "steps": [charge]}


async def stored(wire: WireClient) -> int:
    """How many dispatches the stream has."""
    stream = f"{wire.prefix.upper()}_DISPATCH"
    return (await wire.client.jetstream().stream_info(stream)).state.messages


async def test_an_attempt_that_nobody_has_is_taken_back_and_over(wire: WireClient) -> None:
    await wire.deploy(undoable())
    run_id = await wire.start("paid")
    await wire.step_in(run_id, "charge", "dispatched")
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    run = await wire.result(run_id)
    assert run["status"] == "cancelled"
    assert (await wire.step(run_id, "charge"))["status"] == "cancelled"

    assert await stored(wire) == 0


async def test_one_in_a_queue_that_workers_are_busy_with_is_taken_back_alone(
    wire: WireClient,
) -> None:
    await wire.deploy(undoable())
    others = [await wire.start("paid") for _ in range(3)]
    for run_id in others:
        await wire.step_in(run_id, "charge", "dispatched")
    first = await wire.take()
    run_id = await wire.start("paid")
    await wire.step_in(run_id, "charge", "dispatched")
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    assert (await wire.result(run_id))["status"] == "cancelled"
    rest = [await wire.take() for _ in others[1:]]
    assert {one["run_id"] for one in (first, *rest)} == set(others)


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
    # Whether somebody had it when it was purged may be unknown: then it ends by its timeout.
    await wire.deploy(undoable(timeouts={"attempt": "3s"}))
    run_id = await wire.start("paid")
    await wire.step_in(run_id, "charge", "dispatched")

    async def is_stored() -> bool:
        return await stored(wire) == 1

    await eventually(is_stored)
    await wire.client.jetstream().purge_stream(f"{wire.prefix.upper()}_DISPATCH")
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    assert (await wire.result(run_id))["status"] == "cancelled"
    rows = await wire.history(run_id)
    assert "step-redispatched" not in [row["what"] for row in rows]


async def test_a_worker_that_missed_the_push_hears_of_it_by_its_heartbeat(wire: WireClient) -> None:
    await wire.deploy(undoable())
    run_id = await wire.start("paid")
    dispatch = await wire.take()
    beat = {"worker_id": "w1", "tasks": ["card.charge"], "tokens": [dispatch["token"]]}

    async def told() -> Json:
        answer = await wire.client.request(
            f"{wire.prefix}.heartbeat.default", json.dumps(beat).encode(), timeout=5
        )
        return json.loads(answer.data)

    assert await told() == {"cancel": [], "stale": []}
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    assert await told() == {"cancel": [dispatch["token"]], "stale": []}
    await wire.fail(dispatch, type="Cancelled", retryable=False)
    assert (await wire.result(run_id))["status"] == "cancelled"


async def test_a_lost_worker_leaves_it_to_another_one_and_its_success_is_undone(
    wire: WireClient,
) -> None:
    await wire.deploy(undoable())
    run_id = await wire.start("paid")
    dispatch, message = await wire.pull()
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    await wire.step_in(run_id, "charge", "cancelling")

    async def seen() -> bool:
        rows = await wire.history(run_id)
        return [row["to"] for row in rows if row["what"] == "step-started"] == ["cancelling"]

    await eventually(seen)
    await message.nak()
    again = await wire.take()
    assert again["token"] == dispatch["token"]
    await wire.complete(again, "paid")
    undo = await wire.take()
    assert undo["compensation"]["output"] == "paid"
    await wire.complete(undo)
    assert (await wire.result(run_id))["compensation"] == "compensated"


async def has_written(wire: WireClient, run_id: str, what: str) -> None:
    """Wait until this is in the history of the run."""

    async def there() -> bool:
        return what in [row["what"] for row in await wire.history(run_id)]

    await eventually(there)


async def has_left_the_outbox(settings: Settings, token: str) -> None:
    """Wait until the engine knows that the stream has the dispatch."""
    connection: Any = await asyncpg.connect(
        settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
    )

    async def gone() -> bool:
        rows = "SELECT count(*) FROM outbox WHERE token = $1"
        return await connection.fetchval(rows, token) == 0

    await eventually(gone)
    await connection.close()


@pytest.mark.parametrize("is_sent_again", [False, True])
async def test_one_that_was_in_the_stream_when_it_lost_its_data_is_heard_to_its_end(
    wire: WireClient, settings: Settings, is_sent_again: bool
) -> None:
    await wire.deploy(undoable())
    run_id = await wire.start("paid")
    dispatch, _ = await wire.pull()
    # Until then its message is sent again without a word.
    await has_left_the_outbox(settings, dispatch["token"])
    stream = f"{wire.prefix.upper()}_DISPATCH"
    await wire.client.jetstream().delete_stream(stream)
    if is_sent_again:
        await has_written(wire, run_id, "step-redispatched")
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    await has_written(wire, run_id, "step-started")
    await wire.complete(dispatch, 7)
    undo = await wire.take()
    assert (undo["task"], undo["input"]) == ("card.refund", 7)
    await wire.complete(undo)
    run = await wire.result(run_id)
    assert (run["status"], run["compensation"]) == ("cancelled", "compensated")


async def test_a_copy_that_may_not_be_the_first_is_not_taken_for_one_that_nobody_has(
    wire: WireClient, settings: Settings
) -> None:
    await wire.deploy(undoable())
    run_id = await wire.start("paid")
    dispatch, message = await wire.pull()
    await has_left_the_outbox(settings, dispatch["token"])
    # As an engine does that finds the row again before it knows that the stream has it.
    copy = {**dict(message.headers or {}), "Nats-Msg-Id": "another", "Towpath-Resent": "1"}
    stream = wire.client.jetstream()
    await stream.purge_stream(f"{wire.prefix.upper()}_DISPATCH")
    await stream.publish(message.subject, message.data, headers=copy)
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    await has_written(wire, run_id, "step-started")
    await wire.complete(dispatch, 7)
    again = await wire.take()
    assert (again["task"], again["token"]) == ("card.charge", dispatch["token"])
    undo = await wire.take()
    assert (undo["task"], undo["input"]) == ("card.refund", 7)


async def test_one_whose_workers_were_all_lost_holds_the_undoing_no_longer(
    wire: WireClient,
) -> None:
    await wire.deploy(undoable())
    run_id = await wire.start("paid")
    _, message = await wire.pull()
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    for _ in range(4):
        await message.nak()
        _, message = await wire.pull()
    await message.nak()
    wire.work("default", lambda dispatch: dispatch["input"], slots=1)
    run = await wire.result(run_id)
    assert (run["status"], run.get("compensation")) == ("cancelled", None)
    rows = await wire.history(run_id)
    (ended,) = [row for row in rows if row["what"] == "step-cancelled"]
    assert ended["data"]["error"]["type"] == "WorkerLost"
