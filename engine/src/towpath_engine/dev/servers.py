"""The servers of one `towpath dev`: which there are, on which ports, started in order."""

import asyncio
import os
from collections.abc import Coroutine
from typing import Protocol

import msgspec

from towpath_engine.dev.data_dir import DataDir, Ports
from towpath_engine.dev.embedded_nats import EmbeddedNats
from towpath_engine.dev.embedded_postgres import EmbeddedPostgres
from towpath_engine.dev.engine_process import EngineProcess
from towpath_engine.dev.errors import DevError
from towpath_engine.dev.keeper import KeptServer
from towpath_engine.dev.options import DevOptions
from towpath_engine.dev.ports import choose_port, free_port, is_free
from towpath_engine.dev.ready import ReadyLine, engine_name
from towpath_engine.settings import Settings, load_settings
from towpath_engine.store.migrate import migrate

NATS_PORT = 4222
POSTGRES_PORT = 5433
HTTP_PORT = 8080
DRAIN_SECONDS = 5.0

_PORTS_TRIED_MAX = 5


class _Startable(Protocol):
    port: int

    async def start(self) -> None: ...


class DevServers:
    """Builds them all; `start` and `stop` go in the order of need."""

    def __init__(self, options: DevOptions, data_dir: DataDir) -> None:
        self._options = options
        self._data_dir = data_dir
        self._settings = _engine_settings(options)
        last = data_dir.read_ports()
        self._nats: EmbeddedNats | None = None
        self._postgres: EmbeddedPostgres | None = None
        if options.nats_url is None:
            port = _port("--nats-port", options.nats_port, last.nats, NATS_PORT)
            self._nats = EmbeddedNats(data_dir.path / "nats", port)
        if options.postgres_url is None:
            port = _port("--postgres-port", options.postgres_port, last.postgres, POSTGRES_PORT)
            self._postgres = EmbeddedPostgres(data_dir.path / "postgres", port)
        self._engines: list[EngineProcess] = []

    def by_name(self) -> dict[str, KeptServer]:
        """The servers that are ours, by the name that they have in `pids`."""
        servers: dict[str, KeptServer] = {}
        if self._nats:
            servers["nats"] = self._nats
        if self._postgres:
            servers["postgres"] = self._postgres
        for number, engine in enumerate(self._engines, start=1):
            servers[engine_name(number)] = engine
        return servers

    async def start(self) -> None:
        """Start everything and wait until it is usable. Raises as `run_dev` says."""
        starts: list[Coroutine[None, None, None]] = []
        if self._nats:
            starts.append(_start_somewhere(self._nats, self._options.nats_port))
        if self._postgres:
            starts.append(_start_somewhere(self._postgres, self._options.postgres_port))
        await _together(starts)
        await migrate(self._postgres_url, self._settings.postgres_schema)
        self._engines = self._make_engines()
        await _together(
            [
                _start_somewhere(engine, self._options.http_port if number == 0 else None)
                for number, engine in enumerate(self._engines)
            ]
        )
        self._data_dir.write_ports(
            Ports(
                nats=self._nats.port if self._nats else None,
                postgres=self._postgres.port if self._postgres else None,
                http=tuple(engine.port for engine in self._engines),
            )
        )

    async def stop(self) -> None:
        """Stop engines, then NATS and Postgres, and wait until they have gone."""
        await asyncio.gather(*(engine.stop() for engine in self._engines))
        servers = [server for server in (self._nats, self._postgres) if server is not None]
        await asyncio.gather(*(server.stop() for server in servers))
        if self._options.data_dir is None and self._postgres:
            # As root its data may be elsewhere than in the ephemeral folder.
            self._postgres.delete_data()

    def kill(self) -> None:
        """SIGKILL for all, without waiting."""
        for server in (*self._engines, self._nats, self._postgres):
            if server is not None:
                server.kill()

    def describe(self) -> ReadyLine:
        """Where everything is now."""
        pids = {name: server.pid or 0 for name, server in self.by_name().items()}
        return ReadyLine(
            nats_url=self._nats_url,
            postgres_url=self._postgres_url,
            prefix=self._settings.prefix,
            http_url=self._engines[0].url,
            http_urls=tuple(engine.url for engine in self._engines),
            data_dir=str(self._data_dir.path),
            pids={"dev": os.getpid(), **pids},
        )

    def _make_engines(self) -> list[EngineProcess]:
        environment = {
            "TOWPATH_NATS_URL": self._nats_url,
            "TOWPATH_POSTGRES_URL": self._postgres_url,
            "TOWPATH_PREFIX": self._settings.prefix,
            "TOWPATH_POSTGRES_SCHEMA": self._settings.postgres_schema,
            "TOWPATH_REQUIRE_SENDER": str(self._settings.require_sender).lower(),
            "TOWPATH_DRAIN_SECONDS": str(self._settings.drain_seconds),
        }
        if self._options.config_file:
            environment["TOWPATH_CONFIG"] = self._options.config_file
        return [
            EngineProcess(
                self._data_dir.logs / f"engine-{index + 1}.log",
                port,
                settings=environment,
                drain_seconds=self._settings.drain_seconds,
            )
            for index, port in enumerate(self._http_ports())
        ]

    def _http_ports(self) -> list[int]:
        last = self._data_dir.read_ports().http
        wanted = self._options.http_port
        ports = [_port("--http-port", wanted, last[0] if last else None, HTTP_PORT)]
        for index in range(1, self._options.engine_count):
            candidates = (last[index] if index < len(last) else None, ports[0] + index)
            ports.append(choose_port(*(port for port in candidates if port not in ports)))
        return ports

    @property
    def _nats_url(self) -> str:
        return self._nats.url if self._nats else self._options.nats_url or ""

    @property
    def _postgres_url(self) -> str:
        return self._postgres.url if self._postgres else self._options.postgres_url or ""


def _engine_settings(options: DevOptions) -> Settings:
    """The engines' settings: ours where nobody chose, so that a bad variable fails here, once."""
    loaded = load_settings(os.environ, options.config_file)
    chosen = msgspec.structs.asdict(loaded.settings)
    prefix = options.prefix or loaded.settings.prefix
    easier: dict[str, object] = {
        "require_sender": False,
        "drain_seconds": DRAIN_SECONDS,
        # Two prefixes on one database don't meet.
        "postgres_schema": prefix.replace("-", "_"),
    }
    for name, value in easier.items():
        if name not in loaded.sources:
            chosen[name] = value
    return msgspec.convert({**chosen, "prefix": prefix}, Settings)


def _port(option: str, wanted: int | None, *otherwise: int | None) -> int:
    """The port that was asked for, or a free one. Raises DevError when that one is in use."""
    if wanted and not is_free(wanted):
        raise DevError(f"port {wanted} is in use: choose another {option}, or leave it out")
    return wanted or choose_port(*otherwise)


async def _start_somewhere(server: _Startable, wanted_port: int | None) -> None:
    """Start it; on another port when somebody took the one that we had chosen in the meantime."""
    for _ in range(_PORTS_TRIED_MAX):
        try:
            await server.start()
        except DevError:
            if wanted_port or is_free(server.port):
                raise
            server.port = free_port()
        else:
            return
    raise DevError("every port that was free a moment ago is in use")


async def _together(starts: list[Coroutine[None, None, None]]) -> None:
    """All at once; the first failure is raised after the others have ended."""
    for result in await asyncio.gather(*starts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
