"""run.retry and run.redrive on real servers: what goes on, with which key, input and deadline."""

import asyncio
from typing import Any

import pytest

from tests.support.wire_client import RefusedError, WireClient, new_key
from tests.support.workflows import chain, one_task, one_wait
from towpath_engine.services.engine import Engine

Json = Any


async def _failed_chain(wire: WireClient, length: int = 3, *, at: int = 1, **start: Json) -> str:
    """A run of a chain whose step `at` has failed."""
    await wire.deploy(chain(length=length))
    run_id = await wire.start("chain", {"n": 1}, **start)
    for number in range(at):
        await wire.complete(await wire.take(), {"out": number})
    await wire.fail(await wire.take(), type="Down", message="no carrier")
    result = await wire.result(run_id)
    assert result["status"] == "failed"
    return run_id


async def _refusal(wire: WireClient, verb: str, **body: Json) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await wire.api(verb, **body)
    return caught.value


async def test_a_retry_goes_on_from_the_failed_step_and_keeps_what_was_done(
    wire: WireClient,
) -> None:
    run_id = await _failed_chain(wire)
    answer = await wire.api("run.retry", run_id=run_id, by="ada", reason="carrier is back")
    assert answer == {"run_id": run_id, "status": "running", "steps": ["s1"], "dry_run": False}
    run = await wire.run(run_id)
    assert (run["status"], run["error"], run["settled_at"]) == ("running", None, None)
    dispatch = await wire.take()
    assert (dispatch["step"], dispatch["attempt"]) == ("s1", 1)
    assert dispatch["last_error"]["type"] == "Down"
    await wire.complete(dispatch, 1)
    await wire.complete(await wire.take(), 2)
    result = await wire.result(run_id)
    assert (result["status"], result["output"]) == ("completed", 2)
    rows = await wire.history(run_id)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    retried = next(row for row in rows if row["what"] == "run-retried")
    assert (retried["cause"]["by"], retried["cause"]["reason"]) == ("ada", "carrier is back")
    assert retried["data"]["steps"] == ["s1"]
    assert retried["data"]["input_edited"] is False
    assert [row["what"] for row in rows if row["step"] == "s0"].count("step-dispatched") == 1


async def test_a_retried_step_keeps_its_idempotency_key_and_a_redriven_one_gets_another(
    wire: WireClient,
) -> None:
    await wire.deploy(chain(length=2))
    run_id = await wire.start("chain")
    first = await wire.take()
    await wire.complete(first, 0)
    failed = await wire.take()
    await wire.fail(failed)
    await wire.result(run_id)
    await wire.api("run.retry", run_id=run_id)
    retried = await wire.take()
    assert retried["idempotency_key"] == failed["idempotency_key"]
    assert retried["token"] != failed["token"]
    await wire.fail(retried)
    await wire.result(run_id)
    answer = await wire.api("run.redrive", run_id=run_id, step="s0")
    assert answer["steps"] == ["s0", "s1"]
    again = await wire.take()
    assert again["step"] == "s0"
    assert again["idempotency_key"] != first["idempotency_key"]
    await wire.complete(again, 1)
    last = await wire.take()
    assert last["idempotency_key"] != failed["idempotency_key"]
    await wire.complete(last, 2)
    assert (await wire.result(run_id))["output"] == 2


@pytest.mark.parametrize("value", [None, {"to": "Rue de l\u2019Été 3"}, 0, ""])
async def test_an_edited_input_replaces_that_of_the_failed_step(
    wire: WireClient, value: Json
) -> None:
    run_id = await _failed_chain(wire, 2)
    await wire.api("run.retry", run_id=run_id, input=value)
    dispatch = await wire.take()
    assert dispatch["input"] == value
    await wire.complete(dispatch, "ok")
    assert (await wire.result(run_id))["status"] == "completed"
    rows = await wire.history(run_id)
    assert next(row for row in rows if row["what"] == "run-retried")["data"]["input_edited"]


