"""A worker on a real nats-server, with the test in the engine's place."""

from msgspec import Struct

from tests.integration.worker.conftest import Serving, worker_of
from tests.support.engine_side import EngineSide
from tests.support.eventually import until
from towpath_worker import Context, TerminalError


class Reserve(Struct):
    sku: str
    quantity: int = 1


async def test_an_async_task_completes_and_its_dispatch_is_acknowledged(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)

    @worker.task("inventory.reserve")
    async def reserve(order: Reserve, ctx: Context) -> dict[str, object]:
        return {"sku": order.sku, "attempt": ctx.attempt, "key": ctx.idempotency_key}

    async with serving(worker):
        token = await engine.dispatch("inventory.reserve", {"sku": "A-1"}, attempt=2)
        report = await engine.end_of(token)
        assert report.kind == "step-completed"
        assert report.body["output"] == {"sku": "A-1", "attempt": 2, "key": "k/reserve/0"}
        assert report.headers["Nats-Msg-Id"] == f"{token}:step-completed:{report.body['worker_id']}"
        await engine.all_acknowledged()
    assert [seen.kind for seen in engine.of(token)] == ["step-completed"]


async def test_a_plain_function_runs_in_a_thread_and_may_fail(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url)

    @worker.task("inventory.reserve")
    def reserve(order: Reserve) -> None:
        raise TerminalError("none left", type="OutOfStock", details={"sku": order.sku})

    async with serving(worker):
        token = await engine.dispatch("inventory.reserve", {"sku": "A-1"})
        report = await engine.end_of(token)
    assert report.kind == "step-failed"
    assert report.body["error"] == {
        "type": "OutOfStock",
        "message": "none left",
        "retryable": False,
        "details": {"sku": "A-1"},
    }


async def test_many_steps_of_every_level_complete_once_each(
    engine: EngineSide, jetstream_url: str, serving: Serving
) -> None:
    worker = worker_of(engine, jetstream_url, slots=8)

    @worker.task("inventory.reserve")
    async def reserve(order: Reserve) -> str:
        return order.sku

    async with serving(worker):
        tokens = [
            await engine.dispatch("inventory.reserve", {"sku": f"S-{n}"}, level=n % 4)
            for n in range(400)
        ]
        await until(lambda: all(engine.ends(token) for token in tokens), "all end")
    assert len([r for r in engine.reports if r.kind == "step-completed"]) == len(tokens)
