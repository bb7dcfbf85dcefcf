"""Several engines as real processes, the load that they carry, and what must hold in the end."""

import asyncio
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import nats.errors

from tests.support.eventually import eventually, eventually_sync
from tests.support.jetstream import free_port
from tests.support.processes import Halted, RealProcess
from tests.support.wire_client import RefusedError, WireClient, new_key

Json = Any

MIB = 1024 * 1024
_ANSWER_SECONDS = 1.0
_LOOK_SECONDS = 0.03
AT_ONCE = 8
"""Signals under way at the same time, and journeys as many."""

NAP = {"workflow": "nap", "steps": [{"name": "s", "sleep": "1s"}]}
HOLD = {"workflow": "hold", "steps": [{"name": "wait", "wait": {"signal": "go"}}]}
JOURNEY = {
    "workflow": "journey",
    "steps": [
        {"name": "first", "task": "a"},
        {"name": "pause", "sleep": "200ms"},
        {"name": "second", "task": "b"},
    ],
}


class EngineProcess(RealProcess):
    """`towpath serve` on servers that run already; call `wait_ready`."""

    def __init__(self, nats_url: str, postgres_url: str, prefix: str, schema: str) -> None:
        self.port = free_port()
        super().__init__(
            [sys.executable, "-m", "towpath_engine", "serve"],
            environment={
                "TOWPATH_NATS_URL": nats_url,
                "TOWPATH_POSTGRES_URL": postgres_url,
                "TOWPATH_PREFIX": prefix,
                "TOWPATH_POSTGRES_SCHEMA": schema,
                "TOWPATH_HTTP_PORT": str(self.port),
                "TOWPATH_REQUIRE_SENDER": "false",
                "TOWPATH_STREAM_DISPATCH_BYTES_MAX": str(64 * MIB),
                "TOWPATH_STREAM_IN_BYTES_MAX": str(64 * MIB),
                "TOWPATH_STREAM_EVENTS_BYTES_MAX": str(64 * MIB),
                "TOWPATH_STREAM_ADVISORY_BYTES_MAX": str(4 * MIB),
            },
        )

    def wait_ready(self) -> "EngineProcess":
        """Until /readyz says yes."""
        eventually_sync(lambda: self.page("readyz") is not None or not self.running())
        assert self.running(), self.output()[-2_000:] + self.errors()[-2_000:]
        return self

    def page(self, name: str) -> str | None:
        """A page of it; None while it does not answer, or not with 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{name}", timeout=5) as page:
                return page.read().decode()
        except (urllib.error.URLError, OSError):
            return None

    def owned(self) -> int:
        """How many partitions it says it owns."""
        lines = (self.page("metrics") or "").splitlines()
        return sum(int(float(line.split()[1])) for line in lines if _is_owned(line))

    def pause(self) -> None:
        self._halted = Halted(self.pid)

    def resume(self) -> None:
        self._halted.release()


def _is_owned(line: str) -> bool:
    return line.startswith("towpath_partition_owned ")


class Load:
    """Runs with steps, with timers and with signals, until it is told to stop."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.run_ids: list[str] = []
        self.gaps: list[tuple[float, float]] = []
        """(when a signal was sent, seconds until `run.get` showed that it was taken)."""

    async def begin(self) -> None:
        for definition in (NAP, HOLD, JOURNEY):
            await self._wire.deploy(definition)
        self._wire.work("default", lambda dispatch: dispatch["step"], slots=AT_ONCE)
        for number in range(AT_ONCE):
            self._tasks.append(asyncio.create_task(self._repeat(self._signalled)))
            workflow = "journey" if number % 2 else "nap"
            self._tasks.append(asyncio.create_task(self._repeat(lambda w=workflow: self._run(w))))

    async def end(self) -> None:
        """Let what has begun come to its end."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def signals_taken(self, count: int) -> None:
        """Until so many more signals have been taken."""
        goal = len(self.gaps) + count

        async def taken() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return len(self.gaps) >= goal

        await eventually(taken)

    def worst(self, since: float = 0.0) -> float:
        """The longest gap of a signal that was sent after `since` (time.monotonic)."""
        return max(gap for sent_at, gap in self.gaps if sent_at >= since)

    async def _repeat(self, once: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping:
            await once()

    async def _run(self, workflow: str) -> None:
        run_id = await self._start(workflow)
        assert (await self._wire.result(run_id))["status"] == "completed"

    async def _signalled(self) -> None:
        run_id = await self._start("hold")
        sent_at = time.monotonic()
        await self._wire.put(f"in.signal.-.{run_id}.go", b"1", {"Towpath-Message-Id": run_id})
        await eventually(lambda: self._has_taken(run_id), poll_seconds=_LOOK_SECONDS)
        self.gaps.append((sent_at, time.monotonic() - sent_at))

    async def _has_taken(self, run_id: str) -> bool:
        run = await self._asked("run.get", run_id=run_id)
        return run is not None and run["status"] == "completed"

    async def _start(self, workflow: str) -> str:
        request = new_key()

        async def started() -> Json:
            return await self._asked("run.start", workflow=workflow, request_id=request, input=1)

        run_id = (await eventually(started))["run_id"]
        self.run_ids.append(run_id)
        return run_id

    async def _asked(self, verb: str, **body: Json) -> Json | None:
        """The answer; None when it was lost with the engine that had the request, or when that one
        has too much to do, as when it wakes and finds all that was asked meanwhile."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._wire.api(verb, **body)
        except (nats.errors.Error, TimeoutError):
            return None
        except RefusedError as refusal:
            if refusal.code != "overloaded":
                raise
            return None


async def check_runs(wire: WireClient, run_ids: list[str]) -> int:
    """All are completed, seq has no gap, nothing happened twice; how many transitions there are."""
    count = 0
    for run_id in run_ids:
        history = await wire.history(run_id)
        assert [row["seq"] for row in history] == list(range(1, len(history) + 1)), run_id
        happened = Counter(
            (row["step"], row["token"], row["what"]) for row in history if row.get("token")
        )
        assert all(times == 1 for times in happened.values()), (run_id, happened)
        assert history[-1]["to"] == "completed", (run_id, history[-1])
        signals = [row for row in history if row["what"] == "run-signalled"]
        assert len(signals) <= 1, (run_id, signals)
        count += len(history)
    return count
