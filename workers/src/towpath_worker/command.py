"""The command that runs workers: `python -m towpath_worker MODULE:NAME …`; `towpath worker` is the
same. What it is told by flags beats the environment, as everywhere.

It ends with 0 after a drain, 2 for a wrong command line or a module that can't be used, 5 when a
worker could not start.
"""

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final, NoReturn

from towpath_worker.credentials import ConnectionOptionsError
from towpath_worker.lifespans import LifespanError
from towpath_worker.log_output import LogFormat, formatter
from towpath_worker.metrics import MetricsError
from towpath_worker.options import FROM_ENVIRONMENT
from towpath_worker.reload import SUPERVISOR_FLAG, Reloader, end_with_supervisor
from towpath_worker.signatures import RegistrationError
from towpath_worker.tracebacks import traceback_text
from towpath_worker.worker import NoTasksError, Worker, run_workers

LOG_FORMAT: Final = "TOWPATH_LOG_FORMAT"
"""console or json; the engine reads the same name."""
LEVELS = ("debug", "info", "warning", "error")


NOT_STARTED = (
    ConnectionOptionsError,
    LifespanError,
    MetricsError,
    NoTasksError,
    RegistrationError,
)
"""What keeps a worker from starting and is not a fault of the SDK."""


class CommandExit(IntEnum):
    """How the command ends."""

    DRAINED = 0
    USAGE = 2
    NOT_STARTED = 5


class TargetError(Exception):
    """MODULE:NAME is no worker. The message says why; `details` are lines for a person."""

    def __init__(self, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.details = tuple(details)


class WorkerArguments(argparse.Namespace):
    """What the command line said."""

    targets: list[str]
    slots: int | None
    reload: bool
    watched: list[Path]
    nats_url: str | None
    prefix: str | None
    log_level: str
    supervisor: int | None = None


def main(argv: Sequence[str]) -> int:
    """Run the command; the result is the exit status. Raises SystemExit for a wrong flag."""
    return start(parser().parse_args(list(argv), namespace=WorkerArguments()))


def start(arguments: WorkerArguments) -> int:
    """What the command does with its arguments; the result is the exit status."""
    if arguments.supervisor is not None:
        end_with_supervisor(arguments.supervisor)
    # The SDK reads its options from the environment when the module makes its Worker.
    for field in ("nats_url", "prefix"):
        value: str | None = getattr(arguments, field)
        if value:
            os.environ[FROM_ENVIRONMENT[field]] = value
    if not arguments.reload:
        return _run(arguments)
    again = [*arguments.targets, "--log-level", arguments.log_level]
    if arguments.slots is not None:
        again += ["--slots", str(arguments.slots)]
    return Reloader(again, folders=arguments.watched or [Path.cwd()]).run()


def _run(arguments: WorkerArguments) -> CommandExit:
    wanted = os.environ.get(LOG_FORMAT) or LogFormat.CONSOLE
    try:
        log_format = LogFormat(wanted)
    except ValueError:
        _say(f"{LOG_FORMAT} must be {' or '.join(LogFormat)}, not {wanted!r}")
        return CommandExit.USAGE
    try:
        workers = [load_worker(target) for target in arguments.targets]
    except TargetError as error:
        _say(str(error), *error.details)
        return CommandExit.USAGE
    for worker in workers:
        if arguments.slots is not None:
            worker.options = worker.options.with_slots(arguments.slots)
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(log_format))
    # After the import: nothing happens here when the module has set up logging of its own.
    logging.basicConfig(level=arguments.log_level.upper(), handlers=[handler])
    return serve(*workers)


def serve(*workers: Worker) -> CommandExit:
    """`run_workers`, with what keeps a worker from starting as a sentence on stderr."""
    try:
        run_workers(*workers)
    except NOT_STARTED as error:
        _say(str(error))
        if isinstance(error, LifespanError) and error.__cause__ is not None:
            _say(*traceback_text(error.__cause__).splitlines())
        return CommandExit.NOT_STARTED
    return CommandExit.DRAINED


def load_worker(target: str) -> Worker:
    """The Worker at `module:name`, imported from the current folder or the path.

    Raises TargetError when there is none.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise TargetError(f"{target!r} is not of the form MODULE:NAME")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise TargetError(f"there is no module {error.name!r} here") from error
        _raise_broken(module_name, error)
    except RegistrationError as error:
        raise TargetError(f"{module_name}: {error}") from error
    except Exception as error:  # noqa: BLE001 -- their module may raise anything
        _raise_broken(module_name, error)
    if not hasattr(module, name):
        raise TargetError(f"the module {module_name} has no {name!r}")
    found: object = getattr(module, name)
    if not isinstance(found, Worker):
        raise TargetError(f"{target} is not a towpath_worker.Worker")
    return found


def parser() -> argparse.ArgumentParser:
    """The arguments; `towpath worker` takes the same.

    An engine's command line must not need the SDK to parse its other verbs, so it repeats them.
    """
    made = argparse.ArgumentParser(
        prog="python -m towpath_worker",
        description="Run Python workers until SIGTERM or Ctrl-C; a second one does not wait.",
        epilog="Where NATS is and how it knows the worker comes from TOWPATH_NATS_… variables.",
    )
    made.add_argument("targets", metavar="MODULE:NAME", nargs="+", help="where the Workers are")
    made.add_argument("--slots", type=_slots, help="attempts at once, of each worker")
    made.add_argument("--nats-url", metavar="URL", help="the NATS servers")
    made.add_argument("--prefix", help="the installation's subject prefix")
    made.add_argument("--log-level", choices=LEVELS, default="info", help="default: info")
    made.add_argument(
        "--reload",
        action="store_true",
        help="for development: drain and start again when a Python file here changes",
    )
    # Given by --reload to its own process.
    made.add_argument(SUPERVISOR_FLAG, dest="supervisor", type=int, help=argparse.SUPPRESS)
    made.add_argument(
        "--watch",
        dest="watched",
        metavar="FOLDER",
        type=Path,
        action="append",
        default=[],
        help="with --reload: look here instead of in the current folder; may be repeated",
    )
    return made


def _slots(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of slots, 1 to 10000")
    return int(text)


def _say(*lines: str) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def _raise_broken(name: str, error: Exception) -> NoReturn:
    """Their traceback is what helps them, so here it is shown."""
    lines = traceback_text(error).splitlines()
    raise TargetError(f"the module {name} can't be imported:", lines) from error
