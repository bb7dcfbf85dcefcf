"""Start a run for every order: most through the client, every tenth as a plain NATS message.

Both ways are repeated until they are known to have worked, under an id that is the same each time,
so that a repeat, a duplicate line or a start before and after a crash is the same run.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from msgspec import Struct, to_builtins

from deploy.demo.api import PlainApi
from deploy.demo.orders import Order
from towpath_worker import ApiError, Client

BATCH: Final = 50
PATIENCE_SECONDS: Final = 240.0
PAUSE_SECONDS: Final = 0.5
MESSAGE_EVERY: Final = 10


class RunName(Struct):
    run_id: str


class RunPage(Struct):
    runs: list[RunName]


def split(orders: Sequence[Order]) -> tuple[list[Order], list[Order]]:
    """Those started through the client, those started by a message."""
    by_message = list(orders[MESSAGE_EVERY - 1 :: MESSAGE_EVERY])
    by_client = [one for index, one in enumerate(orders, start=1) if index % MESSAGE_EVERY]
    return by_client, by_message


def start_id(order: Order) -> str:
    """The id of the start: a request id or a message id, which share one namespace."""
    return f"start-{order.order_id}"


async def start_by_client(client: Client, orders: Sequence[Order], rate: float) -> int:
    """Start them in batches, `rate` a second at most (0: no limit); how many were duplicates.

    Raises the client's last error when a batch can't be started for `PATIENCE_SECONDS`.
    """
    deduplicated = 0
    for first in range(0, len(orders), BATCH):
        batch = orders[first : first + BATCH]
        deduplicated += await _start_batch(client, batch)
        if rate:
            await asyncio.sleep(len(batch) / rate)
    return deduplicated


async def start_by_message(api: PlainApi, orders: Sequence[Order], rate: float) -> int:
    """Publish each start until the run shows; how many messages were sent again."""
    waiting = list(orders)
    repeats = 0
    first_round = True
    while waiting:
        for order in waiting:
            await _publish_start(api, order)
            if rate and first_round:
                await asyncio.sleep(1 / rate)
        repeats += 0 if first_round else len(waiting)
        first_round = False
        await asyncio.sleep(PAUSE_SECONDS)
        shown = await asyncio.gather(*(_shows(api, order) for order in waiting))
        waiting = [order for order, there in zip(waiting, shown, strict=True) if not there]
    return repeats


async def _start_batch(client: Client, batch: Sequence[Order]) -> int:
    items = [
        {
            "workflow": "order",
            "input": to_builtins(order),
            "key": order.order_id,
            "request_id": start_id(order),
        }
        for order in batch
    ]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            results = await client.start_many(items)
        except (ApiError, TimeoutError, OSError):
            if time.monotonic() > deadline:
                raise
        else:
            return sum(handle.deduplicated for handle in results)
        await asyncio.sleep(PAUSE_SECONDS)


async def _publish_start(api: PlainApi, order: Order) -> None:
    headers = {
        "Towpath-Key": quote(order.order_id),
        "Towpath-Message-Id": quote(start_id(order)),
        "Towpath-Sent-By": "demo",
    }
    payload = json.dumps(to_builtins(order), ensure_ascii=False).encode()
    await api.publish(f"{api.prefix}.in.start.order.{order.spread}.-", payload, headers)


async def _shows(api: PlainApi, order: Order) -> bool:
    wanted = {"workflow": "order", "key": order.order_id, "limit": 1}
    return bool((await api.call("run.list", wanted, RunPage)).runs)
