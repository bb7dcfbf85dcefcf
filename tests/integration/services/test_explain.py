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

    async def says(text: str) -> Json:
        reason = await only_reason(wire, run_id)
        assert text in reason["text"], reason
        return reason

    silent = await eventually(lambda: says("whose 1 worker does not pull now (busy, or gone, last"))
    assert "nobody_pulls_since" not in silent
    pull = {"batch": 1, "expires": 60_000_000_000}
    consumer = f"{wire.prefix.upper()}_DISPATCH.mail_p0"
    inbox = wire.client.new_inbox()
    await wire.client.subscribe(inbox)
    await wire.client.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.{consumer}", json.dumps(pull).encode(), reply=inbox
    )
    await eventually(lambda: says("from which 1 worker pulls"))


async def test_a_worker_that_said_goodbye_counts_no_more(wire: WireClient) -> None:
    await wire.deploy(one_task(queue="mail"))
    beat = {"worker_id": "w1", "tasks": ["do.it"], "slots": 4, "sdk": "test/1", "tokens": []}

    async def heard(**more: Json) -> None:
        body = json.dumps({**beat, **more}).encode()
        await wire.client.request(f"{wire.prefix}.heartbeat.mail", body, timeout=9)

    async def worker() -> Json:
        known = (await wire.api("worker.list"))["workers"]
        assert len(known) == 1, "the heartbeats are written within a second"
        return known[0]

    async def drains() -> Json:
        one = await worker()
        assert one.get("draining"), one
        return one

    await heard()
    run_id = await wire.start("one")
    await eventually(worker)
    await heard(draining=True, tokens=["t"])
    assert (await eventually(drains))["live"], "it still has an attempt"
    await heard(draining=True)

    async def gone() -> Json:
        assert not (await worker())["live"]
        (queue,) = (await wire.api("queue.list"))["queues"]
        assert queue["workers"] == 0
        reason = await only_reason(wire, run_id)
        assert "from which nobody pulls since" in reason["text"], reason
        return reason

    assert (await eventually(gone))["nobody_pulls_since"] == (await worker())["last_seen_at"]


async def test_a_task_that_no_worker_of_the_queue_has_is_named_with_the_fix(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task(queue="mail"))
    beat = {"worker_id": "w1", "tasks": ["do.that"], "slots": 4, "sdk": "test/1", "tokens": []}
    await wire.client.request(f"{wire.prefix}.heartbeat.mail", json.dumps(beat).encode(), timeout=9)
    run_id = await wire.start("one")
    fix = "the only worker of queue 'mail' does not have task 'do.it': start one that has it"

    async def told(kind: str) -> Json:
        reason = await only_reason(wire, run_id)
        assert (reason["kind"], reason.get("unknown_task")) == (kind, True), reason
        assert fix in reason["text"]
        return reason

    await eventually(lambda: told("dispatch"))
    for _ in range(2):
        await wire.report(await wire.take("mail"), "step-released", reason="unknown_task")
    reason = await eventually(lambda: told("instant"))
    assert reason["waiting_for"] == "released"
    assert reason["release_count"] >= 1


async def test_a_signal_that_nobody_waits_for_is_shown_beside_what_the_wait_waits_for(
    wire: WireClient,
) -> None:
    await wire.deploy(one_wait())
    run_id = await wire.start("waiting")
    assert "kept_signals" not in await wire.api("run.explain", run_id=run_id)
    await wire.api("run.signal", run_id=run_id, signal="goo")
    answer = await wire.api("run.explain", run_id=run_id)
    (kept,) = answer["kept_signals"]
    assert (kept["signal"], kept["count"], kept["awaited_by"]) == ("goo", 1, [])
    assert answer["summary"].startswith("wait waits for signal 'go', without a limit; what came")
    assert "'goo', for which no step of the workflow waits" in answer["summary"]


async def test_a_failed_run_says_where_and_why_and_what_continues_it(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.fail(await wire.take(), type="HttpError", message="503 from the carrier")
    await wire.result(run_id)
    assert (await wire.api("run.explain", run_id=run_id))["summary"] == (
        "the run has settled: failed at step 'work' (attempt 1 of 1), HttpError: 503 from the "
        f"carrier; when the cause is mended, `towpath retry {run_id}` goes on from there"
    )


async def test_a_dispatch_that_was_just_written_blames_nobody(wire: WireClient) -> None:
    await wire.deploy(one_task(queue="mail"))
    run_id = await wire.start("one")
    for _ in range(20):
        text = (await only_reason(wire, run_id))["text"]
        assert text.startswith(("work is on its way into queue 'mail'", "work is queued first in"))


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
    await wire.pull("mail")  # not acknowledged: what is, and not reported, is lost, and sent again

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
