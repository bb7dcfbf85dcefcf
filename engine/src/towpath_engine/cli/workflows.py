"""Verbs about definitions: validate, deploy."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.documents import DocumentError, parse_document, read_file
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import print_json, print_line, print_notice
from towpath_engine.settings import load_settings

LOOK_SECONDS: Final = 0.3
"""How often `deploy --watch` looks at its file."""


def validate(arguments: Arguments) -> Exit:
    """`towpath validate FILE`"""
    from towpath_engine.core.faults import DefinitionRefused
    from towpath_engine.core.parse import parse_definition
    from towpath_engine.wiring import expression_limits

    settings = load_settings(os.environ, arguments.config).settings
    document = _read_definition(arguments.file)
    try:
        definition = parse_definition(document, expression_limits(settings))
    except DefinitionRefused as refused:
        faults = refused.faults
        if arguments.json:
            print_json({"valid": False, "faults": [msgspec.to_builtins(fault) for fault in faults]})
        raise CommandError(
            Exit.REFUSED,
            f"{arguments.file}: the definition has {len(faults)} fault(s):",
            [str(fault) for fault in faults],
        ) from refused
    if arguments.json:
        print_json(
            {
                "valid": True,
                "workflow": definition.workflow,
                "fingerprint": definition.fingerprint,
            }
        )
    else:
        print_line(f"{arguments.file}: workflow {definition.workflow} is valid.")
    return Exit.OK


def deploy(arguments: Arguments) -> Exit:
    """`towpath deploy FILE`"""
    if arguments.watch:
        return _deploy_on_change(arguments)
    _deploy_once(arguments)
    return Exit.OK


def _deploy_once(arguments: Arguments) -> None:
    from towpath_engine.cli.connection import ask, name_server

    document = _read_definition(arguments.file)
    name_server(arguments)
    reply = ask(arguments, lambda client: client.deploy(document, dry_run=arguments.dry_run))
    if arguments.json:
        print_json(msgspec.to_builtins(reply))
    elif arguments.dry_run:
        print_line(f"Workflow {reply.workflow} is valid; it would be version {reply.version}.")
    else:
        what = "is now" if reply.created else "already is"
        print_line(f"Workflow {reply.workflow} {what} version {reply.version}.")


def _deploy_on_change(arguments: Arguments) -> Exit:
    """Deploy now and after every change, tell faults and go on, until Ctrl-C."""
    if arguments.file == "-":
        raise CommandError(Exit.USAGE, "--watch needs a FILE: standard input does not change")
    path = Path(arguments.file)
    if not path.exists():
        raise DocumentError(f"{arguments.file}: the file does not exist")
    while True:
        seen = _state(path)
        try:
            _deploy_once(arguments)
        except (CommandError, DocumentError) as error:
            details = error.details if isinstance(error, CommandError) else ()
            if arguments.json:
                print_json({"error": {"message": str(error), "details": list(details)}})
            else:
                print_notice(str(error))
                for line in details:
                    print_notice(f"  {line}")
        asyncio.run(_changed(path, seen))


async def _changed(path: Path, seen: tuple[int, int] | None) -> None:
    """Return when the file is another, and has stayed so for one look: editors write in parts."""
    before = seen
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = _state(path)
        if now is not None and now != seen and now == before:
            return
        before = now


def _state(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written, or replaced; None while it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns ^ found.st_ino, found.st_size


def _read_definition(file: str) -> Mapping[str, object]:
    try:
        return msgspec.convert(parse_document(read_file(file), file), dict[str, object])
    except msgspec.ValidationError as error:
        raise DocumentError(f"{file}: a definition is an object, not a list or a scalar") from error


COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {"validate": validate, "deploy": deploy}
