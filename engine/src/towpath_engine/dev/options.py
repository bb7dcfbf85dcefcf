"""What `towpath dev` was asked to do."""

from pathlib import Path

from msgspec import Struct


class DevOptions(Struct, frozen=True, kw_only=True):
    """`data_dir` None: ephemeral. A port None: the usual one if it is free, else any.

    A URL means that this server is somebody else's: it is used, never started or stopped.
    """

    data_dir: Path | None
    prefix: str | None = None
    nats_port: int | None = None
    nats_url: str | None = None
    postgres_port: int | None = None
    postgres_url: str | None = None
    http_port: int | None = None
    engine_count: int = 1
    config_file: str | None = None
    json: bool = False
