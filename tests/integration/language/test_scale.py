"""Runs of very many items on real servers: their time, many of them at once, small runs beside."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.crowds import Crowd, a_crowd
from tests.support.eventually import eventually, until
from tests.support.measured import measured
from tests.support.wire_client import WireClient

Json = Any
SMALL = {
    "workflow": "small",
    "steps": [{"name": "one", "task": "one"}, {"name": "two", "task": "two"}],
}


def a_fan_out(concurrency: int | None = None) -> Json:
    inner: Json = {"items": "${ input }", "steps": [{"name": "pick", "task": "pick"}]}
    if concurrency is not None:
        inner["max_concurrency"] = concurrency
    size = {"name": "size", "pass": "${ size(prev) }"}
    return {"workflow": "wide", "steps": [{"name": "lines", "map": inner}, size]}


async def begun(wire: WireClient, items: int, concurrency: int | None = None) -> str:
    await wire.deploy(a_fan_out(concurrency))
    return await wire.start("wide", list(range(items)))


async def settled(wire: WireClient, run_id: str) -> Json:
    """The result, however long it takes; the test's own guard ends a wait for ever."""

    async def asked() -> Json:
        answer = await wire.api("run.result", run_id=run_id, wait_ms=5_000)
        return answer if answer["settled"] else None

    return await eventually(asked, deadline_seconds=1_500)


def index_of(dispatch: Json) -> Json:
    return dispatch["step"]


def rate_of(crowd: Crowd, first: int, last: int) -> float:
    began, ended = crowd.taken[first][0], crowd.taken[last][0]
    return (ended - began) / (last - first)


@pytest.mark.parametrize(
    ("items", "concurrency"),
    [(1_500, 100), *(pytest.param(10_000, n, marks=pytest.mark.slow) for n in (1, 100, 10_000))],
)
async def test_a_map_of_very_many_items_is_joined_in_order(
    wire: WireClient, items: int, concurrency: int
) -> None:
    async with a_crowd(wire, index_of) as crowd:
        run_id = await begun(wire, items, concurrency)
        result = await settled(wire, run_id)
    assert (result["status"], result["output"]) == ("completed", items)
    output = (await wire.api("run.output", run_id=run_id, step="lines"))["text"]
    assert json.loads(output) == [f"lines[{index}]/pick" for index in range(items)]
    part = min(1_000, items // 3)
    times = [rate_of(crowd, 0, part), rate_of(crowd, -part - 1, -1)]
    measured(
        f"{items} items, {concurrency} at a time: first {part} {times[0] * 1e6:.0f} us each, "
        f"last {times[1] * 1e6:.0f} us each, ratio {times[1] / times[0]:.2f}"
    )


async def many_at_once(wire: WireClient, runs: int, items: int) -> None:
    await wire.deploy(a_fan_out())
    async with a_crowd(wire, index_of) as crowd:
        started = [wire.start("wide", list(range(items))) for _ in range(runs)]
        run_ids = await asyncio.gather(*started)
        results = await asyncio.gather(*(settled(wire, run_id) for run_id in run_ids))
    assert [(one["status"], one["output"]) for one in results] == [("completed", items)] * runs
    done = {(dispatch["run_id"], dispatch["step"]) for _, dispatch in crowd.taken}
    assert len(done) == runs * items
    part = min(1_000, len(crowd.taken) // 3)
    measured(
        f"{runs} runs of {items} items: first {part} {rate_of(crowd, 0, part) * 1e6:.0f} us each, "
        f"last {rate_of(crowd, -part - 1, -1) * 1e6:.0f} us each"
    )


async def test_ten_runs_of_a_hundred_items_at_once_are_all_joined(wire: WireClient) -> None:
    await many_at_once(wire, 10, 100)


@pytest.mark.slow
async def test_a_hundred_runs_of_a_thousand_items_at_once_are_all_joined(wire: WireClient) -> None:
    await many_at_once(wire, 100, 1_000)


async def test_small_runs_are_done_while_a_map_of_ten_thousand_items_goes_on(
    wire: WireClient,
) -> None:
    await wire.deploy(SMALL)
    big = await begun(wire, 10_000)
    async with a_crowd(wire, index_of) as crowd:
        await until(lambda: len(crowd.taken) > 200, "the map goes on")
        before = len(crowd.taken)
        small = await asyncio.gather(*(wire.start("small") for _ in range(20)))
        for run_id in small:
            assert (await settled(wire, run_id))["status"] == "completed"
        of_big = sum(one["run_id"] == big for _, one in crowd.taken[before:])
        assert (await wire.run(big))["status"] == "running"
        await wire.api("run.cancel", run_id=big)
    measured(f"{of_big} items of the map while 20 small runs were done")
    # What a small run has ahead of it is what the map has open at a time, for each of its steps.
    assert of_big < 10_000 - before


async def test_small_runs_are_dispatched_between_the_slices_of_a_fan_out(wire: WireClient) -> None:
    await wire.deploy(SMALL)
    big = await begun(wire, 10_000, 10_000)
    small = await wire.start("small")
    async with a_crowd(wire, index_of) as crowd:
        crowd.completes = lambda dispatch: dispatch["run_id"] == small
        assert (await settled(wire, small))["status"] == "completed"
    order = [dispatch["run_id"] for _, dispatch in crowd.taken]
    # It was asked for after the map had begun, and came before most of it.
    assert 0 < order.index(small) < 5_000
    await wire.api("run.cancel", run_id=big)
    assert (await settled(wire, big))["status"] == "cancelled"


async def test_a_run_of_thousands_of_open_items_is_shown_in_pages_and_explained_in_short(
    wire: WireClient,
) -> None:
    run_id = await begun(wire, 3_000, 3_000)

    async def all_open() -> Json:
        own = await wire.api("run.get", run_id=run_id, inner=False)
        return own if own["steps"][0]["parts"]["open"] == 3_000 else None

    own = await eventually(all_open)
    assert [step["step"] for step in own["steps"]] == ["lines", "size"]
    pages = [await wire.api("run.get", run_id=run_id)]
    while pages[-1]["steps_cursor"] is not None:
        cursor = pages[-1]["steps_cursor"]
        pages.append(await wire.api("run.get", run_id=run_id, steps_cursor=cursor))
    steps = [step["step"] for page in pages for step in page["steps"]]
    assert len(steps) == len(set(steps)) == 2 * 3_000 + 2
    assert max(len(page["steps"]) for page in pages) <= 1_000
    told = await wire.api("run.explain", run_id=run_id)
    assert 0 < len(told["reasons"]) <= 100
    assert told["reasons_omitted"] == 3_000 - len(told["reasons"])
    await wire.api("run.cancel", run_id=run_id)
    assert (await settled(wire, run_id))["status"] == "cancelled"
