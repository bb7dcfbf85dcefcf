"""Runs whose completed steps are undone, on real servers."""

import json
import random
from typing import Any

from tests.support.wire_client import WireClient

Json = Any

ORDER = {
    "workflow": "order",
    "steps": [
        {
            "name": "reserve",
            "task": "stock.reserve",
            "compensate": {
                "task": "stock.release",
                "input": {"shelf": "${ output.shelf }", "why": "${ error.type }"},
            },
        },
        {"name": "charge", "task": "card.charge", "compensate": {"task": "card.refund"}},
        {"name": "label", "task": "label.print"},
        {"name": "book", "task": "carrier.book", "compensate": {"task": "carrier.cancel"}},
        {"name": "ship", "task": "carrier.ship"},
    ],
}


async def do(wire: WireClient, task: str, output: Json = None) -> Json:
    """The next dispatch is of this task, and is completed."""
    dispatch = await wire.take()
    assert dispatch["task"] == task
    await wire.complete(dispatch, output)
    return dispatch


async def ordered(wire: WireClient, definition: Json = ORDER, **more: Json) -> str:
    """A run of the order whose goods are reserved, paid, labelled and booked."""
    await wire.deploy(definition)
    run_id = await wire.start("order", {"order_id": 7}, **more)
    await do(wire, "stock.reserve", {"shelf": 3})
    await do(wire, "card.charge", {"receipt": 4})
    await do(wire, "label.print")
    await do(wire, "carrier.book", {"truck": 5})
    return run_id


async def statuses(wire: WireClient, run_id: str) -> dict[str, str]:
    return {step["step"]: step["status"] for step in (await wire.run(run_id))["steps"]}


async def undone(wire: WireClient, run_id: str) -> list[str]:
    """The steps that the history says were undone, in order."""
    rows = await wire.history(run_id)
    return [row["step"] for row in rows if row["what"] == "step-compensated"]


async def test_an_order_that_fails_is_undone_in_reverse_order(wire: WireClient) -> None:
    run_id = await ordered(wire, context={"tenant": "t"}, key="7")
    await wire.fail(await wire.take(), type="NoTruck", message="none left", retryable=False)
    first = await wire.take()
    run = await wire.run(run_id)
    assert (run["status"], run["ending"], run["settled_at"]) == ("compensating", "failed", None)
    again = await wire.api("run.start", workflow="order", input=None, key="7")
    assert again == {"run_id": run_id, "deduplicated": True}
    await wire.complete(first)
    undos = [first, await do(wire, "card.refund"), await do(wire, "stock.release", {"kept": True})]
    assert [undo["input"] for undo in undos] == [
        {"truck": 5}, {"receipt": 4}, {"shelf": 3, "why": "NoTruck"},
    ]  # fmt: skip
    assert [undo["compensation"]["step"] for undo in undos] == ["book", "charge", "reserve"]
    assert [undo["compensation"]["output"] for undo in undos] == [
        {"truck": 5}, {"receipt": 4}, {"shelf": 3},
    ]  # fmt: skip
    assert {undo["compensation"]["error"]["message"] for undo in undos} == {"none left"}
    assert [undo["context"] for undo in undos] == [{"tenant": "t"}] * 3
    assert [undo["idempotency_key"] for undo in undos] == [
        f"{run_id}/{name}/1/undo" for name in ("book", "charge", "reserve")
    ]
    result = await wire.result(run_id)
    assert (result["status"], result["compensation"]) == ("compensated", "compensated")
    assert result["error"]["type"] == "NoTruck"
    assert await statuses(wire, run_id) == {
        "reserve": "compensated", "charge": "compensated", "label": "completed",
        "book": "compensated", "ship": "failed",
    }  # fmt: skip
    # What the step had put out is still its output.
    assert (await wire.step(run_id, "reserve"))["output"] == {"shelf": 3}


