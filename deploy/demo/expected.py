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


class Line(Struct, frozen=True):
    """The fields of an order that decide its outcome."""

    order_id: str
    customer: str
    sku: str
    total: int
    card: str
    decision: str = "approve"


class Expected(Struct, frozen=True):
    """The end of one order's run. `charged` is the exact amount the card pays, 0 for nothing.

    `reason` is the error type of a failed run, else the outcome in its output. `tasks` are the
    task steps that complete, in order; `failed_step` the one that fails the run.
    """

    status: str
    reason: str
    charged: int
    tasks: tuple[str, ...]
    failed_step: str | None = None
    tracking: str | None = None
    message: str | None = None


def expected_of(line: Line) -> Expected:
    """Follow one order through the rules."""
    if line.sku.startswith("SOLDOUT-"):
        return Expected("failed", "OutOfStock", 0, (), failed_step="reserve")
    if line.total > 1_000 and line.decision == "decline":
        return Expected("completed", "declined", 0, ("reserve",))
    if line.total > 0 and line.card.endswith("0002"):
        return Expected("failed", "CardRefused", 0, ("reserve",), failed_step="charge")
    charge = ("charge",) if line.total > 0 else ()
    tracking = f"TRK-{zlib.crc32(line.order_id.encode()):08x}"
    return Expected(
        "completed",
        "shipped",
        line.total,
        ("reserve", *charge, "ship", "notify"),
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


if __name__ == "__main__":
    outcomes_of_file = expected_outcomes(Path(sys.argv[1]))
    print(json.dumps(table(outcomes_of_file), indent=2))
