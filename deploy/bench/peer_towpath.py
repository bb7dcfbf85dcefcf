"""Towpath as one peer among others: start, result, signal, and the processes to account for.

The methods are those that a benchmark of several systems asks of each of them, so that the same
driver can measure Towpath beside its peers. Workflows: `five` (5 sequential trivial steps) and
`wait` (waits for one signal, then ends).
"""

import asyncio
import json
import os
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.demo.processes import Children, end
from deploy.demo.stage import DEV, child_spec, start_dev
from towpath_worker import Client, RunHandle

STEPS: Final = 5
RESULT_SECONDS: Final = 120.0
BATCH: Final = 200


def five() -> dict[str, object]:
    """The document of `five`."""
    step = {"task": "bench.step", "queue": "bench"}
    first = {"name": "s1", **step}
    rest = [
        {"name": f"s{n}", **step, "input": f"${{ steps.s{n - 1}.output }}"}
        for n in range(2, STEPS + 1)
    ]
    return {"expressions": "cel/1", "workflow": "five", "steps": [first, *rest]}


def wait() -> dict[str, object]:
    """The document of `wait`."""
    steps = [{"name": "go", "wait": {"signal": "go", "timeout": "1h"}}]
    return {"expressions": "cel/1", "workflow": "wait", "steps": steps}


class TowpathPeer:
    """An installation of its own: NATS, Postgres, engines, one worker process."""

    name = "towpath"
    fan_max = 0
    start_conc = 64
    w5_without_worker = True

    def __init__(self, scratch: Path, *, engines: int = 1) -> None:
        self._scratch = scratch
        self._engines = engines
        self.mode = f"engines={engines}, one worker"
        self._children = Children(lambda _name, _pid: None)
        self._worker: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Start everything and deploy the workflows."""
        try:
            _, self._ready = await start_dev(self._children, self._scratch, engines=self._engines)
            self.client = Client(nats_url=self._ready.nats_url, prefix=self._ready.prefix)
            await self.client.open()
            await self.client.deploy(five())
            await self.client.deploy(wait())
            await self.worker_on()
        except BaseException:
            await self._children.stop(last=DEV)
            raise

    async def close(self) -> None:
        """Stop everything."""
        await self.client.close()
        await self._children.stop(last=DEV)

    @property
    def gaps_file(self) -> Path:
        """Where the worker writes its gaps when it is stopped."""
        return self._scratch / "gaps.json"

    def gaps(self) -> list[tuple[float, float]]:
        """What the stopped worker saw: (when a step began, seconds since the step before)."""
        loaded: list[tuple[float, float]] = json.loads(self.gaps_file.read_text(encoding="utf-8"))
        return loaded

    def pids(self) -> dict[str, int]:
        """Every process that takes part, by its part."""
        pids = {name: pid for name, pid in self._ready.pids.items() if name != DEV}
        pids["client"] = os.getpid()
        if self._worker is not None:
            pids["worker"] = self._worker.pid
        return pids

    async def worker_on(self) -> None:
        """Start the worker process."""
        where = {"TOWPATH_NATS_URL": self._ready.nats_url, "TOWPATH_PREFIX": self._ready.prefix}
        command = (sys.executable, "-m", "deploy.bench.worker", str(self.gaps_file))
        spec = child_spec(self._scratch, "worker", command, where)
        self._worker = await self._children.start(spec)

    async def worker_off(self) -> None:
        """Stop the worker process; it writes its gaps."""
        if self._worker is not None:
            await end(self._worker)
            self._worker = None

    async def start(self, workflow: str, key: str, value: int | None = None) -> RunHandle:
        """A start, committed when this returns."""
        return await self.client.start(workflow, {"n": value or 0}, key=key)

    async def start_many(
        self, workflow: str, keys: Sequence[str], _at_once: int
    ) -> Sequence[RunHandle]:
        """Many starts, committed when this returns."""
        items = [{"workflow": workflow, "input": {"n": 0}, "key": key} for key in keys]
        handles: list[RunHandle] = []
        for first in range(0, len(items), BATCH):
            handles += await self.client.start_many(items[first : first + BATCH])
        return handles

    async def result(self, handle: RunHandle) -> object:
        """Wait for the end of a run."""
        return await handle.result(timeout=RESULT_SECONDS)

    async def run(self, workflow: str, value: int | None = None) -> object:
        """One run from start to end."""
        return await self.result(await self.start(workflow, new_key(), value))

    async def wait_all(self, handles: Sequence[RunHandle]) -> None:
        """Wait for the end of all."""
        at_once = asyncio.Semaphore(self.start_conc)

        async def one(handle: RunHandle) -> None:
            async with at_once:
                await self.result(handle)

        await asyncio.gather(*(one(handle) for handle in handles))

    async def many(self, workflow: str, count: int) -> float:
        """Start `count` runs and wait for all; the seconds until the starts were committed."""
        began = time.perf_counter()
        keys = [new_key() for _ in range(count)]
        handles = await self.start_many(workflow, keys, self.start_conc)
        acknowledged = time.perf_counter() - began
        await self.wait_all(handles)
        return acknowledged

    async def settled(self, _keys: Sequence[str]) -> None:
        """All starts are committed, and so is their wait: nothing to wait for."""

    async def signal(self, key: str) -> None:
        """Signal a waiting run; committed when this returns."""
        await self.client.signal("wait", key=key, signal="go", payload={"v": 1})

    async def clear(self) -> None:
        """Starts that were only made to be counted stay; nothing reads them."""


def new_key() -> str:
    """A key that nobody has used."""
    return uuid.uuid4().hex
