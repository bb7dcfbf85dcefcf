"""Another service: it approves or declines orders with plain NATS messages.

It imports nothing of Towpath. A PubAck is JetStream's promise only, so every signal is repeated
with the same id until the run shows that it was taken, or has settled without it.

    python -m deploy.demo.approver ORDERS
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from deploy.demo.api import PlainApi
from deploy.demo.lifeline import stop_with_parent
from deploy.demo.orders import Order, distinct, read_orders

ROUND_SECONDS: Final = 1.0
AT_ONCE: Final = 16
SETTLED: Final = {
    "completed",
    "failed",
    "cancelled",
    "timed_out",
    "compensated",
    "compensation_failed",
}


class RunSummary(Struct):
    run_id: str
    status: str


class RunPage(Struct):
    runs: list[RunSummary]


class StepView(Struct):
    step: str
    status: str


class RunView(Struct):
    status: str
    steps: list[StepView]


class Approver:
    """Decides every order above the limit."""

    def __init__(self, api: PlainApi) -> None:
        self._api = api
        self._run_ids: dict[str, str] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def decide_all(self, orders: list[Order]) -> None:
        """Return when every signal was taken or its run has settled."""
        undecided: list[Order] = orders
        while undecided:
            taken = await asyncio.gather(*(self._decide(order) for order in undecided))
            pairs = zip(undecided, taken, strict=True)
            undecided = [order for order, done in pairs if not done]
            await asyncio.sleep(ROUND_SECONDS)

    async def _decide(self, order: Order) -> bool:
        async with self._at_once:
            run_id = self._run_ids.get(order.order_id) or await self._find(order)
            if run_id is None:
                return False
            self._run_ids[order.order_id] = run_id
            run = await self._api.call("run.get", {"run_id": run_id, "steps": True}, RunView)
            approval = [one.status for one in run.steps if one.step == "approval"]
            if run.status in SETTLED or approval == ["completed"]:
                return True
            await self._signal(order)
            return False

    async def _find(self, order: Order) -> str | None:
        wanted = {"workflow": "order", "key": order.order_id, "limit": 1}
        page = await self._api.call("run.list", wanted, RunPage)
        return page.runs[0].run_id if page.runs else None

    async def _signal(self, order: Order) -> None:
        headers = {
            "Towpath-Key": quote(order.order_id),
            "Towpath-Message-Id": f"approval-{order.spread}",
            "Towpath-Sent-By": "approver",
        }
        payload = json.dumps({"decision": order.decision, "by": "approver"}).encode()
        subject = f"{self._api.prefix}.in.signal-key.order.{order.spread}.approved"
        await self._api.publish(subject, payload, headers)


async def main() -> None:
    """Decide the orders of the file, then exit."""
    orders = distinct(read_orders(Path(sys.argv[1])))
    api = PlainApi(
        os.environ.get("TOWPATH_NATS_URL", "nats://127.0.0.1:4222"),
        os.environ.get("TOWPATH_PREFIX", "towpath"),
        patience_seconds=3600,
    )
    await Approver(api).decide_all([one for one in orders.values() if one.needs_approval])
    await api.close()


if __name__ == "__main__":
    stop_with_parent()
    asyncio.run(main())
