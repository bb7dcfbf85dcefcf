"""Child runs on real servers: started, awaited, cancelled and told of by messages between runs."""

from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.wire_client import WireClient, new_key

Json = Any

CHILD = {
    "workflow": "invoice",
    "input": {"type": "object", "required": ["total"]},
    "steps": [{"name": "send", "task": "invoice.send"}],
}
SENT = {"workflow": "invoice", "input": {"total": "${ input.total }"}}


def parent(run: Json | None = None, **step: Json) -> Json:
    """A workflow that has one child, whatever becomes of it."""
    return {
        "workflow": "order",
        "steps": [{"name": "invoice", "run": run or SENT, **step}],
    }


async def child_of(wire: WireClient, run_id: str, step: str = "invoice") -> str:
    """The child of the step, once it is there."""
    child_id = (await wire.step_in(run_id, step, "waiting", "completed"))["child_run_id"]

    async def there() -> Json:
        listed = (await wire.api("run.list", limit=100))["runs"]
        return [run for run in listed if run["run_id"] == child_id]

    await eventually(there)
    return child_id


async def ordered(wire: WireClient, definition: Json | None = None, **start: Json) -> str:
    """A run that waits for its child."""
    await wire.deploy(CHILD)
    await wire.deploy(definition or parent())
    return await wire.start("order", {"total": 7}, **start)


async def failure(wire: WireClient, run_id: str) -> Json:
    """The error of a run that has failed."""
    result = await wire.result(run_id)
    assert result["status"] == "failed", result
    return (await wire.run(run_id))["error"]


async def test_a_run_waits_for_its_child_and_has_its_output(wire: WireClient) -> None:
    run_id = await ordered(wire, context={"tenant": "t"}, priority="high")
    child_id = await child_of(wire, run_id)
    dispatch = await wire.take(level=1)
    assert (dispatch["run_id"], dispatch["input"]) == (child_id, {"total": 7})
    assert dispatch["context"] == {"tenant": "t"}
    child, run = await wire.run(child_id), await wire.run(run_id)
    assert (child["parent_run_id"], child["parent_step"]) == (run_id, "invoice")
    assert (run["status"], run["steps"][0]["waiting_for"]) == ("waiting", "child")
    explained = await wire.api("run.explain", run_id=run_id)
    assert child_id in str(explained)
    await wire.complete(dispatch, {"paid": True})
    result = await wire.result(run_id)
    assert (result["status"], result["output"]) == ("completed", {"paid": True})


async def test_the_newest_version_is_run_unless_the_step_names_one(wire: WireClient) -> None:
    steps = [{"name": "which", "pass": 2}]
    await wire.deploy({"workflow": "invoice", "steps": [{"name": "which", "pass": 1}]})
    await wire.deploy({"workflow": "invoice", "steps": steps})
    both = [
        {"name": "newest", "run": {"workflow": "invoice"}},
        {"name": "first", "run": {"workflow": "invoice", "version": 1}},
    ]
    output = "${ [steps.newest.output, steps.first.output] }"
    await wire.deploy({"workflow": "order", "steps": both, "output": output})
    assert (await wire.result(await wire.start("order")))["output"] == [2, 1]


async def test_a_detached_child_goes_its_own_way(wire: WireClient) -> None:
    run_id = await ordered(wire, parent({**SENT, "detached": True}))
    result = await wire.result(run_id)
    child_id = result["output"]["run_id"]
    assert result["status"] == "completed"
    child = await wire.run(child_id)
    assert (child["parent_run_id"], child.get("parent_step")) == (run_id, None)
    await wire.complete(await wire.take(), 1)
    assert (await wire.result(child_id))["status"] == "completed"


async def test_a_cancel_leaves_a_detached_child_alone(wire: WireClient) -> None:
    definition = parent({**SENT, "detached": True})
    definition["steps"].append({"name": "nap", "sleep": "1h"})
    run_id = await ordered(wire, definition)
    await wire.step_in(run_id, "nap", "waiting")
    child_id = await child_of(wire, run_id)
    await wire.api("run.cancel", run_id=run_id)
    assert (await wire.result(run_id))["status"] == "cancelled"
    await wire.complete(await wire.take(), 1)
    assert (await wire.result(child_id))["status"] == "completed"


async def test_a_failed_child_fails_its_step_with_its_error_inside(wire: WireClient) -> None:
    run_id = await ordered(wire)
    child_id = await child_of(wire, run_id)
    await wire.fail(await wire.take(), type="NoPaper", message="none left", retryable=False)
    error = await failure(wire, run_id)
    assert (error["type"], error["step"]) == ("ChildFailed", "invoice")
    assert (error["details"]["run_id"], error["details"]["status"]) == (child_id, "failed")
    assert error["details"]["error"]["type"] == "NoPaper"


