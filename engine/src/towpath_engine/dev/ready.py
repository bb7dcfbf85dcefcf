"""What `towpath dev` prints when everything is usable."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from towpath_engine.secrets import mask_secrets
from towpath_engine.settings import Settings

FOUND_NAME: Final = ".towpath"
"""The data folder of this name is found by whoever is in the folder that it is in, or below."""


class ReadyLine(Struct, frozen=True, kw_only=True):
    """The line of `--json`. `pids` has the processes that we started, by `nats`, `postgres`,
    `engine` (`engine-2`, …) and `dev` for ourselves; URLs are complete, with passwords.
    """

    event: str = "ready"
    nats_url: str
    postgres_url: str
    prefix: str
    http_url: str
    """The first engine's pages."""
    http_urls: tuple[str, ...]
    data_dir: str
    pids: dict[str, int]


def for_people(ready: ReadyLine) -> str:
    """The same as a few lines of text, without passwords."""
    rows = [("NATS", "nats", ready.nats_url), ("Postgres", "postgres", ready.postgres_url)]
    for number, url in enumerate(ready.http_urls, start=1):
        name = engine_name(number)
        rows.append((name, name, url + "/readyz"))
    lines = ["Towpath is ready. Ctrl-C stops everything."]
    for title, name, url in rows:
        process = f"process {ready.pids[name]}" if name in ready.pids else "not ours"
        lines.append(f"  {title:<9} {mask_secrets(url)}  ({process})")
    lines.append(f"  {'prefix':<9} {ready.prefix}")
    lines.append(f"  {'data':<9} {ready.data_dir}")
    exports = _exports(ready)
    if exports:
        folder = Path(ready.data_dir)
        found = folder.name == FOUND_NAME
        who = f"outside of {folder.parent}" if found else "in every other terminal"
        lines.append(f"Not the usual place: {who}, before commands, workers and clients")
        lines.append(f"  export {' '.join(exports)}")
    return "\n".join(lines)


def _exports(ready: ReadyLine) -> list[str]:
    """What clients must be told because it is not their default. A NATS of others with a
    password is left out: who gave us its URL knows it."""
    default = Settings()
    exports: list[str] = []
    if ready.nats_url != default.nats_url and not _is_secret(ready.nats_url):
        exports.append(f"TOWPATH_NATS_URL={ready.nats_url}")
    if ready.prefix != default.prefix:
        exports.append(f"TOWPATH_PREFIX={ready.prefix}")
    return exports


def _is_secret(url: str) -> bool:
    return mask_secrets(url) != url


def engine_name(number: int) -> str:
    """The name of the engine with this number, from 1."""
    return "engine" if number == 1 else f"engine-{number}"
