"""W1 and W2: latency of one workflow at a time, throughput of many."""

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from deploy.bench.meter import Meter, percentile
from deploy.bench.peer_towpath import STEPS, TowpathPeer

WARM_UP_W1: Final = 10
WARM_UP_W2: Final = 100
LIMIT_SECONDS: Final = 900.0


class Sizes(Struct, frozen=True):
    """How much is measured: repetitions, workflows in each."""

    repetitions: int
    w1: int
    w2: int


class Window(Struct):
    """What one workload measured, and when, to pick the worker's gaps of that time."""

    name: str
    facts: dict[str, object]
    times: list[tuple[float, float]]


def main(arguments: list[str]) -> int:
    """Measure, print and append JSON lines; returns the exit status."""
    parser = argparse.ArgumentParser(prog="deploy/bench/run.py", description="Measure Towpath.")
    parser.add_argument("--runs", type=int, default=5, help="repetitions (default 5)")
    parser.add_argument("--w1", type=int, default=60, help="workflows of W1 (default 60)")
    parser.add_argument("--w2", type=int, default=1000, help="workflows of W2 (default 1000)")
    parser.add_argument("--engines", type=int, default=1, help="engines (default 1)")
    parser.add_argument("--out", type=Path, help="append the JSON lines to this file")
    args = parser.parse_args(arguments)
    if min(args.runs, args.w1, args.w2, args.engines) < 1:
        parser.error("--runs, --w1, --w2 and --engines must be at least 1")
    lines = asyncio.run(_measure(Sizes(args.runs, args.w1, args.w2), args.engines))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    print(text, end="")
    out = args.out or Path(os.environ.get("TOWPATH_BENCH_RESULTS", ".towpath/bench.jsonl"))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", encoding="utf-8") as file:
        file.write(text)
    return 0


async def _measure(sizes: Sizes, engines: int) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory(prefix="towpath-bench-") as scratch:
        peer = TowpathPeer(Path(scratch), engines=engines)
        async with asyncio.timeout(LIMIT_SECONDS), peer:
            windows = [await w1(peer, sizes), await w2(peer, sizes)]
            await peer.worker_off()
            gaps = peer.gaps()
    where = {"python": platform.python_version(), "cores": os.cpu_count(), "t": round(time.time())}
    return [
        {"peer": peer.name, "mode": peer.mode, "w": window.name}
        | window.facts
        | gap_facts(gaps, window.times)
        | where
        for window in windows
    ]


async def w1(peer: TowpathPeer, sizes: Sizes) -> Window:
    """One workflow of five steps at a time: milliseconds from start to result."""
    for _ in range(WARM_UP_W1):
        await peer.run("five")
    every: list[float] = []
    medians: list[float] = []
    meters: list[Meter] = []
    for _ in range(sizes.repetitions):
        took: list[float] = []
        with Meter(peer.pids) as meter:
            for _ in range(sizes.w1):
                began = time.perf_counter()
                await peer.run("five")
                took.append((time.perf_counter() - began) * 1000)
        every += took
        medians.append(percentile(took, 50))
        meters.append(meter)
    facts: dict[str, object] = {
        "wf_p50_ms": round(statistics.median(medians), 2),
        "wf_p99_ms": round(percentile(every, 99), 2),
        "step_p50_ms": round(statistics.median(medians) / STEPS, 3),
        "p50_runs": [round(one, 2) for one in medians],
        "cpu_s_per_1000_steps": median_cpu(meters, sizes.w1 * STEPS),
    }
    return Window("W1", facts, [(meter.began, meter.ended) for meter in meters])


async def w2(peer: TowpathPeer, sizes: Sizes) -> Window:
    """Many workflows started as fast as possible, until all are complete."""
    await peer.many("five", WARM_UP_W2)
    rates: list[float] = []
    acknowledged: list[float] = []
    meters: list[Meter] = []
    for _ in range(sizes.repetitions):
        with Meter(peer.pids) as meter:
            acknowledged.append(await peer.many("five", sizes.w2))
        rates.append(sizes.w2 / meter.wall)
        meters.append(meter)
    facts: dict[str, object] = {
        "n": sizes.w2,
        "wf_per_s": round(statistics.median(rates), 1),
        "steps_per_s": round(statistics.median(rates) * STEPS, 1),
        "wf_per_s_runs": [round(one, 1) for one in rates],
        "starts_acked_s": round(statistics.median(acknowledged), 2),
        "cpu_s_per_1000_steps": median_cpu(meters, sizes.w2 * STEPS),
    }
    return Window("W2", facts, [(meter.began, meter.ended) for meter in meters])


def gap_facts(
    gaps: Sequence[tuple[float, float]], times: Sequence[tuple[float, float]]
) -> dict[str, object]:
    """Report → next dispatch as the worker sees it: the end of a step to the begin of the next."""
    taken = [
        gap * 1000 for began, gap in gaps if any(first <= began <= last for first, last in times)
    ]
    return {
        "report_to_dispatch_p50_ms": round(percentile(taken, 50), 3),
        "report_to_dispatch_p99_ms": round(percentile(taken, 99), 3),
        "report_to_dispatch_n": len(taken),
    }


def median_cpu(meters: Sequence[Meter], steps: int) -> dict[str, float]:
    """The median over repetitions of CPU seconds per 1,000 steps, by process."""
    each = [meter.cpu_per_1000(steps) for meter in meters]
    return {name: round(statistics.median(one[name] for one in each), 3) for name in each[0]}
