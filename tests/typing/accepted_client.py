"""What the client's types must accept: pyright finds nothing here."""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypedDict, assert_type

from msgspec import Struct

from towpath_protocol.operation_replies import RetriedRun, RunExplanation, WorkerView
from towpath_protocol.replies import RunSummary
from towpath_worker import (
    ApiError,
    Client,
    ConflictError,
    ConnectionOptions,
    DefinitionRefusedError,
    Event,
    Fault,
    Json,
    LogLine,
    OnConflict,
    OutcomeUnknownError,
    RunHandle,
    StartItem,
    SyncClient,
    SyncRunHandle,
)


class Order(Struct):
    sku: str


@dataclasses.dataclass
class Receipt:
    total: int


class Parcel(TypedDict):
    code: str


async def asynchronous() -> None:
    options = ConnectionOptions(nats_url="nats://example:4222", prefix="shop")
    async with Client(connection=options, by="billing") as client:
        handle = await client.start(
            "order",
            Order("A"),
            key="k",
            delay=timedelta(minutes=5),
            priority="high",
            tags=["a"],
            context={"tenant": 1},
            on_conflict=OnConflict.REPLACE,
        )
        assert_type(handle, RunHandle)
        assert_type(await handle.result(timeout=60), Json)
        assert_type(await handle.result(type=Order), Order)
        assert_type(await handle.result(type=Receipt), Receipt)
        assert_type(await handle.result(type=Parcel), Parcel)
        assert_type(await handle.result(type=list[int]), list[int])
        async for event in handle.events(after_seq=3):
            assert_type(event, Event)
        async for line in handle.follow_logs(step="ship"):
            assert_type(line, LogLine)
        async for run in client.list("order", status="failed", created_from=datetime.now(UTC)):
            assert_type(run, RunSummary)
        async for worker in client.workers("stock"):
            assert_type(worker, WorkerView)
        many = await client.start_many([StartItem(workflow="order"), {"workflow": "order"}])
        assert_type(many, Sequence[RunHandle])
        assert_type(await handle.explain(), RunExplanation)
        assert_type(await handle.retry(input=None, reason="typo"), RetriedRun)
        assert_type(await handle.restart(), RunHandle)
        await client.purge("order", settled_before=datetime.now(UTC), dry_run=True)


def blocking() -> None:
    with SyncClient() as client:
        handle = client.start("order", Order("A"), key="k")
        assert_type(handle, SyncRunHandle)
        assert_type(handle.result(), Json)
        assert_type(handle.result(type=Receipt, timeout=5), Receipt)
        assert_type(handle.redrive("ship", dry_run=True), RetriedRun)
        assert_type(handle.restart(), SyncRunHandle)
        for event in handle.events():
            assert_type(event.data, Json)
        for run in client.list("order", key="k"):
            assert_type(run, RunSummary)
        assert_type(client.start_many([{"workflow": "order"}]), Sequence[SyncRunHandle])
        client.pause_queue("stock", reason="stocktaking")


def told(error: Exception) -> str:
    match error:
        case OutcomeUnknownError():
            assert_type(error.request_id, str | None)
            return error.verb
        case DefinitionRefusedError():
            assert_type(error.faults, tuple[Fault, ...])
            return error.faults[0].path
        case ConflictError():
            return error.code
        case ApiError():
            assert_type(error.status, int)
            return error.fix or error.message
        case _:
            return ""
