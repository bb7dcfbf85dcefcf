"""CPU seconds and percentiles."""

import os
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import psutil


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; NaN of nothing."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, max(0, round(share / 100 * (len(ordered) - 1))))]


def cpu_seconds(pid: int) -> float:
    """CPU of a process and all below it; of our own process, without its children."""
    if pid == os.getpid():
        return time.process_time()
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    total = 0.0
    for one in family:
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class Meter:
    """`with Meter(pids) as meter`: then `wall` seconds and `cpu` seconds by name."""

    def __init__(self, pids: Callable[[], dict[str, int]]) -> None:
        self._pids = pids
        self.wall = 0.0
        self.cpu: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._before = {name: cpu_seconds(pid) for name, pid in self._pids().items()}
        self.began = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ended = time.monotonic()
        self.wall = self.ended - self.began
        self.cpu = {
            name: cpu_seconds(pid) - self._before.get(name, 0.0)
            for name, pid in self._pids().items()
        }

    def cpu_per_1000(self, steps: int) -> dict[str, float]:
        """CPU seconds per 1,000 steps, by process and together."""
        per_name = {name: value / steps * 1000 for name, value in self.cpu.items()}
        per_name["all"] = sum(per_name.values())
        return {name: round(value, 3) for name, value in per_name.items()}
