"""A worker, a workflow and a client in one program: `python workers/examples/order.py`.

Needs a running `towpath dev`. Starts the worker, deploys the workflow, starts a run, approves it.
"""

import asyncio

from msgspec import Struct

from towpath_worker import Client, Context, TerminalError, Worker
from towpath_worker.workflow import retry, task, wait, workflow

worker = Worker("shop")


class Order(Struct):
    order_id: str
    sku: str
    total: int


class Reserved(Struct):
    reservation: str


@worker.task("shop.reserve")
async def reserve(order: Order, ctx: Context) -> Reserved:
    if order.sku.startswith("SOLDOUT"):
        raise TerminalError(f"no {order.sku} left", type="OutOfStock")
    ctx.logger.info("reserved %s", order.sku)
    return Reserved(reservation=f"R-{order.order_id}")


@worker.task("shop.ship")
def ship(order: Order) -> str:
    """A plain function: it runs in a thread and may block."""
    return f"TRACK-{order.order_id}"


ORDER = workflow(
    "shop-order",
    steps=[
        task("reserve", task="shop.reserve", queue="shop", retry=retry(max_attempts=5)),
        wait("approval", signal="approved", timeout="24h", when="input.total > 1000"),
        task("ship", task="shop.ship", queue="shop"),
    ],
)


async def main() -> None:
    serving = asyncio.create_task(worker.serve())
    async with Client() as client:
        await client.deploy(ORDER)
        order = {"order_id": "o-1", "sku": "A-1", "total": 2_000}
        handle = await client.start("shop-order", order, key="o-1")
        await client.signal("shop-order", key="o-1", signal="approved", payload={"by": "ann"})
        print(await handle.result(timeout=60))
    worker.stop()
    await serving


if __name__ == "__main__":
    asyncio.run(main())
