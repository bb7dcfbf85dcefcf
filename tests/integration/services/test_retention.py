"""Settled runs go when their time is over, or an operator says so; nothing else ever does."""

from typing import Any

import pytest

from tests.support.engines import engine_settings, running
from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient, connected
from tests.support.workflows import one_task, one_wait
from towpath_engine.settings import Settings

Json = Any
FUTURE = "2999-01-01T00:00:00Z"
STRANGER = "0195f000-0000-7000-8000-00000000000f"


async def finished(wire: WireClient, **start: Json) -> str:
    """A run of `one` that has completed."""
    run_id = await wire.start("one", **start)
    await wire.complete(await wire.take(), {"done": True})
    assert (await wire.result(run_id))["status"] == "completed"
    return run_id


async def refusal(wire: WireClient, verb: str, **body: Json) -> str:
    with pytest.raises(RefusedError) as refused:
        await wire.api(verb, **body)
    return refused.value.code


async def test_a_purged_run_is_unknown_and_its_names_are_free(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await finished(wire, key="k", request_id="r")
    old = {"run_id": run_id, "token": (await wire.history(run_id))[-2]["token"] or "t"}
    dry = await wire.api("run.purge", run_id=run_id, dry_run=True)
    assert dry == {"purged": 1, "more": False, "dry_run": True}
    assert (await wire.run(run_id))["status"] == "completed"
    done = await wire.api("run.purge", run_id=run_id, by="ann", reason="asked to")
    assert done == {"purged": 1, "more": False, "dry_run": False}
    for verb in ("run.get", "run.result", "run.history", "run.logs", "run.purge"):
        assert await refusal(wire, verb, run_id=run_id) == "run_not_found"
    assert await refusal(wire, "run.signal", run_id=run_id, signal="go") == "run_not_found"
    assert (await wire.api("run.list", workflow="one"))["runs"] == []
    again = await wire.api("run.start", workflow="one", key="k", request_id="r")
    assert (again["deduplicated"], again["run_id"] != run_id) == (False, True)
    # A late report is that of any unknown run.
    await wire.complete({**old, "queue": "default"}, 1)

    async def buried() -> list[Json]:
        return await wire.dead_letters()

    [letter] = await eventually(buried)
    assert letter["run_id"] == run_id


async def test_a_live_run_is_not_purged(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    run_id = await wire.start("waiting")
    for dry_run in (True, False):
        code = await refusal(wire, "run.purge", run_id=run_id, dry_run=dry_run)
        assert code == "run_not_settled"
    answer = await wire.api("run.purge", workflow="waiting", settled_before=FUTURE)
    assert answer["purged"] == 0
    assert (await wire.run(run_id))["status"] == "waiting"


async def test_a_purge_by_age_takes_the_oldest_up_to_its_limit(
    jetstream_url: str, postgres_url: str, prefix: str, schema: str
) -> None:
    settings = engine_settings(jetstream_url, postgres_url, prefix, schema, purge_run_count_max=2)
    async with running(settings) as engine, connected(jetstream_url, prefix) as wire:
        await wire.deploy(one_task())
        runs = [await finished(wire) for _ in range(6)]
        wanted: dict[str, Json] = {"workflow": "one", "settled_before": FUTURE}
        dry = await wire.api("run.purge", **wanted, limit=5, dry_run=True)
        assert dry == {"purged": 5, "more": True, "dry_run": True}
        done = await wire.api("run.purge", **wanted, limit=5)
        assert done == {"purged": 5, "more": True, "dry_run": False}
        left = (await wire.api("run.list", workflow="one"))["runs"]
        assert [run["run_id"] for run in left] == runs[-1:]
        last = (await wire.run(runs[-1]))["settled_at"]
        answer = await wire.api("run.purge", workflow="one", settled_before=last)
        assert answer["purged"] == 0, "the instant itself is not before it"
        assert "towpath_run_purged_total 5.0" in engine.metrics.render().decode()
        unknown = await refusal(wire, "run.purge", workflow="nobody", settled_before=FUTURE)
        assert unknown == "workflow_not_found"


async def test_retention_is_that_of_the_workflow_or_else_the_setting(
    jetstream_url: str, postgres_url: str, prefix: str, schema: str
) -> None:
    settings = engine_settings(
        jetstream_url, postgres_url, prefix, schema, retention_seconds=0.001, purge_seconds=0.1
    )
    async with running(settings), connected(jetstream_url, prefix) as wire:
        await wire.deploy(one_task())
        await wire.deploy(one_wait())
        kept = await wire.api("workflow.retention", workflow="one", retention_ms=0, by="ann")
        assert kept == {"workflow": "one", "retention_ms": 0}
        live = await wire.start("waiting")
        run_id = await finished(wire)
        cancelled = await wire.start("waiting")
        await wire.api("run.cancel", run_id=cancelled)

        async def gone(one: str) -> bool:
            runs = [run for name in ("one", "waiting") for run in await runs_of(wire, name)]
            return one not in runs

        await eventually(lambda: gone(cancelled))
        assert await runs_of(wire, "one") == [run_id], "kept for ever"
        assert await runs_of(wire, "waiting") == [live]
        answer = await wire.api("workflow.retention", workflow="one")
        assert answer == {"workflow": "one", "retention_ms": None}
        await eventually(lambda: gone(run_id))
        assert await runs_of(wire, "waiting") == [live]
        assert await refusal(wire, "workflow.retention", workflow="no") == "workflow_not_found"


async def runs_of(wire: WireClient, workflow: str) -> list[str]:
    return [run["run_id"] for run in (await wire.api("run.list", workflow=workflow))["runs"]]


async def test_runs_are_kept_for_thirty_days_unless_somebody_says_otherwise() -> None:
    assert Settings().retention_seconds == 30 * 86_400
