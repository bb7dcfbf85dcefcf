"""Nothing but the current token of a step changes anything (ARCHITECTURE, invariants 3 to 5)."""

from typing import Any

from tests.support.counted import counted
from tests.support.engines import running
from tests.support.eventually import eventually
from tests.support.wire_client import WireClient
from tests.support.workflows import chain, one_task
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings

Json = Any
REPLAYS = 100


async def _replay(wire: WireClient, dispatch: Json) -> None:
    """The finished attempt's report again, a hundred times, as fast as it goes."""
    for _ in range(REPLAYS):
        await wire.complete(dispatch, {"late": True}, worker_id="zombie")


async def _handled(engine: Engine, kind: str, outcome: str, count: int) -> None:
    """Wait until so many messages of a kind had this outcome."""

    async def reached() -> bool:
        return counted(engine, "message_outcome_total", kind=kind, outcome=outcome) >= count

    await eventually(reached)


async def test_a_report_replayed_late_changes_nothing(wire: WireClient, engine: Engine) -> None:
    await wire.deploy(chain(length=2))
    run_id = await wire.start("chain")
    first = await wire.take()
    await wire.complete(first, 1)
    second = await wire.take()
    before = await wire.history(run_id)
    await _replay(wire, first)
    await _handled(engine, "step-completed", "stale", REPLAYS)
    assert await wire.history(run_id) == before
    await wire.complete(second, 2)
    result = await wire.result(run_id)
    settled = await wire.history(run_id)
    await _replay(wire, second)
    await _handled(engine, "step-completed", "stale", 2 * REPLAYS)
    assert await wire.result(run_id) == result
    assert await wire.history(run_id) == settled
    assert await wire.dead_letters() == []


async def test_a_report_after_a_cancel_changes_nothing(wire: WireClient, engine: Engine) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    dispatch = await wire.take()
    await wire.api("run.cancel", run_id=run_id, by="me", reason="changed my mind")
    before = await wire.run(run_id)
    assert before["status"] == "cancelled"
    history = await wire.history(run_id)
    await _replay(wire, dispatch)
    await _handled(engine, "step-completed", "stale", REPLAYS)
    assert await wire.run(run_id) == before
    assert await wire.history(run_id) == history


async def test_a_report_of_an_attempt_that_was_retried_changes_nothing(
    wire: WireClient, engine: Engine
) -> None:
    retry = {"max_attempts": 2, "backoff": {"initial": "1ms", "jitter": 0}}
    await wire.deploy(one_task(retry=retry))
    run_id = await wire.start("one")
    first = await wire.take()
    await wire.fail(first)
    second = await wire.take()
    history = await wire.history(run_id)
    await _replay(wire, first)
    await _handled(engine, "step-completed", "stale", REPLAYS)
    assert await wire.history(run_id) == history
    await wire.complete(second, "mine")
    assert (await wire.result(run_id))["output"] == "mine"


async def test_a_token_of_another_step_is_a_dead_letter(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    dispatch = await wire.take()
    await wire.complete(dispatch, 1, step="something_else")

    async def buried() -> Json:
        return await wire.dead_letters()

    letters = await eventually(buried)
    assert letters[0]["reason"] == "subject_mismatch"
    assert (await wire.run(run_id))["status"] == "running"
    await wire.complete(dispatch, 2)
    assert (await wire.result(run_id))["output"] == 2


async def test_a_report_on_another_queue_is_a_dead_letter(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    dispatch = await wire.take()
    await wire.complete({**dispatch, "queue": "stolen"}, 1)

    async def buried() -> Json:
        return await wire.dead_letters()

    letters = await eventually(buried)
    assert letters[0]["reason"] == "subject_mismatch"
    await wire.complete(dispatch, 2)
    assert (await wire.result(run_id))["output"] == 2


async def test_a_release_hands_the_attempt_out_again_without_spending_it(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    first = await wire.take()
    await wire.report(first, "step-released", reason="drain", worker_id="w1")
    second = await wire.take()
    assert second["token"] != first["token"]
    assert second["attempt"] == 1
    await wire.complete(second, "ok")
    assert (await wire.result(run_id))["output"] == "ok"


async def test_two_engines_with_old_copies_of_a_run_lose_no_report_of_it(
    wire: WireClient, engine: Engine, settings: Settings
) -> None:
    # Either engine gets the next report, and then decides on the copy it has: mostly an old one.
    retry = {"max_attempts": 2, "backoff": {"initial": "1ms", "jitter": 0}}
    document = chain(length=6)
    document["steps"] = [{**step, "retry": retry} for step in document["steps"]]
    await wire.deploy(document)
    async with running(settings) as other:
        run_ids = [await wire.start("chain") for _ in range(5)]
        for attempt in range(6 * 2 * len(run_ids)):
            dispatch = await wire.take()
            if dispatch["attempt"] == 1:
                await wire.fail(dispatch)
            else:
                await wire.complete(dispatch, attempt)
        for run_id in run_ids:
            assert (await wire.result(run_id))["status"] == "completed"
        assert await wire.dead_letters() == []
        shares = [
            counted(one, "message_outcome_total", kind="step-failed", outcome="applied")
            for one in (engine, other)
        ]
    assert sum(shares) == 6 * len(run_ids)
