"""A Python worker process of the demo: one `Worker` for each queue that it is given.

    python -m deploy.demo.workers_python --effects FILE inventory payment

Effects are lines in a file of this process alone. The gateway is as flaky as the order id says, so
that any attempt, on any worker, at any time, meets the same answer.
"""

import argparse
import asyncio
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from deploy.demo.lifeline import stop_with_parent
from towpath_worker import Context, TerminalError, Worker, WorkerOptions, run_workers

WORK_SECONDS: Final = 0.005
"""How long every effect takes."""


class GatewayBusyError(Exception):
    """The payment gateway is overloaded; the next attempts may get through."""


class WarehouseBusyError(Exception):
    """The warehouse turns away the first attempt to give back three, six, nine of an article."""


class Reserve(Struct, frozen=True):
    """Input of `inventory.reserve`: the article in this line of the order, from 0."""

    order_id: str
    line: int
    sku: str
    quantity: int


class Reserved(Struct, frozen=True):
    """Output of `inventory.reserve` and input of `inventory.release`."""

    reservation: str
    quantity: int


class Charge(Struct, frozen=True):
    """Input of `payment.charge`; `amount` is a whole number of any size."""

    order_id: str
    amount: int
    card: str


class Ship(Struct, frozen=True):
    """Input of `shipping.ship`."""

    order_id: str
    reservations: list[str]


class Notify(Struct, frozen=True):
    """Input of `mail.notify`."""

    customer: str
    tracking: str


class Effects:
    """The log of what this process did to the outside world."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def note(self, what: str, task: str, ctx: Context, facts: Mapping[str, object]) -> None:
        """Append one line, whole, so that a kill never leaves half of one in the middle."""
        line = {
            "what": what,
            "task": task,
            "attempt": ctx.attempt,
            "idempotency_key": ctx.idempotency_key,
            **facts,
        }
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()


def busy_attempts(order_id: str) -> int:
    """How many first attempts the gateway turns away for this order: 0, 1 or 2."""
    return zlib.crc32(order_id.encode()) % 3


def add_inventory(worker: Worker, effects: Effects) -> None:
    """`inventory.reserve` and what undoes it; the Node.js worker knows them, too."""

    @worker.task("inventory.reserve")
    async def reserve(order: Reserve, ctx: Context) -> Reserved:
        effects.note("begun", "inventory.reserve", ctx, {})
        await asyncio.sleep(WORK_SECONDS)
        if order.sku.startswith("SOLDOUT-"):
            raise TerminalError(f"no {order.sku} left", type="OutOfStock")
        reserved = Reserved(f"R-{order.order_id}-{order.line}", order.quantity)
        effects.note("done", "inventory.reserve", ctx, {"reservations": [reserved.reservation]})
        return reserved

    @worker.task("inventory.release")
    async def release(reserved: Reserved, ctx: Context) -> None:
        effects.note("begun", "inventory.release", ctx, {})
        await asyncio.sleep(WORK_SECONDS)
        if ctx.attempt == 1 and reserved.quantity % 3 == 0:
            raise WarehouseBusyError("the first attempt was turned away")
        effects.note("done", "inventory.release", ctx, {"reservations": [reserved.reservation]})

    del reserve, release


def add_payment(worker: Worker, effects: Effects) -> None:
    """`payment.charge`: a refused card is final, a busy gateway is not."""

    @worker.task("payment.charge")
    async def charge(order: Charge, ctx: Context) -> dict[str, object]:
        effects.note("begun", "payment.charge", ctx, {})
        await asyncio.sleep(WORK_SECONDS)
        if order.card.endswith("0002"):
            raise TerminalError(f"card {order.card[-4:]} was refused", type="CardRefused")
        if ctx.attempt <= busy_attempts(order.order_id):
            raise GatewayBusyError(f"attempt {ctx.attempt} was turned away")
        facts = {"order_id": order.order_id, "amount": order.amount}
        effects.note("done", "payment.charge", ctx, facts)
        return {"amount": order.amount, "receipt": ctx.idempotency_key}

    del charge


def add_shipping(worker: Worker, effects: Effects) -> None:
    """`shipping.ship`, a plain function: it runs in a thread."""

    @worker.task("shipping.ship")
    def ship(order: Ship, ctx: Context) -> dict[str, str]:
        effects.note("begun", "shipping.ship", ctx, {})
        effects.note("done", "shipping.ship", ctx, {"reservations": order.reservations})
        return {"tracking": f"TRK-{zlib.crc32(order.order_id.encode()):08x}"}

    del ship


def add_notify(worker: Worker, effects: Effects) -> None:
    """`mail.notify`, served here only on machines without Node.js."""

    @worker.task("mail.notify")
    async def notify(letter: Notify, ctx: Context) -> dict[str, str]:
        effects.note("begun", "mail.notify", ctx, {})
        await asyncio.sleep(WORK_SECONDS)
        effects.note("done", "mail.notify", ctx, {})
        text = f"Dear {letter.customer}, your parcel {letter.tracking} is on its way."
        return {"message": text}

    del notify


TASKS: Final = {
    "inventory": add_inventory,
    "payment": add_payment,
    "shipping": add_shipping,
    "notify": add_notify,
}


def main() -> None:
    """Serve the queues until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effects", type=Path, required=True)
    parser.add_argument("queues", nargs="+", choices=sorted(TASKS))
    args = parser.parse_args()
    effects = Effects(args.effects)
    workers: list[Worker] = []
    for queue in args.queues:
        worker = Worker(queue, options=WorkerOptions(slots=16, drain_timeout_seconds=5))
        TASKS[queue](worker, effects)
        workers.append(worker)
    run_workers(*workers)


if __name__ == "__main__":
    stop_with_parent()
    main()