async def test_a_redrive_takes_an_edited_input_too(wire: WireClient) -> None:
    run_id = await _failed_chain(wire, 2)
    await wire.api("run.redrive", run_id=run_id, step="s0", input={"n": 2})
    first = await wire.take()
    assert (first["step"], first["input"]) == ("s0", {"n": 2})
    await wire.complete(first)
    assert (await wire.take())["input"] == {"n": 1}


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(wire: WireClient) -> None:
    run_id = await _failed_chain(wire, key=new_key())
    before, history = await wire.run(run_id), await wire.history(run_id)
    would_retry = await wire.api("run.retry", run_id=run_id, dry_run=True)
    assert would_retry == {
        "run_id": run_id, "status": "running", "steps": ["s1"], "dry_run": True,
    }  # fmt: skip
    would_redrive = await wire.api("run.redrive", run_id=run_id, step="s0", dry_run=True)
    assert would_redrive["steps"] == ["s0", "s1"]
    assert await wire.run(run_id) == before
    assert await wire.history(run_id) == history
    # The key is as free as before.
    assert (await wire.start("chain", key=before["key"])) != run_id


async def test_a_retried_run_has_its_key_again_until_it_settles(wire: WireClient) -> None:
    key = new_key()
    run_id = await _failed_chain(wire, 2, key=key)
    await wire.api("run.retry", run_id=run_id)
    again = await wire.api("run.start", workflow="chain", input=None, key=key)
    assert again == {"run_id": run_id, "deduplicated": True}
    await wire.complete(await wire.take())
    await wire.result(run_id)
    other = await wire.api("run.start", workflow="chain", input=None, key=key)
    assert not other["deduplicated"]


async def test_a_run_whose_key_is_live_elsewhere_does_not_go_on(wire: WireClient) -> None:
    key = new_key()
    run_id = await _failed_chain(wire, 2, key=key)
    other = await wire.start("chain", key=key)
    for verb, more in (("run.retry", {}), ("run.redrive", {"step": "s0"})):
        for dry_run in (True, False):
            error = await _refusal(wire, verb, run_id=run_id, dry_run=dry_run, **more)
            assert (error.status, error.code) == (409, "key_conflict")
            assert error.details == {"run_id": other}
    assert (await wire.run(run_id))["status"] == "failed"
    await wire.api("run.cancel", run_id=other)
    await wire.api("run.retry", run_id=run_id)
    assert (await wire.run(run_id))["status"] == "running"


async def test_a_refused_retry_leaves_the_key_free(wire: WireClient) -> None:
    key = new_key()
    run_id = await _failed_chain(wire, 3, key=key)
    error = await _refusal(wire, "run.redrive", run_id=run_id, step="s2")
    assert (error.status, error.code) == (409, "step_not_reached")
    error = await _refusal(wire, "run.redrive", run_id=run_id, step="nowhere")
    assert (error.status, error.code) == (404, "step_not_found")
    other = await wire.api("run.start", workflow="chain", input=None, key=key)
    assert not other["deduplicated"]


async def test_a_run_that_timed_out_goes_on_with_a_deadline_that_counts_anew(
    wire: WireClient,
) -> None:
    await wire.deploy({**one_task(), "timeout": "1s"})
    run_id = await wire.start("one")
    first = await wire.take()
    result = await wire.result(run_id)
    assert result["status"] == "timed_out"
    assert (await wire.step(run_id, "work"))["status"] == "cancelled"
    old = (await wire.run(run_id))["deadline_at"]
    await wire.api("run.retry", run_id=run_id)
    assert (await wire.run(run_id))["deadline_at"] > old
    again = await wire.take()
    assert again["idempotency_key"] == first["idempotency_key"]
    await wire.complete(again, "in time")
    assert (await wire.result(run_id))["output"] == "in time"


async def test_a_retried_deadline_times_out_again(wire: WireClient) -> None:
    await wire.deploy({**one_task(), "timeout": "1s"})
    run_id = await wire.start("one")
    await wire.result(run_id)
    await wire.api("run.retry", run_id=run_id)
    assert (await wire.result(run_id))["status"] == "timed_out"


