"""Everything that a run waits for is a stored instant, enforced whether or not a worker helps."""

import json
import time
from typing import Any

import pytest

from tests.support.engines import engine_settings, running
from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient, connected
from tests.support.workflows import one_task, one_wait
from towpath_engine.settings import Settings

Json = Any


async def test_a_worker_that_only_keeps_the_message_in_progress_is_timed_out(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task(timeouts={"attempt": "300ms"}))
    run_id = await wire.start("one")
    _, message = await wire.pull()

    async def settled_meanwhile() -> Json:
        await message.in_progress()
        answer = await wire.api("run.result", run_id=run_id)
        return answer if answer["settled"] else None

    result = await eventually(settled_meanwhile)
    assert result["status"] == "failed"
    assert result["error"]["type"] == "Timeout"
    assert result["error"]["details"]["timeout"] == "attempt"


async def test_a_dispatch_nobody_takes_times_out(wire: WireClient) -> None:
    await wire.deploy(one_task(timeouts={"dispatch": "200ms"}))
    run_id = await wire.start("one")
    result = await wire.result(run_id)
    assert result["error"]["type"] == "Timeout"
    assert result["error"]["details"]["timeout"] == "dispatch"


async def test_heartbeats_keep_an_attempt_alive_and_their_absence_ends_it(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task(timeouts={"attempt": "1m", "heartbeat": "1s"}))
    run_id = await wire.start("one")
    dispatch = await wire.take()
    await wire.report(dispatch, "step-started", worker_id="w")
    began = time.monotonic()

    async def beaten_for_twice_the_timeout() -> bool:
        n = int((time.monotonic() - began) * 1_000)
        await wire.report(dispatch, "step-heartbeat", worker_id="w", n=n, progress=n)
        return n > 2_000

    await eventually(beaten_for_twice_the_timeout)
    assert (await wire.step(run_id, "work"))["status"] == "running"
    result = await wire.result(run_id)
    assert result["error"]["details"]["timeout"] == "heartbeat"


async def test_the_next_attempt_gets_the_last_progress(wire: WireClient) -> None:
    retry = {"max_attempts": 2, "backoff": {"initial": "1ms"}}
    await wire.deploy(one_task(retry=retry))
    await wire.start("one")
    first = await wire.take()
    await wire.report(first, "step-heartbeat", worker_id="w", n=1, progress={"done": 7})
    await wire.fail(first)
    second = await wire.take()
    assert second["last_progress"] == {"done": 7}


async def test_the_deadline_of_the_run_cancels_what_runs(wire: WireClient) -> None:
    await wire.deploy({**one_task(), "timeout": "300ms"})
    run_id = await wire.start("one")
    dispatch = await wire.take()
    result = await wire.result(run_id)
    assert result["status"] == "timed_out"
    assert (await wire.step(run_id, "work"))["status"] == "cancelled"
    await wire.complete(dispatch, "too late")
    assert (await wire.run(run_id))["status"] == "timed_out"


async def test_a_wait_that_times_out_goes_where_it_is_told(wire: WireClient) -> None:
    definition = one_wait(timeout="100ms", on_timeout={"next": "sorry"})
    definition["steps"][0]["end"] = True
    definition["steps"].append({"name": "sorry", "pass": {"apology": "${ input }"}})
    await wire.deploy(definition)
    run_id = await wire.start("waiting", "late")
    assert (await wire.result(run_id))["output"] == {"apology": "late"}


async def test_sleeping_runs_survive_a_restart_of_the_engine(settings: Settings) -> None:
    definition = {
        "workflow": "nap",
        "steps": [{"name": "nap", "sleep": "1s"}, {"name": "end", "pass": "rested"}],
    }
    async with connected(settings.nats_url, settings.prefix) as wire:
        async with running(settings):
            await wire.deploy(definition)
            run_id = await wire.start("nap")
            assert (await wire.step_in(run_id, "nap", "waiting"))["wake_at"] is not None
        async with running(settings):
            assert (await wire.result(run_id))["output"] == "rested"


