"""Ask the engine what became of every order and compare it, order by order, with expected.py."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from deploy.demo.api import PlainApi
from deploy.demo.expected import Expected

AT_ONCE: Final = 16
PAGE: Final = 500
SETTLED: Final = frozenset({
    "completed", "failed", "cancelled", "timed_out", "compensated", "compensation_failed",
})  # fmt: skip


class RunSummary(Struct):
    """A line of `run.list`."""

    run_id: str
    key: str | None
    status: str


class RunPage(Struct):
    runs: list[RunSummary]
    next_cursor: str | None = None


class RunError(Struct):
    type: str
    step: str | None = None


class StepView(Struct):
    step: str
    kind: str
    status: str
    attempt: int = 0
    worker_id: str | None = None


class Outcome(Struct):
    """The output of a completed run."""

    outcome: str
    order_id: str
    charged: int
    tracking: str | None = None
    message: str | None = None


class RunView(Struct):
    """What `run.get` shows of a settled run."""

    run_id: str
    key: str | None
    status: str
    steps: list[StepView]
    output: Outcome | None = None
    error: RunError | None = None


class Effect(Struct):
    """A line of a worker's log. `begun` is an attempt, `done` an effect on the outside world."""

    what: str
    task: str
    attempt: int
    idempotency_key: str
    order_id: str | None = None
    amount: int = 0
    reservations: list[str] = []


class Change(Struct):
    """A line of `run.history`."""

    what: str
    step: str | None = None


class History(Struct):
    transitions: list[Change]


class Verdict(Struct):
    """What the judge found; the demo is right when `differences` is empty."""

    differences: list[str]
    outcomes: dict[str, int]
    reservations: dict[str, int]
    """How many were made, shipped and released."""
    completed_by: dict[str, int]
    retried_steps: int
    repeated_attempts: int


async def list_runs(api: PlainApi) -> list[RunSummary]:
    """All runs of the workflow, page by page."""
    runs: list[RunSummary] = []
    cursor: str | None = None
    while True:
        wanted: dict[str, object] = {"workflow": "order", "limit": PAGE}
        if cursor is not None:
            wanted["cursor"] = cursor
        page = await api.call("run.list", wanted, RunPage)
        runs += page.runs
        cursor = page.next_cursor
        if cursor is None:
            return runs


async def judge(
    api: PlainApi,
    expected: dict[str, Expected],
    effects: dict[str, list[Effect]],
    names_by_pid: dict[int, str],
) -> Verdict:
    """Read every run and compare. `effects` are the logs of the worker processes, by name."""
    summaries = await list_runs(api)
    at_once = asyncio.Semaphore(AT_ONCE)

    async def read(summary: RunSummary) -> RunView:
        async with at_once:
            return await api.call("run.get", {"run_id": summary.run_id, "steps": True}, RunView)

    runs = await asyncio.gather(*(read(summary) for summary in summaries))
    by_key = {run.key or run.run_id: run for run in runs}
    differences = runs_per_order(runs, expected)
    for order_id, wanted in expected.items():
        if order_id in by_key:
            found = differences_of(order_id, by_key[order_id], wanted)
            differences += [f"{order_id}: {one}" for one in found]
    differences += charge_differences(effects, expected)
    stock = stock_seen(effects)
    differences += stock_differences(stock, expected)
    differences += await order_differences(api, runs, at_once)
    steps = [step for run in runs for step in run.steps if step.kind == "task"]
    completed = [step for step in steps if step.status in {"completed", "compensated"}]
    completed_by = Counter(worker_name(step.worker_id, names_by_pid) for step in completed)
    return Verdict(
        differences=differences,
        outcomes=dict(sorted(Counter(outcome_name(run) for run in runs).items())),
        reservations={
            "reserved": stock["reserve"].total(),
            "shipped": stock["ship"].total(),
            "released": stock["release"].total(),
        },
        completed_by=dict(sorted(completed_by.items())),
        retried_steps=sum(step.attempt > 1 for step in steps),
        repeated_attempts=repeated_attempts(effects),
    )


def worker_name(worker_id: str | None, names_by_pid: dict[int, str]) -> str:
    """The name of the process that a worker id, which has its process id in it, belongs to."""
    for part in reversed((worker_id or "").split("-")):
        if part.isdecimal() and int(part) in names_by_pid:
            return names_by_pid[int(part)]
    return f"unknown ({worker_id})"


def outcome_name(run: RunView) -> str:
    """How a run ended, in the words of the table."""
    reason = run.error.type if run.error else run.output.outcome if run.output else "none"
    return f"{run.status} ({reason})"


def runs_per_order(runs: list[RunView], expected: dict[str, Expected]) -> list[str]:
    """Every order has exactly one run, and there is no other run."""
    counts = Counter(run.key for run in runs)
    faults = [f"{key}: no run" for key in expected if key not in counts]
    faults += [f"{key}: {count} runs" for key, count in counts.items() if count > 1]
    return faults + [
        f"{key}: a run that no order asked for" for key in counts if key not in expected
    ]


def differences_of(order_id: str, run: RunView, wanted: Expected) -> list[str]:
    """What is not as expected about one run: end, reason, amount, steps, texts."""
    output = run.output

    def tasks(status: str) -> list[str]:
        return sorted(one.step for one in run.steps if (one.kind, one.status) == ("task", status))

    pairs: list[tuple[str, object, object]] = [
        ("status", run.status, wanted.status),
        ("outcome", outcome_name(run), f"{wanted.status} ({wanted.reason})"),
        ("completed tasks", tasks("completed"), sorted(wanted.tasks)),
        ("undone tasks", tasks("compensated"), sorted(wanted.undone)),
        ("failed tasks", tasks("failed"), sorted(wanted.failed)),
        ("charged", output.charged if output else 0, wanted.charged),
        ("tracking", output.tracking if output else None, wanted.tracking),
        ("message", output.message if output else None, wanted.message),
        ("order id", output.order_id if output else order_id, order_id),
    ]
    return [f"{name} is {got!r}, not {want!r}" for name, got, want in pairs if got != want]


