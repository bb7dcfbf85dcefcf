"""`towpath dev`: starts NATS, Postgres and engines, keeps them running, stops them all.

The order is the order of need: NATS and Postgres, migrations, engines; stopping goes backwards.
Whatever ends this process, nothing stays: SIGINT and SIGTERM stop the servers in order (a second
one at once), the death of our parent counts as SIGTERM, and of our own death by SIGKILL the kernel
tells them (launch.py).
"""

import asyncio
import contextlib
import os
import signal
import sys

import msgspec

from towpath_engine import PARENT_AT_START
from towpath_engine.dev.data_dir import DataDir
from towpath_engine.dev.keeper import Keeper
from towpath_engine.dev.options import DevOptions
from towpath_engine.dev.orphans import adopt_orphans, end_tasks, reap_orphans, watch_parent
from towpath_engine.dev.ready import ReadyLine, for_people
from towpath_engine.dev.servers import DevServers

_REAP_SECONDS = 0.25
_KEPT = "`setsid --fork towpath dev`, or a service, outlives it"


async def run_dev(options: DevOptions) -> None:
    """Run until a signal or until our parent dies.

    Raises DevError when the servers can't be started, SettingsError for a bad TOWPATH_* variable,
    StoreUnavailable when somebody else's Postgres does not answer, SchemaMismatch when its schema
    is of a later release.
    """
    adopt_orphans()
    stop = asyncio.Event()
    data_dir = DataDir(options.data_dir)
    try:
        dev = _Dev(options, data_dir)

        def on_signal(number: signal.Signals) -> None:
            if stop.is_set():
                dev.kill()
            elif number is signal.SIGHUP:
                dev.say_why_it_ends(f"its terminal was closed; {_KEPT}")
            stop.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, on_signal, number)
        await _until_stopped(dev, stop)
    finally:
        data_dir.close()


async def _until_stopped(dev: "_Dev", stop: asyncio.Event) -> None:

    def on_gone() -> None:
        dev.say_why_it_ends(f"the process that started it has ended; {_KEPT}")
        stop.set()

    parent = asyncio.create_task(watch_parent(PARENT_AT_START, on_gone))
    stopped = asyncio.create_task(_wait(stop))
    work = asyncio.create_task(dev.run())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()  # it only ever ends by raising
    finally:
        await end_tasks((parent, stopped, work))
        await dev.stop()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


class _Dev:
    """The servers of one `towpath dev` and what it says about them."""

    def __init__(self, options: DevOptions, data_dir: DataDir) -> None:
        self._options = options
        self._data_dir = data_dir
        self._servers = DevServers(options, data_dir)
        self._stopping = False

    async def run(self) -> None:
        """Start everything, say so, keep it running. Ends only by an exception or cancellation."""
        await self._servers.start()
        ready = self._write_state()
        _say(msgspec.json.encode(ready).decode() if self._options.json else for_people(ready))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reap())
            for name, server in self._servers.by_name().items():
                keeper = Keeper(name, server, notify=self._notify)
                tasks.create_task(keeper.keep())

    async def stop(self) -> None:
        """Stop engines, then NATS and Postgres; bury orphans."""
        await self._servers.stop()
        reap_orphans(())

    def kill(self) -> None:
        """Somebody is in a hurry: SIGKILL for all."""
        self._servers.kill()

    def say_why_it_ends(self, reason: str) -> None:
        """To whoever finds it gone and looks into its log, if there is one left to write to."""
        with contextlib.suppress(OSError):
            self._tell("stopping", "it", f"ends: {reason}")

    def _write_state(self) -> ReadyLine:
        ready = self._servers.describe()
        self._data_dir.write_state(msgspec.json.encode(ready))
        return ready

    def _notify(self, name: str, text: str) -> None:
        self._write_state()
        self._tell("child", name, text)

    def _tell(self, event: str, name: str, text: str) -> None:
        line = f"towpath dev: {name} {text}"
        if self._options.json:
            fields = {"event": event, "name": name, "message": text}
            line = msgspec.json.encode(fields).decode()
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(_REAP_SECONDS)
            reap_orphans({server.pid or 0 for server in self._servers.by_name().values()})


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(options: DevOptions) -> None:
    """`run_dev` in an event loop of its own."""
    os.umask(0o022)  # Postgres' user must be able to enter the folders that we make
    asyncio.run(run_dev(options))