async def test_a_redone_wait_waits_for_a_new_signal_and_a_kept_one_is_not_lost(
    wire: WireClient,
) -> None:
    definition = {
        "workflow": "asks",
        "steps": [
            {"name": "ask", "wait": {"signal": "go"}},
            {"name": "work", "task": "do.it"},
            {"name": "confirm", "wait": {"signal": "sure"}},
        ],
    }
    await wire.deploy(definition)
    run_id = await wire.start("asks")
    await wire.api("run.signal", run_id=run_id, signal="sure", payload="early")
    await wire.api("run.signal", run_id=run_id, signal="go", payload=1)
    await wire.fail(await wire.take())
    await wire.result(run_id)
    await wire.api("run.redrive", run_id=run_id, step="ask")
    waiting = await wire.step_in(run_id, "ask", "waiting")
    assert waiting["output"] is None
    await wire.api("run.signal", run_id=run_id, signal="go", payload=2)
    await wire.complete(await wire.take())
    result = await wire.result(run_id)
    assert result["status"] == "completed"
    assert result["output"]["payload"] == "early"


async def test_later_steps_are_pending_and_their_outputs_gone_after_a_redrive(
    wire: WireClient,
) -> None:
    run_id = await _failed_chain(wire, 4, at=2)
    await wire.api("run.redrive", run_id=run_id, step="s1")
    steps = {step["step"]: step for step in (await wire.run(run_id))["steps"]}
    assert {name: step["status"] for name, step in steps.items()} == {
        "s0": "completed", "s1": "dispatched", "s2": "pending", "s3": "pending",
    }  # fmt: skip
    assert steps["s1"]["output"] is None
    assert steps["s2"]["error"] is None


