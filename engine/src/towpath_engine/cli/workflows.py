"""Verbs about definitions: validate, deploy."""

import os
from collections.abc import Callable, Mapping

import msgspec

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.documents import DocumentError, parse_document, read_file
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import print_json, print_line
from towpath_engine.settings import load_settings


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
    from towpath_engine.cli.connection import ask

    document = _read_definition(arguments.file)
    reply = ask(arguments, lambda client: client.deploy(document, dry_run=arguments.dry_run))
    if arguments.json:
        print_json(msgspec.to_builtins(reply))
    elif arguments.dry_run:
        print_line(f"Workflow {reply.workflow} is valid; it would be version {reply.version}.")
    else:
        what = "is now" if reply.created else "already is"
        print_line(f"Workflow {reply.workflow} {what} version {reply.version}.")
    return Exit.OK


def _read_definition(file: str) -> Mapping[str, object]:
    try:
        return msgspec.convert(parse_document(read_file(file), file), dict[str, object])
    except msgspec.ValidationError as error:
        raise DocumentError(f"{file}: a definition is an object, not a list or a scalar") from error


COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {"validate": validate, "deploy": deploy}
