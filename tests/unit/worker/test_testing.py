"""The kit for people who test their tasks."""

import pytest

from towpath_worker import Compensation, Context, TerminalError, Worker
from towpath_worker.testing import run_task

worker = Worker("inventory")


@worker.task("reserve")
async def reserve(order: dict[str, int], ctx: Context) -> dict[str, object]:
    ctx.heartbeat({"seen": ctx.attempt})
    ctx.set_metadata({"reserved": True})
    ctx.logger.info("attempt %d", ctx.attempt)
    return {"quantity": order["quantity"], "tenant": ctx.context["tenant"]}


@worker.task("refuse")
def refuse(ctx: Context) -> None:
    ctx.heartbeat()
    raise TerminalError("no", type="Refused", details=[1])


async def test_a_task_runs_as_the_engine_would_run_it() -> None:
    outcome = await run_task(worker, "reserve", {"quantity": 2}, attempt=3, context={"tenant": "t"})
    assert outcome.completed
    assert outcome.output == {"quantity": 2, "tenant": "t"}
    assert (outcome.metadata, outcome.progress) == ({"reserved": True}, {"seen": 3})
    assert (outcome.heartbeats, list(outcome.logs)) == (1, ["attempt 3"])


async def test_a_failure_is_an_outcome_too() -> None:
    outcome = await run_task(worker, "refuse")
    assert not outcome.completed
    assert (outcome.error_type, outcome.retryable, outcome.details) == ("Refused", False, [1])
    assert outcome.heartbeats == 1


@worker.task("release")
async def release(what: dict[str, int], ctx: Context) -> dict[str, object]:
    assert ctx.compensation is not None
    error = ctx.compensation.error
    return {"freed": what["id"], "of": ctx.compensation.step, "for": error and error["type"]}


async def test_a_task_can_be_run_to_undo_a_step() -> None:
    undone = Compensation(step="reserve", output={"id": 7}, error={"type": "Declined"})
    outcome = await run_task(worker, "release", {"id": 7}, compensation=undone)
    assert outcome.output == {"freed": 7, "of": "reserve", "for": "Declined"}


async def test_a_task_that_is_not_there_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match="nowhere"):
        await run_task(worker, "nowhere")
