"""Settings of a worker and of a client: frozen, units in the names, checked when they are made.

Precedence: an argument, else the environment (`TOWPATH_NATS_URL`, `TOWPATH_PREFIX` and the
`TOWPATH_NATS_…` names below, which are the engine's), else the settings file of the engine and the
command line (`TOWPATH_CONFIG`), else the running `towpath dev` of this folder, else the usual
place of one.
"""

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct, convert
from msgspec.structs import replace

from towpath_protocol.ids import check_prefix
from towpath_worker.dev_server import running_dev_server
from towpath_worker.settings_file import read_settings_file

DEFAULT_NATS_URL = "nats://127.0.0.1:4222"
DEFAULT_PREFIX = "towpath"


# The engine answers only to inboxes that begin so.
_INBOX_PREFIX = re.compile(r"(_INBOX|_R_)[A-Za-z0-9_-]*")

FROM_ENVIRONMENT: Final[Mapping[str, str]] = {
    "nats_url": "TOWPATH_NATS_URL",
    "prefix": "TOWPATH_PREFIX",
    "user": "TOWPATH_NATS_USER",
    "password": "TOWPATH_NATS_PASSWORD",
    "token": "TOWPATH_NATS_TOKEN",
    "credentials_file": "TOWPATH_NATS_CREDENTIALS_FILE",
    "nkey_seed_file": "TOWPATH_NATS_NKEY_SEED_FILE",
    "tls_ca_file": "TOWPATH_NATS_TLS_CA_FILE",
    "tls_cert_file": "TOWPATH_NATS_TLS_CERT_FILE",
    "tls_key_file": "TOWPATH_NATS_TLS_KEY_FILE",
    "tls_hostname": "TOWPATH_NATS_TLS_HOSTNAME",
    "tls_handshake_first": "TOWPATH_NATS_TLS_HANDSHAKE_FIRST",
    "inbox_prefix": "TOWPATH_NATS_INBOX_PREFIX",
}
"""Field of `ConnectionOptions` → environment variable; the engine reads the same names."""


