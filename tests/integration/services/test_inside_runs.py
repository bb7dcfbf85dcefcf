"""Branches and items through the API: they are shown, explained, and a retry goes on inside."""

from typing import Any

import pytest

from tests.support.wire_client import RefusedError, WireClient

Json = Any
ORDER: Json = {
    "workflow": "order",
    "steps": [
        {"name": "reserve", "task": "reserve", "compensate": {"task": "release"}},
        {
            "name": "lines",
            "map": {
                "items": "${ input.lines }",
                "max_concurrency": 100,
                "steps": [
                    {"name": "pick", "task": "pick", "input": "${ item }"},
                    {"name": "note", "pass": "${ prev }"},
                ],
            },
        },
        {"name": "ship", "task": "ship"},
    ],
    "on_failure": "fail",
}


async def _begun(wire: WireClient, count: int) -> str:
    """A run whose items wait for workers."""
    await wire.deploy(ORDER)
    run_id = await wire.start("order", {"lines": list(range(count))})
    await wire.complete(await wire.take(), "reserved")
    return run_id


async def _taken(wire: WireClient, count: int) -> dict[str, Json]:
    """The next dispatches by step."""
    found = [await wire.take() for _ in range(count)]
    return {dispatch["step"]: dispatch for dispatch in found}


def _names(run: Json) -> list[str]:
    return [step["step"] for step in run["steps"]]


async def test_a_retry_goes_on_in_the_items_that_failed_and_keeps_the_others(
    wire: WireClient,
) -> None:
    run_id = await _begun(wire, 3)
    items = await _taken(wire, 3)
    await wire.complete(items["lines[0]/pick"], "A")
    await wire.step_in(run_id, "lines[0]", "completed")
    await wire.fail(items["lines[2]/pick"], type="Down")
    assert (await wire.result(run_id))["status"] == "failed"
    run = await wire.run(run_id)
    parts = next(step["parts"] for step in run["steps"] if step["step"] == "lines")
    assert parts["failed"] == 1
    assert run["error"]["step"] == "lines[2]/pick"
    answer = await wire.api("run.retry", run_id=run_id)
    assert answer["steps"] == ["lines[1]/pick", "lines[2]/pick"]
    again = await _taken(wire, 2)
    assert again["lines[2]/pick"]["last_error"]["type"] == "Down"
    keys = {step: one["idempotency_key"] for step, one in items.items()}
    assert again["lines[2]/pick"]["idempotency_key"] == keys["lines[2]/pick"]
    await wire.complete(again["lines[2]/pick"], "C")
    await wire.complete(again["lines[1]/pick"], "B")
    ship = await wire.take()
    assert ship["step"] == "ship"
    await wire.complete(ship, "shipped")
    assert (await wire.result(run_id))["status"] == "completed"
    assert (await wire.step(run_id, "lines"))["output"] == ["A", "B", "C"]


async def test_the_input_of_a_step_in_an_item_is_edited_by_its_path(wire: WireClient) -> None:
    run_id = await _begun(wire, 2)
    items = await _taken(wire, 2)
    await wire.fail(items["lines[1]/pick"])
    await wire.result(run_id)
    for step in ("lines[7]/pick", "lines[1]/note", "lines"):
        with pytest.raises(RefusedError) as caught:
            await wire.api("run.retry", run_id=run_id, step=step, input=1)
        assert caught.value.code == "not_retryable"
    with pytest.raises(RefusedError) as caught:
        await wire.api("run.redrive", run_id=run_id, step="lines[1]/pick")
    assert caught.value.code == "not_retryable"
    dry = await wire.api(
        "run.retry", run_id=run_id, step="lines[1]/pick", input="mended", dry_run=True
    )
    assert dry["steps"] == ["lines[0]/pick", "lines[1]/pick"]
    await wire.api("run.retry", run_id=run_id, step="lines[1]/pick", input="mended")
    again = await _taken(wire, 2)
    assert again["lines[1]/pick"]["input"] == "mended"
    assert again["lines[0]/pick"]["input"] == 0


async def test_steps_come_in_pages_whole_below_a_step_or_of_the_own_list_alone(
    wire: WireClient,
) -> None:
    run_id = await _begun(wire, 90)
    await _taken(wire, 90)
    pages: list[Json] = [await wire.api("run.get", run_id=run_id)]
    while pages[-1]["steps_cursor"] is not None:
        cursor = pages[-1]["steps_cursor"]
        pages.append(await wire.api("run.get", run_id=run_id, steps_cursor=cursor))
    everything = [name for page in pages for name in _names(page)]
    assert len(everything) == len(set(everything)) == 3 + 2 * 90
    assert everything == sorted(everything)
    own = await wire.api("run.get", run_id=run_id, inner=False)
    assert (_names(own), own["steps_cursor"]) == (["lines", "reserve", "ship"], None)
    assert own["steps"][0]["parts"] == {"total": 90, "started": 90, "open": 90, "failed": 0}
    item = await wire.api("run.get", run_id=run_id, under="lines[7]")
    assert _names(item) == ["lines[7]/pick"]
    below = await wire.api("run.get", run_id=run_id, under="lines")
    assert _names(below) == [name for name in everything if name.startswith("lines[")]
    with pytest.raises(RefusedError) as caught:
        await wire.api("run.get", run_id=run_id, under="nowhere")
    assert caught.value.code == "step_not_found"
    assert (await wire.api("run.output", run_id=run_id, step="lines[7]/pick"))["text"] is None


async def test_explain_and_history_name_the_innermost_steps(wire: WireClient) -> None:
    run_id = await _begun(wire, 3)
    items = await _taken(wire, 3)
    await wire.report(items["lines[1]/pick"], "step-started")
    await wire.step_in(run_id, "lines[1]/pick", "running")
    told = await wire.api("run.explain", run_id=run_id)
    assert [one["step"] for one in told["reasons"]] == [f"lines[{n}]/pick" for n in range(3)]
    assert "reasons_omitted" not in told
    whats = {(row["step"], row["what"]) for row in await wire.history(run_id)}
    assert {("lines", "step-started"), ("lines[1]", "step-started")} <= whats
    assert ("lines[1]/pick", "step-dispatched") in whats


async def test_a_cancel_undoes_as_it_says_else_as_the_workflow_does(wire: WireClient) -> None:
    undoing = {**ORDER, "workflow": "undoing", "on_failure": "compensate"}
    await wire.deploy(ORDER)
    await wire.deploy(undoing)
    for workflow, compensate, undone in (
        ("order", None, False),
        ("order", True, True),
        ("undoing", None, True),
        ("undoing", False, False),
    ):
        run_id = await wire.start(workflow, {"lines": []})
        await wire.complete(await wire.take(), "reserved")
        assert (await wire.take())["step"] == "ship"
        more = {} if compensate is None else {"compensate": compensate}
        answer = await wire.api("run.cancel", run_id=run_id, reason="wrong", **more)
        assert answer["status"] == ("compensating" if undone else "cancelled")
        if undone:
            run = await wire.run(run_id)
            assert (run["compensation"], run["ending"]) == ("compensating", "cancelled")
            told = await wire.api("run.explain", run_id=run_id)
            assert told["summary"].startswith("cancelled (wrong), its steps are being undone: ")
            undo = await wire.take()
            assert (undo["task"], undo["input"]) == ("release", "reserved")
            assert undo["compensation"] == {"step": "reserve", "output": "reserved", "error": None}
            await wire.complete(undo)
        result = await wire.result(run_id)
        assert result["status"] == "cancelled"
        assert result.get("compensation") == ("compensated" if undone else None)
