"""Signals through a real engine: never lost, each consumed once, whatever the order."""

import asyncio
from typing import Any

import pytest

from tests.support.engines import engine_settings, running
from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient, connected, new_key
from tests.support.workflows import one_task, one_wait

Json = Any


async def _letters(wire: WireClient) -> list[Json]:
    async def some() -> list[Json]:
        return await wire.dead_letters()

    return await eventually(some)


async def test_a_signal_before_its_wait_is_kept(wire: WireClient) -> None:
    definition = one_wait()
    definition["steps"].insert(0, {"name": "first", "task": "do.it"})
    await wire.deploy(definition)
    run_id = await wire.start("waiting")
    dispatch = await wire.take()
    await wire.api("run.signal", run_id=run_id, signal="go", payload={"by": "é"}, sent_by="me")
    await wire.complete(dispatch)
    result = await wire.result(run_id)
    assert result["output"]["payload"] == {"by": "é"}
    assert result["output"]["sent_by"] == "me"


async def test_a_signal_message_ends_the_wait(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    run_id = await wire.start("waiting")
    await wire.put(f"in.signal.-.{run_id}.go", b"[1,2.0,null]")
    assert (await wire.result(run_id))["output"]["payload"] == [1, 2.0, None]


async def test_an_empty_signal_is_null(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    run_id = await wire.start("waiting")
    await wire.put(f"in.signal.-.{run_id}.go")
    assert (await wire.result(run_id))["output"]["payload"] is None


async def test_a_signal_by_key_reaches_the_live_run(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    key = f"ordre é {new_key()}"
    run_id = await wire.start("waiting", key=key)
    encoded = key.replace("é", "%C3%A9")
    headers = {"Towpath-Key": encoded, "Towpath-Message-Id": "m1", "Towpath-Sent-By": "shop"}
    await wire.put("in.signal-key.waiting.spread.go", b'"yes"', headers)
    result = await wire.result(run_id)
    assert result["output"]["payload"] == "yes"
    assert result["output"]["sent_by"] == "shop"


async def test_a_repeated_message_id_is_consumed_once(wire: WireClient) -> None:
    definition = one_wait()
    definition["steps"].append({"name": "more", "wait": {"signal": "go"}})
    await wire.deploy(definition)
    run_id = await wire.start("waiting")
    request = {"run_id": run_id, "signal": "go", "payload": 1, "message_id": "same"}
    answers = [await wire.api("run.signal", **request) for _ in range(5)]
    assert [answer["deduplicated"] for answer in answers] == [False, True, True, True, True]
    await wire.put(f"in.signal.-.{run_id}.go", b"1", {"Towpath-Message-Id": "same"})
    await wire.step_in(run_id, "more", "waiting")
    await wire.put(f"in.signal.-.{run_id}.go", b"2", {"Towpath-Message-Id": "other"})
    assert (await wire.result(run_id))["output"]["payload"] == 2


async def test_a_signal_by_key_is_parked_until_its_run_starts(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    key = new_key()
    await wire.put("in.signal-key.waiting.x.go", b"7", {"Towpath-Key": key})
    run_id = await wire.start("waiting", key=key)
    assert (await wire.result(run_id))["output"]["payload"] == 7
    assert await wire.dead_letters() == []


async def test_a_signal_for_nobody_becomes_a_dead_letter_in_time(
    jetstream_url: str, postgres_url: str, prefix: str, schema: str
) -> None:
    settings = engine_settings(
        jetstream_url, postgres_url, prefix, schema, park_seconds=0.5, parked_sweep_seconds=0.2
    )
    async with running(settings), connected(jetstream_url, prefix) as wire:
        await wire.put("in.signal-key.nothing.x.go", b"1", {"Towpath-Key": "nobody"})
        letters = await _letters(wire)
        assert letters[0]["reason"] == "unknown_key"


async def test_a_signal_to_a_settled_run_is_refused_or_buried(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.complete(await wire.take())
    await wire.result(run_id)
    with pytest.raises(RefusedError) as refused:
        await wire.api("run.signal", run_id=run_id, signal="go")
    assert (refused.value.status, refused.value.code) == (409, "run_settled")
    await wire.put(f"in.signal.-.{run_id}.go", b"1")
    letters = await _letters(wire)
    assert letters[0]["reason"] == "run_settled"
    assert letters[0]["run_id"] == run_id


async def test_a_signal_to_an_unknown_run_is_refused(wire: WireClient) -> None:
    unknown = "01890000-0000-7000-8000-000000000000"
    with pytest.raises(RefusedError) as refused:
        await wire.api("run.signal", run_id=unknown, signal="go")
    assert (refused.value.status, refused.value.code) == (404, "run_not_found")
    with pytest.raises(RefusedError) as refused:
        await wire.api("run.signal", workflow="waiting", key="nobody", signal="go")
    assert (refused.value.status, refused.value.code) == (404, "key_not_found")


async def test_signal_with_start_does_both_once(wire: WireClient) -> None:
    definition = one_wait()
    definition["steps"].append({"name": "more", "wait": {"signal": "go"}})
    await wire.deploy(definition)
    key = new_key()
    request = {"workflow": "waiting", "key": key, "signal": "go", "message_id": "m"}
    first = await wire.api("run.signal-with-start", **request)
    second = await wire.api("run.signal-with-start", **request)
    assert first["deduplicated"] is False
    assert second == {
        "run_id": first["run_id"],
        "deduplicated": True,
        "signal_deduplicated": True,
    }
    await wire.step_in(first["run_id"], "more", "waiting")


async def test_signal_against_timeout_has_one_winner(wire: WireClient) -> None:
    await wire.deploy(one_wait(timeout="20ms"))
    runs = [await wire.start("waiting") for _ in range(20)]
    for run_id in runs:
        await wire.put(f"in.signal.-.{run_id}.go", b"1")
    for run_id in runs:
        result = await wire.result(run_id)
        rows = await wire.history(run_id)
        ends = [row["what"] for row in rows if row["step"] == "wait" and row["to"] != "waiting"]
        assert ends in (["step-completed"], ["step-failed"])
        assert result["status"] == ("completed" if ends == ["step-completed"] else "failed")


async def test_without_a_sender_a_message_is_buried_where_one_is_required(
    jetstream_url: str, postgres_url: str, prefix: str, schema: str
) -> None:
    settings = engine_settings(jetstream_url, postgres_url, prefix, schema, require_sender=True)
    async with running(settings), connected(jetstream_url, prefix) as wire:
        await wire.deploy(one_task())
        await wire.put("in.start.one.-.-", b"1")
        letters = await _letters(wire)
        assert letters[0]["reason"] == "missing_sender"
        await wire.put("in.start.one.-.-", b"1", {"Towpath-Sent-By": "shop"})
        assert (await wire.take())["input"] == 1


async def test_a_repeat_of_a_signal_by_key_is_not_for_the_next_run(wire: WireClient) -> None:
    definition = one_wait()
    definition["steps"].append({"name": "more", "wait": {"signal": "more"}})
    await wire.deploy(definition)
    key = new_key()
    headers = {"Towpath-Key": key, "Towpath-Message-Id": "m1"}
    first = await wire.start("waiting", key=key)
    for name in ("go", "more"):
        await wire.put(f"in.signal-key.waiting.x.{name}", b"1", headers)
    await wire.result(first)
    # Both repeats come while nobody holds the key, before the new signal of the same partition.
    await wire.put("in.signal-key.waiting.x.go", b"1", headers)
    await wire.put("in.signal-key.waiting.x.go", b"2", {**headers, "Towpath-Message-Id": "m2"})
    second = await wire.start("waiting", key=key)
    await wire.put("in.signal-key.waiting.x.more", b"3", {**headers, "Towpath-Message-Id": "m3"})
    assert (await wire.result(second))["output"]["payload"] == 3
    assert (await wire.step(second, "wait"))["output"]["payload"] == 2
    assert await wire.dead_letters() == []


async def test_a_parked_signal_outlives_a_run_that_settles_at_once(
    jetstream_url: str, postgres_url: str, prefix: str, schema: str
) -> None:
    settings = engine_settings(
        jetstream_url, postgres_url, prefix, schema, park_seconds=5, parked_sweep_seconds=0.2
    )
    async with running(settings), connected(jetstream_url, prefix) as wire:
        quick = {"workflow": "quick", "steps": [{"name": "only", "pass": 1}]}
        await wire.deploy({**one_wait(), **quick})
        key = new_key()
        await wire.put("in.signal-key.quick.x.go", b"7", {"Towpath-Key": key})
        await wire.result(await wire.start("quick", key=key))
        letters = await _letters(wire)
        assert [letter["reason"] for letter in letters] == ["unknown_key"]


async def test_signal_with_start_never_meets_a_settled_run(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    request = {"workflow": "waiting", "key": new_key(), "signal": "go"}
    answers = await asyncio.gather(
        *(
            wire.api("run.signal-with-start", **request, payload=n, request_id=f"r{n % 20}")
            for n in range(40)
        )
    )
    for n in range(20):
        first, repeat = answers[n]["run_id"], answers[n + 20]["run_id"]
        assert first == repeat
        assert (await wire.result(first))["output"]["payload"] in (n, n + 20)


async def test_the_answer_says_who_took_a_signal_and_who_may_take_one_that_is_kept(
    wire: WireClient,
) -> None:
    definition = one_wait()
    definition["steps"].insert(0, {"name": "first", "task": "do.it"})
    await wire.deploy(definition)
    run_id = await wire.start("waiting")
    early = await wire.api("run.signal", run_id=run_id, signal="go", message_id="m1")
    assert (early["taken_by"], early["awaited_by"]) == (None, ["wait"])
    misspelt = await wire.api("run.signal", run_id=run_id, signal="goo")
    assert (misspelt["taken_by"], misspelt["awaited_by"]) == (None, [])
    repeat = await wire.api("run.signal", run_id=run_id, signal="go", message_id="m1")
    assert repeat == {"run_id": run_id, "deduplicated": True}
    await wire.deploy(one_wait("ready"))
    waiting = await wire.start("ready")
    taken = await wire.api("run.signal", run_id=waiting, signal="go")
    assert taken == {"run_id": waiting, "deduplicated": False, "taken_by": "wait"}
    both = await wire.api("run.signal-with-start", workflow="ready", key=new_key(), signal="go")
    assert both["taken_by"] == "wait"
