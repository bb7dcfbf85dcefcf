"""What a start may say besides its input, by request and by message."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient, new_key
from tests.support.workflows import one_task, one_wait
from towpath_protocol.subjects import in_stream

Json = Any
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def instant(**ahead: float) -> str:
    at = datetime.now(UTC) + timedelta(**ahead)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


async def refusal(wire: WireClient, **start: Json) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        await wire.start("one", **start)
    return refused.value


async def listed(wire: WireClient, **where: Json) -> list[Json]:
    return (await wire.api("run.list", **where, limit=100))["runs"]


async def test_a_start_at_an_instant_waits_for_it(wire: WireClient) -> None:
    await wire.deploy(one_task())
    await wire.start("one", "far", at=instant(days=36_500))
    near = await wire.start("one", "near", at=instant(seconds=0.05))
    assert (await wire.take())["run_id"] == near


async def test_a_start_at_an_instant_in_the_past_begins_at_once(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one", at="2001-01-01T00:00:00Z")
    run = await wire.run(run_id)
    assert run["status"] == "running"
    assert run["started_at"] == run["created_at"]


async def test_the_longest_delay_and_the_last_instant_are_kept_as_they_are(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    for more in ({"delay_ms": 100 * 366 * 86_400_000}, {"at": "9999-12-31T23:59:59Z"}):
        run_id = await wire.start("one", **more)
        assert (await wire.run(run_id))["status"] == "pending"
        await wire.api("run.cancel", run_id=run_id)


@pytest.mark.parametrize(
    ("start", "field"),
    [
        ({"delay_ms": 5, "at": "2001-01-01T00:00:00Z"}, "at"),
        ({"at": "tomorrow"}, "at"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"priority": "sometimes"}, "priority"),
        ({"tags": [""]}, "tags"),
        ({"tags": ["t"] * 33}, "tags"),
        ({"context": []}, "context"),
        ({"on_conflict": "ignore"}, "on_conflict"),
        ({"request_id": ""}, "request_id"),
        ({"key": " k"}, "key"),
        ({"version": 0}, "version"),
    ],
)
async def test_a_start_that_makes_no_sense_is_refused_with_the_name_of_the_field(
    wire: WireClient, start: Json, field: str
) -> None:
    await wire.deploy(one_task())
    refused = await refusal(wire, **start)
    assert refused.status == 400
    assert refused.details["field"].startswith(field), refused.details
    assert await listed(wire, workflow="one") == []


async def test_an_unknown_version_is_not_found_and_nothing_is_stored(wire: WireClient) -> None:
    await wire.deploy(one_task())
    refused = await refusal(wire, version=2, key="k", request_id="r")
    assert (refused.status, refused.code) == (404, "version_not_found")
    started = await wire.api("run.start", workflow="one", key="k", request_id="r")
    assert started["deduplicated"] is False


async def test_priority_tags_and_context_of_a_start_are_in_the_run_and_every_dispatch(
    wire: WireClient,
) -> None:
    definition: Json = {**one_task(), "tags": ["shop"], "priority": "low"}
    definition["steps"].append({"name": "then", "task": "do.it"})
    await wire.deploy(definition)
    context = {"tenant": "é", "big": 2**60}
    run_id = await wire.start(
        "one", priority="critical", tags=["fr", "shop"], context=context, triggered_by="cron"
    )
    for _ in range(2):
        dispatch = await wire.take(level=0)
        assert (dispatch["priority"], dispatch["context"]) == ("critical", context)
        await wire.complete(dispatch, 1)
    run = await wire.run(run_id)
    assert (run["priority"], run["tags"]) == ("critical", ["shop", "fr"])
    assert (run["context"], run["triggered_by"]) == (context, "cron")


async def test_without_a_priority_a_run_has_that_of_its_workflow(wire: WireClient) -> None:
    await wire.deploy({**one_task(), "priority": "low"})
    run_id = await wire.start("one")
    assert (await wire.take(level=3))["run_id"] == run_id
    assert (await wire.run(run_id))["priority"] == "low"


async def test_the_trace_of_a_start_is_in_every_dispatch_and_event(wire: WireClient) -> None:
    definition = one_task()
    definition["steps"].append({"name": "then", "task": "do.it"})
    await wire.deploy(definition)
    events: list[Any] = []

    async def note(message: Any) -> None:
        events.append(message)

    await wire.client.subscribe(f"{wire.prefix}.events.>", cb=note)
    body = json.dumps({"workflow": "one"}).encode()
    await wire.api_raw("run.start", body, {"traceparent": TRACE})
    for _ in range(2):
        dispatch, message = await wire.pull()
        await message.ack()
        assert (message.headers or {})["traceparent"] == TRACE
        await wire.complete(dispatch, 1)

    async def ended() -> bool:
        return any(message.subject.endswith(".run-completed") for message in events)

    await eventually(ended)
    assert {(message.headers or {})["traceparent"] for message in events} == {TRACE}


async def test_a_start_message_for_a_key_that_is_held_is_answered_by_its_run(
    wire: WireClient,
) -> None:
    await wire.deploy(one_wait())
    key = new_key()
    held = await wire.start("waiting", key=key)
    headers = {"Towpath-Key": key, "Towpath-Message-Id": "m", "traceparent": TRACE}
    await wire.put("in.start.waiting.x.-", b"1", headers)

    async def handled() -> bool:
        info = await wire.client.jetstream().stream_info(in_stream(wire.prefix))
        return info.state.messages == 0

    # A request that came before the message would have its id.
    await eventually(handled)
    other = {"workflow": "waiting", "key": new_key(), "request_id": "m"}
    assert await wire.api("run.start", **other) == {"run_id": held, "deduplicated": True}
    assert [run["run_id"] for run in await listed(wire, key=key)] == [held]
    assert await wire.dead_letters() == []


async def test_a_start_message_that_is_refused_is_a_dead_letter(wire: WireClient) -> None:
    await wire.deploy({**one_task(), "input": {"type": "integer"}})
    await wire.put("in.start.one.x.-", b'"text"', {"Towpath-Message-Id": "m1"})
    await wire.put("in.start.nowhere.x.-", b"1", {"Towpath-Message-Id": "m2"})
    await wire.put("in.start.one.x.-", b"1", {"Towpath-Priority": "sometimes"})

    async def buried() -> set[str] | None:
        reasons = {letter["reason"] for letter in await wire.dead_letters()}
        return reasons if len(reasons) == 3 else None

    assert await eventually(buried) == {"schema_failed", "workflow_not_found", "bad_header"}
    assert await listed(wire, workflow="one") == []


async def test_the_trace_of_a_start_message_is_in_its_dispatch(wire: WireClient) -> None:
    await wire.deploy(one_task())
    await wire.put("in.start.one.x.-", b"1", {"traceparent": TRACE})
    _, message = await wire.pull()
    await message.ack()
    assert (message.headers or {})["traceparent"] == TRACE
