"""`on_conflict: replace`: a key's holder ends in the transaction that starts its successor."""

import asyncio
import random
from typing import Any

import asyncpg
import pytest

from tests.support.engines import running
from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient, connected, new_key
from tests.support.workflows import one_task
from towpath_engine.settings import Settings

Json = Any
WAITS = {
    "expressions": "cel/1",
    "workflow": "waits",
    "steps": [{"name": "hold", "wait": {"signal": "go"}}],
}
INSTANT = {"expressions": "cel/1", "workflow": "instant", "steps": [{"name": "done", "pass": 1}]}


async def replace(wire: WireClient, workflow: str, key: str, **more: Json) -> Json:
    return await wire.api(
        "run.start", workflow=workflow, key=key, on_conflict="replace", input=None, **more
    )


async def runs_of(wire: WireClient, workflow: str, key: str) -> list[Json]:
    """All runs with the key, newest first."""
    found: list[Json] = []
    cursor: str | None = None
    while True:
        page = await wire.api("run.list", workflow=workflow, key=key, cursor=cursor, limit=1_000)
        found.extend(page["runs"])
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def live(runs: list[Json]) -> list[str]:
    settled = {"completed", "failed", "cancelled", "timed_out"}
    return [run["run_id"] for run in runs if run["status"] not in settled]


async def test_replace_cancels_the_holder_and_says_by_whom_and_for_what(wire: WireClient) -> None:
    await wire.deploy(one_task())
    key = new_key()
    first = await wire.start("one", key=key)
    answer = await replace(wire, "one", key, triggered_by="shop")
    assert answer["deduplicated"] is False
    old, new = await wire.run(first), await wire.run(answer["run_id"])
    assert (old["status"], new["status"]) == ("cancelled", "running")
    assert old["compensation"] is None
    cause = (await wire.history(first))[-1]["cause"]
    assert (cause["kind"], cause["by"]) == ("replaced", "shop")
    assert cause["reason"] == f"replaced by run {answer['run_id']}"
    begun = (await wire.history(answer["run_id"]))[0]["cause"]
    assert begun["reason"] == f"replaces run {first}"


async def test_replace_without_a_holder_is_a_plain_start(wire: WireClient) -> None:
    await wire.deploy(one_task())
    key = new_key()
    answer = await replace(wire, "one", key)
    assert answer["deduplicated"] is False
    assert [run["run_id"] for run in await runs_of(wire, "one", key)] == [answer["run_id"]]


async def test_the_report_of_a_replaced_run_comes_too_late(wire: WireClient) -> None:
    await wire.deploy(one_task())
    key = new_key()
    first = await wire.start("one", key=key)
    dispatch, message = await wire.pull()
    second = (await replace(wire, "one", key))["run_id"]
    await wire.complete(dispatch, "late")
    await message.ack()
    after = await wire.take()
    assert after["run_id"] == second
    await wire.complete(after, "done")
    assert (await wire.result(second))["output"] == "done"
    assert (await wire.run(first))["status"] == "cancelled"


