"""The client against a test that answers `P.api.>` with plain nats-py."""

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict

import pydantic
import pytest
from msgspec import Struct

from tests.integration.client.conftest import Answer, ApiSide, caller_of, connect, refusal
from tests.support.engine_side import new_run_id
from tests.support.eventually import let_pass
from towpath_protocol.errors import ProtocolError
from towpath_protocol.replies import StartedRun
from towpath_worker import (
    ApiError,
    Client,
    ConflictError,
    DefinitionRefusedError,
    EngineError,
    Fault,
    InvalidRequestError,
    InvalidValueError,
    NoAnswerError,
    NotConnectedError,
    NotFoundError,
    OutcomeUnknownError,
    OverloadedError,
    RunFailed,
    StartItem,
    StartManyError,
    TransportError,
)


def started_all(body: dict[str, Any]) -> Answer:
    """Every item of a start-many started a run of its own."""
    return {"results": [{"run_id": new_run_id(), "deduplicated": False} for _ in body["items"]]}


async def test_a_start_is_one_request_with_an_id_of_its_own(api: ApiSide, asking: Client) -> None:
    run_id = new_run_id()
    api.answers["run.start"] = lambda _: {"run_id": run_id, "deduplicated": True}
    handle = await asking.start("order", {"total": 10**30}, key="o-1", tags=["a"], delay=1.5)
    assert (handle.run_id, handle.deduplicated) == (run_id, True)
    (body,) = api.bodies("run.start")
    assert body.pop("request_id")
    assert body == {
        "workflow": "order", "input": {"total": 10**30}, "key": "o-1", "tags": ["a"],
        "delay_ms": 1_500,
    }  # fmt: skip


async def test_overload_and_unavailability_are_waited_out_under_the_same_id(
    api: ApiSide, asking: Client
) -> None:
    answers = [refusal("overloaded", 429), refusal("unavailable", 500)]
    started = {"run_id": new_run_id(), "deduplicated": False}
    api.answers["run.start"] = lambda _: answers.pop(0) if answers else started
    await asking.start("order")
    ids = {body["request_id"] for body in api.bodies("run.start")}
    assert (len(api.bodies("run.start")), len(ids)) == (3, 1)


async def test_an_engine_that_asks_for_more_patience_than_there_is_gets_one_request(
    api: ApiSide, asking: Client
) -> None:
    api.answers["run.start"] = lambda _: refusal("overloaded", 429, {"retry_after_ms": 10_000})
    caller_of(asking).timeout_seconds = 5
    with pytest.raises(OverloadedError) as caught:
        await asking.start("order")
    assert caught.value.status == 429
    assert len(api.bodies("run.start")) == 1


async def test_a_lost_reply_is_asked_for_again_under_the_same_id(
    api: ApiSide, asking: Client
) -> None:
    lost = [None, None]
    started = {"run_id": new_run_id(), "deduplicated": True}
    api.answers["run.start"] = lambda _: lost.pop() if lost else started
    caller_of(asking).answer_seconds = 0.2
    handle = await asking.start("order")
    assert handle.run_id == started["run_id"]
    assert len({body["request_id"] for body in api.bodies("run.start")}) == 1
    assert len(api.bodies("run.start")) == 3


async def test_a_start_that_nobody_answered_may_still_happen_and_names_its_id(
    api: ApiSide, asking: Client
) -> None:
    api.answers["run.start"] = lambda _: None
    caller_of(asking).timeout_seconds = 0.3
    with pytest.raises(OutcomeUnknownError, match="may still happen: repeat it") as caught:
        await asking.start("order")
    assert caught.value.request_id == api.bodies("run.start")[0]["request_id"]
    assert f"request_id='{caught.value.request_id}'" in str(caught.value)
    with pytest.raises(OutcomeUnknownError) as caught:
        await asking.start("order", request_id="mine")
    assert caught.value.request_id == "mine"


async def test_a_read_that_nobody_answered_changes_nothing_and_says_so(
    api: ApiSide, asking: Client
) -> None:
    api.answers["run.get"] = lambda _: None
    caller_of(asking).timeout_seconds = 0.3
    with pytest.raises(
        NoAnswerError, match=f"no Towpath engine of prefix '{api.prefix}'"
    ) as caught:
        await asking.get(new_run_id())
    assert not isinstance(caught.value, OutcomeUnknownError)


async def test_a_replay_of_letters_that_may_have_arrived_is_not_sent_again(
    api: ApiSide, asking: Client
) -> None:
    api.answers["dead-letter.replay"] = lambda _: None
    caller_of(asking).answer_seconds = 0.2
    with pytest.raises(OutcomeUnknownError, match="look at the run before you repeat it"):
        await asking.replay_dead_letters([new_run_id()])
    assert len(api.bodies("dead-letter.replay")) == 1


