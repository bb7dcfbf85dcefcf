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
