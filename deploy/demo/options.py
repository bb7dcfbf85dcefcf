"""The demo's command line."""

import argparse
from pathlib import Path

from msgspec import Struct

HERE = Path(__file__).resolve().parent


class Options(Struct, frozen=True, kw_only=True):
    """What was asked for; see `--help`."""

    orders: Path
    engines: int
    rate: float
    timeout_seconds: float
    json_events: bool
    hold: bool
    node: bool


def parse_options(arguments: list[str]) -> Options:
    """Read the command line; exits with status 2 on a mistake."""
    parser = argparse.ArgumentParser(prog="deploy/demo/run.py", description="Run the demo.")
    parser.add_argument(
        "--orders", type=Path, default=HERE / "orders.jsonl", help="a file of orders (JSON Lines)"
    )
    parser.add_argument("--engines", type=int, default=1, help="how many engines (default 1)")
    parser.add_argument(
        "--rate", type=float, default=0, help="starts per second (default: as fast as possible)"
    )
    parser.add_argument(
        "--timeout", type=float, default=900, help="give up after so many seconds (default 900)"
    )
    parser.add_argument(
        "--json-events", action="store_true", help="print JSON lines for programs, not for people"
    )
    parser.add_argument(
        "--hold", action="store_true", help="keep everything running at the end, until SIGTERM"
    )
    parser.add_argument(
        "--without-node", action="store_true", help="don't use Node.js even if it is installed"
    )
    args = parser.parse_args(arguments)
    if args.engines < 1 or args.rate < 0 or args.timeout <= 0:
        parser.error("--engines and --timeout must be more than 0, --rate not less")
    return Options(
        orders=args.orders.resolve(),
        engines=args.engines,
        rate=args.rate,
        timeout_seconds=args.timeout,
        json_events=args.json_events,
        hold=args.hold,
        node=not args.without_node,
    )
