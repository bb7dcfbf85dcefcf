"""The verbs, their arguments and help: those that run something here; the others beside it."""

import argparse
from importlib.metadata import version
from pathlib import Path

from towpath_engine.cli.exits import EPILOG
from towpath_engine.cli.graph_arguments import add_graph_arguments
from towpath_engine.cli.operator_arguments import add_operator_verbs
from towpath_engine.cli.parser import CommandParser, Verbs, add_client_verb, add_verb, count, port
from towpath_engine.cli.run_arguments import add_run_verbs
from towpath_engine.cli.security_arguments import add_permissions_arguments, add_role_arguments

_DESCRIPTION = "Towpath, a durable workflow engine on NATS JetStream and Postgres."


class Arguments(argparse.Namespace):
    """What the command line said. Which attributes are set depends on `command`."""

    command: str
    json: bool
    config: str | None
    nats_url: str | None
    prefix: str | None
    # dev
    data_dir: Path
    ephemeral: bool
    nats_port: int | None
    postgres_port: int | None
    postgres_url: str | None
    http_port: int | None
    engines: int
    # worker
    targets: list[str]
    slots: int | None
    reload: bool
    watched: list[Path]
    log_level: str
    # workflows
    file: str
    dry_run: bool
    watch: bool
    # runs
    workflow: str | None
    run_id: str | None
    key: str | None
    on_conflict: str
    input: str | None
    input_file: str | None
    inputs: bool
    version: int | None
    delay_ms: int | None
    at: str | None
    priority: str | None
    tag: list[str]
    with_tag: str | None
    context: str | None
    request_id: str | None
    triggered_by: str | None
    wait: bool
    timeout: float
    signal: str
    payload: str | None
    message_id: str | None
    compensate: bool | None
    by: str | None = None
    """Set by the verbs that say who; read for all of them."""
    reason: str | None
    status: str | None
    created_from: str | None
    created_to: str | None
    limit: int
    all: bool
    cursor: str | None
    after_seq: int
    payloads: bool
    export: str | None
    trace: bool
    step: str | None
    under: str | None
    follow: bool
    settled_before: str | None
    # an installation
    subcommand: str
    name: str
    queue: str | None
    letter_id: str
    letter_ids: list[str]
    # graph
    drawn: str
    picture_format: str | None
    picture_file: Path | None
    # completion
    shell: str
    # rights
    queues: list[str]
    account: bool
    engine: bool
    client: bool
    operator: bool
    inbox: str | None
    role: str
    apply: bool


def build_parser() -> CommandParser:
    """The parser of `towpath`."""
    parser = CommandParser(
        prog="towpath", description=_DESCRIPTION, epilog=EPILOG, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"towpath {_version()}")
    verbs = Verbs(parser, dest="command", metavar="COMMAND")
    _add_dev(verbs)
    _add_processes(verbs)
    add_operator_verbs(verbs)
    add_run_verbs(verbs)
    add_graph_arguments(verbs)
    _add_replay(verbs)
    _add_completion(verbs)
    return parser


def _version() -> str:
    return version("towpath-engine")


def _add_dev(verbs: Verbs) -> None:
    dev = add_verb(verbs, "dev", "run NATS, Postgres and an engine for development")
    where = dev.add_mutually_exclusive_group()
    where.add_argument(
        "--data-dir",
        type=Path,
        default=Path(".towpath"),
        metavar="DIR",
        help="where the data is kept (default: %(default)s)",
    )
    where.add_argument("--ephemeral", action="store_true", help="forget all data at the end")
    nats = dev.add_mutually_exclusive_group()
    nats.add_argument("--nats-port", type=port, metavar="PORT", help="default: 4222 if it is free")
    nats.add_argument("--nats-url", metavar="URL", help="use this NATS, start none")
    postgres = dev.add_mutually_exclusive_group()
    postgres.add_argument(
        "--postgres-port", type=port, metavar="PORT", help="default: 5433 if it is free"
    )
    postgres.add_argument("--postgres-url", metavar="URL", help="use this Postgres, start none")
    dev.add_argument("--http-port", type=port, metavar="PORT", help="default: 8080 if it is free")
    dev.add_argument("--engines", type=count, default=1, metavar="N", help="how many engines")
    dev.add_argument("--prefix", help="subject prefix (default: towpath)")


def _add_processes(verbs: Verbs) -> None:
    add_verb(verbs, "serve", "run an engine")
    add_verb(verbs, "migrate", "bring the database schema up to date")
    add_verb(verbs, "settings", "list the settings, their values and where those come from")
    rights = "print the exact NATS rights of pools, engines, clients and operators"
    add_permissions_arguments(add_verb(verbs, "nats-permissions", rights))
    grants = "print or apply what a database role needs for `towpath serve`, and no more"
    add_role_arguments(add_verb(verbs, "database-role", grants))
    worker = add_client_verb(verbs, "worker", "run Python workers")
    worker.add_argument("targets", metavar="MODULE:NAME", nargs="+", help="where the Workers are")
    worker.add_argument("--slots", type=count, help="attempts at once, of each worker")
    worker.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="default: info",
    )
    worker.add_argument(
        "--reload",
        action="store_true",
        help="for development: drain and start again when a Python file here changes",
    )
    worker.add_argument(
        "--watch",
        dest="watched",
        metavar="FOLDER",
        type=Path,
        action="append",
        default=[],
        help="with --reload: look here instead of in the current folder; may be repeated",
    )


def _add_replay(verbs: Verbs) -> None:
    replay = add_verb(verbs, "replay", "decide an exported history again, without a server")
    replay.add_argument("file", metavar="FILE", help="of `towpath history RUN --export FILE`")
    replay.add_argument("--trace", action="store_true", help="show every decision")


def _add_completion(verbs: Verbs) -> None:
    completion = add_verb(verbs, "completion", "print a script that completes these commands")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
