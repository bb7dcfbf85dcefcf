"""What the API answers about runs: whole, in pages, in pieces."""

import asyncio
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient
from tests.support.workflows import chain, one_task, one_wait

Json = Any
LONG_POLLS = 300  # more than other requests may run at once
UNKNOWN = "01890000-0000-7000-8000-000000000000"


async def test_a_large_output_comes_in_pieces(wire: WireClient) -> None:
    text = "é" * 120_000
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.complete(await wire.take(), text)
    await wire.result(run_id)
    pieces: list[str] = []
    offset: int | None = 0
    while offset is not None:
        piece = await wire.api("run.output", run_id=run_id, offset=offset)
        pieces.append(piece["text"])
        offset = piece["next_offset"]
    assert len(pieces) > 1
    assert "".join(pieces) == f'"{text}"'
    step = await wire.step(run_id, "work")
    assert step["output"] is None
    assert step["output_omitted"] == len(f'"{text}"'.encode())


async def test_a_piece_begins_where_a_character_does(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.complete(await wire.take(), "é")
    await wire.result(run_id)
    with pytest.raises(RefusedError) as refused:
        await wire.api("run.output", run_id=run_id, offset=2)
    assert refused.value.code == "malformed"
    assert refused.value.details["field"] == "offset"


async def test_steps_come_in_pages_and_those_not_reached_are_pending_then_skipped(
    wire: WireClient,
) -> None:
    definition: Json = chain(length=1)
    names = [f"t{number:03d}" for number in range(250)]
    definition["steps"] += [{"name": name, "pass": 1} for name in names]
    await wire.deploy(definition)
    run_id = await wire.start("chain")
    await wire.step_in(run_id, "s0", "dispatched")
    first = await wire.api("run.get", run_id=run_id)
    assert len(first["steps"]) == 200
    second = await wire.api("run.get", run_id=run_id, steps_cursor=first["steps_cursor"])
    assert second["steps_cursor"] is None
    everything = first["steps"] + second["steps"]
    assert [step["step"] for step in everything] == ["s0", *names]
    assert {step["status"] for step in everything} == {"pending", "dispatched"}
    await wire.api("run.cancel", run_id=run_id)
    cancelled = await wire.api("run.get", run_id=run_id)
    statuses = [step["status"] for step in cancelled["steps"]]
    assert statuses == ["cancelled"] + ["skipped"] * 199


async def test_runs_are_listed_by_every_filter_newest_first(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    runs = [
        await wire.start("waiting", number, key=f"k{number}", tags=[f"t{number % 2}"])
        for number in range(6)
    ]
    await wire.api("run.cancel", run_id=runs[0])

    async def listed(**where: Json) -> list[str]:
        page = await wire.api("run.list", **where)
        return [run["run_id"] for run in page["runs"]]

    newest_first = runs[::-1]
    assert await listed(workflow="waiting") == newest_first
    assert await listed(status="cancelled") == [runs[0]]
    assert await listed(key="k3") == [runs[3]]
    assert await listed(tag="t1") == newest_first[::2]
    assert await listed(workflow="waiting", status="waiting", tag="t0") == [runs[4], runs[2]]
    paged: list[str] = []
    cursor: str | None = None
    while True:
        page = await wire.api("run.list", workflow="waiting", limit=4, cursor=cursor)
        paged += [run["run_id"] for run in page["runs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert paged == newest_first


async def test_a_list_of_runs_names_their_errors_in_short_and_run_get_has_them_whole(
    wire: WireClient,
) -> None:
    long = "x" * 15_000
    await wire.deploy(one_task())
    started = [await wire.start("one") for _ in range(80)]
    for _ in started:
        await wire.fail(await wire.take(), message=long, retryable=False)
    for run_id in started:
        assert (await wire.result(run_id))["status"] == "failed"
    page = await wire.api("run.list", workflow="one", limit=100)
    assert [run["run_id"] for run in page["runs"]] == started[::-1]
    assert {run["error"]["type"] for run in page["runs"]} == {"Broken"}
    assert {len(run["error"]["message"]) for run in page["runs"]} == {500}
    assert (await wire.run(started[0]))["error"]["message"] == long


async def test_a_page_of_dead_letters_ends_where_a_message_is_full(wire: WireClient) -> None:
    pad = {"X-Pad": "x" * 15_000}
    for number in range(60):
        await wire.put(f"in.nonsense.a.b.n{number}", b"", pad)

    async def all_kept() -> list[Json]:
        letters = await wire.dead_letters()
        return letters if len(letters) == 60 else []

    letters = await eventually(all_kept)
    assert len({letter["id"] for letter in letters}) == 60
    page = await wire.api("dead-letter.list", limit=1_000)
    assert 0 < len(page["dead_letters"]) < 60
    assert page["next_cursor"] == page["dead_letters"][-1]["id"]


async def test_a_strange_cursor_or_status_is_refused_by_name(wire: WireClient) -> None:
    for field, value in [("cursor", "what"), ("status", "happy"), ("from", "yesterday")]:
        with pytest.raises(RefusedError) as refused:
            await wire.api("run.list", **{field: value})
        assert (refused.value.code, refused.value.details["field"]) == ("malformed", field)


@pytest.mark.parametrize("verb", ["run.get", "run.output", "run.result", "run.history", "run.logs"])
async def test_an_unknown_run_is_404(wire: WireClient, verb: str) -> None:
    with pytest.raises(RefusedError) as refused:
        await wire.api(verb, run_id=UNKNOWN)
    assert (refused.value.status, refused.value.code) == (404, "run_not_found")


async def test_many_long_polls_at_once_are_all_woken(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    polls = [
        asyncio.create_task(wire.api("run.result", run_id=run_id, wait_ms=15_000))
        for _ in range(LONG_POLLS)
    ]
    await wire.complete(await wire.take(), "done")
    answers = await asyncio.gather(*polls)
    assert {answer["output"] for answer in answers} == {"done"}


async def test_a_long_poll_without_a_result_says_where_the_run_stands(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    run_id = await wire.start("waiting")
    answer = await wire.api("run.result", run_id=run_id, wait_ms=10)
    assert (answer["settled"], answer["status"], answer["output"]) == (False, "waiting", None)


async def test_deploying_the_same_content_again_is_a_no_op(wire: WireClient) -> None:
    first = await wire.deploy(one_task())
    again = await wire.deploy(dict(reversed(one_task().items())))
    assert (first["created"], again["created"]) == (True, False)
    assert again["version"] == first["version"] == 1
    other = await wire.api("workflow.deploy", definition=one_task(delay="1s"), dry_run=True)
    assert (other["version"], other["created"]) == (2, False)
    assert (await wire.deploy(one_task(delay="1s")))["version"] == 2
    old = await wire.api("workflow.deploy", definition=one_task(), dry_run=True)
    assert (old["version"], old["created"]) == (1, False)
    listed = await wire.api("workflow.list")
    assert [(row["workflow"], row["version"]) for row in listed["workflows"]] == [("one", 2)]
    assert (await wire.api("workflow.get", workflow="one", version=1))["definition"]["steps"]


async def test_a_running_run_keeps_its_version_when_a_new_one_is_deployed(
    wire: WireClient,
) -> None:
    await wire.deploy(chain(length=2))
    run_id = await wire.start("chain")
    await wire.deploy({**chain(length=2), "steps": [{"name": "only", "pass": 1}]})
    await wire.complete(await wire.take())
    await wire.complete(await wire.take(), "old")
    assert (await wire.result(run_id))["output"] == "old"
    assert (await wire.run(run_id))["version"] == 1
