"""How runs end that are undone: failed, cancelled, timed out; and when an undo fails."""

import asyncio
from typing import Any

import pytest

from tests.support.command_line import fail, succeed
from tests.support.processes import towpath
from tests.support.wire_client import RefusedError, WireClient
from towpath_engine.settings import Settings

Json = Any

TWO: Json = {
    "workflow": "two",
    "steps": [
        {"name": "a", "task": "a", "compensate": {"task": "undo.a", "retry": {"max_attempts": 2}}},
        {"name": "b", "task": "b", "compensate": {"task": "undo.b"}},
        {"name": "c", "task": "c"},
    ],
}
FAST = {"max_attempts": 2, "backoff": {"initial": "1ms"}}


async def two_done(wire: WireClient, **more: Json) -> tuple[str, Json]:
    """A run whose two undoable steps are completed, and the dispatch of the third."""
    await wire.deploy({**TWO, **more})
    run_id = await wire.start("two")
    await wire.complete(await wire.take(), "A")
    await wire.complete(await wire.take(), "B")
    return run_id, await wire.take()


async def do(wire: WireClient, task: str) -> Json:
    dispatch = await wire.take()
    assert dispatch["task"] == task
    await wire.complete(dispatch)
    return dispatch


async def undo_fails(wire: WireClient, **more: Json) -> tuple[str, Json]:
    """A run of which the second undo fails for good, and the dispatch of that."""
    run_id, third = await two_done(wire, **more)
    await wire.fail(third, type="NoLuck", retryable=False)
    await do(wire, "undo.b")
    first = await wire.take()
    await wire.fail(first, type="Busy")
    last = await wire.take()
    assert (last["attempt"], last["max_attempts"]) == (2, 2)
    assert last["idempotency_key"] == first["idempotency_key"]
    await wire.fail(last, type="Stuck", message="the door is closed")
    return run_id, last


@pytest.fixture
def environment(settings: Settings) -> dict[str, str]:
    return {"TOWPATH_NATS_URL": settings.nats_url, "TOWPATH_PREFIX": settings.prefix}


async def test_an_undo_that_fails_is_in_sight_and_a_retry_goes_on_with_it(
    wire: WireClient,
) -> None:
    run_id, failed = await undo_fails(wire)
    result = await wire.result(run_id)
    assert (result["status"], result["compensation"]) == (("compensation_failed",) * 2)
    assert result["error"]["type"] == "NoLuck"  # what the run failed of, not its undo
    step = await wire.step(run_id, "a")
    assert (step["status"], step["output"]) == ("compensation_failed", "A")
    assert (step["error"]["type"], step["error"]["message"]) == ("Stuck", "the door is closed")
    explained = await wire.api("run.explain", run_id=run_id)
    assert "Stuck" in str(explained)
    found = await wire.api("run.list", status="compensation_failed", limit=10)
    assert [run["run_id"] for run in found["runs"]] == [run_id]
    await wire.api("run.retry", run_id=run_id, by="ada", reason="the door is open")
    again = await do(wire, "undo.a")
    assert again["idempotency_key"] == failed["idempotency_key"]
    assert (again["attempt"], again["input"]) == (1, "A")
    assert again["last_error"]["type"] == "Stuck"
    result = await wire.result(run_id)
    assert (result["status"], result["compensation"]) == ("compensated", "compensated")
    assert (await wire.step(run_id, "a"))["error"] is None
    rows = await wire.history(run_id)
    (second,) = [row for row in rows if row["what"] == "run-compensating"][1:]
    assert (second["cause"]["by"], second["cause"]["reason"]) == ("ada", "the door is open")
    assert [row["step"] for row in rows if row["what"] == "step-compensated"] == ["b", "a"]


async def test_the_command_line_shows_a_failed_undo_and_goes_on_with_it(
    wire: WireClient, environment: dict[str, str]
) -> None:
    run_id, _ = await undo_fails(wire)
    await wire.result(run_id)
    shown = await asyncio.to_thread(succeed, environment, ["get", run_id])
    assert "compensation_failed" in shown
    explained = await asyncio.to_thread(succeed, environment, ["explain", run_id])
    assert "compensation_failed" in explained
    assert "the door is closed" in explained
    await asyncio.to_thread(succeed, environment, ["retry", run_id])
    await do(wire, "undo.a")
    assert (await wire.result(run_id))["status"] == "compensated"
    status, said = await asyncio.to_thread(fail, environment, ["retry", run_id])
    assert status != 0
    assert "already_compensated" in said


@pytest.mark.parametrize("flags", [[], ["--compensate"]])
async def test_a_cancel_at_the_command_line_undoes(
    wire: WireClient, environment: dict[str, str], flags: list[str]
) -> None:
    run_id, third = await two_done(wire)
    done = await asyncio.to_thread(
        lambda: towpath("cancel", run_id, *flags, "--reason", "wrong", environment=environment)
    )
    assert done.returncode == 0, done.stderr
    assert "compensating" in done.stdout + done.stderr
    await wire.complete(third, "too late")
    undos = [await do(wire, "undo.b"), await do(wire, "undo.a")]
    assert [undo["compensation"]["error"] for undo in undos] == [None, None]
    run = await wire.result(run_id)
    assert (run["status"], run["compensation"]) == ("cancelled", "compensated")
    run = await wire.run(run_id)
    assert run["cancel_reason"] == "wrong"
    assert (await wire.step(run_id, "c"))["status"] == "cancelled"
