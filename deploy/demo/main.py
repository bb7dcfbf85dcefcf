"""The course of the demo, from the first process to the last comparison."""

import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from deploy.demo import expected, node
from deploy.demo.api import AwayError, PlainApi, RefusedError
from deploy.demo.judge import SETTLED, as_json, judge, list_runs, read_effects, table
from deploy.demo.options import Options, parse_options
from deploy.demo.orders import Order, OrdersError, read_orders
from deploy.demo.processes import ChildError, Children
from deploy.demo.redeliveries import Redeliveries
from deploy.demo.screen import Screen
from deploy.demo.stage import DEV, Ready, Stage
from deploy.demo.starts import split, start_by_client, start_by_message
from towpath_worker import ApiError, Client

HERE: Final = Path(__file__).resolve().parent
LOOK_SECONDS: Final = 0.5


class StuckError(Exception):
    """The orders did not settle in time; the message says where they are."""


EXPECTED_ERRORS: Final = (
    ChildError,
    node.NodeError,
    AwayError,
    RefusedError,
    ApiError,
    StuckError,
    TimeoutError,
    OSError,
)


def main(arguments: list[str]) -> int:
    """Run the demo and return its exit status (see run.py)."""
    options = parse_options(arguments)
    try:
        orders = read_orders(options.orders)
    except OrdersError as error:
        print(error, file=sys.stderr)
        return 2
    screen = Screen(json_events=options.json_events)
    try:
        return asyncio.run(_until_stopped(Demo(options, orders, screen)))
    except EXPECTED_ERRORS as error:
        return _not_carried_out(error)
    except BaseExceptionGroup as group:
        expected_part, rest = group.split(EXPECTED_ERRORS)
        if expected_part is None or rest is not None:
            raise
        return _not_carried_out(expected_part.exceptions[0])


def _not_carried_out(error: BaseException) -> int:
    print(f"the demo could not be carried out: {error}", file=sys.stderr)
    return 3


async def _until_stopped(demo: "Demo") -> int:
    """Carry the demo out; SIGINT and SIGTERM stop it in good order."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return await demo.run(stop)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, asking again: nats-py sometimes swallows a cancel."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=1)


class Demo:
    """One run of the demo. `status` is the exit status if it is stopped now."""

    def __init__(self, options: Options, orders: list[Order], screen: Screen) -> None:
        self._options = options
        self._orders = orders
        self._screen = screen
        self.status = 3

    async def run(self, stop: asyncio.Event) -> int:
        """From the first process to the last, or until `stop`; returns the exit status."""
        with tempfile.TemporaryDirectory(prefix="towpath-demo-") as scratch:
            children = Children(self._screen.process)
            stage = Stage(self._options, Path(scratch), children)
            work = asyncio.create_task(self._work(stage))
            stopped = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
                elif self.status == 3:
                    self._screen.say("stopped before the end")
            finally:
                await cancel(work)
                await cancel(stopped)
                await children.stop(last=DEV)
        return self.status

    async def _work(self, stage: Stage) -> None:
        ready = await stage.open()
        self._screen.event("ready", **msgspec.to_builtins(ready))
        self._screen.say(f"NATS {ready.nats_url}, Postgres and the engine are up")
        api = PlainApi(ready.nats_url, ready.prefix)
        try:
            self.status = await self._carry_out(stage, ready, api)
            if self._options.hold:
                self._screen.event("holding")
                await asyncio.Event().wait()
        finally:
            await api.close()

    async def _carry_out(self, stage: Stage, ready: Ready, api: PlainApi) -> int:
        wanted = expected.expected_outcomes(self._options.orders)
        self._screen.say(
            f"{len(self._orders):,} orders, {len(wanted):,} of them different: as many runs"
        )
        async with Client(nats_url=ready.nats_url, prefix=ready.prefix) as client:
            await client.deploy(yaml.safe_load((HERE / "order.yaml").read_text(encoding="utf-8")))
            with_node = await stage.open_workers(ready)
            async with asyncio.TaskGroup() as group:
                starts = group.create_task(self._start_all(client, api))
                watching = group.create_task(self._watch(stage, api, len(wanted)))
        duplicates, repeats = starts.result()
        names = stage.names_by_pid
        verdict = await judge(api, wanted, read_effects(stage.scratch), names)
        if with_node and not verdict.completed_by.get("node"):
            verdict.differences.append("the Node.js worker completed nothing")
        facts = {"ok": not verdict.differences, "redelivered": watching.result()}
        self._screen.event("result", **facts, **as_json(verdict))
        reservations = expected.reservations(wanted)
        self._screen.say(f"\n{table(verdict, expected.table(wanted), reservations)}")
        self._screen.say(f"starts that were duplicates: {duplicates}; messages repeated: {repeats}")
        for one in verdict.differences[:20]:
            self._screen.say(f"DIFFERS  {one}")
        count = len(verdict.differences)
        self._screen.say(f"{count} differences" if count else "as expected, order by order")
        return 1 if count else 0

    async def _start_all(self, client: Client, api: PlainApi) -> tuple[int, int]:
        by_client, by_message = split(self._orders)
        message_rate = self._options.rate / 10
        async with asyncio.TaskGroup() as group:
            one = group.create_task(start_by_client(client, by_client, self._options.rate))
            two = group.create_task(start_by_message(api, by_message, message_rate))
        return one.result(), two.result()

    async def _watch(self, stage: Stage, api: PlainApi, total: int) -> int:
        """Show progress until every order has a settled run; the redeliveries seen.

        Raises `StuckError` when time is up and `ChildError` when a process is gone for good.
        """
        redeliveries = Redeliveries(api)
        deadline = time.monotonic() + self._options.timeout_seconds
        while True:
            stage.check()
            await redeliveries.look()
            counts = Counter(run.status for run in await list_runs(api))
            self._screen.progress(total, counts, redeliveries.count)
            if sum(counts[status] for status in SETTLED) >= total:
                return redeliveries.count
            if time.monotonic() > deadline:
                raise StuckError(f"not settled in time: {dict(counts)} of {total}")
            await asyncio.sleep(LOOK_SECONDS)
