"""Waits for several signals, and for payloads of a kind, through a real engine."""

import base64
from typing import Any

import pytest

from tests.support.counted import counted
from tests.support.engines import engine_settings, running
from tests.support.eventually import eventually, until
from tests.support.wire_client import RefusedError, WireClient, connected, new_key
from tests.support.workflows import one_wait
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings

Json = Any
BY: Json = {"type": "object", "required": ["by"]}


def after_work(**wait: Json) -> Json:
    """A workflow that waits once a worker has done its part."""
    return {
        "workflow": "voting",
        "steps": [{"name": "work", "task": "do.it"}, {"name": "votes", "wait": wait}],
    }


async def letters(wire: WireClient, count: int) -> list[Json]:
    """The dead letters, the oldest first, once there are so many."""

    async def there() -> list[Json]:
        found = await wire.dead_letters()
        return found if len(found) == count else []

    return (await eventually(there))[::-1]


async def sentences(wire: WireClient, run_id: str) -> list[str]:
    """What the run says of itself."""
    answer = await wire.api("run.explain", run_id=run_id)
    return [reason["text"] for reason in answer["reasons"]]


async def test_all_takes_one_of_each_in_order_of_arrival_across_a_restart_of_the_engine(
    settings: Settings,
) -> None:
    wait = {"workflow": "both", "steps": [{"name": "wait", "wait": {"all": ["a", "b"]}}]}
    async with running(settings), connected(settings.nats_url, settings.prefix) as wire:
        await wire.deploy(wait)
        run_id = await wire.start("both")
        kept = await wire.api("run.signal", run_id=run_id, signal="b", payload=1)
        assert (kept["taken_by"], kept["awaited_by"]) == (None, ["wait"])
        assert await sentences(wire, run_id) == [
            "wait waits for all of signals 'a', 'b', lacks 'a', without a limit"
        ]
    async with running(settings), connected(settings.nats_url, settings.prefix) as wire:
        taken = await wire.api("run.signal", run_id=run_id, signal="a", payload=2)
        assert taken["taken_by"] == "wait"
        output = (await wire.result(run_id))["output"]
        assert [(one["name"], one["payload"]) for one in output] == [("b", 1), ("a", 2)]


async def test_count_takes_what_came_before_and_after_it_began(wire: WireClient) -> None:
    await wire.deploy(after_work(any=["yea", "nay"], count=3))
    run_id = await wire.start("voting")
    dispatch = await wire.take()
    await wire.put(f"in.signal.-.{run_id}.nay", b"1")
    await wire.complete(dispatch)
    await wire.step_in(run_id, "votes", "waiting")
    for number in (2, 3, 4):
        await wire.put(f"in.signal.-.{run_id}.yea", str(number).encode())
    output = (await wire.result(run_id))["output"]
    assert [one["payload"] for one in output] == [1, 2, 3]
    assert [letter["reason"] for letter in await letters(wire, 1)] == ["run_settled"]


async def test_a_payload_that_no_wait_wants_is_refused_with_its_field(wire: WireClient) -> None:
    await wire.deploy(one_wait(schema=BY))
    run_id = await wire.start("waiting")
    with pytest.raises(RefusedError) as refused:
        await wire.api("run.signal", run_id=run_id, signal="go", payload={}, message_id="m1")
    assert (refused.value.status, refused.value.code) == (422, "schema_failed")
    assert refused.value.details == {"field": "payload"}
    assert '"by" is a required property' in str(refused.value)
    assert (await wire.step(run_id, "wait"))["status"] == "waiting"
    # It was not received, so its id is free.
    payload = {"by": "me"}
    await wire.api("run.signal", run_id=run_id, signal="go", payload=payload, message_id="m1")
    assert (await wire.result(run_id))["output"]["payload"] == payload


async def test_a_message_that_no_wait_wants_is_a_dead_letter_and_the_wait_goes_on(
    wire: WireClient,
) -> None:
    await wire.deploy(one_wait(schema=BY))
    run_id = await wire.start("waiting")
    await wire.put(f"in.signal.-.{run_id}.go", b"7")
    [letter] = await letters(wire, 1)
    assert (letter["reason"], letter["run_id"]) == ("schema_failed", run_id)
    assert "the payload is not what step 'wait' waits for" in letter["message"]
    await wire.put(f"in.signal.-.{run_id}.go", b'{"by": "me"}')
    assert (await wire.result(run_id))["status"] == "completed"


