"""The running `towpath dev` of this folder: where clients and workers go whom nobody told where.

Its ports may be any, since another server may have the usual ones; it says which in
`.towpath/dev.json`, in the folder where it was started. The file is trusted only when it is ours,
and believed only while the process that wrote it lives.
"""

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

STATE_FILE: Final = Path(".towpath") / "dev.json"
LOCK_FILE: Final = STATE_FILE.with_name("lock")
"""What is left of it when it has ended."""


class DevServer(Struct, frozen=True, kw_only=True):
    """Where a running `towpath dev` has its NATS, and `folder`, where it was started."""

    nats_url: str
    prefix: str
    folder: Path


class _Pids(Struct, frozen=True):
    dev: int


class _State(Struct, frozen=True):
    nats_url: str
    prefix: str
    pids: _Pids


def running_dev_server(folder: Path | None = None) -> DevServer | None:
    """The `towpath dev` that runs on `folder` (None: the current one), else on the nearest folder
    above; None when there is none that lives and is ours."""
    if os.name != "posix":
        return None  # asking for a process would end it there
    try:
        start = (folder or Path.cwd()).resolve()
    except OSError:
        return None  # the current folder has been deleted
    for each in (start, *start.parents):
        state = _state_of(each / STATE_FILE)
        if state is not None and _lives(state.pids.dev):
            return DevServer(nats_url=state.nats_url, prefix=state.prefix, folder=each)
    return None


def stopped_dev_server(folder: Path | None = None) -> Path | None:
    """The nearest folder, from `folder` (None: the current one) up, on which `towpath dev` has run
    and runs no more; None when there is none, or one runs."""
    if os.name != "posix" or running_dev_server(folder) is not None:
        return None
    try:
        start = (folder or Path.cwd()).resolve()
    except OSError:
        return None
    return next((each for each in (start, *start.parents) if _is_ours(each / LOCK_FILE)), None)


def _is_ours(file: Path) -> bool:
    try:
        return file.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _state_of(file: Path) -> _State | None:
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_uid != os.geteuid():
                return None
            return msgspec.json.decode(opened.read(), type=_State)
    except (OSError, msgspec.MsgspecError):
        return None


def _lives(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return False
    return True