class ConnectionOptions(Struct, frozen=True, kw_only=True):
    """Where NATS is, and how it knows us. Raises ValueError when values are out of range or
    contradict each other; files are only looked at when a connection is opened.

    `nats_url` may list servers, separated by commas, and may carry user and password, or a token.
    At most one of `user` with `password`, `token`, `credentials_file` (a `.creds` file: JWT and
    seed) and `nkey_seed_file` says who we are; the two files need the extra
    `towpath-worker[nkeys]`. They are read again at every new connection, so that they may be
    rotated.

    A `tls://` URL or any `tls_…` field demands TLS: a server without it is not spoken to.
    `tls_ca_file` is trusted instead of the system's authorities, `tls_cert_file` and
    `tls_key_file` are our own certificate, `tls_hostname` is the name that the server's
    certificate must bear (default: that of the URL), and `tls_handshake_first` fits a server that
    is configured so.

    `inbox_prefix` begins with `_INBOX` or `_R_`: the engine answers nowhere else.
    """

    nats_url: str = DEFAULT_NATS_URL
    prefix: str = DEFAULT_PREFIX
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials_file: str | None = None
    nkey_seed_file: str | None = None
    inbox_prefix: str = "_INBOX"
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_hostname: str | None = None
    tls_handshake_first: bool = False
    connect_timeout_seconds: float = 2.0

    def __post_init__(self) -> None:
        check_prefix(self.prefix)
        if not self.servers:
            raise ValueError("nats_url names no server")
        if _INBOX_PREFIX.fullmatch(self.inbox_prefix) is None:
            raise ValueError(
                "inbox_prefix must begin with _INBOX or _R_ and be letters, digits, _ and -"
            )
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file: give both or neither")
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password: give both or neither")
        identities = ("user", "token", "credentials_file", "nkey_seed_file")
        given = [name for name in identities if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give only one of {', '.join(given)}")
        _positive("connect_timeout_seconds", self.connect_timeout_seconds)

    @property
    def servers(self) -> list[str]:
        """The server URLs, one each."""
        return [url.strip() for url in self.nats_url.split(",") if url.strip()]

    @property
    def address(self) -> str:
        """The servers without user, password or token: for messages and logs."""
        return ", ".join(_without_user(url) for url in self.servers)

    @property
    def demands_tls(self) -> bool:
        """True when a connection without TLS must not be used."""
        files = (self.tls_ca_file, self.tls_cert_file, self.tls_hostname)
        schemes = any(url.startswith(("tls://", "wss://")) for url in self.servers)
        return schemes or self.tls_handshake_first or any(file is not None for file in files)


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """How a worker works. Raises ValueError when a value is out of range.

    `slots` attempts run at once, async ones in the event loop and plain functions in as many
    threads. `drain_timeout_seconds` is how long SIGTERM lets running attempts go on before they are
    given back.
    """

    slots: int = 16
    drain_timeout_seconds: float = 30.0
    started_after_seconds: float = 0.5
    heartbeat_interval_seconds: float = 3.0
    report_ack_timeout_seconds: float = 5.0
    hold_seconds: float = 1.0
    """How long a delivery without a free slot may wait for one before it is given back."""
    process_grace_seconds: float = 5.0
    """How long a task in a process may go on after it was told to stop; then it is killed."""
    lifespan_close_seconds: float = 10.0
    """How long the closing of a lifespan may take, after the drain."""
    logs_bytes_max: int = 64 * 1024
    output_bytes_max: int = 256 * 1024
    metadata_bytes_max: int = 64 * 1024
    error_bytes_max: int = 16 * 1024
    progress_bytes_max: int = 16 * 1024

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= 10_000:
            raise ValueError("slots must be between 1 and 10000")
        if self.drain_timeout_seconds < 0:
            raise ValueError("drain_timeout_seconds must not be negative")
        for name in (
            "started_after_seconds",
            "heartbeat_interval_seconds",
            "report_ack_timeout_seconds",
            "hold_seconds",
            "process_grace_seconds",
            "lifespan_close_seconds",
            "logs_bytes_max",
            "output_bytes_max",
            "metadata_bytes_max",
            "error_bytes_max",
            "progress_bytes_max",
        ):
            _positive(name, getattr(self, name))

    def with_slots(self, slots: int) -> "WorkerOptions":
        """The same options with another number of slots. Raises ValueError when out of range."""
        return replace(self, slots=slots)


def connection_options(
    nats_url: str | None = None,
    prefix: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> ConnectionOptions:
    """Options from the arguments, else the environment (`FROM_ENVIRONMENT`), else the settings
    file that `TOWPATH_CONFIG` names, else the running `towpath dev` of the current folder or one
    above it (unless any of the three says something about NATS), else the defaults. An empty
    variable counts as none.

    Raises ValueError when one of them is out of range, or the file cannot be used.
    """
    source = dict(os.environ if environ is None else environ)
    if file := source.get("TOWPATH_CONFIG"):
        values = read_settings_file(file, FROM_ENVIRONMENT.values())
        source.update({name: value for name, value in values.items() if not source.get(name)})
    fields: dict[str, str] = {
        field: value for field, name in FROM_ENVIRONMENT.items() if (value := source.get(name))
    }
    given = {"nats_url": nats_url, "prefix": prefix}
    fields.update({field: value for field, value in given.items() if value})
    if not fields.keys() - {"prefix"} and (dev := running_dev_server()) is not None:
        fields = {"nats_url": dev.nats_url, "prefix": dev.prefix, **fields}
    return convert(fields, ConnectionOptions, strict=False)  # a flag is text here


def _without_user(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _positive(name: str, value: float) -> None:
    if value <= 0:
        raise ValueError(f"{name} must be more than 0, not {value}")
