"""The client against a test that answers `P.api.>` with plain nats-py."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from nats.aio.msg import Msg

from tests.integration.worker.conftest import connect
from tests.support.engine_side import new_run_id
from towpath_worker import (
    ApiError,
    Client,
    NoAnswerError,
    NotConnectedError,
    RunFailed,
    StartManyError,
)

Answer = dict[str, Any] | None


class ApiSide:
    """Answers each verb with what the test's function returns; None: no answer at all."""

    def __init__(self, client: Any, prefix: str) -> None:
        self.client = client
        self.prefix = prefix
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Answer]] = {}

    async def listen(self) -> None:
        await self.client.subscribe(f"{self.prefix}.api.>", cb=self._on_request)
        await self.client.flush()

    def bodies(self, verb: str) -> list[dict[str, Any]]:
        return [body for seen, body in self.requests if seen == verb]

    async def _on_request(self, msg: Msg) -> None:
        verb = msg.subject.removeprefix(f"{self.prefix}.api.")
        body = json.loads(msg.data)
        self.requests.append((verb, body))
        answer = self.answers[verb](body)
        if answer is None:
            return
        headers = None
        if "refused" in answer:
            headers = {"Nats-Service-Error-Code": str(answer.pop("refused"))}
        await self.client.publish(msg.reply, json.dumps(answer).encode(), headers=headers)


def refusal(code: str, status: int, details: object = None) -> dict[str, Any]:
    return {"refused": status, "error": {"code": code, "message": "no", "details": details}}


@pytest.fixture
async def api(jetstream_url: str, prefix: str) -> AsyncIterator[ApiSide]:
    client: Any = await connect(jetstream_url)
    side = ApiSide(client, prefix)
    await side.listen()
    yield side
    await client.close()


@pytest.fixture
async def client(api: ApiSide, jetstream_url: str) -> AsyncIterator[Client]:
    async with Client(nats_url=jetstream_url, prefix=api.prefix, timeout_seconds=20) as client:
        yield client


async def test_a_start_is_one_request_with_an_id_of_its_own(api: ApiSide, client: Client) -> None:
    run_id = new_run_id()
    api.answers["run.start"] = lambda _: {"run_id": run_id, "deduplicated": True}
    handle = await client.start("order", {"total": 10**30}, key="o-1", tags=["a"], delay=1.5)
    assert (handle.run_id, handle.deduplicated) == (run_id, True)
    (body,) = api.bodies("run.start")
    assert body.pop("request_id")
    assert body == {
        "workflow": "order", "input": {"total": 10**30}, "key": "o-1", "tags": ["a"],
        "delay_ms": 1_500,
    }  # fmt: skip


async def test_overload_and_unavailability_are_waited_out_under_the_same_id(
    api: ApiSide, client: Client
) -> None:
    answers = [refusal("overloaded", 429), refusal("unavailable", 500)]
    started = {"run_id": new_run_id(), "deduplicated": False}
    api.answers["run.start"] = lambda _: answers.pop(0) if answers else started
    await client.start("order")
    ids = {body["request_id"] for body in api.bodies("run.start")}
    assert (len(api.bodies("run.start")), len(ids)) == (3, 1)


async def test_a_refusal_is_an_error_with_code_and_details(api: ApiSide, client: Client) -> None:
    faults = [{"path": "steps[0].task", "message": "missing"}]
    api.answers["workflow.deploy"] = lambda _: refusal("definition_refused", 422, faults)
    with pytest.raises(ApiError) as caught:
        await client.deploy({"workflow": "order", "steps": []})
    error = caught.value
    assert (error.code, error.status, error.details) == ("definition_refused", 422, faults)


async def test_a_start_many_is_cut_into_messages_and_keeps_the_order(
    api: ApiSide, client: Client
) -> None:
    runs: dict[str, str] = {}

    def answer(body: dict[str, Any]) -> Answer:
        results = [
            {"run_id": runs.setdefault(item["key"], new_run_id()), "deduplicated": False}
            for item in body["items"]
        ]
        return {"results": results}

    api.answers["run.start-many"] = answer
    items = [{"workflow": "order", "input": "x" * 100_000, "key": f"o-{n}"} for n in range(25)]
    handles = await client.start_many(items)
    assert [handle.run_id for handle in handles] == [runs[f"o-{n}"] for n in range(25)]
    assert len(api.bodies("run.start-many")) == 3


