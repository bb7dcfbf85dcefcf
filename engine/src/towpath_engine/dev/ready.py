"""What `towpath dev` prints when everything is usable."""

from msgspec import Struct

from towpath_engine.settings import mask_secrets


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
    return "\n".join(lines)


def engine_name(number: int) -> str:
    """The name of the engine with this number, from 1."""
    return "engine" if number == 1 else f"engine-{number}"
