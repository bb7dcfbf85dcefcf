"""Histories of runs on real servers: exported with the command line, and decided again."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient
from tests.support.workflows import one_task
from towpath_engine.settings import Settings

Json = Any

NOBODY = "0195f000-0000-7000-8000-00000000000f"
DEFINITION: Json = {
    "workflow": "all",
    "output": "${ {'a': steps.a.output, 'w': steps.w.output.payload, 'm': metadata} }",
    "retry": {"max_attempts": 3, "backoff": {"initial": "10ms", "jitter": 0.5}},
    "steps": [
        {
            "name": "a", "task": "a", "limit": 3, "repeat": {"limit": 3, "delay": "10ms"},
            "input": {"n": "${ input.n }", "last": "${ last }"},
        },
        {"name": "again", "choice": [{"when": "steps.a.output.more", "next": "a"}], "default": "p"},
        {"name": "p", "pass": {"seen": "${ prev }"}},
        {"name": "z", "sleep": "20ms"},
        {"name": "w", "wait": {"signal": "go"}},
        {"name": "b", "task": "b", "timeouts": {"attempt": "300ms"}, "retry": {"max_attempts": 2}},
    ],
}  # fmt: skip


async def towpath(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of `towpath`, against the engine of these settings."""
    environment = {
        **os.environ, "TOWPATH_NATS_URL": settings.nats_url, "TOWPATH_PREFIX": settings.prefix,
    }  # fmt: skip
    command = [sys.executable, "-m", "towpath_engine", *arguments]
    return await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=False
    )


async def eventful(wire: WireClient) -> str:
    """A run to which nearly everything happens."""
    await wire.deploy(DEFINITION)
    run_id = await wire.start("all", {"n": 9_007_199_254_740_993})
    await wire.fail(await wire.take(), message="once", details={"code": 7})
    again = await wire.take()
    await wire.report(again, "step-started", worker_id="w1")
    await wire.report(again, "step-heartbeat", worker_id="w2", n=1, progress={"half": 1})
    await wire.report(again, "step-released", worker_id="w2", reason="drain", progress=[1])
    await wire.complete(await wire.take(), {"i": 0}, again={"after_ms": 0}, metadata={"m": 1})
    await wire.complete(await wire.take(), {"more": True, "visit": 1})
    events = [{"name": "seen", "data": {"x": 1}}]
    await wire.complete(await wire.take(), {"more": False, "visit": 2}, events=events)
    await wire.step_in(run_id, "w", "waiting")
    await wire.api("run.signal", run_id=run_id, signal="other", payload=None)
    await wire.put(f"in.signal.-.{run_id}.go", b'{"ok":1.50}', {"Towpath-Sent-By": "ann"})
    await wire.take()  # and never reports: the attempt times out
    await wire.complete(await wire.take(), None)
    result = await wire.result(run_id)
    assert result["status"] == "completed"
    assert result["output"]["a"] == {"more": False, "visit": 2}
    return run_id


async def test_an_eventful_run_is_exported_and_comes_out_the_same(
    wire: WireClient, settings: Settings, tmp_path: Path
) -> None:
    run_id = await eventful(wire)
    file = str(tmp_path / "run.json")
    exported = await towpath(settings, "history", run_id, "--export", file)
    assert exported.returncode == 0, exported.stderr
    replayed = await towpath(settings, "replay", file)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    history = await wire.history(run_id)
    assert f"{len(history)} transitions: the same" in replayed.stdout
    traced = await towpath(settings, "replay", file, "--trace")
    shown = [line for line in traced.stdout.splitlines() if " -> " in line]
    assert len(shown) == len(history)
    for event in ("RunBegun", "ReportReceived", "TimerDue", "SignalReceived"):
        assert event in traced.stdout
    as_json = json.loads((await towpath(settings, "replay", file, "--json")).stdout)
    assert (as_json["same"], as_json["transitions"]) == (True, len(history))


async def test_what_operators_did_to_a_run_replays_too(
    wire: WireClient, settings: Settings, tmp_path: Path
) -> None:
    steps = [{"name": "a", "task": "a"}, {"name": "b", "task": "b"}]
    await wire.deploy({"workflow": "two", "steps": steps})
    run_id = await wire.start("two")
    await wire.complete(await wire.take(), {"first": 1})
    await wire.api("run.pause", run_id=run_id, by="ann", reason="wait")
    await wire.fail(await wire.take(), retryable=False)
    assert (await wire.result(run_id))["status"] == "failed"
    await wire.api("run.retry", run_id=run_id, input={"edited": None}, by="ann")
    again = await wire.take()
    assert again["input"] == {"edited": None}
    await wire.fail(again, retryable=False)
    await wire.result(run_id)
    await wire.api("run.redrive", run_id=run_id, step="a", by="ann", reason="mended")
    await wire.api("run.pause", run_id=run_id)
    await wire.complete(await wire.take(), {"second": 2})
    await wire.step_in(run_id, "b", "ready")
    await wire.api("run.resume", run_id=run_id)
    await wire.complete(await wire.take(), "done")
    assert (await wire.result(run_id))["output"] == "done"
    file = str(tmp_path / "run.json")
    await towpath(settings, "history", run_id, "--export", file)
    replayed = await towpath(settings, "replay", file)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    whats = {row["what"] for row in await wire.history(run_id)}
    assert {"run-retried", "run-redriven", "run-paused", "run-resumed"} <= whats


