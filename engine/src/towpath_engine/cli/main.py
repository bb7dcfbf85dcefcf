"""The entry point: finds the verb, runs it, turns failures into one sentence and a status."""

import sys
import traceback
from collections.abc import Callable, Sequence

from towpath_engine.cli.arguments import Arguments, build_parser
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import explain
from towpath_engine.cli.terminal import harmless


def main(argv: Sequence[str] | None = None) -> int:
    """Run `towpath` with these arguments (default: the process'); returns the exit status."""
    arguments = build_parser().parse_args(argv, namespace=Arguments())
    try:
        return int(_command(arguments.command)(arguments))
    except BrokenPipeError:
        # Whoever read our output has enough of it (`towpath list | head`).
        sys.stderr.close()
        return Exit.OK
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last line of defence
        return _fail(error)


def _fail(error: BaseException) -> Exit:
    told = explain(error)
    if told is None:
        traceback.print_exc()
        sys.stderr.write("towpath: this is a bug of Towpath, please report it\n")
        return Exit.BUG
    sys.stderr.write(f"towpath: {harmless(told.message)}\n")
    sys.stderr.writelines(f"  {harmless(line)}\n" for line in told.details)
    return told.status


def _command(name: str) -> Callable[[Arguments], Exit]:
    """The function of a verb. Imported here, so that `towpath --version` loads none of them."""
    match name:
        case "dev" | "serve" | "migrate" | "settings" | "worker":
            from towpath_engine.cli import processes

            return processes.COMMANDS[name]
        case "nats-permissions":
            from towpath_engine.cli.permissions import nats_permissions

            return nats_permissions
        case "database-role":
            from towpath_engine.cli.database_role import database_role

            return database_role
        case "completion" | "replay" | "graph":
            return _alone(name)
        case "validate" | "deploy":
            from towpath_engine.cli import workflows

            return workflows.COMMANDS[name]
        case _:
            return _asking(name)


def _alone(name: str) -> Callable[[Arguments], Exit]:
    """The verbs that need nothing but their arguments, or may do without an engine."""
    if name == "completion":
        from towpath_engine.cli.completion import completion

        return completion
    if name == "graph":
        from towpath_engine.cli.graph import graph

        return graph
    from towpath_engine.cli.replay import replay_file

    return replay_file


def _asking(name: str) -> Callable[[Arguments], Exit]:
    """The verbs that ask an engine."""
    match name:
        case "start-many":
            from towpath_engine.cli.start_many import start_many

            return start_many
        case "list" | "get" | "history" | "explain":
            from towpath_engine.cli import views

            return views.COMMANDS[name]
        case "logs" | "watch":
            from towpath_engine.cli import following

            return following.COMMANDS[name]
        case "workflows" | "queues" | "workers" | "dead-letters":
            from towpath_engine.cli import installation

            return installation.COMMANDS[name]
        case "retry" | "redrive" | "restart" | "purge" | "pause" | "resume" | "pauses":
            from towpath_engine.cli import operations

            return operations.COMMANDS[name]
        case _:
            from towpath_engine.cli import runs

            return runs.COMMANDS[name]
