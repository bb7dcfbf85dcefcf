"""Settings of a worker and of a client: frozen, units in the names, checked when they are made.

Precedence: an argument, else the environment (`TOWPATH_NATS_URL`, `TOWPATH_PREFIX`), else what
`towpath dev` uses.
"""

import os
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from towpath_protocol.ids import check_prefix

DEFAULT_NATS_URL = "nats://127.0.0.1:4222"
DEFAULT_PREFIX = "towpath"


class ConnectionOptions(Struct, frozen=True, kw_only=True):
    """Where NATS is. Raises ValueError when a value is out of range.

    `nats_url` may list servers, separated by commas, and may carry user and password.
    `inbox_prefix` must begin with `_INBOX`: the engine answers nowhere else.
    """

    nats_url: str = DEFAULT_NATS_URL
    prefix: str = DEFAULT_PREFIX
    user: str | None = None
    password: str | None = None
    token: str | None = None
    inbox_prefix: str = "_INBOX"
    tls_ca_file: str | None = None
    connect_timeout_seconds: float = 2.0

    def __post_init__(self) -> None:
        check_prefix(self.prefix)
        if not self.servers:
            raise ValueError("nats_url names no server")
        if not self.inbox_prefix.startswith("_INBOX"):
            raise ValueError("inbox_prefix must begin with _INBOX")
        _positive("connect_timeout_seconds", self.connect_timeout_seconds)

    @property
    def servers(self) -> list[str]:
        """The server URLs, one each."""
        return [url.strip() for url in self.nats_url.split(",") if url.strip()]


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
    """Options from the arguments, else the environment, else the defaults of `towpath dev`.

    Raises ValueError when one of them is out of range.
    """
    source = os.environ if environ is None else environ
    return ConnectionOptions(
        nats_url=nats_url or source.get("TOWPATH_NATS_URL") or DEFAULT_NATS_URL,
        prefix=prefix or source.get("TOWPATH_PREFIX") or DEFAULT_PREFIX,
    )


def _positive(name: str, value: float) -> None:
    if value <= 0:
        raise ValueError(f"{name} must be more than 0, not {value}")
