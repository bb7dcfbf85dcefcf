"""The demo's processes: `towpath dev` first, then the workers and the approver."""

import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from deploy.demo import node
from deploy.demo.options import Options
from deploy.demo.processes import (
    PIPE,
    ChildError,
    Children,
    ChildSpec,
    clean_environment,
    first_line,
    free_port,
    tail,
)

ROOT: Final = Path(__file__).resolve().parents[2]
READY_SECONDS: Final = 120.0
DEV: Final = "dev"
PYTHON_WORKERS: Final = {
    "python-1": ("inventory", "payment"),
    "python-2": ("payment", "shipping"),
}


class Ready(Struct):
    """The line that `towpath dev --json` prints when it is usable."""

    nats_url: str
    postgres_url: str
    prefix: str
    http_urls: list[str] = []
    data_dir: str = ""
    pids: dict[str, int] = {}


class Stage:
    """The processes: `towpath dev` first, then the workers and the approver."""

    def __init__(self, options: Options, scratch: Path, children: Children) -> None:
        self.scratch = scratch
        self._options = options
        self._children = children
        self._dev: asyncio.subprocess.Process | None = None

    async def open(self) -> Ready:
        """Start NATS, Postgres and the engine. Raises `ChildError` with the end of the log."""
        self._dev, ready = await start_dev(
            self._children, self.scratch, engines=self._options.engines
        )
        return ready

    async def open_workers(self, ready: Ready) -> bool:
        """Start the workers and the approver; whether Node.js is among them."""
        where = {"TOWPATH_NATS_URL": ready.nats_url, "TOWPATH_PREFIX": ready.prefix}
        node_path = node.find_node() if self._options.node else None
        for name, queues in PYTHON_WORKERS.items():
            served = queues if node_path else (*queues, "notify")
            module = ("-m", "deploy.demo.workers_python", "--effects", self._effects(name))
            await self._keep(name, (sys.executable, *module, *served), where)
        if node_path:
            await node.install()
            extra = {"DEMO_EFFECTS": self._effects("node"), "DEMO_STOP_WITH_PARENT": "1"}
            await self._keep("node", (node_path, str(node.FOLDER / "worker.js")), where | extra)
        module = ("-m", "deploy.demo.approver", str(self._options.orders))
        await self._keep("approver", (sys.executable, *module), where)
        return node_path is not None

    def check(self) -> None:
        """Raise `ChildError` when `towpath dev` or a worker is gone for good."""
        failure = self._children.failure()
        if failure is not None:
            raise ChildError(str(failure)) from failure
        if self._dev is not None and self._dev.returncode is not None:
            log = tail(self.scratch / f"{DEV}.log")
            raise ChildError(f"towpath dev ended with status {self._dev.returncode}\n{log}")

    @property
    def names_by_pid(self) -> dict[int, str]:
        """Every process that was ever started here, by its id."""
        return self._children.names_by_pid

    def _effects(self, name: str) -> str:
        return str(self.scratch / f"{name}.effects.jsonl")

    async def _keep(self, name: str, command: tuple[str, ...], env: dict[str, str]) -> None:
        await self._children.keep(child_spec(self.scratch, name, command, env))


async def start_dev(
    children: Children, scratch: Path, *, engines: int
) -> tuple[asyncio.subprocess.Process, Ready]:
    """Start NATS, Postgres and engines on free ports and wait until they are usable.

    Raises `ChildError` with the end of the log when they are not.
    """
    towpath = str(Path(sys.executable).with_name("towpath"))
    command = [towpath, "dev", "--ephemeral", "--json", "--engines", str(engines)]
    for server in ("nats", "postgres", "http"):
        command += [f"--{server}-port", str(free_port())]
    spec = child_spec(scratch, DEV, tuple(command), {})
    dev = await children.start(spec, stdout=PIPE)
    try:
        line = await first_line(dev, READY_SECONDS)
    except ChildError as error:
        raise ChildError(f"towpath dev: {error}\n{tail(spec.log)}") from error
    return dev, msgspec.json.decode(line, type=Ready)


def child_spec(
    scratch: Path, name: str, command: tuple[str, ...], env: dict[str, str]
) -> ChildSpec:
    """A child of the demo: it runs from the repository's root and logs into `scratch`."""
    return ChildSpec(
        name=name,
        command=command,
        log=scratch / f"{name}.log",
        env=clean_environment(env),
        folder=ROOT,
    )
