"""Operator against operator, and against workers: one is first, the others are told so.

Two engines share all requests and messages, so that two transactions really meet in Postgres.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.support.engines import running
from tests.support.wire_client import RefusedError, WireClient, connected, new_key
from tests.support.workflows import chain, one_task
from towpath_engine.settings import Settings

Json = Any
ROUNDS = 6


@pytest.fixture
async def wire(settings: Settings) -> AsyncGenerator[WireClient]:
    """Somebody who talks to two engines at once."""
    async with (
        running(settings),
        running(settings),
        connected(settings.nats_url, settings.prefix) as wire,
    ):
        yield wire


async def _answer(wire: WireClient, verb: str, **body: Json) -> str:
    """`ok`, or the code of the refusal."""
    try:
        await wire.api(verb, **body)
    except RefusedError as refused:
        return refused.code
    return "ok"


async def _failed(wire: WireClient, **start: Json) -> str:
    run_id = await wire.start("one", **start)
    await wire.fail(await _take(wire, run_id))
    assert (await wire.result(run_id))["status"] == "failed"
    return run_id


async def _take(wire: WireClient, run_id: str) -> Json:
    while True:
        dispatch = await wire.take()
        if dispatch["run_id"] == run_id:
            return dispatch


async def _check_history(wire: WireClient, run_id: str) -> list[str]:
    """No gap, and every status follows from the one before; the `what`s."""
    rows = await wire.history(run_id)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    last: dict[str | None, str] = {}
    for row in rows:
        assert row["from"] == last.get(row["step"], "pending"), row
        last[row["step"]] = row["to"]
    assert (await wire.run(run_id))["status"] == last[None]
    return [row["what"] for row in rows]


async def test_of_many_retries_at_once_one_wins(wire: WireClient) -> None:
    await wire.deploy(one_task())
    for _ in range(ROUNDS):
        run_id = await _failed(wire, key=new_key())
        answers = await asyncio.gather(
            *[_answer(wire, "run.retry", run_id=run_id) for _ in range(4)]
        )
        assert sorted(answers) == ["ok", *["run_not_settled"] * 3]
        whats = await _check_history(wire, run_id)
        assert whats.count("run-retried") == 1
        assert whats.count("step-dispatched") == 2
        await wire.complete(await _take(wire, run_id))
        assert (await wire.result(run_id))["status"] == "completed"


async def test_of_a_retry_and_a_redrive_at_once_one_wins(wire: WireClient) -> None:
    await wire.deploy(one_task())
    for _ in range(ROUNDS):
        run_id = await _failed(wire)
        answers = await asyncio.gather(
            _answer(wire, "run.retry", run_id=run_id),
            _answer(wire, "run.redrive", run_id=run_id, step="work"),
        )
        assert sorted(answers) == ["ok", "run_not_settled"]
        whats = await _check_history(wire, run_id)
        assert whats.count("run-retried") + whats.count("run-redriven") == 1
        assert whats.count("run-retried") == (answers[0] == "ok")


async def test_a_cancel_beside_a_retry_is_refused_or_cancels_what_was_retried(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    for _ in range(ROUNDS):
        run_id = await _failed(wire)
        retried, cancelled = await asyncio.gather(
            _answer(wire, "run.retry", run_id=run_id), _answer(wire, "run.cancel", run_id=run_id)
        )
        assert retried == "ok"
        assert cancelled in {"ok", "run_settled"}
        await _check_history(wire, run_id)
        status = (await wire.run(run_id))["status"]
        assert status == ("cancelled" if cancelled == "ok" else "running")


async def test_a_cancel_beside_a_completion_finds_one_end(wire: WireClient) -> None:
    await wire.deploy(one_task())
    for _ in range(ROUNDS):
        run_id = await wire.start("one")
        dispatch = await _take(wire, run_id)
        cancelled, _ = await asyncio.gather(
            _answer(wire, "run.cancel", run_id=run_id), wire.complete(dispatch, "done")
        )
        result = await wire.result(run_id)
        ends = {"ok": "cancelled", "run_settled": "completed"}
        assert result["status"] == ends[cancelled]
        whats = await _check_history(wire, run_id)
        assert sum(what in {"run-cancelled", "run-completed"} for what in whats) == 1


async def test_late_reports_beside_a_redrive_change_nothing(wire: WireClient) -> None:
    await wire.deploy(chain(length=2))
    for _ in range(ROUNDS):
        run_id = await wire.start("chain")
        first = await _take(wire, run_id)
        await wire.complete(first, "old")
        second = await _take(wire, run_id)
        await wire.fail(second)
        await wire.result(run_id)
        answer, *_ = await asyncio.gather(
            _answer(wire, "run.redrive", run_id=run_id, step="s0"),
            *[wire.complete(late, "late") for late in (first, second, first, second)],
        )
        assert answer == "ok"
        again = await _take(wire, run_id)
        assert again["step"] == "s0"
        await asyncio.gather(
            wire.complete(again, "new"), wire.complete(first, "late"), wire.complete(second, "late")
        )
        await wire.complete(await _take(wire, run_id), "end")
        result = await wire.result(run_id)
        assert (result["status"], result["output"]) == ("completed", "end")
        assert (await wire.step(run_id, "s0"))["output"] == "new"
        whats = await _check_history(wire, run_id)
        assert whats.count("step-completed") == 3


async def test_of_a_retry_and_a_start_with_its_key_one_gets_the_key(wire: WireClient) -> None:
    await wire.deploy(one_task())
    for _ in range(ROUNDS):
        key = new_key()
        run_id = await _failed(wire, key=key)
        retried, started = await asyncio.gather(
            _answer(wire, "run.retry", run_id=run_id),
            wire.api("run.start", workflow="one", input=None, key=key),
        )
        if retried == "ok":
            assert started == {"run_id": run_id, "deduplicated": True}
        else:
            assert retried == "key_conflict"
            assert started["run_id"] != run_id
        listed = await wire.api("run.list", workflow="one", key=key)
        live = [run for run in listed["runs"] if run["status"] == "running"]
        assert [run["run_id"] for run in live] == [started["run_id"]]
        await _check_history(wire, run_id)
        assert await _answer(wire, "run.cancel", workflow="one", key=key) == "ok"


async def test_a_retry_with_the_key_of_a_run_that_just_ends_is_refused_or_wins(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    for _ in range(ROUNDS):
        key = new_key()
        run_id = await _failed(wire, key=key)
        other = await wire.start("one", key=key)
        dispatch = await _take(wire, other)
        retried, _ = await asyncio.gather(
            _answer(wire, "run.retry", run_id=run_id), wire.complete(dispatch)
        )
        assert retried in {"ok", "key_conflict"}
        assert (await wire.result(other))["status"] == "completed"
        again = await _answer(wire, "run.retry", run_id=run_id)
        assert again == ("run_not_settled" if retried == "ok" else "ok")
        assert (await wire.run(run_id))["status"] == "running"
        assert await _answer(wire, "run.cancel", workflow="one", key=key) == "ok"


async def test_pauses_and_resumes_at_once_leave_the_run_as_the_last_one_said(
    wire: WireClient,
) -> None:
    await wire.deploy(chain(length=2))
    for _ in range(ROUNDS):
        run_id = await wire.start("chain")
        first = await _take(wire, run_id)
        verbs = ["run.pause", "run.resume"] * 3
        answers, _ = await asyncio.gather(
            asyncio.gather(*[wire.api(verb, run_id=run_id) for verb in verbs]),
            wire.complete(first),
        )
        await wire.step_in(run_id, "s0", "completed")
        changes = [
            what.removeprefix("run-")
            for what in await _check_history(wire, run_id)
            if what in {"run-paused", "run-resumed"}
        ]
        assert changes == [("paused", "resumed")[number % 2] for number in range(len(changes))]
        assert sum(answer["changed"] for answer in answers) == len(changes)
        is_paused = len(changes) % 2 == 1
        assert ((await wire.run(run_id)).get("pause") is not None) == is_paused
        if is_paused:
            # What follows is held, or was dispatched in between: then it goes on all the same.
            await wire.step_in(run_id, "s1", "ready", "dispatched")
            assert (await wire.api("run.resume", run_id=run_id))["changed"]
        await wire.complete(await _take(wire, run_id))
        assert (await wire.result(run_id))["status"] == "completed"


async def test_a_retry_beside_the_failure_itself_finds_the_run_live_or_failed(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    for _ in range(ROUNDS):
        key = new_key()
        run_id = await wire.start("one", key=key)
        dispatch = await _take(wire, run_id)
        _, *answers = await asyncio.gather(
            wire.fail(dispatch),
            *[_answer(wire, "run.retry", run_id=run_id) for _ in range(3)],
            _answer(wire, "run.start", workflow="one", input=None, key=key),
        )
        retries, started = answers[:3], answers[3]
        assert set(retries) <= {"ok", "run_not_settled", "key_conflict"}
        assert retries.count("ok") <= 1
        assert started == "ok"
        whats = await _check_history(wire, run_id)
        assert whats.count("run-retried") == retries.count("ok")
        listed = await wire.api("run.list", workflow="one", key=key)
        live = [run["run_id"] for run in listed["runs"] if run["status"] == "running"]
        assert len(live) <= 1, "a key has one live run"
        for other in live:
            await wire.api("run.cancel", run_id=other)
