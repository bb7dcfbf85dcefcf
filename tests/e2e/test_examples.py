"""The examples: each is copied into a folder, its README followed to the letter, its runs asked."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import ROOT, Reader, read_blocks
from tests.support.processes import DevProcess
from tests.support.wire_client import WireClient

EXAMPLES = ROOT / "examples"


@pytest.fixture
def reader(dev: DevProcess, tmp_path: Path) -> Iterator[Reader]:
    where = {"TOWPATH_NATS_URL": dev.ready["nats_url"], "TOWPATH_PREFIX": dev.ready["prefix"]}
    reading = Reader(tmp_path, where)
    try:
        yield reading
    finally:
        reading.close()


def follow(reader: Reader, name: str) -> None:
    """Do in a copy of the example's folder what its README says."""
    shutil.copytree(EXAMPLES / name, reader.folder, dirs_exist_ok=True)
    blocks = read_blocks(f"examples/{name}/README.md")
    assert {"console"} <= {block.language for block in blocks}
    reader.follow(blocks)


async def run_of(wire: WireClient, workflow: str, key: str) -> Any:
    """The run of that key, with its steps by name."""
    page = await wire.api("run.list", workflow=workflow, key=key, limit=1)
    run = await wire.run(page["runs"][0]["run_id"])
    return {**run, "steps": {step["step"]: step for step in run["steps"]}}


def statuses(run: Any) -> dict[str, str]:
    return {name: step["status"] for name, step in run["steps"].items()}


async def test_a_saga_gives_back_what_it_took_in_reverse(reader: Reader, wire: WireClient) -> None:
    follow(reader, "order_saga")

    failed = await run_of(wire, "saga-order", "o-1")
    cancelled = await run_of(wire, "saga-order", "o-2")

    assert (failed["status"], failed["error"]["type"]) == ("compensated", "Undeliverable")
    assert (cancelled["status"], cancelled["compensation"]) == ("cancelled", "compensated")
    undone = {"reserve": "compensated", "charge": "compensated"}
    assert statuses(failed) == {**undone, "packed": "completed", "ship": "failed"}
    assert statuses(cancelled) == {**undone, "packed": "cancelled", "ship": "skipped"}


async def test_who_does_not_answer_is_reminded_until_the_limit(
    reader: Reader, wire: WireClient
) -> None:
    follow(reader, "approval")

    expired = await run_of(wire, "expense-approval", "e-1")
    paid = await run_of(wire, "expense-approval", "e-4")

    history = await wire.history(expired["run_id"])
    asked = [one for one in history if (one["step"], one["what"]) == ("ask", "step-completed")]
    assert len(asked) == 3
    assert expired["status"] == "completed"
    assert statuses(expired)["pay"] == "skipped"
    assert statuses(paid)["pay"] == "completed"


async def test_a_few_failed_items_are_tolerated_and_too_many_are_caught(
    reader: Reader, wire: WireClient
) -> None:
    follow(reader, "fan_out")

    sent = await run_of(wire, "newsletter", "n-1")
    stopped = await run_of(wire, "newsletter", "n-2")

    assert sent["steps"]["letters"]["status"] == "completed"
    assert stopped["steps"]["letters"]["status"] == "failed"
    assert stopped["status"] == "completed"


async def test_an_external_job_is_asked_until_it_is_done(reader: Reader, wire: WireClient) -> None:
    follow(reader, "polling")

    done = await run_of(wire, "report-job", "j-1")
    slow = await run_of(wire, "report-job", "j-3")

    assert done["steps"]["finished"]["iteration"] == 3
    assert statuses(done)["give_up"] == "skipped"
    assert slow["steps"]["finished"]["error"]["type"] == "RepeatLimit"


async def test_a_dag_starts_what_is_ready_and_goes_on_without_what_is_skipped(
    reader: Reader, wire: WireClient
) -> None:
    follow(reader, "dag")

    full = await run_of(wire, "nightly-report", "d-1")
    small = await run_of(wire, "nightly-report", "d-2")

    assert set(statuses(full).values()) == {"completed"}
    assert statuses(small)["weather"] == "skipped"
    history = await wire.history(full["run_id"])
    began = [one["step"] for one in history if one["what"] == "step-dispatched"]
    assert set(began[:3]) == {"sales", "stock", "weather"}


async def test_a_child_is_waited_for_or_goes_its_own_way(reader: Reader, wire: WireClient) -> None:
    follow(reader, "children")

    parent = await run_of(wire, "onboarding", "c-1")
    rejected = await run_of(wire, "onboarding", "c-2")
    check = await run_of(wire, "credit-check", "check-ann")
    welcome = await run_of(wire, "welcome", "welcome-ann")
    cancelled = await run_of(wire, "credit-check", "check-eve")

    assert check["parent_run_id"] == parent["run_id"]
    assert welcome["run_id"] == parent["output"]["welcome"]
    assert parent["settled_at"] < welcome["settled_at"]
    assert rejected["status"] == "completed"
    assert rejected["steps"]["checked"]["error"]["type"] == "ChildFailed"
    assert statuses(rejected)["account"] == "skipped"
    assert statuses(cancelled) == {"papers": "cancelled", "asked": "skipped", "limit": "skipped"}


def test_every_example_is_in_the_index() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    folders = {path.parent.name for path in EXAMPLES.glob("*/worker.py")}
    assert len(folders) == 6
    assert sorted(name for name in folders if f"]({name}/README.md)" not in index) == []
