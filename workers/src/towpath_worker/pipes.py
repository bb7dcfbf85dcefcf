"""What a worker and a process that runs its tasks say to each other, and the pipe between them.

Plain messages, encoded as MessagePack: nothing is pickled, so that a task's process needs nothing
but the module that the task is in.
"""

import multiprocessing
import threading
from multiprocessing.connection import Connection
from typing import Final

import msgspec
from msgspec import Struct

from towpath_worker.options import WorkerOptions
from towpath_worker.outcomes import Completed, Failed


class Origin(Struct, frozen=True, kw_only=True):
    """An argument of the process: where its modules are. `main_module` or `main_path` is the
    program of the worker, for the tasks in it."""

    paths: tuple[str, ...]
    main_module: str | None
    main_path: str | None


class Call(Struct, frozen=True, kw_only=True, tag="call"):
    """To the process: run this task once. `dispatch` is the message, as JSON text, and `token` the
    one in it: who shall be told to stop."""

    token: str
    name: str
    module: str
    qualname: str
    dispatch: bytes
    options: WorkerOptions


class Cancel(Struct, frozen=True, tag="cancel"):
    """To the process: the attempt with this token should stop. Another one that has come
    meanwhile is not meant."""

    token: str
    reason: str


class Beat(Struct, frozen=True, tag="beat"):
    """From the process: a heartbeat is wanted."""


class Progress(Struct, frozen=True, tag="progress"):
    """From the process: how far the attempt is, as JSON text."""

    value: bytes


class Patch(Struct, frozen=True, tag="patch"):
    """From the process: a patch of the metadata, as JSON text."""

    value: bytes


class Event(Struct, frozen=True, tag="event"):
    """From the process: an event to announce; `data` is JSON text."""

    name: str
    data: bytes


class Line(Struct, frozen=True, tag="line"):
    """From the process: a log line; `fields` is JSON text."""

    level: str
    message: str
    fields: bytes | None


class Done(Struct, frozen=True, tag="done"):
    """From the process: the task returned."""

    outcome: Completed


class Gone(Struct, frozen=True, tag="gone"):
    """From the process: the task failed."""

    outcome: Failed


ToProcess = Call | Cancel
FromProcess = Beat | Progress | Patch | Event | Line | Done | Gone

_ENCODER: Final = msgspec.msgpack.Encoder()
_TO_PROCESS: Final = msgspec.msgpack.Decoder(ToProcess)
_FROM_PROCESS: Final = msgspec.msgpack.Decoder(FromProcess)


class Pipe:
    """One end. `send` may be called from any thread, the rest by one. All raise OSError or
    EOFError when the other end is gone."""

    def __init__(self, connection: "Connection[bytes, bytes]") -> None:
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def pair(cls) -> tuple["Pipe", "Connection[bytes, bytes]"]:
        """A pipe: this end, and the one to hand on."""
        ours, theirs = multiprocessing.Pipe()
        return cls(ours), theirs

    def send(self, message: ToProcess | FromProcess) -> None:
        """Send a message whole."""
        with self._lock:
            self._connection.send_bytes(_ENCODER.encode(message))

    def next_order(self) -> ToProcess:
        """In the process: what the worker wants."""
        return _TO_PROCESS.decode(self._connection.recv_bytes())

    def next_note(self) -> FromProcess:
        """In the worker: what the process says."""
        return _FROM_PROCESS.decode(self._connection.recv_bytes())

    def ready(self, timeout_seconds: float) -> bool:
        """Whether a message, or the end of the other end, is there within that time."""
        return self._connection.poll(timeout_seconds)

    def close(self) -> None:
        """End it; the other end notices."""
        self._connection.close()