def charge_differences(
    effects: dict[str, list[Effect]], expected: dict[str, Expected]
) -> list[str]:
    """The gateway saw each paid order under one idempotency key, with its exact amount."""
    charges: dict[str, set[tuple[str, int]]] = {}
    for lines in effects.values():
        for one in lines:
            if one.task == "payment.charge" and one.what == "done":
                charges.setdefault(str(one.order_id), set()).add((one.idempotency_key, one.amount))
    faults: list[str] = []
    for order_id, wanted in expected.items():
        seen = charges.pop(order_id, set())
        amounts = [amount for _, amount in seen]
        if amounts != ([wanted.charged] if wanted.charged else []):
            faults.append(f"{order_id}: the gateway saw {amounts}, not {wanted.charged}")
    return faults + [f"{order_id}: charged, but unknown" for order_id in charges]


def stock_seen(effects: dict[str, list[Effect]]) -> dict[str, Counter[str]]:
    """How often each reservation was made, shipped and released, by the workers' logs.

    What was done again under the same idempotency key counts once: it is the same effect.
    """
    keys = {
        (one.task.partition(".")[2], reservation, one.idempotency_key)
        for lines in effects.values()
        for one in lines
        if one.what == "done"
        for reservation in one.reservations
    }
    seen: dict[str, Counter[str]] = {"reserve": Counter(), "ship": Counter(), "release": Counter()}
    for task, reservation, _ in keys:
        seen[task][reservation] += 1
    return seen


def stock_differences(seen: dict[str, Counter[str]], expected: dict[str, Expected]) -> list[str]:
    """Each reservation was made once, and then once shipped or released."""
    reserved = Counter(name for one in expected.values() for name in one.reserved)
    shipped = Counter(name for one in expected.values() if one.shipped for name in one.reserved)
    wanted = {"reserve": reserved, "ship": shipped, "release": reserved - shipped}
    return [
        f"{name}: {task} was done {seen[task][name]} times, not {wanted[task][name]}"
        for task in wanted
        for name in sorted(seen[task].keys() | wanted[task].keys())
        if seen[task][name] != wanted[task][name]
    ]


async def order_differences(
    api: PlainApi, runs: list[RunView], at_once: asyncio.Semaphore
) -> list[str]:
    """The steps of each undone run were undone in the reverse order of their completion."""

    async def check(run: RunView) -> str | None:
        async with at_once:
            wanted = {"run_id": run.run_id, "limit": PAGE}
            changes = (await api.call("run.history", wanted, History)).transitions
        return undone_in_reverse(run.key or run.run_id, changes)

    undone = [run for run in runs if run.status == "compensated"]
    found = await asyncio.gather(*(check(run) for run in undone))
    return [one for one in found if one is not None]


def undone_in_reverse(name: str, changes: list[Change]) -> str | None:
    """What is wrong with the order of the undos in a history, if anything."""
    undone = [one.step for one in changes if one.what == "step-compensated"]
    completed = [one.step for one in changes if one.what == "step-completed" and one.step in undone]
    if undone == completed[::-1]:
        return None
    return f"{name}: completed {completed}, undone {undone}"


def repeated_attempts(effects: dict[str, list[Effect]]) -> int:
    """How often an attempt that had begun was begun again: the broker delivered it twice."""
    begun = Counter(
        (one.idempotency_key, one.attempt)
        for lines in effects.values()
        for one in lines
        if one.what == "begun"
    )
    return sum(count - 1 for count in begun.values())


def read_effects(folder: Path) -> dict[str, list[Effect]]:
    """The workers' logs by the name of the worker. A line cut by a kill is left out."""
    decoder = msgspec.json.Decoder(Effect)
    logs: dict[str, list[Effect]] = {}
    for path in sorted(folder.glob("*.effects.jsonl")):
        lines = path.read_bytes().split(b"\n")
        logs[path.name.removesuffix(".effects.jsonl")] = [
            decoder.decode(line) for line in lines if line.startswith(b"{") and line.endswith(b"}")
        ]
    return logs


def table(verdict: Verdict, outcomes: dict[str, int], reservations: dict[str, int]) -> str:
    """The table that is printed at the end, beside what is expected."""
    lines = [f"{'outcome':<28}{'runs':>7}{'expected':>10}"]
    lines += side_by_side(verdict.outcomes, outcomes)
    lines += ["", f"{'reservations':<28}{'seen':>7}{'expected':>10}"]
    lines += side_by_side(verdict.reservations, reservations)
    lines += ["", f"{'worker':<28}{'steps':>7}"]
    lines += [f"{name:<28}{count:>7}" for name, count in verdict.completed_by.items()]
    lines += [
        "",
        f"steps that took more than one attempt: {verdict.retried_steps}",
        f"attempts that a worker was given twice: {verdict.repeated_attempts}",
    ]
    return "\n".join(lines)


def side_by_side(seen: dict[str, int], wanted: dict[str, int]) -> list[str]:
    """A line for each name that is seen or wanted."""
    names = sorted(seen.keys() | wanted.keys())
    return [f"{name:<28}{seen.get(name, 0):>7}{wanted.get(name, 0):>10}" for name in names]


def as_json(verdict: Verdict) -> dict[str, object]:
    """For `--json-events`."""
    loaded: dict[str, object] = json.loads(msgspec.json.encode(verdict))
    return loaded
