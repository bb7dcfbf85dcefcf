"""A run and its children under operators' hands: pauses, undoing, replays, several engines."""

from pathlib import Path
from typing import Any

from tests.integration.language.test_children import CHILD, SENT, child_of, ordered, parent
from tests.integration.services.test_replay import towpath
from tests.support.engines import running
from tests.support.wire_client import WireClient
from towpath_engine.settings import Settings

Json = Any


async def test_a_child_of_a_paused_workflow_ends_with_its_parent(wire: WireClient) -> None:
    await wire.deploy(CHILD)
    await wire.api("workflow.pause", workflow="invoice")
    run_id = await ordered(wire, {**parent(), "timeout": "1s"})
    child_id = await child_of(wire, run_id)
    assert (await wire.run(child_id))["status"] == "pending"
    assert (await wire.result(run_id))["status"] == "timed_out"
    assert (await wire.result(child_id))["status"] == "cancelled"


async def test_a_child_that_was_held_keeps_the_deadline_of_its_parent(wire: WireClient) -> None:
    await wire.deploy(CHILD)
    await wire.api("workflow.pause", workflow="invoice")
    run_id = await ordered(wire, {**parent(), "timeout": "1h"})
    child_id = await child_of(wire, run_id)
    await wire.api("workflow.resume", workflow="invoice")
    await wire.complete(await wire.take(), 1)
    assert (await wire.result(run_id))["output"] == 1
    run, child = await wire.run(run_id), await wire.run(child_id)
    assert child["deadline_at"] == run["deadline_at"]


async def test_a_child_is_undone_as_the_cancel_of_its_parent_says(wire: WireClient) -> None:
    child = {
        "workflow": "invoice",
        "steps": [
            {"name": "pay", "task": "pay", "compensate": {"task": "refund"}},
            {"name": "send", "task": "send"},
        ],
    }
    await wire.deploy(child)
    for compensate in (True, False):
        await wire.deploy(parent())
        run_id = await wire.start("order", {"total": 7})
        child_id = await child_of(wire, run_id)
        await wire.complete(await wire.take(), {"receipt": 5})
        await wire.take()
        await wire.api("run.cancel", run_id=run_id, compensate=compensate)
        if compensate:
            undo = await wire.take()
            assert (undo["task"], undo["input"]) == ("refund", {"receipt": 5})
            await wire.complete(undo)
        assert (await wire.result(child_id))["status"] == "cancelled"
        undone = (await wire.run(child_id)).get("compensation")
        assert undone == ("compensated" if compensate else None)


async def test_a_completed_child_is_undone_by_the_step_that_ran_it(wire: WireClient) -> None:
    definition = parent(compensate={"task": "storno"})
    definition["steps"].append({"name": "ship", "task": "ship"})
    run_id = await ordered(wire, definition)
    await wire.complete(await wire.take(), {"no": 12})
    await wire.fail(await wire.take(), type="NoTruck", message="", retryable=False)
    undo = await wire.take()
    assert (undo["task"], undo["input"]) == ("storno", {"no": 12})
    await wire.complete(undo)
    assert (await wire.result(run_id))["status"] == "compensated"


async def test_runs_with_children_come_out_the_same_when_decided_again(
    wire: WireClient, settings: Settings, tmp_path: Path
) -> None:
    definition = {**parent(), "timeout": "1h"}
    definition["steps"] = [
        {"name": "invoice", "run": SENT, "limit": 5},
        {
            "name": "more",
            "choice": [{"when": "steps.invoice.output.more", "next": "invoice"}],
            "default": "loose",
        },
        {"name": "loose", "run": {**SENT, "detached": True}, "when": "true"},
        {"name": "bad", "run": {"workflow": "nowhere"}, "catch": [{"next": "last"}]},
        {"name": "last", "run": SENT},
    ]
    run_id = await ordered(wire, definition)
    child_id = await child_of(wire, run_id)
    await wire.complete(await wire.take(), {"more": True})
    await wire.complete(await wire.take(), {"more": False})
    dispatches = [await wire.take(), await wire.take()]
    for dispatch in dispatches:
        await wire.fail(dispatch, type="NoPaper", message="none", retryable=False)
    assert (await wire.result(run_id))["status"] == "failed"
    for one in (run_id, child_id):
        file = str(tmp_path / f"{one}.json")
        exported = await towpath(settings, "history", one, "--export", file)
        assert exported.returncode == 0, exported.stderr
        replayed = await towpath(settings, "replay", file)
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr


async def test_children_run_on_whichever_engine_owns_them(
    wire: WireClient, settings: Settings
) -> None:
    await wire.deploy({"workflow": "one", "steps": [{"name": "nap", "sleep": "1s"}]})
    each = {"items": "${ input }", "steps": [{"name": "child", "run": {"workflow": "one"}}]}
    await wire.deploy({"workflow": "many", "steps": [{"name": "each", "map": each}]})
    run_id = await wire.start("many", list(range(30)))
    async with running(settings):
        more = await wire.start("many", list(range(30)))
        assert (await wire.result(more))["output"] == [None] * 30
    assert (await wire.result(run_id))["output"] == [None] * 30
