"""What must come out of a file of orders, computed from the file alone.

This is the demo's judge: it imports nothing of Towpath and nothing of the demo's workers, and
repeats the rules of deploy/demo/README.md in its own words.

    python deploy/demo/expected.py deploy/demo/orders.jsonl      # prints the table as JSON
"""

import json
import sys
import zlib
from collections import Counter
from pathlib import Path

import msgspec
from msgspec import Struct


class Article(Struct, frozen=True):
    """One article of an order; how many of it decides nothing."""

    sku: str


class Line(Struct, frozen=True):
    """The fields of an order that decide its outcome; `sku` stands for a list of one article."""

    order_id: str
    customer: str
    total: int
    card: str
    sku: str | None = None
    articles: list[Article] = []
    decision: str = "approve"


class Expected(Struct, frozen=True):
    """The end of one order's run. `charged` is the exact amount the card pays, 0 for nothing.

    `reason` is the error type of a failed run, else the outcome in its output. `tasks` are the task
    steps that complete and stay so, `undone` those that are undone, `failed` those that fail.
    `reserved` are the reservations in the order of the articles; each ends with the parcel
    (`shipped`) or is given back once.
    """

    status: str
    reason: str
    charged: int
    tasks: tuple[str, ...]
    undone: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    shipped: bool = False
    tracking: str | None = None
    message: str | None = None


def expected_of(line: Line) -> Expected:
    """Follow one order through the rules."""
    skus = [article.sku for article in line.articles] or [str(line.sku)]
    there = [number for number, sku in enumerate(skus) if not sku.startswith("SOLDOUT-")]
    gone = [number for number in range(len(skus)) if number not in there]
    missing = tuple(f"reserve[{number}]/shelf" for number in gone)
    if not there:
        return Expected("failed", "OutOfStock", 0, (), failed=missing)
    shelves = tuple(f"reserve[{number}]/shelf" for number in there)
    reserved = tuple(f"R-{line.order_id}-{number}" for number in there)
    if line.total > 1_000 and line.decision == "decline":
        releases = tuple(f"give_back[{number}]/release" for number in range(len(there)))
        tasks = (*shelves, *releases)
        return Expected("completed", "declined", 0, tasks, failed=missing, reserved=reserved)
    if line.total > 0 and line.card.endswith("0002"):
        failed = (*missing, "charge")
        return Expected(
            "compensated", "CardRefused", 0, (), undone=shelves, failed=failed, reserved=reserved
        )
    charge = ("charge",) if line.total > 0 else ()
    tracking = f"TRK-{zlib.crc32(line.order_id.encode()):08x}"
    return Expected(
        "completed",
        "shipped in part" if missing else "shipped",
        line.total,
        (*shelves, *charge, "ship", "notify"),
        failed=missing,
        reserved=reserved,
        shipped=True,
        tracking=tracking,
        message=f"Dear {line.customer}, your parcel {tracking} is on its way.",
    )


def expected_outcomes(path: Path) -> dict[str, Expected]:
    """By order id; identical repeats of an order are one order."""
    decoder = msgspec.json.Decoder(Line)
    lines = [decoder.decode(line) for line in path.read_bytes().split(b"\n") if line.strip()]
    return {line.order_id: expected_of(line) for line in lines}


def table(outcomes: dict[str, Expected]) -> dict[str, int]:
    """How many orders end in each way, as `status (reason)`."""
    counts = Counter(f"{one.status} ({one.reason})" for one in outcomes.values())
    return dict(sorted(counts.items()))


def reservations(outcomes: dict[str, Expected]) -> dict[str, int]:
    """How many reservations are made, how many of them shipped and how many released."""
    made = sum(len(one.reserved) for one in outcomes.values())
    shipped = sum(len(one.reserved) for one in outcomes.values() if one.shipped)
    return {"reserved": made, "shipped": shipped, "released": made - shipped}


if __name__ == "__main__":
    outcomes_of_file = expected_outcomes(Path(sys.argv[1]))
    print(json.dumps(table(outcomes_of_file), indent=2))