async def test_a_report_of_an_attempt_before_the_retry_changes_nothing(
    wire: WireClient, engine: Engine
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    old = await wire.take()
    await wire.fail(old)
    await wire.result(run_id)
    await wire.api("run.retry", run_id=run_id)
    new = await wire.take()
    await wire.complete(old, "late")
    await wire.complete(new, "mine")
    assert (await wire.result(run_id))["output"] == "mine"


async def test_a_cancel_with_compensation_cancels_what_has_nothing_to_undo(
    wire: WireClient,
) -> None:
    await wire.deploy(one_wait())
    run_id = await wire.start("waiting")
    answer = await wire.api("run.cancel", run_id=run_id, compensate=True)
    assert answer == {"run_id": run_id, "status": "cancelled"}
    assert (await wire.run(run_id))["compensation"] is None


async def test_an_edited_input_over_the_limit_is_refused(wire: WireClient) -> None:
    run_id = await _failed_chain(wire, 2)
    error = await _refusal(wire, "run.retry", run_id=run_id, input="x" * (256 * 1024))
    assert (error.status, error.code) == (413, "too_large")
    assert (await wire.run(run_id))["status"] == "failed"


async def test_a_retry_of_a_paused_task_is_held_back_until_it_is_resumed(wire: WireClient) -> None:
    run_id = await _failed_chain(wire, 2)
    await wire.api("task.pause", task="t1")
    assert (await wire.api("run.retry", run_id=run_id))["status"] == "running"
    assert (await wire.step(run_id, "s1"))["held_by"].startswith("task")
    await wire.api("task.resume", task="t1")
    await wire.complete(await wire.take())
    assert (await wire.result(run_id))["status"] == "completed"


async def test_a_run_of_a_thousand_steps_goes_back_to_the_first(wire: WireClient) -> None:
    passes = [{"name": f"p{number}", "pass": number} for number in range(998)]
    tasks = [{"name": "work", "task": "do.it"}, {"name": "last", "task": "do.it"}]
    await wire.deploy({"workflow": "long", "steps": [*passes, *tasks]})
    run_id = await wire.start("long")
    await wire.fail(await wire.take())
    assert (await wire.result(run_id))["status"] == "failed"
    answer = await wire.api("run.redrive", run_id=run_id, step="p0")
    assert len(answer["steps"]) == 999
    again = await wire.take()
    assert again["step"] == "work"
    await wire.complete(again)
    await wire.complete(await wire.take(), "end")
    assert (await wire.result(run_id))["output"] == "end"
    rows = await wire.history(run_id)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert sum(row["what"] == "step-reset" for row in rows) == 1_000


async def _whats(wire: WireClient, run_id: str) -> list[str]:
    return [row["what"] for row in await wire.history(run_id)]


async def test_a_repeated_retry_or_redrive_does_nothing_whatever_became_of_the_run(
    wire: WireClient,
) -> None:
    run_id = await _failed_chain(wire, key=new_key())
    first = await wire.api("run.retry", run_id=run_id, request_id="r1")
    assert (first["steps"], first.get("deduplicated")) == (["s1"], None)
    repeat: Json = {
        "run_id": run_id, "status": "running", "steps": [], "dry_run": False, "deduplicated": True,
    }  # fmt: skip
    assert await wire.api("run.retry", run_id=run_id, request_id="r1") == repeat
    await wire.fail(await wire.take(), type="Down", retryable=False)
    assert (await wire.result(run_id))["status"] == "failed"
    # It has failed once more, and its key is free: the repeat leaves both as they are.
    failed: Json = {**repeat, "status": "failed"}
    assert await wire.api("run.retry", run_id=run_id, request_id="r1") == failed
    assert await wire.api("run.retry", run_id=run_id, request_id="r1", dry_run=True) == {
        "run_id": run_id, "status": "running", "steps": ["s1"], "dry_run": True,
    }  # fmt: skip
    # Another verb, and another id, are other requests.
    again = await wire.api("run.redrive", run_id=run_id, step="s0", request_id="r1")
    assert again["steps"] == ["s0", "s1"]
    again = await wire.api("run.redrive", run_id=run_id, step="s0", request_id="r1")
    assert (again["steps"], again["deduplicated"]) == ([], True)
    whats = await _whats(wire, run_id)
    assert (whats.count("run-retried"), whats.count("run-redriven")) == (1, 1)


async def test_a_repeated_retry_takes_no_key_from_the_run_that_has_it_by_now(
    wire: WireClient,
) -> None:
    key = new_key()
    run_id = await _failed_chain(wire, key=key)
    await wire.api("run.retry", run_id=run_id, request_id="r1")
    await wire.fail(await wire.take(), type="Down", retryable=False)
    assert (await wire.result(run_id))["status"] == "failed"
    repeat = await wire.api("run.retry", run_id=run_id, request_id="r1")
    assert (repeat["status"], repeat["deduplicated"]) == ("failed", True)
    new = await wire.api("run.start", workflow="chain", input={"n": 1}, key=key)
    assert (new["run_id"] != run_id, new["deduplicated"]) == (True, False)
    assert (await wire.api("run.retry", run_id=run_id, request_id="r1")) == repeat


async def test_of_repeats_that_come_at_once_one_is_carried_out(wire: WireClient) -> None:
    run_id = await _failed_chain(wire, key=new_key())
    answers = await asyncio.gather(
        *[wire.api("run.retry", run_id=run_id, request_id="r1") for _ in range(8)]
    )
    assert sorted(answer.get("deduplicated", False) for answer in answers) == [False] + [True] * 7
    assert (await _whats(wire, run_id)).count("run-retried") == 1


async def test_a_refused_retry_has_not_used_its_id_and_a_start_has_ids_of_its_own(
    wire: WireClient,
) -> None:
    run_id = await _failed_chain(wire, request_id="r1")
    error = await _refusal(wire, "run.retry", run_id=run_id, step="s0", request_id="r1")
    assert error.code == "not_retryable"
    assert (await wire.api("run.retry", run_id=run_id, request_id="r1"))["steps"] == ["s1"]
    assert (await wire.api("run.retry", run_id=run_id, request_id="r1"))["deduplicated"]
    assert await wire.start("chain", {"n": 1}, request_id="r1") == run_id
