"""`make demo` as a process that can be watched and hurt, and the checks that follow."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from nats.aio.client import Client
from nats.errors import Error as NatsError

from deploy.demo.expected import expected_outcomes, reservations, table
from deploy.demo.judge import SETTLED
from tests.support.eventually import eventually, eventually_sync
from tests.support.processes import Halted, RealProcess
from tests.support.wire_client import WireClient

ROOT = Path(__file__).resolve().parents[2]
ORDERS = ROOT / "deploy" / "demo" / "orders.jsonl"

# Hang guards: the demo takes half a minute, and as long again for each lost ack.
SETTLED_SECONDS = 900.0
SERVER_SECONDS = 300.0

EXPECTED_TABLE = table(expected_outcomes(ORDERS))
EXPECTED_RESERVATIONS = reservations(expected_outcomes(ORDERS))

Event = dict[str, Any]


class DemoProcess(RealProcess):
    """The demo, holding its servers at the end until it is closed."""

    def __init__(self, *arguments: str, orders: Path = ORDERS) -> None:
        super().__init__(
            [
                sys.executable,
                str(ROOT / "deploy" / "demo" / "run.py"),
                *("--json-events", "--hold", "--orders", str(orders)),
                *("--timeout", str(SETTLED_SECONDS), *arguments),
            ]
        )
        try:
            self.ready = self.wait_event("ready")
        except BaseException:
            self.close()
            raise

    def events(self) -> list[Event]:
        """All complete lines so far."""
        lines = self.output().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def wait_event(self, name: str, deadline_seconds: float = SERVER_SECONDS) -> Event:
        """The last event of this name, once there is one."""

        def probe() -> Event | None:
            found = [event for event in self.events() if event["event"] == name]
            if not found and not self.running():
                raise RuntimeError(f"the demo ended with {self.wait()}: {self.errors()}")
            return found[-1] if found else None

        return eventually_sync(probe, deadline_seconds=deadline_seconds)

    def wait_settled(self, count: int) -> None:
        """Until so many runs have settled."""

        def probe() -> bool:
            counts = self.wait_event("progress")["counts"]
            return sum(counts.get(status, 0) for status in SETTLED) >= count

        eventually_sync(probe, deadline_seconds=SETTLED_SECONDS)

    def wait_undoing(self, count: int) -> None:
        """Until so many runs are being undone."""

        def probe() -> bool:
            return self.wait_event("progress")["counts"].get("compensating", 0) >= count

        eventually_sync(probe, deadline_seconds=SETTLED_SECONDS)

    def result(self) -> Event:
        """The table at the end, when all runs have settled."""
        return self.wait_event("result", deadline_seconds=SETTLED_SECONDS)

    def child_pid(self, name: str) -> int:
        """The process id, of now, of a worker, of the approver or of `dev`."""
        return next(
            int(event["pid"])
            for event in reversed(self.events())
            if event["event"] == "process" and event["name"] == name
        )

    def server_pid(self, name: str) -> int:
        """The process id, of now, of `nats`, `postgres`, `engine` or `engine-2`."""
        state = json.loads((Path(self.ready["data_dir"]) / "dev.json").read_bytes())
        return int(state["pids"][name])

    def kill_server_and_keep_it_away(self, name: str) -> int:
        """kill -9; nobody starts it again before `let_servers_return`. Returns the old pid."""
        self._halted = Halted(self.child_pid("dev"))
        old = self.server_pid(name)
        os.kill(old, signal.SIGKILL)
        eventually_sync(lambda: psutil.Process(old).status() == psutil.STATUS_ZOMBIE)
        return old

    def let_servers_return(self, name: str, old: int) -> None:
        """Let `towpath dev` start what died, and wait until it has."""
        self._halted.release()
        eventually_sync(lambda: self.server_pid(name) != old, deadline_seconds=SERVER_SECONDS)

    def delete_jetstream(self) -> None:
        """Delete all of JetStream's data; the server must be away."""
        shutil.rmtree(Path(self.ready["data_dir"]) / "nats" / "jetstream")

    async def connect(self) -> WireClient:
        """A plain client of the demo's installation."""
        client = Client()
        await client.connect(self.ready["nats_url"], max_reconnect_attempts=-1)
        return WireClient(client, self.ready["prefix"])


async def wait_unacked(
    demo: DemoProcess, stream: str, consumers: str, *, field: str = "num_ack_pending"
) -> None:
    """Until deliveries of the consumers whose names begin so are out and not acked.

    `field` "num_redelivered": until some of them are out for the second time.
    """
    wire = await demo.connect()
    name = f"{wire.prefix.upper()}_{stream}"

    async def probe() -> bool:
        try:
            reply = await wire.client.request(f"$JS.API.CONSUMER.LIST.{name}", b"{}", timeout=5)
        except (NatsError, TimeoutError):
            return False
        found = json.loads(reply.data).get("consumers", [])
        return any(one[field] > 0 for one in found if one["name"].startswith(consumers))

    try:
        await eventually(probe)
    finally:
        await wire.close()


async def partition_consumers(demo: DemoProcess) -> dict[str, str]:
    """When each consumer of P_IN was created: an engine that takes a partition over from one that
    died begins with a new one, which delivers again all that was not acked."""
    wire = await demo.connect()
    name = f"{wire.prefix.upper()}_IN"
    try:
        reply = await wire.client.request(f"$JS.API.CONSUMER.LIST.{name}", b"{}", timeout=5)
        return {one["name"]: one["created"] for one in json.loads(reply.data)["consumers"]}
    finally:
        await wire.close()


async def check_histories(demo: DemoProcess) -> int:
    """By the plain API: seq from 1 without a gap, nothing twice; how many transitions there are."""
    wire = await demo.connect()
    try:
        at_once = asyncio.Semaphore(16)

        async def check(run_id: str) -> int:
            async with at_once:
                return await _check_history(wire, run_id)

        counts = await asyncio.gather(*(check(run_id) for run_id in await _run_ids(wire)))
        return sum(counts)
    finally:
        await wire.close()


async def _run_ids(wire: WireClient) -> list[str]:
    run_ids: list[str] = []
    more: dict[str, str] = {}
    while True:
        page = await wire.api("run.list", workflow="order", limit=500, **more)
        run_ids += [run["run_id"] for run in page["runs"]]
        if page["next_cursor"] is None:
            return run_ids
        more = {"cursor": page["next_cursor"]}


async def _check_history(wire: WireClient, run_id: str) -> int:
    transitions: list[Event] = []
    while True:
        after = transitions[-1]["seq"] if transitions else 0
        page = await wire.api("run.history", run_id=run_id, after_seq=after, limit=500)
        if not page["transitions"]:
            break
        transitions += page["transitions"]
    assert [one["seq"] for one in transitions] == list(range(1, len(transitions) + 1)), run_id
    ends = Counter(
        (one["step"], one["token"], one["what"]) for one in transitions if one.get("token")
    )
    assert all(count == 1 for count in ends.values()), (run_id, ends)
    settled = [one for one in transitions if one["step"] is None and one["to"] in SETTLED]
    assert len(settled) == 1, run_id
    return len(transitions)
