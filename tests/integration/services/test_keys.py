"""Runs by key: found, cancelled, signalled; and what a key means while its holder just ends."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient, new_key
from tests.support.workflows import one_task, one_wait
from towpath_engine.settings import Settings

Json = Any


async def refusal(wire: WireClient, verb: str, **body: Json) -> tuple[int, str, str]:
    with pytest.raises(RefusedError) as refused:
        await wire.api(verb, **body)
    return refused.value.status, refused.value.code, refused.value.message


async def test_a_run_is_found_by_its_key_while_it_lives_and_afterwards(wire: WireClient) -> None:
    await wire.deploy(one_task())
    await wire.deploy(one_task("other"))
    key = new_key()
    first = await wire.start("one", key=key)
    await wire.start("other", key=key)
    await wire.api("run.cancel", run_id=first)
    second = await wire.start("one", key=key)

    async def found(**where: Json) -> list[str]:
        page = await wire.api("run.list", workflow="one", key=key, limit=10, **where)
        return [run["run_id"] for run in page["runs"]]

    assert await found() == [second, first]
    assert await found(status="running") == [second]
    assert await found(status="cancelled") == [first]


async def test_a_run_is_cancelled_by_its_key_and_says_by_whom_and_why(wire: WireClient) -> None:
    await wire.deploy(one_task())
    key = new_key()
    run_id = await wire.start("one", key=key)
    answer = await wire.api("run.cancel", workflow="one", key=key, by="ann", reason="a mistake")
    assert answer == {"run_id": run_id, "status": "cancelled"}
    cause = (await wire.history(run_id))[-1]["cause"]
    assert (cause["type"], cause["by"], cause["reason"]) == ("cancel", "ann", "a mistake")
    assert (await wire.start("one", key=key)) != run_id


async def test_a_cancel_by_a_key_that_no_run_ever_had_finds_nobody(wire: WireClient) -> None:
    await wire.deploy(one_task())
    key = new_key()
    assert (await refusal(wire, "run.cancel", workflow="one", key=key))[:2] == (
        404,
        "key_not_found",
    )
    await wire.start("one", key=key)
    elsewhere = {"workflow": "nowhere", "key": key}
    assert (await refusal(wire, "run.cancel", **elsewhere))[:2] == (404, "key_not_found")


async def test_a_cancel_by_the_key_of_a_settled_run_is_answered_as_by_its_id(
    wire: WireClient,
) -> None:
    await wire.deploy(one_wait())
    by_key = {"workflow": "waiting", "key": new_key()}
    run_id = await wire.start("waiting", key=by_key["key"])
    await wire.api("run.cancel", **by_key)
    before = await wire.history(run_id)
    assert await wire.api("run.cancel", **by_key) == {"run_id": run_id, "status": "cancelled"}
    assert await wire.history(run_id) == before
    following = await wire.start("waiting", key=by_key["key"])
    await wire.api("run.signal", run_id=following, signal="go")
    await wire.result(following)
    status, code, message = await refusal(wire, "run.cancel", **by_key)
    assert (status, code, message) == (409, "run_settled", f"run {following} is completed")


@pytest.mark.parametrize(
    ("how", "expected"),
    [("completed", 409), ("failed", 409), ("timed_out", 409), ("cancelled", None)],
)
async def test_a_cancel_of_a_settled_run_names_its_status_unless_it_is_cancelled(
    wire: WireClient, how: str, expected: int | None
) -> None:
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
    before = await wire.history(run_id)
    if expected is None:
        answer = await wire.api("run.cancel", run_id=run_id)
        assert answer == {"run_id": run_id, "status": "cancelled"}
    else:
        status, code, message = await refusal(wire, "run.cancel", run_id=run_id)
        assert (status, code) == (expected, "run_settled")
        assert how in message
    assert await wire.history(run_id) == before


@pytest.mark.parametrize("verb", ["run.cancel", "run.signal"])
@pytest.mark.parametrize(
    "target",
    [
        {},
        {"workflow": "one"},
        {"key": "k"},
        {"run_id": "0190c0de-0000-7000-8000-000000000000", "workflow": "one", "key": "k"},
    ],
)
async def test_a_target_is_a_run_id_or_a_workflow_with_a_key(
    wire: WireClient, verb: str, target: Json
) -> None:
    signal = {"signal": "go"} if verb == "run.signal" else {}
    assert (await refusal(wire, verb, **target, **signal))[:2] == (400, "malformed")


@asynccontextmanager
async def ending(settings: Settings, run_id: str) -> AsyncGenerator[Any]:
    """A transaction of somebody else in which the run has ended and freed its key; commits."""
    connection: Any = await asyncpg.connect(
        settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
    )
    try:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM run WHERE id = $1 FOR UPDATE", run_id)
            yield connection
            await connection.execute(
                "UPDATE run SET status = 'cancelled', settled_at = now(), version = version + 1"
                " WHERE id = $1",
                run_id,
            )
            await connection.execute("DELETE FROM run_key WHERE run_id = $1", run_id)
            await connection.execute("DELETE FROM open_step WHERE run_id = $1", run_id)
            await connection.execute("DELETE FROM timer WHERE run_id = $1", run_id)
    finally:
        await connection.close()


@pytest.mark.parametrize("how", ["existing", "reject", "replace", "signal"])
async def test_a_start_that_met_a_run_which_just_ended_makes_a_new_one(
    wire: WireClient, settings: Settings, how: str
) -> None:
    await wire.deploy(one_wait())
    key = new_key()
    held = await wire.start("waiting", key=key)
    start = {"workflow": "waiting", "key": key, "request_id": "r"}
    async with ending(settings, held) as connection:
        if how == "signal":
            asked = wire.api("run.signal-with-start", **start, signal="other", payload=1)
        else:
            asked = wire.api("run.start", **start, on_conflict=how)
        answer = asyncio.create_task(asked)

        async def it_waits() -> bool:
            return await connection.fetchval("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")

        await eventually(it_waits)
    run_id = (await answer)["run_id"]
    assert run_id != held
    assert (await answer)["deduplicated"] is False
    assert (await wire.run(run_id))["status"] == "waiting"
    reasons = [row["cause"].get("reason") for row in await wire.history(held)]
    assert f"replaced by run {run_id}" not in reasons
    again = await wire.api("run.start", **start)
    assert again == {"run_id": run_id, "deduplicated": True}


async def test_a_key_that_was_not_freed_fails_its_starts_and_no_others(
    wire: WireClient, settings: Settings
) -> None:
    await wire.deploy(one_wait())
    key = new_key()
    held = await wire.start("waiting", key=key)
    async with ending(settings, held):
        pass
    connection = await asyncpg.connect(
        settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
    )
    try:
        # A fault that nobody knows of: the run has ended, and its key stays.
        await connection.execute("INSERT INTO run_key VALUES ('waiting', $1, $2)", key, held)
    finally:
        await connection.close()
    start = {"workflow": "waiting", "key": key}
    assert (await refusal(wire, "run.start", **start))[:2] == (500, "internal")
    assert (await wire.api("run.start", workflow="waiting", key=new_key()))["run_id"] != held