async def test_the_first_difference_is_shown_with_both_sides(
    wire: WireClient, settings: Settings, tmp_path: Path
) -> None:
    run_id = await eventful(wire)
    exported = await towpath(settings, "history", run_id, "--export", "-")
    document = json.loads(exported.stdout)
    changed = next(row for row in document["transitions"] if row["what"] == "step-retrying")
    changed["data"]["wait_ms"] = 1_000_000
    file = tmp_path / "run.json"
    file.write_text(json.dumps(document))
    replayed = await towpath(settings, "replay", str(file))
    assert replayed.returncode == 8
    assert f"different at seq {changed['seq']}" in replayed.stdout
    assert "what differs: data" in replayed.stdout
    assert "1000000" in replayed.stdout
    document = json.loads(exported.stdout)
    document["run"]["metadata"] = {"m": 2}
    file.write_text(json.dumps(document))
    replayed = await towpath(settings, "replay", str(file))
    assert replayed.returncode == 8
    assert "metadata of the run came out otherwise" in replayed.stdout


@pytest.mark.parametrize("text", ["", "[]", '{"format":"towpath-history/1"}', "no json"])
async def test_a_file_that_is_no_history_is_refused_in_a_sentence(
    settings: Settings, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "run.json"
    file.write_text(text)
    refused = await towpath(settings, "replay", str(file))
    assert refused.returncode == 2
    assert "not a history" in refused.stderr
    missing = await towpath(settings, "replay", str(tmp_path / "nothing.json"))
    assert (missing.returncode, "does not exist" in missing.stderr) == (2, True)


async def test_a_live_run_replays_up_to_now(
    wire: WireClient, settings: Settings, tmp_path: Path
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one", {"a": [1, 2.0, "é"]}, delay_ms=50, tags=["t"])
    await wire.report(await wire.take(), "step-started", worker_id="w1")
    await wire.step_in(run_id, "work", "running")
    file = str(tmp_path / "run.json")
    await towpath(settings, "history", run_id, "--export", file)
    replayed = await towpath(settings, "replay", file)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


async def test_payloads_come_in_pages_that_fit_into_a_message(wire: WireClient) -> None:
    step = {"name": "a", "task": "a", "repeat": {"limit": 20, "delay": "1ms"}}
    await wire.deploy({"workflow": "big", "steps": [step, {"name": "b", "task": "b"}]})
    run_id = await wire.start("big")
    large = "x" * 200_000
    for number in range(6):
        await wire.complete(await wire.take(), [number, large], again={"after_ms": 0})
    await wire.complete(await wire.take(), [6, large])
    await wire.complete(await wire.take(), [7, large])
    await wire.result(run_id)
    rows: list[Json] = []
    pages, after = 0, 0
    while after is not None:
        page = await wire.api(
            "run.history", run_id=run_id, after_seq=after, payloads=True, limit=1_000
        )
        rows += page["transitions"]
        assert page["limits"]["payload_bytes_max"] == 256 * 1024
        pages, after = pages + 1, page["next_after_seq"]
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    outputs = [row["payload"]["output"][0] for row in rows if "output" in row.get("payload", {})]
    assert outputs == list(range(8))
    assert pages >= 3


async def test_without_payloads_a_history_has_none(wire: WireClient) -> None:
    run_id = await eventful(wire)
    page = await wire.api("run.history", run_id=run_id, limit=1_000)
    assert all("payload" not in row for row in page["transitions"])
    assert "limits" not in page
    with pytest.raises(RefusedError) as refused:
        await wire.api("run.history", run_id=NOBODY, payloads=True)
    assert refused.value.code == "run_not_found"


async def test_the_plain_completions_of_a_run_store_no_payload(
    wire: WireClient, postgres_url: str, schema: str
) -> None:
    import asyncpg

    await wire.deploy(
        {"workflow": "plain", "steps": [{"name": f"s{n}", "task": "t"} for n in range(5)]}
    )
    run_id = await wire.start("plain", {"x": 1})
    for number in range(5):
        await wire.complete(await wire.take(), {"n": number, "text": "x" * 1_000})

    async def settled() -> bool:
        return (await wire.run(run_id))["status"] == "completed"

    await eventually(settled)
    connection = await asyncpg.connect(postgres_url)
    try:
        stored = await connection.fetchval(
            f'SELECT coalesce(sum(octet_length(payload)), 0) FROM "{schema}".transition'
        )
    finally:
        await connection.close()
    assert stored == 0
