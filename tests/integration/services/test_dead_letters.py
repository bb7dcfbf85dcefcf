"""Dead letters in the hands of an operator: seen whole, handled again, thrown away."""

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.support.engines import engine_settings, running
from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient, connected
from tests.support.workflows import one_task, one_wait
from towpath_engine.settings import Settings

Json = Any
NOBODY = "0195f000-0000-7000-8000-00000000000f"


async def letters_of(wire: WireClient, count: int) -> list[Json]:
    """The dead letters, oldest first, once there are so many."""

    async def there() -> list[Json]:
        letters = await wire.dead_letters()
        return letters if len(letters) == count else []

    return (await eventually(there))[::-1]


async def replay(wire: WireClient, *letters: Json) -> list[Json]:
    ids = [letter["id"] for letter in letters]
    answer = await wire.api("dead-letter.replay", ids=ids, by="ann", reason="mended")
    assert [result["id"] for result in answer["results"]] == ids
    return answer["results"]


async def test_a_letter_is_shown_whole_and_in_the_list_by_its_beginning(wire: WireClient) -> None:
    body = b'{"broken": "' + b"x" * 5_000
    await wire.put("in.start.one.x.-", body, {"Towpath-Message-Id": "m1"})
    [line] = await letters_of(wire, 1)
    whole = await wire.api("dead-letter.get", id=line["id"])
    assert base64.b64decode(line["body"]) == body[:2_048]
    assert base64.b64decode(whole["body"]) == body
    assert whole["body_bytes"] == line["body_bytes"] == len(body)
    assert whole["headers"]["Towpath-Message-Id"] == "m1"
    assert (whole["reason"], whole["subject"]) == ("undecodable", f"{wire.prefix}.in.start.one.x.-")


async def test_what_is_too_large_for_one_message_is_cut_and_its_size_said(
    wire: WireClient,
) -> None:
    body = b"x" * 900_000
    given = {f"H{n}": "\x01" * 900 for n in range(60)}
    ack = await wire.put("in.start.one.x.-", body, given)
    assert "error" not in ack, ack
    [line] = await letters_of(wire, 1)
    whole = await wire.api("dead-letter.get", id=line["id"])
    shown = base64.b64decode(whole["body"])
    assert body.startswith(shown)
    assert len(shown) == 448 * 1024
    assert whole["body_bytes"] == len(body)
    assert given.items() <= whole["headers"].items()
    assert line["headers"] == whole["headers"]


async def test_an_unknown_letter_is_not_found(wire: WireClient) -> None:
    with pytest.raises(RefusedError) as refused:
        await wire.api("dead-letter.get", id=NOBODY)
    assert (refused.value.status, refused.value.code) == (404, "dead_letter_not_found")
    answer = await wire.api("dead-letter.replay", ids=[NOBODY])
    assert answer["results"] == [{"id": NOBODY, "outcome": "not_found"}]
    assert (await wire.api("dead-letter.discard", ids=[NOBODY]))["discarded"] == 0


async def test_a_start_is_replayed_when_its_workflow_is_there_and_starts_one_run(
    wire: WireClient,
) -> None:
    await wire.put("in.start.one.x.-", b'{"n":1}', {"Towpath-Key": "k"})
    [letter] = await letters_of(wire, 1)
    assert letter["reason"] == "workflow_not_found"
    [result] = await replay(wire, letter)
    assert (result["outcome"], result["error"]["code"]) == ("failed", "workflow_not_found")
    assert len(await wire.dead_letters()) == 1
    await wire.deploy(one_task())
    [result] = await replay(wire, letter)
    [run] = (await wire.api("run.list", workflow="one"))["runs"]
    assert result == {"id": letter["id"], "outcome": "applied", "run_id": run["run_id"]}
    assert await wire.dead_letters() == []
    assert run["key"] == "k"
    assert (await replay(wire, letter))[0]["outcome"] == "not_found"


async def test_a_start_that_is_replayed_twice_at_once_starts_one_run(wire: WireClient) -> None:
    await wire.put("in.start.one.x.-", b"1")
    [letter] = await letters_of(wire, 1)
    await wire.deploy(one_task())
    answers = await asyncio.gather(*(replay(wire, letter) for _ in range(5)))
    outcomes = {result["outcome"] for [result] in answers}
    assert outcomes <= {"applied", "duplicate", "not_found"}
    assert "applied" in outcomes
    assert len((await wire.api("run.list", workflow="one"))["runs"]) == 1
    assert await wire.dead_letters() == []


