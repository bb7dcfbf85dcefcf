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


def command(environment: dict[str, str], *arguments: str) -> str:
    """All that a command that succeeds says."""
    done = towpath(*arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


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
    retried = await asyncio.to_thread(command, environment, "retry", run_id)
    assert retried.strip() == f"Run {run_id} is compensating; again: a."
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
    said = await asyncio.to_thread(
        command, environment, "cancel", run_id, *flags, "--reason", "wrong"
    )
    assert "compensating" in said
    await wire.complete(third, "too late")
    undos = [await do(wire, "undo.b"), await do(wire, "undo.a")]
    assert [undo["compensation"]["error"] for undo in undos] == [None, None]
    run = await wire.result(run_id)
    assert (run["status"], run["compensation"]) == ("cancelled", "compensated")
    run = await wire.run(run_id)
    assert run["cancel_reason"] == "wrong"
    assert (await wire.step(run_id, "c"))["status"] == "cancelled"


async def test_a_cancel_without_compensation_undoes_nothing(
    wire: WireClient, environment: dict[str, str]
) -> None:
    run_id, third = await two_done(wire)
    said = await asyncio.to_thread(command, environment, "cancel", run_id, "--no-compensate")
    assert "compensating" not in said
    run = await wire.result(run_id)
    assert (run["status"], run.get("compensation")) == ("cancelled", None)
    await wire.complete(third)
    assert (await wire.step(run_id, "a"))["status"] == "completed"
    assert "step-compensating" not in [row["what"] for row in await wire.history(run_id)]


async def test_a_run_over_its_deadline_is_undone_and_keeps_both_facts(wire: WireClient) -> None:
    late = [*TWO["steps"][:2], {"name": "c", "wait": {"signal": "never"}}]
    await wire.deploy({**TWO, "timeout": "3s", "steps": late})
    run_id = await wire.start("two")
    await wire.complete(await wire.take(), "A")
    await wire.complete(await wire.take(), "B")
    undo = await do(wire, "undo.b")
    assert undo["deadline"] is None  # that of the run has passed
    run = await wire.run(run_id)
    assert (run["status"], run["ending"], run["compensation"]) == (
        "compensating", "timed_out", "compensating",
    )  # fmt: skip
    await do(wire, "undo.a")
    result = await wire.result(run_id)
    assert (result["status"], result["compensation"]) == ("timed_out", "compensated")
    with pytest.raises(RefusedError) as caught:
        await wire.api("run.retry", run_id=run_id)
    assert (caught.value.status, caught.value.code) == (409, "already_compensated")


async def test_with_on_failure_fail_a_deadline_undoes_nothing(wire: WireClient) -> None:
    late = [*TWO["steps"][:1], {"name": "c", "wait": {"signal": "never"}}]
    await wire.deploy({**TWO, "timeout": "1s", "on_failure": "fail", "steps": late})
    run_id = await wire.start("two")
    await wire.complete(await wire.take(), "A")
    result = await wire.result(run_id)
    assert (result["status"], result.get("compensation")) == ("timed_out", None)
    assert (await wire.step(run_id, "a"))["status"] == "completed"


@pytest.mark.parametrize("verb", ["run.retry", "run.redrive"])
async def test_a_run_of_which_a_step_was_undone_is_not_retried(wire: WireClient, verb: str) -> None:
    run_id, third = await two_done(wire)
    await wire.fail(third, retryable=False)
    step = {} if verb == "run.retry" else {"step": "a"}
    undo = await wire.take()
    with pytest.raises(RefusedError) as caught:
        await wire.api(verb, run_id=run_id, **step)
    assert (caught.value.status, caught.value.code) == (409, "run_not_settled")
    with pytest.raises(RefusedError) as caught:
        await wire.api("run.cancel", run_id=run_id)
    assert (caught.value.status, caught.value.code) == (409, "compensating")
    await wire.complete(undo)
    await do(wire, "undo.a")
    await wire.result(run_id)
    rows = await wire.history(run_id)
    with pytest.raises(RefusedError) as caught:
        await wire.api(verb, run_id=run_id, **step)
    assert (caught.value.status, caught.value.code) == (409, "already_compensated")
    # What workers still say of undos that are over changes nothing.
    await wire.fail(undo)
    assert await wire.history(run_id) == rows
    answer = await wire.api("run.restart", run_id=run_id)
    assert (await wire.take())["run_id"] == answer["run_id"]


async def test_a_cancelled_run_whose_undo_failed_goes_on_undoing_and_stays_cancelled(
    wire: WireClient,
) -> None:
    run_id, third = await two_done(wire)
    await wire.api("run.cancel", run_id=run_id, compensate=True)
    await wire.fail(await wire.take(), retryable=False)
    result = await wire.result(run_id)
    assert (result["status"], result["compensation"]) == ("cancelled", "compensation_failed")
    await wire.api("run.retry", run_id=run_id)
    await do(wire, "undo.b")
    await do(wire, "undo.a")
    result = await wire.result(run_id)
    assert (result["status"], result["compensation"]) == ("cancelled", "compensated")
    await wire.complete(third)
    assert (await wire.step(run_id, "c"))["status"] == "cancelled"


async def test_an_undo_has_timeouts_and_retries_of_its_own(wire: WireClient) -> None:
    undo = {"task": "undo.a", "queue": "undos", "timeouts": {"attempt": "300ms"}, "retry": FAST}
    steps = [{"name": "a", "task": "a", "compensate": undo}, {"name": "c", "task": "c"}]
    await wire.deploy({"workflow": "two", "steps": steps})
    run_id = await wire.start("two")
    await wire.complete(await wire.take(), "A")
    await wire.fail(await wire.take(), retryable=False)
    slow, _ = await wire.pull("undos")
    second, _ = await wire.pull("undos")
    assert (second["attempt"], second["last_error"]["type"]) == (2, "Timeout")
    await wire.complete(slow)  # of an attempt that is over: it changes nothing
    assert (await wire.run(run_id))["status"] in {"compensating", "compensation_failed"}
    result = await wire.result(run_id)
    assert result["status"] == "compensation_failed"
    assert (await wire.step(run_id, "a"))["error"]["type"] == "Timeout"