async def test_a_cancel_reaches_the_worker_by_push_and_by_heartbeat(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    control = await wire.client.subscribe(f"{wire.prefix}.control.default")
    await wire.client.flush()
    dispatch = await wire.take()
    answer = await wire.api("run.cancel", run_id=run_id, by="me")
    assert answer == {"run_id": run_id, "status": "cancelled"}
    push = json.loads((await control.next_msg(timeout=60)).data)
    assert push["type"] == "step.cancel"
    assert (push["run_id"], push["token"]) == (run_id, dispatch["token"])
    beat = {"worker_id": "w", "tasks": [], "slots": 1, "tokens": [dispatch["token"], "strange"]}
    reply = await wire.client.request(
        f"{wire.prefix}.heartbeat.default", json.dumps(beat).encode(), timeout=60
    )
    assert json.loads(reply.data) == {"cancel": [dispatch["token"]], "stale": ["strange"]}


async def test_a_cancel_is_quiet_twice_and_refused_once_completed(wire: WireClient) -> None:
    await wire.deploy(one_task())
    cancelled = await wire.start("one")
    await wire.api("run.cancel", run_id=cancelled)
    await wire.api("run.cancel", run_id=cancelled)
    # The queued dispatch of the cancelled run is purged: the next one is another run's.
    completed = await wire.start("one")
    dispatch = await wire.take()
    while dispatch["run_id"] != completed:
        dispatch = await wire.take()
    await wire.complete(dispatch)
    await wire.result(completed)
    with pytest.raises(RefusedError) as refused:
        await wire.api("run.cancel", run_id=completed)
    assert (refused.value.status, refused.value.code) == (409, "run_settled")
    assert "completed" in refused.value.message


async def test_a_first_heartbeat_creates_the_consumers_of_a_new_queue(wire: WireClient) -> None:
    beat = json.dumps({"worker_id": "w"}).encode()
    await wire.client.request(f"{wire.prefix}.heartbeat.fresh", beat, timeout=60)
    stream = f"{wire.prefix.upper()}_DISPATCH"

    async def there() -> bool:
        info = await wire.client.jetstream().consumer_info(stream, "fresh_p3")
        return info.name == "fresh_p3"

    assert await eventually(there)


async def test_the_last_instant_of_the_calendar_is_one_like_any_other(wire: WireClient) -> None:
    # Postgres and its client take the very last microsecond for infinity, without a zone.
    last = "9999-12-31T23:59:59.999999Z"
    step = {"name": "rest", "sleep": {"until": "${ input }"}}
    await wire.deploy({"workflow": "long", "steps": [step]})
    sleeping = await wire.start("long", last)
    pending = await wire.start("long", last, at=last)
    for run_id in (sleeping, pending):
        assert (await wire.run(run_id))["status"] in {"waiting", "pending"}
    assert (await wire.step(sleeping, "rest"))["wake_at"].startswith("9999-12-31")
    await wire.api("run.cancel", run_id=sleeping)
    await wire.api("run.cancel", run_id=pending)
    assert (await wire.result(sleeping))["status"] == "cancelled"


async def test_one_sweep_after_a_restart_arms_every_timer(
    jetstream_url: str, postgres_url: str, prefix: str, schema: str
) -> None:
    # More than two pages of them, and no second sweep within the test.
    settings = engine_settings(
        jetstream_url, postgres_url, prefix, schema, timer_sweep_seconds=3_600
    )
    items = [{"workflow": "rest"} for _ in range(2_500)]
    async with connected(jetstream_url, prefix) as wire:
        async with running(settings):
            step = {"name": "rest", "sleep": "5s"}
            await wire.deploy({"workflow": "rest", "steps": [step]})
            started = (await wire.api("run.start-many", items=items))["results"]
        async with running(settings):
            for run_id in (started[0]["run_id"], started[-1]["run_id"]):
                assert (await wire.result(run_id))["status"] == "completed"

            async def all_settled() -> bool:
                live = await wire.api("run.list", workflow="rest", status="waiting", limit=1)
                return not live["runs"]

            assert await eventually(all_settled)