async def test_the_replay_of_a_start_that_was_repeated_meanwhile_says_which_run_there_is(
    wire: WireClient,
) -> None:
    await wire.put("in.start.one.x.-", b"1", {"Towpath-Message-Id": "m1"})
    [letter] = await letters_of(wire, 1)
    await wire.deploy(one_task())
    run_id = await wire.start("one", 1, request_id="m1")  # its sender did not wait for us
    [result] = await replay(wire, letter)
    assert result == {"id": letter["id"], "outcome": "duplicate", "run_id": run_id}
    assert len((await wire.api("run.list", workflow="one"))["runs"]) == 1


async def test_a_signal_is_replayed_once_and_never_parked_for_an_operator(
    wire: WireClient, settings: Settings
) -> None:
    await wire.deploy(one_wait())
    headers = {"Towpath-Key": "k", "Towpath-Message-Id": "m1", "Towpath-Sent-By": "ann"}
    await wire.put("in.signal-key.waiting.x.go", b'{"ok":true}', headers)
    # Parked as long as the setting says; then it is a dead letter.
    [letter] = await letters_of(wire, 1)
    assert letter["headers"]["Towpath-Sent-By"] == "ann"
    [result] = await replay(wire, letter)
    assert (result["outcome"], result["error"]["code"]) == ("failed", "key_not_found")
    run_id = await wire.start("waiting", key="k")
    assert (await wire.run(run_id))["status"] == "waiting"
    assert (await replay(wire, letter))[0]["outcome"] == "applied"
    result = await wire.result(run_id)
    assert (result["output"]["payload"], result["output"]["sent_by"]) == ({"ok": True}, "ann")
    assert await wire.dead_letters() == []
    assert settings.park_seconds == 1.0


@pytest.fixture
def settings(jetstream_url: str, postgres_url: str, prefix: str, schema: str) -> Settings:
    return engine_settings(
        jetstream_url, postgres_url, prefix, schema, park_seconds=1.0, parked_sweep_seconds=0.1
    )


async def test_the_letter_of_a_report_names_run_and_step_and_its_replay_is_stale_later(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    dispatch = await wire.take()
    await wire.complete(dispatch, 1, step="another")
    [letter] = await letters_of(wire, 1)
    assert (letter["reason"], letter["run_id"]) == ("subject_mismatch", run_id)
    assert letter["step"] == dispatch["step"]
    [result] = await replay(wire, letter)
    assert (result["outcome"], result["error"]["code"]) == ("failed", "subject_mismatch")
    await wire.complete(dispatch, 2)
    assert (await wire.result(run_id))["output"] == 2
    history = await wire.history(run_id)
    assert (await replay(wire, letter))[0]["outcome"] == "stale"
    assert await wire.history(run_id) == history
    assert await wire.dead_letters() == []


async def test_the_letter_of_a_report_that_could_not_be_read_names_run_and_step_too(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    dispatch = await wire.take()
    subject = f"in.step-completed.default.{run_id}.{dispatch['token']}"
    await wire.put(subject, b"no json")
    [letter] = await letters_of(wire, 1)
    assert (letter["reason"], letter["run_id"], letter["step"]) == (
        "undecodable", run_id, dispatch["step"],
    )  # fmt: skip


async def test_an_order_of_replays_keeps_the_order_of_one_run(wire: WireClient) -> None:
    for number in range(20):
        await wire.put("in.start.one.x.-", json.dumps(number).encode(), {"Towpath-Key": "k"})
    letters = await letters_of(wire, 20)
    await wire.deploy(one_task())
    results = await replay(wire, *letters)
    # As run.start says `deduplicated`: the run that holds the key is the answer to the others.
    assert [result["outcome"] for result in results] == ["applied", *["duplicate"] * 19]
    [run] = (await wire.api("run.list", workflow="one"))["runs"]
    assert {result["run_id"] for result in results} == {run["run_id"]}
    assert (await wire.run(run["run_id"]))["input"] == 0


async def test_discarding_gives_the_room_back(
    jetstream_url: str, postgres_url: str, prefix: str, schema: str
) -> None:
    settings = engine_settings(jetstream_url, postgres_url, prefix, schema, dead_letter_count_max=2)
    async with running(settings) as engine, connected(jetstream_url, prefix) as wire:
        for number in range(3):
            await wire.put("in.start.one.x.-", f"garbage {number}".encode())

        async def dropped() -> bool:
            return "towpath_dead_letter_dropped_total 1.0" in engine.metrics.render().decode()

        await eventually(dropped)
        letters = await letters_of(wire, 2)
        ids = [letter["id"] for letter in letters]
        answer = await wire.api("dead-letter.discard", ids=ids, by="ann", reason="garbage")
        assert answer == {"discarded": 2}
        for number in range(2):
            await wire.put("in.start.one.x.-", f"more garbage {number}".encode())
        assert len(await letters_of(wire, 2)) == 2
