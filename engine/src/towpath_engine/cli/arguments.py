"""The verbs, their arguments and their help."""

import argparse
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from towpath_engine.cli.security_arguments import add_permissions_arguments, add_role_arguments

_DESCRIPTION = "Towpath, a durable workflow engine on NATS JetStream and Postgres."
_EPILOG = (
    "Exit status: 0 done, 1 bug, 2 wrong arguments, settings or file, 3 no answer, 4 not found, "
    "5 refused, 6 the run failed, 7 the run has not settled, 130 interrupted."
)


class _Verbs(Protocol):
    """What we use of argparse's collection of subcommands, whose class is private."""

    def add_parser(
        self,
        name: str,
        *,
        help: str,  # noqa: A002 - its name, not ours
        description: str,
        epilog: str,
        allow_abbrev: bool,
    ) -> argparse.ArgumentParser: ...


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
    target: str
    # workflows
    file: str
    dry_run: bool
    # runs
    workflow: str | None
    run_id: str | None
    key: str | None
    input: str | None
    input_file: str | None
    version: int | None
    delay_ms: int | None
    priority: str | None
    tag: list[str]
    context: str | None
    request_id: str | None
    wait: bool
    timeout: float
    signal: str
    payload: str | None
    message_id: str | None
    reason: str | None
    status: str | None
    limit: int
    after_seq: int
    # rights
    queues: list[str]
    account: bool
    engine: bool
    client: bool
    operator: bool
    inbox: str | None
    role: str
    apply: bool


def build_parser() -> argparse.ArgumentParser:
    """The parser of `towpath`. Abbreviated options are refused: scripts must survive new ones."""
    parser = argparse.ArgumentParser(
        prog="towpath", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"towpath {_version()}")
    verbs = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_dev(verbs)
    _add_processes(verbs)
    _add_workflows(verbs)
    _add_start(verbs)
    _add_signal(verbs)
    _add_views(verbs)
    return parser


def _version() -> str:
    return version("towpath-engine")


def _add(verbs: _Verbs, name: str, text: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text, description=text, epilog=_EPILOG, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file with settings (default: TOWPATH_CONFIG)"
    )
    return parser


def _add_client(verbs: _Verbs, name: str, text: str) -> argparse.ArgumentParser:
    parser = _add(verbs, name, text)
    parser.add_argument("--nats-url", metavar="URL", help="where NATS is (TOWPATH_NATS_URL)")
    parser.add_argument("--prefix", help="the installation's subject prefix (TOWPATH_PREFIX)")
    return parser


def _add_dev(verbs: _Verbs) -> None:
    dev = _add(verbs, "dev", "run NATS, Postgres and an engine for development")
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
    nats.add_argument("--nats-port", type=_port, metavar="PORT", help="default: 4222 if it is free")
    nats.add_argument("--nats-url", metavar="URL", help="use this NATS, start none")
    postgres = dev.add_mutually_exclusive_group()
    postgres.add_argument(
        "--postgres-port", type=_port, metavar="PORT", help="default: 5433 if it is free"
    )
    postgres.add_argument("--postgres-url", metavar="URL", help="use this Postgres, start none")
    dev.add_argument("--http-port", type=_port, metavar="PORT", help="default: 8080 if it is free")
    dev.add_argument("--engines", type=_count, default=1, metavar="N", help="how many engines")
    dev.add_argument("--prefix", help="subject prefix (default: towpath)")


def _add_processes(verbs: _Verbs) -> None:
    _add(verbs, "serve", "run an engine")
    _add(verbs, "migrate", "bring the database schema up to date")
    _add(verbs, "settings", "list the settings, their values and where those come from")
    rights = "print the exact NATS rights of pools, engines, clients and operators"
    add_permissions_arguments(_add(verbs, "nats-permissions", rights))
    grants = "print or apply what a database role needs for `towpath serve`, and no more"
    add_role_arguments(_add(verbs, "database-role", grants))
    worker = _add_client(verbs, "worker", "run a Python worker")
    worker.add_argument("target", metavar="MODULE:NAME", help="where the Worker is")


def _add_workflows(verbs: _Verbs) -> None:
    validate = _add(verbs, "validate", "check a workflow definition without a server")
    validate.add_argument("file", metavar="FILE", help="YAML or JSON; - is standard input")
    deploy = _add_client(verbs, "deploy", "deploy a workflow definition")
    deploy.add_argument("file", metavar="FILE", help="YAML or JSON; - is standard input")
    deploy.add_argument("--dry-run", action="store_true", help="let the engine check it only")


def _add_start(verbs: _Verbs) -> None:
    start = _add_client(verbs, "start", "start a run")
    start.add_argument("workflow", metavar="WORKFLOW", help="its name, as deployed")
    value = start.add_mutually_exclusive_group()
    value.add_argument("--input", metavar="JSON", help="the input (default: null)")
    value.add_argument("--input-file", metavar="FILE", help="YAML or JSON; - is standard input")
    start.add_argument("--key", help="your own id; one live run has it")
    start.add_argument("--version", type=_count, metavar="N", help="default: the newest")
    start.add_argument("--delay-ms", type=_amount, metavar="MS", help="begin later")
    start.add_argument(
        "--priority",
        choices=["critical", "high", "normal", "low"],
        help="default: the workflow's",
    )
    start.add_argument("--tag", action="append", default=[], help="may be repeated")
    start.add_argument("--context", metavar="JSON", help="an object every dispatch carries")
    start.add_argument("--request-id", metavar="ID", help="repeats with this id start nothing")
    start.add_argument("--wait", action="store_true", help="wait for the result")
    _add_timeout(start)


def _add_signal(verbs: _Verbs) -> None:
    signal = _add_client(verbs, "signal", "send a signal to a run")
    _add_target(signal)
    signal.add_argument("signal", metavar="SIGNAL", help="its name")
    signal.add_argument("--payload", metavar="JSON", help="default: null")
    signal.add_argument("--message-id", metavar="ID", help="repeats with this id are ignored")
    cancel = _add_client(verbs, "cancel", "cancel a run")
    _add_target(cancel)
    cancel.add_argument("--reason", help="kept in the history")


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="RUN", help="run id, or WORKFLOW/KEY of the live run")


def _add_views(verbs: _Verbs) -> None:
    get = _add_client(verbs, "get", "show a run and its steps")
    _add_run_id(get)
    runs = _add_client(verbs, "list", "list runs, newest first")
    runs.add_argument("--workflow", help="only runs of this workflow")
    runs.add_argument("--status", help="only these: running, waiting, completed, failed, ...")
    runs.add_argument("--key", help="only runs with this key, live or settled")
    runs.add_argument("--tag", action="append", default=[], help="only runs with this tag")
    runs.add_argument("--limit", type=_count, default=50, metavar="N", help="default: 50")
    history = _add_client(verbs, "history", "show what happened to a run")
    _add_run_id(history)
    history.add_argument(
        "--after-seq", type=_amount, default=0, metavar="N", help="only what came after this seq"
    )
    result = _add_client(verbs, "result", "wait for a run's output")
    _add_run_id(result)
    _add_timeout(result)


def _add_run_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="RUN_ID", help="as `start` and `list` print it")


def _add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait for the result (default: 60)",
    )


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return port


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return count


def _amount(text: str) -> int:
    amount = int(text)
    if amount < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return amount


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 365 * 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not a time to wait")
    return seconds


# argparse names the function in its message: "invalid port value: 'x'".
for _function in (_port, _count, _amount, _seconds):
    _function.__name__ = _function.__name__.removeprefix("_")
