"""The tasks of the order saga and what undoes them.

An attempt may be given to a worker twice, so each effect is written down under the attempt's
idempotency key: who comes again finds its line in the ledger and writes no second.
"""

from pathlib import Path

from msgspec import Struct

from towpath_worker import Context, TerminalError, Worker

LEDGER = Path("ledger.txt")

worker = Worker("saga")


class Article(Struct):
    sku: str


class Payment(Struct):
    card: str
    cents: int


class Parcel(Struct):
    address: str


class Booked(Struct):
    booking: str


class Undo(Struct):
    booking: str
    because: str


def write_down(text: str, ctx: Context) -> None:
    """Add a line to the ledger, once for each idempotency key."""
    known = LEDGER.read_text(encoding="utf-8") if LEDGER.exists() else ""
    key = f"[{ctx.idempotency_key}]"
    if key not in known:
        LEDGER.write_text(f"{known}{text} {key}\n", encoding="utf-8")


@worker.task("saga.reserve")
async def reserve(article: Article, ctx: Context) -> Booked:
    if article.sku == "gone":
        raise TerminalError("none left", type="OutOfStock")
    write_down(f"reserved {article.sku}", ctx)
    return Booked(f"R-{article.sku}")


@worker.task("saga.release")
async def release(undo: Undo, ctx: Context) -> None:
    if ctx.attempt == 1:
        raise ConnectionError("the warehouse hung up")  # an undo is retried like any task
    write_down(f"released {undo.booking}: {undo.because}", ctx)


@worker.task("saga.charge")
async def charge(payment: Payment, ctx: Context) -> Booked:
    if payment.card == "empty":
        raise TerminalError("insufficient funds", type="CardRefused")
    write_down(f"charged {payment.cents}", ctx)
    return Booked(f"C-{payment.cents}")


@worker.task("saga.refund")
async def refund(undo: Undo, ctx: Context) -> None:
    write_down(f"refunded {undo.booking}: {undo.because}", ctx)


@worker.task("saga.ship")
async def ship(parcel: Parcel, ctx: Context) -> str:
    if parcel.address == "nowhere":
        raise TerminalError("no such address", type="Undeliverable")
    write_down(f"shipped to {parcel.address}", ctx)
    return f"on its way to {parcel.address}"