async def test_a_start_many_with_a_refused_item_raises_and_holds_the_rest(
    api: ApiSide, client: Client
) -> None:
    run_id = new_run_id()
    error = refusal("schema_failed", 422)["error"]
    api.answers["run.start-many"] = lambda _: {
        "results": [{"run_id": run_id, "deduplicated": False}, {"error": error}]
    }
    with pytest.raises(StartManyError) as caught:
        await client.start_many([{"workflow": "order"}, {"workflow": "order"}])
    first, second = caught.value.results
    assert not isinstance(first, ApiError)
    assert first.run_id == run_id
    assert isinstance(second, ApiError)
    assert caught.value.code == second.code == "schema_failed"


async def test_an_unknown_field_of_a_start_is_refused_before_anything_is_sent(
    api: ApiSide, client: Client
) -> None:
    with pytest.raises(TypeError, match="no field inputs"):
        await client.start_many([{"workflow": "order", "inputs": 1}])
    with pytest.raises(ValueError, match="key"):
        await client.start("order", key=" blank ")
    assert api.requests == []


async def test_a_result_is_asked_for_until_the_run_has_settled(
    api: ApiSide, client: Client
) -> None:
    run_id = new_run_id()
    open_answers = [{"run_id": run_id, "status": "running", "settled": False, "output": None}] * 2
    done = {"run_id": run_id, "status": "completed", "settled": True, "output": {"n": 2**60}}
    api.answers["run.result"] = lambda _: open_answers.pop() if open_answers else done
    assert await client.handle(run_id).result(timeout=60) == {"n": 2**60}
    assert await client.result(run_id, timeout=60) == {"n": 2**60}
    assert await client.handle(run_id).result(output_type=dict[str, int]) == {"n": 2**60}
    assert all(0 < body["wait_ms"] <= 30_000 for body in api.bodies("run.result"))


async def test_the_result_of_a_run_that_did_not_complete_raises(
    api: ApiSide, client: Client
) -> None:
    run_id = new_run_id()
    error = {"type": "OutOfStock", "message": "none left", "step": "reserve"}
    api.answers["run.result"] = lambda _: {
        "run_id": run_id, "status": "failed", "settled": True, "error": error,
    }  # fmt: skip
    with pytest.raises(RunFailed, match="OutOfStock: none left") as caught:
        await client.handle(run_id).result()
    assert caught.value.status == "failed"
    assert caught.value.error is not None
    assert caught.value.error.step == "reserve"


async def test_a_result_that_takes_too_long_is_a_timeout(api: ApiSide, client: Client) -> None:
    run_id = new_run_id()
    api.answers["run.result"] = lambda _: {
        "run_id": run_id, "status": "waiting", "settled": False,
    }  # fmt: skip
    with pytest.raises(TimeoutError, match="still waiting"):
        await client.handle(run_id).result(timeout=0.01)


async def test_a_large_output_is_fetched_in_pieces(api: ApiSide, client: Client) -> None:
    run_id = new_run_id()
    api.answers["run.result"] = lambda _: {
        "run_id": run_id, "status": "completed", "settled": True, "output_omitted": 6,
    }  # fmt: skip
    api.answers["run.output"] = lambda body: {
        "run_id": run_id, "step": None, "offset": body.get("offset", 0), "size": 6,
        "text": '"ab' if not body.get("offset") else 'cd"',
        "next_offset": 3 if not body.get("offset") else None,
    }  # fmt: skip
    assert await client.handle(run_id).result() == "abcd"


async def test_signals_and_cancels_name_a_key_or_a_run(api: ApiSide, client: Client) -> None:
    run_id = new_run_id()
    api.answers["run.signal"] = lambda _: {"run_id": run_id, "deduplicated": False}
    api.answers["run.cancel"] = lambda _: {"run_id": run_id, "status": "cancelled"}
    await client.signal("order", key="o-1", signal="approved", payload={"by": "ann"})
    await client.signal(run_id=run_id, signal="approved", message_id="m-1")
    await client.cancel(run_id=run_id, by="ann", reason="changed my mind")
    by_key, by_run = api.bodies("run.signal")
    assert (by_key["workflow"], by_key["key"], by_key["payload"]) == ("order", "o-1", {"by": "ann"})
    assert (by_run["run_id"], by_run["message_id"]) == (run_id, "m-1")
    assert api.bodies("run.cancel") == [
        {"run_id": run_id, "by": "ann", "reason": "changed my mind"}
    ]
    with pytest.raises(ValueError, match="run_id"):
        await client.signal("order", signal="approved")


async def test_no_engine_and_no_nats_are_told_apart(jetstream_url: str, prefix: str) -> None:
    async with Client(nats_url=jetstream_url, prefix=prefix, timeout_seconds=0.3) as client:
        with pytest.raises(NoAnswerError, match="no Towpath engine answers"):
            await client.start("order")
    with pytest.raises(NotConnectedError, match="no NATS server answers"):
        await Client(nats_url="nats://127.0.0.1:1", prefix=prefix, timeout_seconds=0.3).open()
