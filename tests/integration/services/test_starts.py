"""Starts: one transaction, one run per live key, repeats are no-ops."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.engines import running
from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient, connected, new_key
from tests.support.workflows import one_task
from towpath_engine.settings import Settings

Json = Any
STARTS = 1_000


async def test_a_thousand_starts_of_one_key_on_two_engines_make_one_run(
    settings: Settings,
) -> None:
    async with (
        running(settings),
        running(settings),
        connected(settings.nats_url, settings.prefix) as wire,
    ):
        await wire.deploy(one_task())
        key = new_key()
        gate = asyncio.Semaphore(200)  # below the engines' limit of concurrent requests

        async def start() -> Json:
            async with gate:
                return await wire.api("run.start", workflow="one", input=1, key=key)

        answers = await asyncio.gather(*(start() for _ in range(STARTS)))
        assert len({answer["run_id"] for answer in answers}) == 1
        assert sum(not answer["deduplicated"] for answer in answers) == 1
        listed = await wire.api("run.list", workflow="one", limit=100)
        assert len(listed["runs"]) == 1


async def test_a_key_is_free_again_once_its_run_has_settled(wire: WireClient) -> None:
    await wire.deploy(one_task())
    key = new_key()
    first = await wire.start("one", key=key)
    assert await wire.start("one", key=key) == first
    await wire.complete(await wire.take())
    await wire.result(first)
    assert await wire.start("one", key=key) != first


async def test_a_request_id_is_remembered_as_long_as_the_run_exists(wire: WireClient) -> None:
    await wire.deploy(one_task())
    first = await wire.start("one", request_id="r1")
    await wire.complete(await wire.take())
    await wire.result(first)
    again = await wire.api("run.start", workflow="one", input=2, request_id="r1")
    assert again == {"run_id": first, "deduplicated": True}


async def test_a_repeated_request_gets_its_run_whatever_was_deployed_since(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one", "text", request_id="r1")
    await wire.deploy({**one_task(), "input": {"type": "integer"}})
    again = await wire.api("run.start", workflow="one", input="text", request_id="r1")
    assert again == {"run_id": run_id, "deduplicated": True}
    with pytest.raises(RefusedError) as refused:
        await wire.start("one", "text", request_id="r2")
    assert refused.value.code == "schema_failed"


async def test_start_messages_share_the_namespace_of_request_ids(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one", 1, request_id="same")
    for _ in range(3):
        await wire.put("in.start.one.x.-", b"2", {"Towpath-Message-Id": "same"})
    await wire.put("in.start.one.x.-", b"3", {"Nats-Msg-Id": "other"})

    async def both() -> list[Json]:
        runs = (await wire.api("run.list", workflow="one", limit=10))["runs"]
        return runs if len(runs) == 2 else []

    runs = await eventually(both)
    assert run_id in {run["run_id"] for run in runs}


async def test_a_start_message_carries_everything_a_request_does(wire: WireClient) -> None:
    await wire.deploy(one_task())
    key = new_key()
    headers = {
        "Towpath-Key": key,
        "Towpath-Priority": "high",
        "Towpath-Tags": json.dumps(["shop", "fr"]),
        "Towpath-Context": json.dumps({"tenant": "é"}),
        "Towpath-Message-Id": "m1",
        "Towpath-Sent-By": "shop",
    }
    await wire.put("in.start.one.x.-", b'{"n":1}', headers)
    dispatch = await wire.take(level=1)
    assert dispatch["key"] == key
    assert dispatch["context"] == {"tenant": "é"}
    run = await wire.run(dispatch["run_id"])
    assert (run["priority"], run["tags"], run["triggered_by"]) == ("high", ["shop", "fr"], "shop")


async def test_an_input_that_does_not_fit_is_refused_and_nothing_is_stored(
    wire: WireClient,
) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    await wire.deploy({**one_task(), "input": schema})
    with pytest.raises(RefusedError) as refused:
        await wire.start("one", {"n": "x"}, key="k")
    assert (refused.value.status, refused.value.code) == (422, "schema_failed")
    assert (await wire.api("run.list", workflow="one", limit=10))["runs"] == []
    await wire.start("one", {"n": 1}, key="k")


async def test_start_many_answers_in_order_each_item_on_its_own(wire: WireClient) -> None:
    await wire.deploy(one_task())
    key = new_key()
    items = [
        {"workflow": "one", "input": 1, "key": key},
        {"workflow": "nowhere", "input": 1},
        {"workflow": "one", "input": 1, "key": key},
        {"workflow": "one", "priority": "sometimes"},
        {"workflow": "one", "input": 2},
    ]
    results = (await wire.api("run.start-many", items=items))["results"]
    assert [result.get("deduplicated") for result in results] == [False, None, True, None, False]
    assert results[0]["run_id"] == results[2]["run_id"]
    assert results[1]["error"]["code"] == "workflow_not_found"
    assert results[3]["error"]["code"] == "malformed"
    assert "items[3]" in results[3]["error"]["message"]


async def test_a_delayed_start_is_pending_until_its_time(wire: WireClient) -> None:
    await wire.deploy(one_task())
    far = await wire.start("one", delay_ms=3_600_000)
    near = await wire.start("one", delay_ms=50)
    assert (await wire.take())["run_id"] == near
    run = await wire.run(far)
    assert (run["status"], run["started_at"]) == ("pending", None)
    await wire.api("run.cancel", run_id=far)
    assert (await wire.run(far))["status"] == "cancelled"


async def test_a_pinned_version_is_the_one_that_runs(wire: WireClient) -> None:
    await wire.deploy(one_task(input={"v": 1}))
    answer = await wire.deploy(one_task(input={"v": 2}))
    assert answer["version"] == 2
    await wire.start("one")
    assert (await wire.take())["input"] == {"v": 2}
    await wire.start("one", version=1)
    assert (await wire.take())["input"] == {"v": 1}
    with pytest.raises(RefusedError) as refused:
        await wire.start("one", version=3)
    assert refused.value.code == "version_not_found"


async def test_reject_refuses_a_key_that_is_held(wire: WireClient) -> None:
    await wire.deploy(one_task())
    key = new_key()
    run_id = await wire.start("one", key=key)
    with pytest.raises(RefusedError) as refused:
        await wire.start("one", key=key, on_conflict="reject")
    assert (refused.value.status, refused.value.code) == (409, "key_conflict")
    assert refused.value.details["run_id"] == run_id
