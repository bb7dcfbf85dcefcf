"""The inside of a process that runs tasks: one at a time, until its worker is gone."""

import functools
import importlib
import os
import queue
import runpy
import signal
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Final

import msgspec

from towpath_protocol.codec import decode
from towpath_protocol.dispatch import StepDispatch
from towpath_protocol.reports import LogLine
from towpath_worker import capture
from towpath_worker.binding import bound, completed, failure_of
from towpath_worker.context import CancelledFlag, ProcessContext
from towpath_worker.outcomes import Completed, Failed
from towpath_worker.pipes import (
    Beat,
    Call,
    Cancel,
    Done,
    Event,
    Gone,
    Line,
    Origin,
    Patch,
    Pipe,
    Progress,
)
from towpath_worker.signatures import RunIn, describe
from towpath_worker.values import InvalidValueError, JsonLike, Rich, to_json

MAIN: Final = "__mp_main__"
"""What `multiprocessing` calls the program in its processes; programs know it."""


class _Forwarding(ProcessContext):
    """A context whose notes go to the worker at once, so that a crash loses none of them."""

    def __init__(self, call: Call, dispatch: StepDispatch, pipe: Pipe) -> None:
        super().__init__(
            dispatch,
            options=call.options,
            cancelled=CancelledFlag(),
            on_heartbeat=lambda: pipe.send(Beat()),
        )
        self._pipe = pipe
        self.log.on_line = self._forward_line

    def progress(self, value: Rich) -> None:
        """See ProcessContext."""
        super().progress(value)
        text = self.taken().progress
        assert text is not None, "it was just set"
        self._pipe.send(Progress(text))

    def set_metadata(self, patch: Mapping[str, JsonLike]) -> None:
        """See ProcessContext."""
        super().set_metadata(patch)
        limit = self._options.metadata_bytes_max
        self._pipe.send(Patch(to_json(patch, bytes_max=limit, field="metadata")))

    def emit(self, name: str, data: Rich = None) -> None:
        """See ProcessContext."""
        super().emit(name, data)
        event = self.taken().events[-1]
        self._pipe.send(Event(event.name, bytes(event.data)))

    def _forward_line(self, line: LogLine) -> None:
        fields = None if line.fields is None else bytes(line.fields)
        self._pipe.send(Line(line.level, line.message, fields))


def main() -> None:
    """The process: `FILE_DESCRIPTOR ORIGIN` are its arguments."""
    # Signals to the whole group, as of Ctrl-C, are the worker's: it alone ends attempts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    descriptor, origin = sys.argv[1:]
    serve(Pipe(Connection(int(descriptor))), msgspec.json.decode(origin, type=Origin))


def serve(pipe: Pipe, origin: Origin) -> None:
    """Run what the worker sends. Ends, in the middle of a task if need be, with the worker's end of
    the pipe: then another worker has the attempt."""
    calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
    current = _Current()
    threading.Thread(target=_read, args=(pipe, calls, current), daemon=True).start()
    capture.install(echoes=False)
    while True:
        call = calls.get()
        outcome = _run(call, origin, pipe, current)
        try:
            pipe.send(Done(outcome) if isinstance(outcome, Completed) else Gone(outcome))
        except OSError:
            return  # the worker is gone


class _Current:
    """The attempt that runs, or is about to: who is to be told to stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._token = ""
        self._flag: CancelledFlag | None = None
        self._reason: str | None = None

    def begin(self, token: str) -> None:
        with self._lock:
            self._token = token
            self._flag = self._reason = None

    def attach(self, flag: CancelledFlag) -> None:
        with self._lock:
            self._flag = flag
            reason = self._reason
        if reason is not None:
            flag.set(reason)

    def cancel(self, token: str, reason: str) -> None:
        with self._lock:
            if token != self._token:
                return  # it was on its way while the attempt that it means has ended
            self._reason = reason
            flag = self._flag
        if flag is not None:
            flag.set(reason)


def _read(pipe: Pipe, calls: "queue.SimpleQueue[Call]", current: _Current) -> None:
    try:
        while True:
            match pipe.next_order():
                case Call() as call:
                    current.begin(call.token)
                    calls.put(call)
                case Cancel(token, reason):
                    current.cancel(token, reason)
    except (OSError, EOFError):
        os._exit(1)


@functools.cache
def _main(origin: Origin) -> ModuleType:
    """The worker's program, run under another name, so that it defines its tasks and does not
    begin to work."""
    if origin.main_module is not None:
        found = runpy.run_module(origin.main_module, run_name=MAIN, alter_sys=True)
    else:
        assert origin.main_path is not None, "a task of it was found in the worker"
        found = runpy.run_path(origin.main_path, run_name=MAIN)
    loaded = ModuleType(MAIN)
    loaded.__dict__.update(found)
    sys.modules["__main__"] = sys.modules[MAIN] = loaded
    return loaded


def _run(call: Call, origin: Origin, pipe: Pipe, current: _Current) -> Completed | Failed:
    dispatch = decode(call.dispatch, StepDispatch)
    ctx = _Forwarding(call, dispatch, pipe)
    current.attach(ctx.cancelled)
    try:
        is_main = call.module == "__main__"
        found: object = _main(origin) if is_main else importlib.import_module(call.module)
        for part in call.qualname.split("."):
            found = getattr(found, part)
        assert callable(found), "the worker has looked"
        task = describe(call.name, found, RunIn.PROCESS)
        arguments = bound(task, ctx, bytes(dispatch.input))
    except InvalidValueError as error:
        return Failed(type="InvalidInput", message=f"input: {error}", retryable=False)
    except Exception as error:  # noqa: BLE001 -- importing their module may raise anything
        return failure_of(error, error_bytes_max=call.options.error_bytes_max)
    try:
        with capture.into(ctx.log):
            result = arguments()
    except BaseException as error:  # noqa: BLE001 -- a task may raise anything
        return failure_of(error, error_bytes_max=call.options.error_bytes_max)
    return completed(result, call.options)
