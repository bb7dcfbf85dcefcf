"""Wakes fit into messages, whatever the runs and timers they are about."""

from datetime import UTC, datetime

import msgspec

from towpath_engine.services.wakes import WokenRun, WokenTimer, wakes_of

LARGEST_BYTES = 300_000


def a_run(number: int, *, timers: int = 0, path: str = "step") -> WokenRun:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    woken = [WokenTimer(f"{path}.{index}", at, preemptible=True) for index in range(timers)]
    return WokenRun(f"{number:036}", 7, woken)


def test_runs_of_many_timers_are_told_in_messages_that_a_server_takes() -> None:
    runs = [a_run(number, timers=100, path="a" * 1_000) for number in range(40)]
    bodies = list(wakes_of(runs))
    assert max(map(len, bodies)) < LARGEST_BYTES
    told = [run for body in bodies for run in msgspec.json.decode(body, type=list[WokenRun])]
    assert told == runs


def test_small_runs_are_told_together() -> None:
    runs = [a_run(number, timers=1) for number in range(1_200)]
    told = [msgspec.json.decode(body, type=list[WokenRun]) for body in wakes_of(runs)]
    assert [len(part) for part in told] == [500, 500, 200]
    assert [run for part in told for run in part] == runs
    assert list(wakes_of([])) == []
