"""The way of a step through a real engine: start, dispatch, report, settle."""

import json
from typing import Any

from tests.support.wire_client import WireClient
from tests.support.workflows import chain, one_task

Json = Any
# What a careless store or codec would change: 2^53 + 1, 2^80, a float without a fraction, ...
AWKWARD = """{"int": 9007199254740993, "huge": 1208925819614629174706176, "float": 1.0,
 "text": "é🎉", "none": null, "list": [[]], "": false}"""


async def test_a_run_goes_from_start_to_its_output(wire: WireClient) -> None:
    await wire.deploy(chain(length=3))
    run_id = await wire.start("chain", {"n": 1})
    for number in range(3):
        dispatch = await wire.take()
        assert dispatch["step"] == f"s{number}"
        assert dispatch["run_id"] == run_id
        assert dispatch["reply"] == f"{wire.prefix}.in"
        await wire.complete(dispatch, {"from": number})
    result = await wire.result(run_id)
    assert result["status"] == "completed"
    assert result["output"] == {"from": 2}


async def test_values_come_back_unchanged(wire: WireClient) -> None:
    value: Json = json.loads(AWKWARD)
    await wire.deploy(one_task())
    run_id = await wire.start("one", value, context={"tenant": "å"})
    dispatch = await wire.take()
    assert dispatch["input"] == value
    assert dispatch["context"] == {"tenant": "å"}
    assert isinstance(dispatch["input"]["float"], float)
    await wire.complete(dispatch, value)
    result = await wire.result(run_id)
    assert result["output"] == value
    assert isinstance(result["output"]["float"], float)


async def test_a_null_output_is_a_result(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.complete(await wire.take(), None)
    await wire.result(run_id)
    piece = await wire.api("run.output", run_id=run_id)
    assert piece["text"] == "null"


async def test_a_failure_is_retried_with_a_new_token_and_the_last_error(
    wire: WireClient,
) -> None:
    retry = {"max_attempts": 2, "backoff": {"initial": "10ms", "jitter": 0}}
    await wire.deploy(one_task(retry=retry))
    run_id = await wire.start("one")
    first = await wire.take()
    await wire.fail(first, type="Flaky", message="try again")
    second = await wire.take()
    assert second["token"] != first["token"]
    assert second["idempotency_key"] == first["idempotency_key"]
    assert second["attempt"] == 2
    assert second["last_error"]["type"] == "Flaky"
    await wire.complete(second, "done")
    assert (await wire.result(run_id))["output"] == "done"


async def test_out_of_attempts_the_run_fails_with_the_error(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.fail(await wire.take(), type="OutOfStock", message="none left")
    result = await wire.result(run_id)
    assert result["status"] == "failed"
    assert result["error"]["type"] == "OutOfStock"
    assert result["error"]["step"] == "work"


async def test_the_history_is_gapless_and_names_causes(wire: WireClient) -> None:
    await wire.deploy(chain(length=2))
    run_id = await wire.start("chain")
    for _ in range(2):
        await wire.complete(await wire.take())
    await wire.result(run_id)
    rows = await wire.history(run_id)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[0]["what"] == "run-started"
    assert rows[-1]["what"] == "run-completed"
    assert all(row["cause"]["type"] for row in rows)
    named = [(r["step"], r["token"], r["what"]) for r in rows if r["token"] is not None]
    assert len(named) == len(set(named))


async def test_events_are_announced_with_their_seq(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.complete(await wire.take())
    await wire.result(run_id)
    jetstream = wire.client.jetstream()
    stream = f"{wire.prefix.upper()}_EVENTS"
    subscription = await jetstream.pull_subscribe(
        f"{wire.prefix}.events.one.{run_id}.>", stream=stream
    )
    messages = await subscription.fetch(3, timeout=30)
    names = [message.subject.rpartition(".")[2] for message in messages]
    assert names == ["run-started", "step-completed", "run-completed"]


async def test_a_message_pack_report_is_read_as_json(wire: WireClient) -> None:
    import msgspec

    await wire.deploy(one_task())
    run_id = await wire.start("one")
    dispatch = await wire.take()
    body = msgspec.msgpack.encode({"type": "step.completed", "output": {"é": [1, 2.0]}})
    subject = f"in.step-completed.default.{run_id}.{dispatch['token']}"
    await wire.put(subject, body, {"Content-Type": "application/msgpack"})
    assert (await wire.result(run_id))["output"] == {"é": [1, 2.0]}


async def test_an_output_the_store_could_not_keep_fails_the_attempt(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    dispatch = await wire.take()
    subject = f"in.step-completed.default.{run_id}.{dispatch['token']}"
    await wire.put(subject, b'{"type":"step.completed","output":"a\\u0000b"}')
    result = await wire.result(run_id)
    assert result["status"] == "failed"
    assert result["error"]["type"] == "InvalidOutput"


async def test_an_output_over_its_limit_fails_the_attempt(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.complete(await wire.take(), "x" * (256 * 1024))
    result = await wire.result(run_id)
    assert result["status"] == "failed"
    assert result["error"]["type"] == "TooLarge"


async def test_logs_of_an_attempt_are_kept(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    lines = [{"level": "info", "message": "packing"}, {"level": "error", "message": "dröpped"}]
    await wire.complete(await wire.take(), 1, logs=lines)
    await wire.result(run_id)
    logs = await wire.api("run.logs", run_id=run_id)
    assert [line["message"] for line in logs["logs"][0]["lines"]] == ["packing", "dröpped"]


async def test_metadata_patches_are_merged(wire: WireClient) -> None:
    await wire.deploy(chain(length=2))
    run_id = await wire.start("chain")
    await wire.complete(await wire.take(), metadata={"a": 1, "b": {"c": 1}})
    second = await wire.take()
    assert second["metadata"] == {"a": 1, "b": {"c": 1}}
    await wire.complete(second, metadata={"a": None, "b": {"d": 2}})
    await wire.result(run_id)
    assert (await wire.run(run_id))["metadata"] == {"b": {"c": 1, "d": 2}}


async def test_again_runs_the_same_step_once_more(wire: WireClient) -> None:
    await wire.deploy(one_task(repeat={"delay": "10ms", "limit": 5}))
    run_id = await wire.start("one")
    first = await wire.take()
    await wire.complete(first, "not yet", again={})
    second = await wire.take()
    assert (second["iteration"], second["attempt"]) == (1, 1)
    assert second["idempotency_key"] != first["idempotency_key"]
    await wire.complete(second, "ready")
    assert (await wire.result(run_id))["output"] == "ready"


async def test_traceparent_goes_from_start_to_dispatch(wire: WireClient) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await wire.deploy(one_task())
    await wire.api_raw("run.start", b'{"workflow":"one"}', {"traceparent": trace})
    _, message = await wire.pull()
    assert (message.headers or {})["traceparent"] == trace


async def test_custom_events_of_a_worker_are_announced_unchanged(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    heard = await wire.client.subscribe(f"{wire.prefix}.events.one.{run_id}.custom")
    await wire.client.flush()
    await wire.client.flush()
    value: Json = json.loads(AWKWARD)
    await wire.complete(await wire.take(), events=[{"name": "packed", "data": value}])
    event = json.loads((await heard.next_msg(timeout=60)).data)
    assert event["type"] == "custom"
    assert event["data"] == {"name": "packed", "data": value}
    assert (await wire.result(run_id))["status"] == "completed"
