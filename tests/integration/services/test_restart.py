"""run.restart: a new run with what the settled one was started with."""

import json
from typing import Any

import pytest

from tests.support.wire_client import RefusedError, WireClient, new_key
from tests.support.workflows import one_task

Json = Any
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def settled(wire: WireClient, **start: Json) -> str:
    """A run of the workflow `one` that has completed."""
    run_id = await wire.start("one", **start)
    await wire.complete(await wire.take(level=start.get("level", 2)), "done")
    await wire.result(run_id)
    return run_id


async def restart(wire: WireClient, run_id: str, **more: Json) -> Json:
    return await wire.api("run.restart", run_id=run_id, **more)


async def refusal(wire: WireClient, run_id: str, **more: Json) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        await restart(wire, run_id, **more)
    return refused.value


async def test_a_restart_is_a_new_run_with_what_the_old_one_was_started_with(
    wire: WireClient,
) -> None:
    await wire.deploy({**one_task(), "tags": ["all"]})
    start = {
        "workflow": "one",
        "input": {"n": 2**60},
        "key": new_key(),
        "priority": "high",
        "tags": ["shop"],
        "context": {"tenant": "é"},
        "triggered_by": "shop",
    }
    body = json.dumps(start).encode()
    first = (await wire.api_raw("run.start", body, {"traceparent": TRACE}))["run_id"]
    await wire.fail(await wire.take(level=1), retryable=False)
    assert (await wire.result(first))["status"] == "failed"
    answer = await restart(wire, first, by="ann", reason="the shop was closed")
    assert answer["deduplicated"] is False
    dispatch, message = await wire.pull(level=1)
    await message.ack()
    assert (message.headers or {})["traceparent"] == TRACE
    assert (dispatch["run_id"], dispatch["context"]) == (answer["run_id"], {"tenant": "é"})
    old, new = await wire.run(first), await wire.run(answer["run_id"])
    same = ("workflow", "version", "key", "input", "priority", "tags", "context")
    assert {name: new[name] for name in same} == {name: old[name] for name in same}
    assert (new["restarted_from"], new["triggered_by"]) == (first, "ann")
    assert (old["status"], old["restarted_from"]) == ("failed", None)
    cause = (await wire.history(answer["run_id"]))[0]["cause"]
    assert (cause["kind"], cause["by"], cause["reason"]) == (
        "restart", "ann", "the shop was closed",
    )  # fmt: skip


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "timed_out"])
async def test_a_run_that_settled_in_any_way_can_be_restarted(wire: WireClient, how: str) -> None:
    await wire.deploy({**one_task(), **({"timeout": "50ms"} if how == "timed_out" else {})})
    run_id = await wire.start("one")
    match how:
        case "completed":
            await wire.complete(await wire.take(), 1)
        case "failed":
            await wire.fail(await wire.take(), retryable=False)
        case "cancelled":
            await wire.api("run.cancel", run_id=run_id)
        case _:
            pass
    assert (await wire.result(run_id))["status"] == how
    answer = await restart(wire, run_id)
    assert (await wire.run(answer["run_id"]))["restarted_from"] == run_id


async def test_a_restart_keeps_the_version_unless_another_is_asked_for(wire: WireClient) -> None:
    await wire.deploy(one_task(input={"v": 1}))
    first = await settled(wire)
    await wire.deploy(one_task(input={"v": 2}))
    await restart(wire, first)
    assert (await wire.take())["input"] == {"v": 1}
    second = await restart(wire, first, version=2)
    assert (await wire.take())["input"] == {"v": 2}
    assert (await wire.run(second["run_id"]))["version"] == 2
    assert (await refusal(wire, first, version=3)).code == "version_not_found"


async def test_an_input_that_the_asked_for_version_refuses_is_not_restarted(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    first = await settled(wire, value="text")
    await wire.deploy({**one_task(), "input": {"type": "integer"}})
    assert (await refusal(wire, first, version=2)).code == "schema_failed"
    assert (await restart(wire, first))["deduplicated"] is False


async def test_a_live_run_and_an_unknown_one_are_not_restarted(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    refused = await refusal(wire, run_id)
    assert (refused.status, refused.code) == (409, "run_not_settled")
    assert refused.details["status"] == "running"
    unknown = await refusal(wire, "0190c0de-0000-7000-8000-000000000000")
    assert (unknown.status, unknown.code) == (404, "run_not_found")


async def test_a_restart_is_refused_while_another_run_holds_the_key(wire: WireClient) -> None:
    await wire.deploy(one_task())
    key = new_key()
    first = await settled(wire, key=key)
    second = await wire.start("one", key=key)
    refused = await refusal(wire, first, request_id="r")
    assert (refused.status, refused.code) == (409, "key_conflict")
    assert refused.details["run_id"] == second
    await wire.complete(await wire.take(), 1)
    await wire.result(second)
    assert (await restart(wire, first, request_id="r"))["deduplicated"] is False


async def test_a_repeated_restart_request_answers_with_the_run_it_started(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    first = await settled(wire, key=new_key())
    answer = await restart(wire, first, request_id="r")
    again = {"run_id": answer["run_id"], "deduplicated": True}
    assert await restart(wire, first, request_id="r") == again
    await wire.complete(await wire.take(), 1)
    await wire.result(answer["run_id"])
    assert await restart(wire, first, request_id="r") == again


async def test_a_repeated_restart_is_answered_even_if_the_run_has_gone_on_since(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    first = await wire.start("one")
    await wire.fail(await wire.take(), retryable=False)
    await wire.result(first)
    answer = await restart(wire, first, request_id="r")
    await wire.api("run.retry", run_id=first)
    assert (await restart(wire, first, request_id="r"))["run_id"] == answer["run_id"]
    assert (await refusal(wire, first, request_id="other")).code == "run_not_settled"


async def test_a_request_id_of_another_verb_or_run_is_a_conflict(wire: WireClient) -> None:
    await wire.deploy(one_task())
    first = await settled(wire, request_id="start")
    second = await settled(wire)
    refused = await refusal(wire, first, request_id="start")
    assert (refused.status, refused.code) == (409, "request_conflict")
    assert refused.details["run_id"] == first
    answer = await restart(wire, first, request_id="again")
    assert (await refusal(wire, second, request_id="again")).code == "request_conflict"
    with pytest.raises(RefusedError) as other_way:
        await wire.start("one", request_id="again")
    assert other_way.value.code == "request_conflict"
    assert other_way.value.details["run_id"] == answer["run_id"]


async def test_a_start_that_was_answered_with_a_restarted_run_may_be_repeated(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    key = new_key()
    answer = await restart(wire, await settled(wire, key=key), request_id="again")
    started = await wire.api("run.start", workflow="one", key=key, request_id="mine")
    assert started == {"run_id": answer["run_id"], "deduplicated": True}
    assert await wire.api("run.start", workflow="one", key=key, request_id="mine") == started


async def test_a_restart_of_a_restart_names_its_direct_predecessor(wire: WireClient) -> None:
    await wire.deploy(one_task())
    first = await settled(wire)
    second = (await restart(wire, first))["run_id"]
    await wire.complete(await wire.take(), 1)
    await wire.result(second)
    third = (await restart(wire, second))["run_id"]
    assert (await wire.run(third))["restarted_from"] == second
