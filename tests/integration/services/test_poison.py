"""One bad piece of work never stops the others: batches are bisected, culprits are kept."""

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient
from tests.support.workflows import one_task, one_wait

Json = Any
RUNS = 40


async def _forbid(postgres_url: str, schema: str, rule: str) -> None:
    """A constraint that the engine does not know: what it forbids fails deterministically."""
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(f'ALTER TABLE "{schema}".{rule} NOT VALID')
    finally:
        await connection.close()


async def test_a_start_that_the_database_refuses_fails_alone(
    wire: WireClient, postgres_url: str, schema: str
) -> None:
    await _forbid(postgres_url, schema, "run ADD CONSTRAINT no_poison CHECK (key <> 'poison')")
    await wire.deploy(one_task())
    keys = [f"k{number}" for number in range(RUNS)]
    keys[RUNS // 2] = "poison"

    async def start(key: str) -> str:
        try:
            return await wire.start("one", key=key)
        except RefusedError as refused:
            return refused.code

    answers = await asyncio.gather(*(start(key) for key in keys))
    assert [code for code in answers if code == "internal"] == ["internal"]
    assert answers[RUNS // 2] == "internal"
    assert len(set(answers)) == RUNS


async def test_a_message_that_the_database_refuses_becomes_a_dead_letter_alone(
    wire: WireClient, postgres_url: str, schema: str
) -> None:
    rule = "signal ADD CONSTRAINT no_poison CHECK (message_id <> 'poison')"
    await _forbid(postgres_url, schema, rule)
    await wire.deploy(one_wait())
    runs = [await wire.start("waiting") for _ in range(RUNS)]
    for number, run_id in enumerate(runs):
        name = "poison" if number == RUNS // 2 else f"m{number}"
        await wire.put(f"in.signal.-.{run_id}.go", b"1", {"Towpath-Message-Id": name})
    others = [run_id for number, run_id in enumerate(runs) if number != RUNS // 2]
    for run_id in others:
        assert (await wire.result(run_id))["status"] == "completed"

    async def buried() -> list[Json]:
        return await wire.dead_letters()

    letters = await eventually(buried)
    assert [letter["reason"] for letter in letters] == ["poison"]
    assert letters[0]["run_id"] == runs[RUNS // 2]
    assert (await wire.run(runs[RUNS // 2]))["status"] == "waiting"


@pytest.mark.parametrize("header", ["Towpath-Message-Id", "Towpath-Sent-By", "Nats-Msg-Id"])
async def test_a_header_the_store_could_not_keep_is_refused_at_the_door(
    wire: WireClient, header: str
) -> None:
    await wire.deploy(one_task())
    await wire.put("in.start.one.x.-", b"1", {header: "%00"})
    await wire.put("in.start.one.x.-", b"1", {header: "x" * 2_000})

    async def both() -> list[Json]:
        letters = await wire.dead_letters()
        return letters if len(letters) == 2 else []

    letters = await eventually(both)
    assert {letter["reason"] for letter in letters} == {"bad_header"}
