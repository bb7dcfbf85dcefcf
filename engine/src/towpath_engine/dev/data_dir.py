"""The folder of one `towpath dev`: locked while it runs, with the ports it had last time.

DATA_DIR/lock       held by the running process
DATA_DIR/dev.json   the ready line with the process ids of now
DATA_DIR/nats/      configuration, log and JetStream's data
DATA_DIR/postgres/  cluster, password and log (as root perhaps elsewhere: unprivileged.py)
DATA_DIR/logs/      the engines' logs
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TextIO

import msgspec
from msgspec import Struct

from towpath_engine.dev.errors import DevError

_EPHEMERAL_PREFIX = "towpath-dev-"


class Ports(Struct, frozen=True, kw_only=True):
    """Ports of the last time, kept so that URLs in other terminals stay right."""

    nats: int | None = None
    postgres: int | None = None
    http: tuple[int, ...] = ()


class DataDir:
    """Opens and locks the folder. `path` None makes an ephemeral one, deleted by `close()`.

    Raises DevError when another process has it, or when it can't be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._ephemeral = path is None
        if path is None:
            _sweep_ephemeral()
            path = Path(tempfile.mkdtemp(prefix=_EPHEMERAL_PREFIX))
            # It is ours alone to open: Postgres' user must be able to enter it.
            path.chmod(0o755)
        self.path = path.resolve()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / ".gitignore").write_text("*\n")
            self.logs.mkdir(exist_ok=True)
            lock = _new_lock(self.path) if self._ephemeral else _try_lock(self.path)
        except OSError as error:
            raise DevError(
                f"{self.path} can't be written ({error.strerror}): choose another --data-dir"
            ) from error
        if lock is None:
            raise DevError(
                f"another towpath dev runs on {self.path}: stop it, or choose another --data-dir"
            )
        self._lock = lock

    @property
    def logs(self) -> Path:
        """Where the engines' logs go."""
        return self.path / "logs"

    def read_ports(self) -> Ports:
        """The ports of the last time, or none."""
        try:
            return msgspec.json.decode((self.path / "ports.json").read_bytes(), type=Ports)
        except (OSError, msgspec.DecodeError):
            return Ports()

    def write_ports(self, ports: Ports) -> None:
        """Remember the ports for the next time."""
        (self.path / "ports.json").write_bytes(msgspec.json.encode(ports))

    def write_state(self, line: bytes) -> None:
        """Replace dev.json, readable by its owner alone, since URLs carry passwords."""
        staging = self.path / "dev.json.new"
        staging.touch(mode=0o600)
        staging.write_bytes(line + b"\n")
        staging.replace(self.path / "dev.json")

    def close(self) -> None:
        """Unlock; delete an ephemeral folder. All servers must have stopped."""
        with contextlib.suppress(FileNotFoundError):
            (self.path / "dev.json").unlink()
        if self._ephemeral:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _try_lock(folder: Path) -> TextIO | None:
    """An open, locked file; None when somebody else has the lock. Closing it unlocks.

    The kernel drops the lock of a process that is killed, and children don't inherit the file.
    """
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _new_lock(folder: Path) -> TextIO | None:
    """The same for a new folder, whose lock is locked before it has its name: a sweep would take
    one that it finds unlocked for a dead process' folder.
    """
    file = (folder / "lock.new").open("w")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (folder / "lock.new").rename(folder / "lock")
    return file


def _sweep_ephemeral() -> None:
    """Delete ephemeral folders whose owner was killed before it could."""
    for folder in Path(tempfile.gettempdir()).glob(_EPHEMERAL_PREFIX + "*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            if not (folder / "lock").exists():
                continue  # another process is just making it
            lock = _try_lock(folder)
        except OSError:
            continue
        if lock is not None:
            with contextlib.suppress(OSError):
                _delete(folder)
            lock.close()


def _delete(folder: Path) -> None:
    """The lock goes last: what can't be deleted yet (a server of the killed one is still writing)
    is found by the next sweep.
    """
    for path in folder.iterdir():
        if path.name != "lock":
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    shutil.rmtree(folder)