async def test_the_dispatch_of_a_replaced_run_that_nobody_pulled_is_dropped(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    key = new_key()
    await wire.start("one", key=key)
    second = (await replace(wire, "one", key))["run_id"]
    js = wire.client.jetstream()

    async def one_is_left() -> bool:
        return (await js.stream_info(f"{wire.prefix.upper()}_DISPATCH")).state.messages == 1

    await eventually(one_is_left)
    assert (await wire.take())["run_id"] == second


async def test_a_repeated_replace_request_answers_with_the_run_it_started(
    wire: WireClient,
) -> None:
    await wire.deploy(WAITS)
    key = new_key()
    await wire.start("waits", key=key)
    first = await replace(wire, "waits", key, request_id="r")
    again = await replace(wire, "waits", key, request_id="r")
    assert again == {"run_id": first["run_id"], "deduplicated": True}
    third = await replace(wire, "waits", key, request_id="r3")
    late = await replace(wire, "waits", key, request_id="r")
    assert late == again, "a replaced run is still the answer to its request"
    assert live(await runs_of(wire, "waits", key)) == [third["run_id"]]


async def test_items_of_one_message_replace_one_another_in_their_order(wire: WireClient) -> None:
    await wire.deploy(WAITS)
    key = new_key()
    held = await wire.start("waits", key=key)
    item = {"workflow": "waits", "key": key}
    items = [
        {**item, "on_conflict": "existing"},
        {**item, "on_conflict": "replace", "request_id": "a"},
        {**item, "on_conflict": "reject"},
        {**item, "on_conflict": "replace"},
        {**item, "on_conflict": "existing"},
        {**item, "on_conflict": "replace", "request_id": "a"},
        {**item, "on_conflict": "reject", "request_id": "b"},
        {**item, "on_conflict": "existing", "request_id": "b"},
    ]
    results = (await wire.api("run.start-many", items=items))["results"]
    first, second = results[1]["run_id"], results[3]["run_id"]
    assert [result.get("run_id") for result in results] == [
        held, first, None, second, second, first, None, second,
    ]  # fmt: skip
    assert [result.get("deduplicated") for result in results] == [
        True, False, None, False, True, True, None, True,
    ]  # fmt: skip
    assert results[2]["error"]["code"] == results[6]["error"]["code"] == "key_conflict"
    assert results[2]["error"]["details"]["run_id"] == first
    assert live(await runs_of(wire, "waits", key)) == [second]


async def test_a_run_that_ends_at_once_leaves_its_key_to_the_next_item(wire: WireClient) -> None:
    await wire.deploy(INSTANT)
    items = [
        {"workflow": "instant", "key": "k", "on_conflict": how}
        for how in ("existing", "reject", "replace", "existing")
    ]
    results = (await wire.api("run.start-many", items=items))["results"]
    assert len({result["run_id"] for result in results}) == 4
    assert {run["status"] for run in await runs_of(wire, "instant", "k")} == {"completed"}


async def test_a_signal_by_key_goes_to_the_run_that_took_the_key_over(wire: WireClient) -> None:
    await wire.deploy(WAITS)
    key = new_key()
    await wire.start("waits", key=key)
    second = (await replace(wire, "waits", key))["run_id"]
    answer = await wire.api("run.signal", workflow="waits", key=key, signal="go", payload=1)
    assert answer["run_id"] == second
    assert (await wire.result(second))["status"] == "completed"


async def test_a_run_that_is_undoing_its_steps_is_not_replaced(
    wire: WireClient, settings: Settings
) -> None:
    await wire.deploy(WAITS)
    key = new_key()
    held = await wire.start("waits", key=key)
    connection = await asyncpg.connect(settings.postgres_url)
    try:
        await connection.execute(
            f"UPDATE {settings.postgres_schema}.run"
            " SET status = 'compensating', version = version + 1 WHERE id = $1",
            held,
        )
    finally:
        await connection.close()
    with pytest.raises(RefusedError) as refused:
        await replace(wire, "waits", key, request_id="r")
    assert (refused.value.status, refused.value.code) == (409, "compensating")
    assert refused.value.details["run_id"] == held
    assert len(await runs_of(wire, "waits", key)) == 1
    other = await wire.api("run.start", workflow="waits", key=new_key(), request_id="r")
    assert other["deduplicated"] is False, "what was refused has not used its request id"


async def test_an_input_that_does_not_fit_replaces_nothing(wire: WireClient) -> None:
    await wire.deploy({**WAITS, "input": {"type": "integer"}})
    held = await wire.start("waits", 1, key="k")
    with pytest.raises(RefusedError) as refused:
        await wire.start("waits", "x", key="k", on_conflict="replace")
    assert refused.value.code == "schema_failed"
    assert live(await runs_of(wire, "waits", "k")) == [held]


async def test_of_many_replaces_on_two_engines_one_run_stays_and_each_has_its_own(
    settings: Settings,
) -> None:
    async with (
        running(settings),
        running(settings),
        connected(settings.nats_url, settings.prefix) as wire,
    ):
        await wire.deploy(WAITS)
        keys = [new_key() for _ in range(3)]
        answers = await asyncio.gather(
            *(replace(wire, "waits", keys[n % 3], request_id=f"r{n}") for n in range(120))
        )
        assert not any(answer["deduplicated"] for answer in answers)
        for number, key in enumerate(keys):
            runs = await runs_of(wire, "waits", key)
            assert {run["run_id"] for run in runs} == {
                answer["run_id"] for answer in answers[number::3]
            }
            assert len(live(runs)) == 1


# In one snapshot: live runs that do not hold their key, and keys whose holder is not a live run.
KEYS_ASTRAY = """
SELECT count(*)
FROM (SELECT id, workflow, key FROM run WHERE key IS NOT NULL AND settled_at IS NULL) AS live
FULL JOIN run_key ON run_key.run_id = live.id
  AND run_key.workflow = live.workflow AND run_key.key = live.key
WHERE live.id IS NULL OR run_key.run_id IS NULL
"""


async def keys_astray(settings: Settings) -> int:
    connection = await asyncpg.connect(
        settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
    )
    try:
        return await connection.fetchval(KEYS_ASTRAY)
    finally:
        await connection.close()


async def test_whatever_happens_to_a_key_at_once_it_has_at_most_one_live_run(
    settings: Settings,
) -> None:
    chance = random.Random(11)
    async with (
        running(settings),
        running(settings),
        connected(settings.nats_url, settings.prefix) as wire,
    ):
        await wire.deploy(one_task())
        wire.work("default", lambda dispatch: dispatch["input"])
        keys = [new_key() for _ in range(4)]
        refusals: set[str] = set()

        async def act(number: int) -> None:
            key = chance.choice(keys)
            try:
                match chance.randrange(5):
                    case 0:
                        await wire.api("run.cancel", workflow="one", key=key)
                    case 1:
                        await wire.api(
                            "run.start-many",
                            items=[
                                {"workflow": "one", "key": key, "on_conflict": how}
                                for how in ("replace", "existing", "replace")
                            ],
                        )
                    case 2:
                        await wire.start("one", number, key=key)
                    case _:
                        await replace(wire, "one", key, request_id=f"r{number // 2}")
            except RefusedError as refused:
                refusals.add(refused.code)

        for _ in range(6):
            await asyncio.gather(*(act(number) for number in range(60)))
            for key in keys:
                runs = await runs_of(wire, "one", key)
                assert len(live(runs)) <= 1
                assert {run["status"] for run in runs} <= {"running", "completed", "cancelled"}
            assert await keys_astray(settings) == 0

        async def all_settled() -> bool:
            return not any([live(await runs_of(wire, "one", key)) for key in keys])

        await eventually(all_settled)
        assert await wire.dead_letters() == []
        assert refusals <= {"key_not_found", "run_settled"}, "there was nobody to cancel"
