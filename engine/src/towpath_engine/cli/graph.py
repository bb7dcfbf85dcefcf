"""`towpath graph`: a workflow as a picture, or what a run made of it."""

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.documents import DocumentError, parse_document, read_file
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import print_json, print_line
from towpath_engine.core.definition import Definition
from towpath_engine.core.expressions.limits import ExpressionLimits
from towpath_engine.core.faults import DefinitionRefused
from towpath_engine.core.parse import parse_definition
from towpath_engine.drawing.mermaid import mermaid
from towpath_engine.drawing.picture import Picture, picture_of
from towpath_engine.drawing.svg import svg
from towpath_engine.settings import load_settings
from towpath_protocol.ids import NAME_PATTERN, RUN_ID_PATTERN

_RUN_ID: Final = re.compile(RUN_ID_PATTERN)
_WORKFLOW: Final = re.compile(NAME_PATTERN)
_DOCUMENTS: Final = (".yaml", ".yml", ".json")
_BY_SUFFIX: Final = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid"}


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """A picture, and what it is of."""

    picture: Picture
    workflow: str
    version: int | None = None
    run_id: str | None = None


def graph(arguments: Arguments) -> Exit:
    """`towpath graph FILE|WORKFLOW|RUN`"""
    picture_format = _format(arguments)
    drawn = _drawn(arguments)
    text = svg(drawn.picture) if picture_format == "svg" else mermaid(drawn.picture)
    file = arguments.picture_file
    if file is not None:
        _write(file, text)
    if arguments.json:
        result = {"text": text} if file is None else {"output": str(file)}
        print_json(
            {
                "workflow": drawn.workflow,
                "version": drawn.version,
                "run_id": drawn.run_id,
                "format": picture_format,
                **result,
            }
        )
    elif file is None:
        print_line(text.removesuffix("\n"))
    else:
        print_line(f"{file}: {drawn.picture.title} is drawn.")
    return Exit.OK


def _format(arguments: Arguments) -> str:
    """What is written. Raises CommandError when the name of the file does not say it."""
    if arguments.picture_format is not None:
        return arguments.picture_format
    if arguments.picture_file is None:
        return "mermaid"
    found = _BY_SUFFIX.get(arguments.picture_file.suffix.lower())
    if found is None:
        raise CommandError(
            Exit.USAGE, f"{arguments.picture_file}: name it .svg or .mmd, or give --format"
        )
    return found


def _drawn(arguments: Arguments) -> Drawn:
    target = arguments.drawn
    if _is_file(target):
        if arguments.version is not None:
            raise CommandError(Exit.USAGE, "--version goes with a WORKFLOW, not with a file")
        return _of_file(arguments)
    # What asks an engine needs the worker SDK, a file does not.
    from towpath_engine.cli.graph_asking import drawn_run, drawn_workflow

    if _RUN_ID.fullmatch(target) or "/" in target:
        if arguments.version is not None:
            raise CommandError(Exit.USAGE, "--version goes with a WORKFLOW: a run has its own")
        return drawn_run(arguments)
    if not _WORKFLOW.fullmatch(target):
        raise CommandError(
            Exit.USAGE, f"{target!r} is no file, nor a workflow's name, a run id or WORKFLOW/KEY"
        )
    return drawn_workflow(arguments)


def _is_file(target: str) -> bool:
    return target == "-" or target.lower().endswith(_DOCUMENTS) or Path(target).is_file()


def _of_file(arguments: Arguments) -> Drawn:
    from towpath_engine.wiring import expression_limits

    file = arguments.drawn
    settings = load_settings(os.environ, arguments.config).settings
    try:
        document = msgspec.convert(parse_document(read_file(file), file), dict[str, object])
        definition = parse_definition(document, expression_limits(settings))
    except msgspec.ValidationError as error:
        raise DocumentError(f"{file}: a definition is an object, not a list or a scalar") from error
    except DefinitionRefused as refused:
        faults = [str(fault) for fault in refused.faults]
        raise CommandError(
            Exit.REFUSED, f"{file}: the definition has {len(faults)} fault(s):", faults
        ) from refused
    picture = picture_of(definition, title=definition.workflow)
    return Drawn(picture=picture, workflow=definition.workflow)


def stored_definition(document: bytes, *, name: str) -> Definition:
    """What an engine has accepted, whatever its limits are. Raises CommandError where it knows
    more of the language than this command."""
    try:
        return parse_definition(document, ExpressionLimits().for_stored())
    except DefinitionRefused as refused:
        raise CommandError(
            Exit.REFUSED,
            f"{name} can't be read by this version of towpath:",
            [str(fault) for fault in refused.faults],
        ) from refused


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DocumentError(f"{file}: {error.strerror}") from error