async def test_a_failed_child_is_caught(wire: WireClient) -> None:
    definition = parent(
        catch=[{"errors": ["ChildFailed"], "next": "sorry"}],
    )
    definition["steps"] += [
        {"name": "done", "pass": "fine", "end": True},
        {"name": "sorry", "pass": "${ steps.invoice.error.details.error.type }"},
    ]
    run_id = await ordered(wire, definition)
    await wire.fail(await wire.take(), type="NoPaper", message="", retryable=False)
    assert (await wire.result(run_id))["output"] == "NoPaper"


async def test_a_cancelled_child_fails_its_step(wire: WireClient) -> None:
    run_id = await ordered(wire)
    await wire.api("run.cancel", run_id=await child_of(wire, run_id), by="ann")
    assert (await failure(wire, run_id))["type"] == "ChildCancelled"


async def test_a_child_over_its_deadline_fails_its_step(wire: WireClient) -> None:
    await wire.deploy({**CHILD, "timeout": "1s"})
    await wire.deploy(parent())
    run_id = await wire.start("order", {"total": 7})
    error = await failure(wire, run_id)
    assert (error["type"], error["details"]["error"]["type"]) == ("ChildTimedOut", "Timeout")


async def test_a_cancel_takes_the_awaited_child_along(wire: WireClient) -> None:
    run_id = await ordered(wire)
    child_id = await child_of(wire, run_id)
    await wire.take()
    await wire.api("run.cancel", run_id=run_id, by="ann", reason="no need")
    assert (await wire.result(run_id))["status"] == "cancelled"
    assert (await wire.result(child_id))["status"] == "cancelled"
    child = await wire.run(child_id)
    assert (child["cancelled_by"], child["cancel_reason"]) == (f"run {run_id}", "run cancelled")


async def test_the_deadline_of_the_parent_is_that_of_its_child(wire: WireClient) -> None:
    run_id = await ordered(wire, {**parent(), "timeout": "1s"})
    child_id = await child_of(wire, run_id)
    run, child = await wire.run(run_id), await wire.run(child_id)
    assert child["deadline_at"] == run["deadline_at"]
    assert (await wire.result(run_id))["status"] == "timed_out"
    # Whichever of the two clocks rings first.
    assert (await wire.result(child_id))["status"] in {"timed_out", "cancelled"}


async def test_a_key_that_a_live_run_has_refuses_the_child(wire: WireClient) -> None:
    key = new_key()
    await wire.deploy(CHILD)
    holder = await wire.start("invoice", {"total": 1}, key=key)
    run_id = await ordered(wire, parent({**SENT, "key": key}))
    error = await failure(wire, run_id)
    assert error["type"] == "ChildNotStarted"
    assert error["details"]["code"] == "key_conflict"
    assert (await wire.run(holder))["status"] == "running"


async def test_a_child_has_the_key_that_its_step_gives_it(wire: WireClient) -> None:
    key = new_key()
    run_id = await ordered(wire, parent({**SENT, "key": "${ run.key }"}), key=key)
    child_id = await child_of(wire, run_id)
    assert (await wire.run(child_id))["key"] == key
    again = await wire.api("run.start", workflow="invoice", input={"total": 1}, key=key)
    assert again == {"run_id": child_id, "deduplicated": True}


@pytest.mark.parametrize(
    ("run", "code"),
    [
        ({"workflow": "nowhere"}, "workflow_not_found"),
        ({"workflow": "invoice", "version": 99}, "version_not_found"),
        ({"workflow": "invoice", "input": {"sum": 1}}, "schema_failed"),
    ],
)
@pytest.mark.parametrize("detached", [False, True])
async def test_what_can_not_be_started_fails_the_step(
    wire: WireClient, run: Json, code: str, *, detached: bool
) -> None:
    run_id = await ordered(wire, parent({**run, "detached": detached}))
    error = await failure(wire, run_id)
    assert (error["type"], error["details"]["code"]) == ("ChildNotStarted", code)


async def test_children_have_children(wire: WireClient) -> None:
    await wire.deploy({"workflow": "c", "steps": [{"name": "work", "task": "t"}]})
    await wire.deploy({"workflow": "b", "steps": [{"name": "c", "run": {"workflow": "c"}}]})
    await wire.deploy({"workflow": "a", "steps": [{"name": "b", "run": {"workflow": "b"}}]})
    done, given_up = await wire.start("a", 3), await wire.start("a", 4)
    dispatches = [await wire.take(), await wire.take()]
    by_input = {dispatch["input"]: dispatch for dispatch in dispatches}
    await wire.complete(by_input[3], "deep")
    assert (await wire.result(done))["output"] == "deep"
    await wire.api("run.cancel", run_id=given_up)
    lowest = by_input[4]["run_id"]
    assert (await wire.result(lowest))["status"] == "cancelled"


async def test_fifty_items_have_a_child_each(wire: WireClient) -> None:
    await wire.deploy({"workflow": "one", "steps": [{"name": "twice", "pass": "${ input * 2 }"}]})
    each = {"items": "${ input }", "steps": [
        {"name": "child", "run": {"workflow": "one", "input": "${ item }"}},
    ]}  # fmt: skip
    await wire.deploy({"workflow": "many", "steps": [{"name": "each", "map": each}]})
    run_id = await wire.start("many", list(range(50)))
    assert (await wire.result(run_id))["output"] == [2 * n for n in range(50)]


