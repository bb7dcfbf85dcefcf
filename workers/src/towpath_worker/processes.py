"""Processes for tasks that are registered with `run_in="process"`.

One task at a time in each, at most as many as attempts that run, kept for the next. Not
`ProcessPoolExecutor`: a crash of one of its processes breaks the whole pool, and what runs in it
cannot be ended. Here a crash fails one attempt, and an attempt that shall stop and does not is
ended with its process.
"""

import asyncio
import importlib
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final, assert_never

import msgspec

from towpath_protocol.codec import encode
from towpath_worker.context import Context
from towpath_worker.logs import STANDARD_FIELDS
from towpath_worker.options import WorkerOptions
from towpath_worker.outcomes import Completed, Failed
from towpath_worker.pipes import (
    Beat,
    Call,
    Cancel,
    Done,
    Event,
    FromProcess,
    Gone,
    Line,
    Origin,
    Patch,
    Pipe,
    Progress,
)
from towpath_worker.signatures import Task, TaskTypeError
from towpath_worker.threads import TaskThreads
from towpath_worker.values import from_json

_log = logging.getLogger("towpath.worker.process")

JOIN_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.5
PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2])['paths']; "
    "from towpath_worker.child import main; main()"
)


def check_importable(task: Task) -> None:
    """Raises TaskTypeError when a process would not find this task by its name."""
    function = task.function
    found: object = importlib.import_module(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise TaskTypeError(
            f"the task {task.name!r} ({function.__module__}.{function.__qualname__}) cannot run in "
            "a process: its name in that module stands for something else; put @worker.task above "
            "all other decorators, or leave it a name of its own"
        )


class _Child:
    """One process, and the worker's end of its pipe.

    Not a fork, since the worker has threads that may hold locks; and none of `multiprocessing`,
    which would leave a process of its own behind.
    """

    def __init__(self) -> None:
        ours, theirs = Pipe.pair()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(theirs.fileno()), _origin()],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        finally:
            theirs.close()
        self.pipe = ours

    @property
    def alive(self) -> bool:
        """True while it runs."""
        return self.process.poll() is None

    def exit_code(self) -> int:
        """Wait until it has ended, which it is about to; negative: the signal that ended it."""
        try:
            return self.process.wait(JOIN_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def kill(self) -> None:
        """End it, whatever it does."""
        self.process.kill()

    def end(self) -> None:
        """Kill it and forget it; blocks for a moment."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()


def _origin() -> str:
    """Where a process finds the modules that this one has, the main program included."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    path: str | None = getattr(main, "__file__", None)
    origin = Origin(
        paths=tuple(sys.path),
        main_module=None if spec is None else spec.name,
        main_path=None if path is None else str(Path(path).resolve()),
    )
    return msgspec.json.encode(origin).decode()


class _Running:
    """One attempt in a process: what cancels it, from the event loop."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._killed = False

    def attach(self, process: _Child) -> bool:
        """False when the attempt was given up before it had a process."""
        with self._lock:
            self._child = process
            return not self._killed

    def detach(self) -> None:
        """The process does something else now."""
        with self._lock:
            self._child = None

    def cancel(self, reason: str) -> None:
        """Tell the task. The process may have gone on to another attempt by the time it hears."""
        with self._lock:
            process = self._child
        if process is not None:
            try:
                process.pipe.send(Cancel(self._token, reason))
            except OSError:
                return  # it has just ended

    def kill(self) -> None:
        """End its process."""
        with self._lock:
            self._killed = True
            if self._child is not None:
                self._child.kill()


class TaskProcesses:
    """The processes of one worker. `run` may be called by many asyncio tasks at once."""

    def __init__(self, threads: TaskThreads, options: WorkerOptions) -> None:
        self._threads = threads
        self._options = options
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._closed = False

    async def run(self, task: Task, ctx: Context[object]) -> Completed | Failed | None:
        """Run the task once in a process.

        When the attempt shall stop, the task is told, and after `process_grace_seconds` its
        process is killed; then there is no outcome. Cancelling the wait kills it at once. Raises
        OSError when no process could be started.
        """
        running = _Running(ctx.dispatch.token)
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def stop(reason: str) -> None:
            timers.append(loop.call_later(self._options.process_grace_seconds, running.kill))
            running.cancel(reason)

        ctx.cancelled.on_set(stop)
        try:
            outcome = await self._threads.run(lambda: self._run(task, ctx, running))
        except asyncio.CancelledError:
            running.kill()
            raise
        finally:
            for timer in timers:
                timer.cancel()
        assert isinstance(outcome, Completed | Failed | None), "what _run returns"
        return outcome

    def close(self) -> None:
        """End all of them; what still runs in one is lost. Blocks for a moment."""
        with self._lock:
            self._closed = True
            children = list(self._all)
            self._idle.clear()
            self._all.clear()
        for each in children:
            each.kill()
        for each in children:
            each.exit_code()

    def _run(
        self, task: Task, ctx: Context[object], running: _Running
    ) -> Completed | Failed | None:
        """In a thread of its own."""
        process = self._take()
        finished = False
        code = 0
        try:
            if running.attach(process):
                outcome = self._converse(task, ctx, process)
                finished = True
                return outcome
        except (OSError, EOFError):
            code = process.exit_code()
        finally:
            running.detach()
            if finished:
                self._put_back(process)
            else:
                self._forget(process)
        if ctx.cancelled:
            return None
        _log.warning("task_process_ended task=%s exit_code=%s", task.name, code)
        return Failed(
            type="ProcessCrashed", message=f"the process of the task ended with exit code {code}"
        )

    def _converse(self, task: Task, ctx: Context[object], process: _Child) -> Completed | Failed:
        """Raises OSError or EOFError when the process ends in the middle."""
        process.pipe.send(_call(task, ctx, self._options))
        if ctx.cancelled.reason is not None:
            process.pipe.send(Cancel(ctx.dispatch.token, ctx.cancelled.reason))
        while True:
            # What a task forked may hold the pipe open when its process has ended.
            while not process.pipe.ready(LOOK_SECONDS):
                if not process.alive:
                    raise EOFError
            outcome = _noted(ctx, process.pipe.next_note())
            if outcome is not None:
                return outcome

    def _take(self) -> _Child:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.alive:
                    return process
                self._all.discard(process)
                process.end()
        process = _Child()
        with self._lock:
            self._all.add(process)
            closed = self._closed
        if closed:
            process.kill()
        return process

    def _put_back(self, process: _Child) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(process)

    def _forget(self, process: _Child) -> None:
        with self._lock:
            self._all.discard(process)
        process.end()


def _call(task: Task, ctx: Context[object], options: WorkerOptions) -> Call:
    return Call(
        token=ctx.dispatch.token,
        name=task.name,
        module=task.function.__module__,
        qualname=task.function.__qualname__,
        dispatch=encode(ctx.dispatch),
        options=options,
    )


def _noted(ctx: Context[object], note: FromProcess) -> Completed | Failed | None:
    """Do what the task did, with the worker's own context."""
    match note:
        case Beat():
            ctx.heartbeat()
        case Progress(value):
            ctx.take_progress(value)
        case Patch(value):
            patch = from_json(value)
            ctx.set_metadata(patch if isinstance(patch, dict) else {})
        case Event(name, data):
            ctx.emit(name, from_json(data))
        case Line():
            _write(ctx, note)
        case Done(outcome) | Gone(outcome):
            return outcome
        case _:
            assert_never(note)
    return None


def _write(ctx: Context[object], line: Line) -> None:
    """As `context.logger` does, or the logger that was used, but with fields of any name."""
    decoded = None if line.fields is None else from_json(line.fields)
    fields = decoded if isinstance(decoded, dict) else {}
    ctx.log.add(line.level, line.message, fields)
    number = logging.getLevelNamesMapping().get(line.level.upper(), logging.INFO)
    extra = {**fields, **ctx.log.facts}
    name = extra.pop("logger", None)
    logger = logging.getLogger(name) if isinstance(name, str) else ctx.logger.logger
    allowed = {field: value for field, value in extra.items() if field not in STANDARD_FIELDS}
    logger.log(number, "%s", line.message, extra=allowed)