async def test_a_kept_signal_that_its_wait_does_not_want_becomes_a_dead_letter_in_its_commit(
    engine: Engine, wire: WireClient
) -> None:
    await wire.deploy(after_work(signal="go", count=2, schema=BY))
    run_id = await wire.start("voting")
    dispatch = await wire.take()
    await wire.api("run.signal", run_id=run_id, signal="go", payload=7, sent_by="é")
    await wire.api("run.signal", run_id=run_id, signal="go", payload={"by": "a"})
    assert await wire.dead_letters() == []
    await wire.complete(dispatch)
    await wire.step_in(run_id, "votes", "waiting")
    [letter] = await letters(wire, 1)
    assert (letter["reason"], letter["run_id"], letter["step"]) == (
        "schema_failed", run_id, "votes"
    )  # fmt: skip
    assert letter["subject"] == f"{wire.prefix}.in.signal.-.{run_id}.go"
    assert base64.b64decode(letter["body"]) == b"7"
    assert letter["headers"]["Towpath-Sent-By"] == "%C3%A9"
    assert counted(engine, "dead_letter_total", reason="schema_failed") == 1
    assert await sentences(wire, run_id) == [
        "votes waits for 2 of signal 'go', has 1, without a limit; "
        f"a signal for it was refused: dead letter {letter['id']}"
    ]
    # A replay is the signal once more, and still not what the wait wants.
    answer = await wire.api("dead-letter.replay", ids=[letter["id"]], by="ann", reason="again")
    assert answer["results"][0]["error"]["code"] == "schema_failed"
    await wire.api("run.signal", run_id=run_id, signal="go", payload={"by": "b"})
    output = (await wire.result(run_id))["output"]
    assert [one["payload"]["by"] for one in output] == ["a", "b"]


async def test_signal_with_start_begins_no_run_that_does_not_want_its_signal(
    wire: WireClient,
) -> None:
    await wire.deploy(one_wait(schema=BY))
    request = {"workflow": "waiting", "key": new_key(), "signal": "go"}
    with pytest.raises(RefusedError) as refused:
        await wire.api("run.signal-with-start", **request, payload=1)
    assert (refused.value.status, refused.value.code) == (422, "schema_failed")
    assert (await wire.api("run.list", workflow="waiting"))["runs"] == []
    both = await wire.api("run.signal-with-start", **request, payload={"by": "me"})
    assert (both["deduplicated"], both["taken_by"]) == (False, "wait")


async def test_a_parked_signal_that_its_run_does_not_want_becomes_a_dead_letter_at_once(
    jetstream_url: str, postgres_url: str, prefix: str, schema: str
) -> None:
    settings = engine_settings(jetstream_url, postgres_url, prefix, schema, park_seconds=600)
    async with running(settings) as engine, connected(jetstream_url, prefix) as wire:
        await wire.deploy(one_wait(schema=BY))
        key = new_key()
        await wire.put("in.signal-key.waiting.x.go", b"7", {"Towpath-Key": key})
        parked = {"name": "signal_parked_total", "outcome": "parked"}
        await until(lambda: counted(engine, **parked) == 1, "the signal is parked")
        run_id = await wire.start("waiting", key=key)
        [letter] = await letters(wire, 1)
        assert letter["reason"] == "schema_failed"
        assert letter["headers"]["Towpath-Key"] == key
        assert (await wire.step(run_id, "wait"))["status"] == "waiting"


async def test_a_wait_that_times_out_leaves_what_it_had_for_the_next(wire: WireClient) -> None:
    definition = one_wait(count=2, timeout="50ms", on_timeout={"next": "one"})
    definition["steps"].append({"name": "one", "wait": {"signal": "go"}})
    await wire.deploy(definition)
    run_id = await wire.start("waiting")
    await wire.api("run.signal", run_id=run_id, signal="go", payload=1)
    assert (await wire.result(run_id))["output"]["payload"] == 1
    assert (await wire.step(run_id, "wait"))["status"] == "failed"


async def test_ten_branches_take_ten_signals_each_once(wire: WireClient) -> None:
    branches = {f"b{n}": [{"name": "wait", "wait": {"signal": "go"}}] for n in range(10)}
    step = {"name": "all", "parallel": {"branches": branches}}
    await wire.deploy({"workflow": "ten", "steps": [step]})
    run_id = await wire.start("ten")
    for number in range(10):
        await wire.put(f"in.signal.-.{run_id}.go", str(number).encode())
    output = (await wire.result(run_id))["output"]
    assert sorted(one["payload"] for one in output.values()) == list(range(10))


async def test_a_count_of_a_thousand_takes_them_all_in_order_each_once(wire: WireClient) -> None:
    await wire.deploy(one_wait(count=1_000, schema={"type": "integer"}))
    run_id = await wire.start("waiting")
    for number in range(1_000):
        message_id = {"Towpath-Message-Id": f"m{number}"}
        await wire.put(f"in.signal.-.{run_id}.go", str(number).encode(), message_id)
        if number % 10 == 0:
            await wire.put(f"in.signal.-.{run_id}.go", b"-1", message_id)
    output = (await wire.result(run_id))["output"]
    assert [one["payload"] for one in output] == list(range(1_000))