async def test_a_retry_starts_another_child(wire: WireClient) -> None:
    run_id = await ordered(wire)
    first = await child_of(wire, run_id)
    await wire.fail(await wire.take(), type="NoPaper", message="", retryable=False)
    await wire.result(run_id)
    await wire.api("run.retry", run_id=run_id)
    dispatch = await wire.take()
    assert dispatch["run_id"] != first
    await wire.complete(dispatch, "sent")
    assert (await wire.result(run_id))["output"] == "sent"


async def test_a_retried_child_does_not_change_its_parent(wire: WireClient) -> None:
    run_id = await ordered(wire)
    child_id = await child_of(wire, run_id)
    await wire.fail(await wire.take(), type="NoPaper", message="", retryable=False)
    await wire.result(run_id)
    await wire.api("run.retry", run_id=child_id)
    await wire.complete(await wire.take(), "sent")
    assert (await wire.result(child_id))["output"] == "sent"
    assert (await wire.run(run_id))["status"] == "failed"


async def handled(wire: WireClient) -> None:
    """Return once the engine has acknowledged every message."""

    async def nothing_left() -> bool:
        info = await wire.client.jetstream().stream_info(f"{wire.prefix.upper()}_IN")
        return info.state.messages == 0

    await eventually(nothing_left)


async def test_messages_that_say_what_is_not_so_change_nothing(wire: WireClient) -> None:
    run_id = await ordered(wire)
    child_id = await child_of(wire, run_id)
    cancel = b'{"type":"child.cancel","v":1,"step":"elsewhere","reason":"r","compensate":true}'
    for _ in range(2):
        await wire.put(f"in.child-cancel.-.{child_id}.{run_id}", cancel)
        await wire.put(f"in.child-settled.-.{run_id}.{child_id}", b'{"type":"child.settled"}')
        for step in ("invoice", "elsewhere"):
            body = b'{"type":"child.start","step":"%s"}' % step.encode()
            await wire.put(f"in.child-start.-.{child_id}.{run_id}", body)
    await handled(wire)
    assert (await wire.run(run_id))["status"] == "waiting"
    assert (await wire.run(child_id))["status"] == "running"
    assert len((await wire.api("run.list", workflow="invoice"))["runs"]) == 1
    await wire.complete(await wire.take(), 1)
    assert (await wire.result(run_id))["output"] == 1
    before = len(await wire.history(run_id))
    await wire.put(f"in.child-settled.-.{run_id}.{child_id}", b'{"type":"child.settled"}')
    await handled(wire)
    assert len(await wire.history(run_id)) == before
    assert await wire.dead_letters() == []


async def test_messages_about_runs_that_are_no_kin_are_dead_letters(wire: WireClient) -> None:
    run_id = await ordered(wire)
    child_id = await child_of(wire, run_id)
    other = await wire.start("invoice", {"total": 1})
    unknown = "0199c82c-c000-7000-8203-040506070809"
    cancel = b'{"type":"child.cancel","step":"invoice"}'
    await wire.put(f"in.child-cancel.-.{child_id}.{other}", cancel)
    await wire.put(f"in.child-cancel.-.{unknown}.{unknown}", cancel)
    await wire.put(f"in.child-settled.-.{other}.{child_id}", b'{"type":"child.settled"}')
    await wire.put(f"in.child-settled.-.{run_id}.{unknown}", b'{"type":"child.settled"}')
    start = b'{"type":"child.start","step":"invoice"}'
    await wire.put(f"in.child-start.-.{unknown}.{unknown}", start)
    await wire.put(f"in.child-start.-.{unknown}.{run_id}", b'{"type":"child.start"}')
    await wire.put(f"in.child-start.-.{unknown}.{run_id}", b"[]")
    await handled(wire)
    reasons = sorted(letter["reason"] for letter in await wire.dead_letters())
    assert reasons == [
        "malformed", "malformed", "run_not_found", "run_not_found", "run_not_found",
        "subject_mismatch", "subject_mismatch",
    ]  # fmt: skip
    assert (await wire.run(child_id))["status"] == "running"
    assert (await wire.run(other))["status"] == "running"


async def test_a_dead_letter_between_runs_can_be_handled_once_more(wire: WireClient) -> None:
    run_id = await ordered(wire)
    unknown = "0199c82c-c000-7000-8203-040506070809"
    await wire.put(f"in.child-settled.-.{run_id}.{unknown}", b'{"type":"child.settled"}')
    await handled(wire)
    (letter,) = await wire.dead_letters()
    answer = await wire.api("dead-letter.replay", ids=[letter["id"]])
    assert "run_not_found" in str(answer["results"])
    assert len(await wire.dead_letters()) == 1
