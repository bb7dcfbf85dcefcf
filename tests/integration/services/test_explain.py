"""`run.explain` on things broken on purpose: it says the truth, and the way out."""

import json
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient
from tests.support.workflows import one_task, one_wait

Json = Any


async def only_reason(wire: WireClient, run_id: str) -> Json:
    answer = await wire.api("run.explain", run_id=run_id)
    (reason,) = answer["reasons"]
    assert answer["summary"] == reason["text"]
    return reason


async def reason_of_kind(wire: WireClient, run_id: str, kind: str) -> Json:
    async def there() -> Json:
        reason = await only_reason(wire, run_id)
        assert reason["kind"] == kind, reason
        return reason

    return await eventually(there)


async def test_a_step_that_no_worker_wants_says_that_nobody_pulls(wire: WireClient) -> None:
    await wire.deploy(one_task())
    first, second = await wire.start("one"), await wire.start("one")

    async def queued() -> Json:
        reason = await only_reason(wire, second)
        assert "is queued behind 1 in queue 'default'" in reason["text"], reason
        return reason

    reason = await eventually(queued)
    assert (reason["kind"], reason["ahead"], reason["queue"]) == ("dispatch", 1, "default")
    assert reason["nobody_pulls_since"] is not None
    assert "from which nobody pulls since" in reason["text"]
    assert (await only_reason(wire, first))["ahead"] == 0


async def test_a_queue_that_a_worker_pulls_from_is_not_said_to_be_alone(wire: WireClient) -> None:
    await wire.deploy(one_task(queue="mail"))
    beat = {"worker_id": "w1", "tasks": ["do.it"], "slots": 4, "sdk": "test/1", "tokens": []}
    await wire.client.request(f"{wire.prefix}.heartbeat.mail", json.dumps(beat).encode(), timeout=9)
    run_id = await wire.start("one")

    async def pulled() -> Json:
        reason = await only_reason(wire, run_id)
        assert "from which 1 worker pulls" in reason["text"], reason
        return reason

    assert "nobody_pulls_since" not in await eventually(pulled)


async def test_a_running_attempt_says_on_which_worker_and_until_when(wire: WireClient) -> None:
    await wire.deploy(one_task(timeouts={"attempt": "10m"}))
    run_id = await wire.start("one")
    dispatch = await wire.take()
    await wire.report(dispatch, "step-started", worker_id="w-7")
    reason = await reason_of_kind(wire, run_id, "attempt")
    assert reason["worker_id"] == "w-7"
    assert "work runs on w-7 since" in reason["text"]
    view = await wire.api("run.explain", run_id=run_id)
    assert view["wake_at"] == reason["wake_at"]


async def test_a_backoff_says_after_what_and_until_when(wire: WireClient) -> None:
    retry = {"max_attempts": 3, "backoff": {"initial": "1h", "max": "1h", "jitter": 0}}
    await wire.deploy(one_task(retry=retry))
    run_id = await wire.start("one")
    await wire.fail(await wire.take(), type="HttpError", message="503 from the carrier")
    reason = await reason_of_kind(wire, run_id, "instant")
    assert reason["last_error"] == "HttpError: 503 from the carrier"
    assert reason["waiting_for"] == "backoff"
    assert "(attempt 1 of 3 failed)" in reason["text"]


async def test_a_wait_names_its_signal(wire: WireClient) -> None:
    await wire.deploy(one_wait(timeout="2h"))
    reason = await only_reason(wire, await wire.start("waiting"))
    assert (reason["kind"], reason["signal"]) == ("signal", "go")
    assert reason["wake_at"] is not None


async def test_a_delayed_start_says_when_it_begins(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one", delay_ms=3_600_000)
    reason = await only_reason(wire, run_id)
    assert reason["kind"] == "start"
    assert reason["text"].startswith("the run begins at ")


async def test_a_report_that_is_a_dead_letter_flags_its_step(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    dispatch = await wire.take()
    await wire.report(dispatch, "step-completed", step="another", output=1)

    async def flagged() -> Json:
        reason = await only_reason(wire, run_id)
        assert "dead_letter_id" in reason, reason
        return reason

    reason = await eventually(flagged)
    (letter,) = await wire.dead_letters()
    assert reason["dead_letter_id"] == letter["id"]


async def test_a_paused_queue_says_who_paused_it_and_why(wire: WireClient) -> None:
    await wire.deploy(one_task(queue="mail"))
    await wire.api("queue.pause", queue="mail", by="ada", reason="carrier is down")
    run_id = await wire.start("one")
    reason = await reason_of_kind(wire, run_id, "ready")
    assert reason["held_by"] == "queue"
    assert "work is held back: queue 'mail' is paused by ada since" in reason["text"]
    assert reason["text"].endswith("(carrier is down)")


async def test_a_settled_run_says_how_it_ended_and_an_unknown_one_is_refused(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.complete(await wire.take())
    await wire.result(run_id)
    answer = await wire.api("run.explain", run_id=run_id)
    assert (answer["reasons"], answer["wake_at"]) == ([], None)
    assert answer["summary"] == "the run has settled: completed"
    with pytest.raises(RefusedError, match="run_not_found"):
        await wire.api("run.explain", run_id="0199c82c-c000-7000-8203-040506070809")


async def test_a_dispatch_that_nats_does_not_take_says_so(wire: WireClient) -> None:
    await wire.deploy(one_task(queue="mail"))
    stream = f"{wire.prefix.upper()}_DISPATCH"
    info = json.loads(
        (await wire.client.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=9)).data
    )
    full = {**info["config"], "max_msgs": 1, "discard": "new"}
    await wire.client.request(
        f"$JS.API.STREAM.UPDATE.{stream}", json.dumps(full).encode(), timeout=9
    )
    await wire.start("one")
    run_id = await wire.start("one")

    async def stuck() -> Json:
        reason = await only_reason(wire, run_id)
        assert "NATS is away, or its stream is full" in reason["text"], reason
        return reason

    await eventually(stuck)


async def test_queues_and_workers_are_listed_as_they_are(wire: WireClient) -> None:
    await wire.deploy(one_task(queue="mail"))
    beat = {"worker_id": "w1", "tasks": ["do.it"], "slots": 4, "sdk": "test/1", "tokens": []}
    for worker in ("w1", "w2"):
        body = json.dumps({**beat, "worker_id": worker}).encode()
        await wire.client.request(f"{wire.prefix}.heartbeat.mail", body, timeout=9)
    await wire.start("one")
    await wire.start("one")
    await wire.take("mail")

    async def seen() -> Json:
        page = await wire.api("worker.list", queue="mail", limit=1)
        assert page["workers"], "the heartbeats are written within a second"
        (first,) = page["workers"]
        rest = await wire.api("worker.list", queue="mail", cursor=page["next_cursor"])
        assert [one["worker_id"] for one in rest["workers"]] == ["w2"]
        assert rest["next_cursor"] is None
        return first

    first = await eventually(seen)
    assert (first["worker_id"], first["tasks"], first["slots"]) == ("w1", ["do.it"], 4)
    assert first["live"]

    async def counted() -> Json:
        (queue,) = (await wire.api("queue.list"))["queues"]
        assert (queue["queue"], queue["workers"], queue["dispatched"]) == ("mail", 2, 1)
        assert queue["nobody_pulls_since"] is None
        return queue

    await eventually(counted)
    with pytest.raises(RefusedError, match="cursor"):
        await wire.api("worker.list", cursor="nonsense")