@pytest.mark.parametrize("verb", ["retry", "redrive"])
async def test_a_lost_answer_to_a_retry_is_asked_for_again_under_the_same_id(
    api: ApiSide, asking: Client, verb: str
) -> None:
    lost = [None, None]
    repeated: dict[str, Any] = {
        "status": "running",
        "steps": [],
        "dry_run": False,
        "deduplicated": True,
    }
    api.answers[f"run.{verb}"] = lambda body: (
        lost.pop() if lost else {"run_id": body["run_id"], **repeated}
    )
    caller_of(asking).answer_seconds = 0.2
    handle = asking.handle(new_run_id())
    reply = await (handle.retry() if verb == "retry" else handle.redrive("a"))
    assert reply.deduplicated is True
    assert len({body["request_id"] for body in api.bodies(f"run.{verb}")}) == 1
    assert len(api.bodies(f"run.{verb}")) == 3


async def test_a_call_waits_for_an_engine_that_is_still_coming(
    jetstream_url: str, prefix: str
) -> None:
    letter_id = new_run_id()
    replayed = {"results": [{"id": letter_id, "outcome": "applied"}]}
    nats: Any = await connect(jetstream_url)
    side = ApiSide(nats, prefix)
    side.answers["dead-letter.replay"] = lambda _: replayed
    async with Client(nats_url=jetstream_url, prefix=prefix) as client:
        # It is a verb that is sent once at most: while nobody listens, it was not sent.
        calling = asyncio.create_task(client.replay_dead_letters([letter_id]))
        await let_pass(0.3)
        assert not calling.done()
        await side.listen()
        assert [each.id for each in await calling] == [letter_id]
    assert len(side.bodies("dead-letter.replay")) == 1
    await nats.close()


@pytest.mark.parametrize(
    ("code", "status", "kind", "fix"),
    [
        ("workflow_not_found", 404, NotFoundError, "deploy it first"),
        ("key_conflict", 409, ConflictError, "use another key"),
        ("schema_failed", 422, InvalidRequestError, "no (schema_failed)"),
        ("internal", 500, EngineError, "no (internal)"),
        ("of_a_newer_engine", 409, ConflictError, "no (of_a_newer_engine)"),
        ("of_a_newer_engine", 503, EngineError, "no (of_a_newer_engine)"),
    ],
)
async def test_a_refusal_is_of_the_kind_of_its_status_and_names_the_fix(
    api: ApiSide, asking: Client, code: str, status: int, kind: type[ApiError], fix: str
) -> None:
    api.answers["run.start"] = lambda _: refusal(code, status)
    with pytest.raises(ApiError) as caught:
        await asking.start("order")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.status) == (code, status)
    assert fix in str(caught.value)


async def test_the_fix_that_the_engine_names_goes_before_ours(api: ApiSide, asking: Client) -> None:
    api.answers["run.start"] = lambda _: refusal("key_conflict", 409, {"fix": "do it like this"})
    with pytest.raises(ConflictError, match="no; do it like this") as caught:
        await asking.start("order")
    assert caught.value.fix == "do it like this"


async def test_a_refused_definition_lists_its_faults(api: ApiSide, asking: Client) -> None:
    faults = [{"path": "steps[0].task", "message": "missing", "code": "required"}]
    api.answers["workflow.deploy"] = lambda _: refusal(
        "definition_refused", 422, {"faults": faults}
    )
    with pytest.raises(DefinitionRefusedError) as caught:
        await asking.deploy({"workflow": "order", "steps": []})
    error = caught.value
    assert (error.code, error.status, error.details) == (
        "definition_refused", 422, {"faults": faults},
    )  # fmt: skip
    assert error.faults == (Fault(path="steps[0].task", message="missing", code="required"),)


async def test_a_request_larger_than_a_message_is_refused_before_it_is_sent(
    api: ApiSide, asking: Client
) -> None:
    steps = [{"name": f"s{n}", "pass": "x" * 1_000} for n in range(1_022)]
    with pytest.raises(InvalidValueError, match="a message takes") as caught:
        await asking.deploy({"workflow": "order", "steps": steps, "output": "y" * 40})
    assert caught.value.too_large
    assert api.requests == []


