"""Read a file of orders: JSON Lines, checked line by line before anything is started.

The format is described in deploy/demo/README.md. This module imports nothing of Towpath.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

APPROVAL_LIMIT: Final = 1_000
"""Orders with a total above this wait for an approval; order.yaml repeats the number."""
LINE_BYTES_MAX: Final = 16_384
ORDERS_MAX: Final = 100_000
TOTAL_DIGITS_MAX: Final = 60

Text = Annotated[str, Meta(min_length=1, max_length=256)]
Quantity = Annotated[int, Meta(ge=1, le=1_000_000)]


class Article(Struct, frozen=True, forbid_unknown_fields=True):
    """So many of one article."""

    sku: Text
    quantity: Quantity


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the file. One article stands in it directly, several as `articles`."""

    order_id: Text
    customer: Text
    total: int
    card: Annotated[str, Meta(pattern=r"^[0-9]{12,19}$")]
    sku: Text | None = None
    quantity: Quantity | None = None
    articles: Annotated[tuple[Article, ...], Meta(min_length=1, max_length=20)] | None = None
    decision: Literal["approve", "decline"] = "approve"


class Order(Struct, frozen=True):
    """One order. `total` is a whole number of currency units, of any size."""

    order_id: str
    customer: str
    articles: tuple[Article, ...]
    total: int
    card: str
    decision: Literal["approve", "decline"] = "approve"

    @property
    def needs_approval(self) -> bool:
        """Whether the run of this order waits for the signal `approved`."""
        return self.total > APPROVAL_LIMIT

    @property
    def spread(self) -> str:
        """The spreading token of the order's key, as PROTOCOL.md (5) says."""
        return hashlib.sha256(self.order_id.encode()).hexdigest()[:32]


class OrdersError(Exception):
    """The file of orders can't be used; the message names the file, the line and the fault."""


def read_orders(path: Path) -> list[Order]:
    """All lines of `path` in order, identical repeats included.

    Raises `OrdersError` for the first fault: an unreadable file, text that is not UTF-8 or JSON, an
    unknown or missing field, a value out of range, or one order id with two different contents.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OrdersError(f"{path}: {error.strerror or error}") from error
    orders: list[Order] = []
    seen: dict[str, tuple[int, Order]] = {}
    for number, line in _lines(content):
        try:
            order = _parse(line)
        except ValueError as error:
            raise OrdersError(f"{path}:{number}: {error}") from error
        first, known = seen.setdefault(order.order_id, (number, order))
        if known != order:
            raise OrdersError(
                f"{path}:{number}: order {order.order_id!r} differs from line {first}; "
                "repeats of an order must be identical"
            )
        orders.append(order)
    if not orders:
        raise OrdersError(f"{path}: no orders in it")
    if len(orders) > ORDERS_MAX:
        raise OrdersError(f"{path}: {len(orders)} orders; the most is {ORDERS_MAX}")
    return orders


def distinct(orders: list[Order]) -> dict[str, Order]:
    """The orders by id, each once, in the order of their first line."""
    return {order.order_id: order for order in orders}


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        stripped = line.strip()
        if stripped:
            yield number, stripped


def _parse(line: bytes) -> Order:
    """One order; raises ValueError (msgspec's errors are ValueErrors) with the fault."""
    if len(line) > LINE_BYTES_MAX:
        raise ValueError(f"{len(line)} bytes in one line; the most is {LINE_BYTES_MAX}")
    found = msgspec.json.decode(line, type=Line)
    order = Order(
        order_id=found.order_id,
        customer=found.customer,
        articles=_articles(found),
        total=found.total,
        card=found.card,
        decision=found.decision,
    )
    if order.total < 0:
        raise ValueError("total is negative")
    if order.total >= 10**TOTAL_DIGITS_MAX:
        raise ValueError(f"total has more than {TOTAL_DIGITS_MAX} digits")
    texts = [("order_id", order.order_id), ("customer", order.customer)]
    for name, value in [*texts, *(("sku", article.sku) for article in order.articles)]:
        if value != value.strip() or not value.isprintable():
            raise ValueError(f"{name} has outer blanks or unprintable characters")
    return order


def _articles(line: Line) -> tuple[Article, ...]:
    if line.articles is not None:
        if line.sku is not None or line.quantity is not None:
            raise ValueError("sku and quantity stand beside articles; one or the other")
        return line.articles
    if line.sku is None or line.quantity is None:
        missing = "sku" if line.sku is None else "quantity"
        raise ValueError(f"Object missing required field `{missing}`")
    return (Article(line.sku, line.quantity),)
