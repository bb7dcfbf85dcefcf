"""Every cell of the table of operations through the API, on real servers.

A run for each cell. A timer that is not due can't be had from outside: the core's test does it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.counted import counted
from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient
from towpath_engine.core.operations import OPERATIONS, Answer, Effect, Operation
from towpath_engine.core.states import RunStatus
from towpath_engine.services.engine import Engine
from towpath_protocol.errors import ERRORS

Json = Any
STATUSES = list(RunStatus)
WORKFLOW: Json = {
    "workflow": "all",
    "steps": [
        {"name": "first", "task": "do.first"},
        {"name": "work", "task": "do.it"},
        {"name": "ask", "wait": {"signal": "go"}},
    ],
}
UNDOING = {RunStatus.COMPENSATING, RunStatus.COMPENSATED, RunStatus.COMPENSATION_FAILED}
OLD_TOKEN = "a-token-that-nobody-gave-out"


class Case:
    """A run in a status, with a token that is not (any more) that of a live attempt."""

    def __init__(self, wire: WireClient, engine: Engine, run_id: str, old: Json) -> None:
        self.wire = wire
        self.engine = engine
        self.run_id = run_id
        self.old = old

    async def ask(self, verb: str, **body: Json) -> Json:
        return await self.wire.api(verb, run_id=self.run_id, **body)

    async def ended_at(self) -> list[str]:
        """The steps that failed or were cut off."""
        steps = (await self.wire.run(self.run_id))["steps"]
        return [step["step"] for step in steps if step["status"] in {"failed", "cancelled"}]


async def _take(wire: WireClient, run_id: str, step: str) -> Json:
    """The next dispatch of this step; one that was cut off may still lie before it."""
    while True:
        dispatch = await wire.take()
        if (dispatch["run_id"], dispatch["step"]) == (run_id, step):
            return dispatch


async def _on_its_way(wire: WireClient, engine: Engine, status: RunStatus) -> Case:
    """A run that will have this status, sooner or later."""
    workflow = "brief" if status is RunStatus.TIMED_OUT else "all"
    if status in UNDOING:
        workflow = "undone"
    delay = {"delay_ms": 3_600_000} if status is RunStatus.PENDING else {}
    run_id = await wire.start(workflow, {"n": 1}, **delay)
    old = {"queue": "default", "run_id": run_id, "token": OLD_TOKEN}
    if status is not RunStatus.PENDING:
        old = await _take(wire, run_id, "first")
        await wire.complete(old, 1)
    if status not in {RunStatus.PENDING, RunStatus.TIMED_OUT}:
        work = await _take(wire, run_id, "work")
        if status in {RunStatus.WAITING, RunStatus.COMPLETED}:
            await wire.complete(work, 2)
            await wire.step_in(run_id, "ask", "waiting")
        if status is RunStatus.COMPLETED:
            await wire.api("run.signal", run_id=run_id, signal="go")
        if status is RunStatus.FAILED or status in UNDOING:
            await wire.fail(work)
        if status in UNDOING:
            await _undo(wire, run_id, status)
        if status is RunStatus.CANCELLED:
            await wire.api("run.cancel", run_id=run_id)
    return Case(wire, engine, run_id, old)


async def _undo(wire: WireClient, run_id: str, status: RunStatus) -> None:
    """What becomes of the undo of the first step, as far as it goes."""
    undo = await _take(wire, run_id, "first")
    assert undo["compensation"] == {
        "step": "first",
        "output": 1,
        "error": undo["compensation"]["error"],
    }
    assert undo["compensation"]["error"]["type"] == "Broken"
    if status is RunStatus.COMPENSATED:
        await wire.complete(undo, "undone")
    if status is RunStatus.COMPENSATION_FAILED:
        await wire.fail(undo)


async def _arrived(case: Case, status: RunStatus) -> None:
    async def there() -> bool:
        return (await case.wire.run(case.run_id))["status"] == status.value

    await eventually(there)


async def _signal(case: Case, answer: Answer) -> None:
    assert not (await case.ask("run.signal", signal="other"))["deduplicated"]
    assert (await case.wire.history(case.run_id))[-1]["what"] == "run-signalled"


async def _cancel(case: Case, answer: Answer) -> None:
    assert (await case.ask("run.cancel"))["status"] == "cancelled"
    assert (await case.wire.run(case.run_id))["status"] == "cancelled"


async def _pause(case: Case, answer: Answer) -> None:
    said = await case.ask("run.pause", by="ada")
    assert (said["paused"], said["changed"]) == (True, True)
    again = await case.ask("run.pause", by="ada")
    assert (again["paused"], again["changed"]) == (True, False)


async def _resume(case: Case, answer: Answer) -> None:
    assert not (await case.ask("run.resume"))["changed"]
    await case.ask("run.pause")
    said = await case.ask("run.resume")
    assert (said["paused"], said["changed"]) == (False, True)


async def _retry(case: Case, answer: Answer) -> None:
    undoing = (await case.wire.run(case.run_id))["status"] == "compensation_failed"
    ended_at = ["first"] if undoing else await case.ended_at()
    assert (await case.ask("run.retry"))["steps"] == ended_at
    assert (await _take(case.wire, case.run_id, ended_at[0]))["attempt"] == 1


async def _redrive(case: Case, answer: Answer) -> None:
    assert "first" in (await case.ask("run.redrive", step="first"))["steps"]
    again = await _take(case.wire, case.run_id, "first")
    assert again["idempotency_key"] != case.old["idempotency_key"]


async def _restart(case: Case, answer: Answer) -> None:
    said = await case.ask("run.restart")
    other = await case.wire.run(said["run_id"])
    assert other["restarted_from"] == case.run_id
    await case.wire.api("run.cancel", run_id=other["run_id"])


async def _purge(case: Case, answer: Answer) -> None:
    assert (await case.ask("run.purge"))["purged"] == 1
    with pytest.raises(RefusedError) as caught:
        await case.wire.run(case.run_id)
    assert caught.value.code == "run_not_found"


async def _result(case: Case, answer: Answer) -> None:
    status = (await case.wire.run(case.run_id))["status"]
    said = await case.ask("run.result", wait_ms=0)
    assert said["status"] == status
    assert said["settled"] == (status not in {"pending", "running", "waiting", "compensating"})


async def _report(case: Case, answer: Answer) -> None:
    before = counted(case.engine, "message_outcome_total", kind="step-completed", outcome="stale")
    await case.wire.complete(case.old, "late")

    async def handled() -> bool:
        now = counted(case.engine, "message_outcome_total", kind="step-completed", outcome="stale")
        return now > before

    await eventually(handled)


DOING: dict[Operation, Callable[[Case, Answer], Awaitable[None]]] = {
    Operation.SIGNAL: _signal,
    Operation.CANCEL: _cancel,
    Operation.PAUSE: _pause,
    Operation.RESUME: _resume,
    Operation.RETRY: _retry,
    Operation.REDRIVE: _redrive,
    Operation.RESTART: _restart,
    Operation.PURGE: _purge,
    Operation.RESULT: _result,
    Operation.REPORT: _report,
}
BODIES: dict[Operation, Json] = {
    Operation.SIGNAL: {"signal": "go"},
    Operation.REDRIVE: {"step": "first"},
}


async def _refused(case: Case, operation: Operation, answer: Answer) -> None:
    with pytest.raises(RefusedError) as caught:
        await case.ask(operation.value, **BODIES.get(operation, {}))
    assert answer.code is not None
    assert caught.value.code == answer.code.value
    assert caught.value.status == ERRORS[answer.code].status


async def _check(case: Case, operation: Operation, status: RunStatus) -> None:
    answer = OPERATIONS[operation][status]
    run, history = await case.wire.run(case.run_id), await case.wire.history(case.run_id)
    if answer.effect is Effect.REFUSED:
        await _refused(case, operation, answer)
    else:
        await DOING[operation](case, answer)
    if answer.effect is not Effect.DONE:
        assert await case.wire.run(case.run_id) == run
        assert await case.wire.history(case.run_id) == history


@pytest.mark.parametrize("status", STATUSES, ids=str)
async def test_every_operation_does_through_the_api_what_the_table_says(
    wire: WireClient, engine: Engine, status: RunStatus
) -> None:
    await wire.deploy(WORKFLOW)
    await wire.deploy({**WORKFLOW, "workflow": "brief", "timeout": "1s"})
    first = {**WORKFLOW["steps"][0], "compensate": {"task": "undo.first"}}
    await wire.deploy({**WORKFLOW, "workflow": "undone", "steps": [first, *WORKFLOW["steps"][1:]]})
    # All of them first, so that all deadlines pass at once.
    cases = {operation: await _on_its_way(wire, engine, status) for operation in DOING}
    for operation, case in cases.items():
        await _arrived(case, status)
        await _check(case, operation, status)