async def test_of_twenty_items_with_a_failed_one_each_completed_one_is_undone_once(
    wire: WireClient,
) -> None:
    lines = {
        "items": "${ input }",
        "as": "line",
        "max_concurrency": 5,
        "steps": [
            {
                "name": "reserve",
                "task": "reserve",
                "input": "${ line }",
                "compensate": {"task": "release", "input": "${ [line, index, output] }"},
            }
        ],
    }
    await wire.deploy({"workflow": "lines", "steps": [{"name": "lines", "map": lines}]})
    run_id = await wire.start("lines", list(range(100, 120)))
    chance = random.Random(4)
    open_items = [await wire.take() for _ in range(5)]
    completed: list[int] = []
    for _ in range(12):
        one = open_items.pop(chance.randrange(len(open_items)))
        await wire.complete(one, one["input"] * 2)
        completed.append(one["input"] - 100)
        open_items.append(await wire.take())
    await wire.fail(open_items.pop(2), retryable=False)
    await wire.step_in(run_id, "lines", "failed")
    # Four are running yet: two of them are too late to be stopped, one gives up, one is given back.
    for late in open_items[:2]:
        await wire.complete(late, 1)
        completed.append(late["input"] - 100)
    await wire.fail(open_items[2], type="Cancelled")
    assert (await wire.run(run_id))["status"] == "compensating"
    await wire.report(open_items[3], "step-released", reason="drain", worker_id="w")
    undos = [await do(wire, "release") for _ in completed]
    result = await wire.result(run_id)
    assert (result["status"], result["error"]["type"]) == ("compensated", "Broken")
    assert [undo["input"][1] for undo in undos] == completed[::-1]
    assert undos[-1]["input"] == [100 + completed[0], completed[0], 2 * (100 + completed[0])]
    assert await undone(wire, run_id) == [f"lines[{n}]/reserve" for n in completed[::-1]]
    left = [n for n in range(20) if n not in completed]
    found = await statuses(wire, run_id)
    assert {found.get(f"lines[{n}]/reserve", "unreached") for n in left} == {
        "failed", "cancelled", "unreached",
    }  # fmt: skip


async def test_a_sibling_that_completes_while_it_is_being_cancelled_is_undone_first(
    wire: WireClient,
) -> None:
    branches = {
        "good": [{"name": "pay", "task": "pay", "compensate": {"task": "refund"}}],
        "plain": [{"name": "note", "task": "note", "queue": "notes"}],
        "bad": [{"name": "fails", "task": "fails", "queue": "bad"}],
    }
    steps = [
        {"name": "reserve", "task": "reserve", "compensate": {"task": "release"}},
        {"name": "both", "parallel": {"branches": branches}},
    ]
    await wire.deploy({"workflow": "both", "steps": steps})
    run_id = await wire.start("both")
    await do(wire, "reserve", "shelf")
    pay, note, bad = await wire.take(), await wire.take("notes"), await wire.take("bad")
    stopped = await wire.client.subscribe(f"{wire.prefix}.control.>")
    await wire.client.flush()
    await wire.fail(bad, retryable=False)
    await wire.step_in(run_id, "both/good/pay", "cancelling")
    told = {json.loads((await stopped.next_msg(timeout=20)).data)["token"] for _ in range(2)}
    assert told == {pay["token"], note["token"]}
    assert (await wire.step(run_id, "both/plain/note"))["status"] == "cancelled"
    explained = await wire.api("run.explain", run_id=run_id)
    assert "both/good/pay" in [reason["step"] for reason in explained["reasons"]]
    await wire.complete(note, "too late")
    await wire.complete(pay, {"receipt": 1})
    assert (await do(wire, "refund"))["input"] == {"receipt": 1}
    assert (await do(wire, "release"))["input"] == "shelf"
    assert (await wire.result(run_id))["status"] == "compensated"
    assert await undone(wire, run_id) == ["both/good/pay", "reserve"]
    assert (await wire.step(run_id, "both/plain/note"))["output"] is None


async def test_each_visit_of_a_loop_is_undone(wire: WireClient) -> None:
    again = {"when": "steps.buy.output < 3", "next": "buy"}
    steps = [
        {"name": "buy", "task": "buy", "limit": 5, "compensate": {"task": "sell"}},
        {"name": "more", "choice": [again], "default": "ship"},
        {"name": "ship", "task": "ship"},
    ]
    await wire.deploy({"workflow": "loop", "steps": steps})
    run_id = await wire.start("loop")
    for number in range(1, 4):
        await do(wire, "buy", number)
    await wire.fail(await wire.take(), retryable=False)
    undos = [await do(wire, "sell") for _ in range(3)]
    assert [undo["input"] for undo in undos] == [3, 2, 1]
    assert [undo["compensation"]["step"] for undo in undos] == ["buy"] * 3
    assert len({undo["idempotency_key"] for undo in undos}) == 3
    assert (await wire.result(run_id))["status"] == "compensated"