async def test_a_start_many_is_cut_into_messages_and_keeps_the_order(
    api: ApiSide, asking: Client
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
    handles = await asking.start_many(items)
    assert [handle.run_id for handle in handles] == [runs[f"o-{n}"] for n in range(25)]
    assert len(api.bodies("run.start-many")) == 3


async def test_a_start_many_of_many_small_items_has_answers_that_fit_into_a_message(
    api: ApiSide, asking: Client
) -> None:
    api.answers["run.start-many"] = started_all
    handles = await asking.start_many([{"workflow": "order"}] * 4_500)
    sizes = [len(body["items"]) for body in api.bodies("run.start-many")]
    assert (len(handles), sizes) == (4_500, [2_000, 2_000, 500])


async def test_a_start_many_whose_answer_is_too_large_is_halved(
    api: ApiSide, asking: Client
) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        if len(body["items"]) > 3:
            return refusal("too_large", 413)
        return started_all(body)

    api.answers["run.start-many"] = answer
    items = [StartItem(workflow="order", request_id=f"r-{n}") for n in range(10)]
    handles = await asking.start_many(items)
    ids = [item["request_id"] for body in api.bodies("run.start-many") for item in body["items"]]
    assert len(handles) == 10
    assert set(ids) == {f"r-{n}" for n in range(10)}


async def test_a_start_many_with_a_refused_item_raises_and_holds_the_rest(
    api: ApiSide, asking: Client
) -> None:
    run_id = new_run_id()
    error = refusal("schema_failed", 422)["error"]
    api.answers["run.start-many"] = lambda _: {
        "results": [{"run_id": run_id, "deduplicated": False}, {"error": error}]
    }
    with pytest.raises(StartManyError) as caught:
        await asking.start_many([{"workflow": "order"}, {"workflow": "order"}])
    first, second = caught.value.results
    assert isinstance(first, StartedRun)
    assert first.run_id == run_id
    assert isinstance(second, InvalidRequestError)
    assert caught.value.code == second.code == "schema_failed"
    assert second.status == 422


async def test_a_start_many_that_loses_an_answer_says_of_each_item_what_is_known(
    api: ApiSide, asking: Client
) -> None:
    answered = [started_all]
    api.answers["run.start-many"] = lambda body: answered.pop()(body) if answered else None
    caller_of(asking).timeout_seconds = 0.5
    items = [
        StartItem(workflow="order", input="x" * 200_000, request_id=f"r-{n}") for n in range(15)
    ]
    with pytest.raises(StartManyError, match="may still start") as caught:
        await asking.start_many(items)
    kinds = [type(result) for result in caught.value.results]
    assert kinds == [StartedRun] * 5 + [OutcomeUnknownError] * 5 + [TransportError] * 5
    unknown = caught.value.results[7]
    assert isinstance(unknown, OutcomeUnknownError)
    assert unknown.request_id == "r-7"


async def test_a_bad_item_is_named_by_its_place_and_nothing_is_sent(
    api: ApiSide, asking: Client
) -> None:
    with pytest.raises(ProtocolError, match=r"items\[1\].key"):
        await asking.start_many([{"workflow": "order"}, {"workflow": "order", "key": " "}])
    with pytest.raises(InvalidValueError, match=r"items\[0\]: input"):
        await asking.start_many([{"workflow": "order", "input": float("nan")}])
    with pytest.raises(TypeError, match="no field keys") as caught:
        await asking.start_many([{"workflow": "order", "keys": "x"}])
    assert caught.value.__notes__ == ["in items[0]"]
    assert api.requests == []


async def test_an_unknown_field_of_a_start_is_refused_before_anything_is_sent(
    api: ApiSide, asking: Client
) -> None:
    with pytest.raises(TypeError, match="no field inputs"):
        await asking.start_many([{"workflow": "order", "inputs": 1}])
    with pytest.raises(ValueError, match="key"):
        await asking.start("order", key=" blank ")
    assert api.requests == []


async def test_a_result_is_asked_for_until_the_run_has_settled(
    api: ApiSide, asking: Client
) -> None:
    run_id = new_run_id()
    open_answers = [{"run_id": run_id, "status": "running", "settled": False, "output": None}] * 2
    done = {"run_id": run_id, "status": "completed", "settled": True, "output": {"n": 2**60}}
    api.answers["run.result"] = lambda _: open_answers.pop() if open_answers else done
    assert await asking.handle(run_id).result(timeout=60) == {"n": 2**60}
    assert await asking.result(run_id, timeout=60) == {"n": 2**60}
    assert await asking.handle(run_id).result(type=dict[str, int]) == {"n": 2**60}
    assert all(0 < body["wait_ms"] <= 30_000 for body in api.bodies("run.result"))


async def test_the_result_of_a_run_that_did_not_complete_raises(
    api: ApiSide, asking: Client
) -> None:
    run_id = new_run_id()
    error = {"type": "OutOfStock", "message": "none left", "step": "reserve"}
    api.answers["run.result"] = lambda _: {
        "run_id": run_id, "status": "failed", "settled": True, "error": error,
    }  # fmt: skip
    with pytest.raises(RunFailed, match="OutOfStock: none left") as caught:
        await asking.handle(run_id).result()
    assert caught.value.status == "failed"
    assert caught.value.error is not None
    assert caught.value.error.step == "reserve"


async def test_a_result_that_takes_too_long_is_a_timeout(api: ApiSide, asking: Client) -> None:
    run_id = new_run_id()
    api.answers["run.result"] = lambda _: {
        "run_id": run_id, "status": "waiting", "settled": False,
    }  # fmt: skip
    with pytest.raises(TimeoutError, match="still waiting"):
        await asking.handle(run_id).result(timeout=0.01)


class Totals(Struct):
    n: int


@dataclass
class TotalsClass:
    n: int


class TotalsDict(TypedDict):
    n: int


class TotalsModel(pydantic.BaseModel):
    n: int


async def test_an_output_becomes_the_type_that_is_asked_for(api: ApiSide, asking: Client) -> None:
    run_id = new_run_id()
    api.answers["run.result"] = lambda _: {
        "run_id": run_id, "status": "completed", "settled": True, "output": {"n": 2**60},
    }  # fmt: skip
    handle = asking.handle(run_id)
    assert await handle.result(type=Totals) == Totals(2**60)
    assert await handle.result(type=TotalsClass) == TotalsClass(2**60)
    assert await handle.result(type=TotalsDict) == {"n": 2**60}
    assert await handle.result(type=TotalsModel) == TotalsModel(n=2**60)
    assert await handle.result(type=dict[str, int]) == {"n": 2**60}
    with pytest.raises(InvalidValueError, match=rf"the output of run {run_id} is no str"):
        await handle.result(type=str)


async def test_models_inside_other_types_are_validated_too(api: ApiSide, asking: Client) -> None:
    run_id = new_run_id()
    api.answers["run.result"] = lambda _: {
        "run_id": run_id, "status": "completed", "settled": True, "output": [{"n": 1}, {"n": "no"}],
    }  # fmt: skip
    with pytest.raises(InvalidValueError, match=r"valid integer.*`\$\.n`.*`\$\[1\]`"):
        await asking.handle(run_id).result(type=list[TotalsModel])
    with pytest.raises(InvalidValueError, match="is no list: Thing is no type of data"):
        await asking.handle(run_id).result(type=list[Thing])


class Thing:
    """Nothing that JSON knows."""


async def test_a_large_output_is_fetched_in_pieces(api: ApiSide, asking: Client) -> None:
    run_id = new_run_id()
    api.answers["run.result"] = lambda _: {
        "run_id": run_id, "status": "completed", "settled": True, "output_omitted": 6,
    }  # fmt: skip
    api.answers["run.output"] = lambda body: {
        "run_id": run_id, "step": None, "offset": body.get("offset", 0), "size": 6,
        "text": '"ab' if not body.get("offset") else 'cd"',
        "next_offset": 3 if not body.get("offset") else None,
    }  # fmt: skip
    assert await asking.handle(run_id).result() == "abcd"


async def test_signals_and_cancels_name_a_key_or_a_run(api: ApiSide, asking: Client) -> None:
    run_id = new_run_id()
    api.answers["run.signal"] = lambda _: {"run_id": run_id, "deduplicated": False}
    api.answers["run.cancel"] = lambda _: {"run_id": run_id, "status": "cancelled"}
    await asking.signal("order", key="o-1", signal="approved", payload={"by": "ann"})
    await asking.signal(run_id=run_id, signal="approved", message_id="m-1")
    await asking.cancel(run_id=run_id, by="ann", reason="changed my mind")
    by_key, by_run = api.bodies("run.signal")
    assert (by_key["workflow"], by_key["key"], by_key["payload"]) == ("order", "o-1", {"by": "ann"})
    assert (by_run["run_id"], by_run["message_id"]) == (run_id, "m-1")
    assert api.bodies("run.cancel") == [
        {"run_id": run_id, "by": "ann", "reason": "changed my mind"}
    ]
    with pytest.raises(ValueError, match="run_id"):
        await asking.signal("order", signal="approved")


async def test_no_engine_and_no_nats_are_told_apart(jetstream_url: str, prefix: str) -> None:
    async with Client(nats_url=jetstream_url, prefix=prefix, timeout_seconds=0.3) as client:
        with pytest.raises(NoAnswerError, match="no Towpath engine of prefix"):
            await client.start("order")
    with pytest.raises(NotConnectedError, match="no NATS server"):
        await Client(nats_url="nats://127.0.0.1:1", prefix=prefix, timeout_seconds=0.3).open()
