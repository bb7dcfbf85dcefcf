"""`towpath start-many`: a run for each line of a file, in lots, whatever its size."""

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.connection import ask, name_server
from towpath_engine.cli.documents import DocumentError, parse_json
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import print_json, print_line, print_notice
from towpath_protocol.errors import ProtocolError
from towpath_protocol.replies import StartedRun
from towpath_worker import (
    ApiError,
    Client,
    InvalidValueError,
    StartItem,
    StartManyError,
    TransportError,
)
from towpath_worker.start_many import starts_of

LOT: Final = 2_000
LINE_BYTES_MAX: Final = 1024 * 1024

_Lot = list[tuple[int, StartItem]]
"""Numbers of lines, and what they ask for."""
Outcome = StartedRun | ApiError | TransportError


def start_many(arguments: Arguments) -> Exit:
    """`towpath start-many FILE`"""
    if arguments.inputs and arguments.workflow is None:
        raise CommandError(Exit.USAGE, "--inputs needs --workflow: lines name none")

    async def question(client: Client) -> int:
        failures = sent = 0
        with _opened(arguments.file) as file:
            lots = _lots(file, arguments)
            while lot := _next(lots, sent=sent, started=sent - failures):
                outcomes = await _start(client, [item for _, item in lot])
                sent += len(lot)
                for (line, _), outcome in zip(lot, outcomes, strict=True):
                    failures += not isinstance(outcome, StartedRun)
                    _tell(arguments, line, outcome)
                if any(isinstance(outcome, TransportError) for outcome in outcomes):
                    raise _stopped(arguments, lot, outcomes)
        return failures

    name_server(arguments)
    failures = ask(arguments, question)
    if failures:
        raise CommandError(Exit.REFUSED, f"{failures} of the starts were refused")
    return Exit.OK


def _next(lots: Iterator[_Lot], *, sent: int, started: int) -> _Lot | None:
    """The next lot, None at the end. Raises DocumentError for a line that can't be used, and says
    what became of those before it."""
    try:
        return next(lots, None)
    except DocumentError as error:
        became = (
            f"{started} of the {sent} lines before were started" if sent else "nothing was started"
        )
        raise DocumentError(f"{error}; {became}") from error


async def _start(client: Client, items: list[StartItem]) -> list[Outcome]:
    try:
        handles = await client.start_many(items)
    except StartManyError as error:
        return list(error.results)
    return [
        StartedRun(run_id=handle.run_id, deduplicated=handle.deduplicated) for handle in handles
    ]


def _tell(arguments: Arguments, line: int, outcome: Outcome) -> None:
    if isinstance(outcome, StartedRun):
        if arguments.json:
            found = {"run_id": outcome.run_id, "deduplicated": outcome.deduplicated}
            print_json({"line": line, **found})
        else:
            print_line(outcome.run_id)
        return
    code = outcome.code if isinstance(outcome, ApiError) else "no_answer"
    if arguments.json:
        print_json({"line": line, "error": {"code": code, "message": str(outcome)}})
    else:
        print_notice(f"{arguments.file}:{line}: {outcome}")


def _stopped(arguments: Arguments, lot: _Lot, outcomes: list[Outcome]) -> CommandError:
    first = next(
        line
        for (line, _), outcome in zip(lot, outcomes, strict=True)
        if isinstance(outcome, TransportError)
    )
    return CommandError(
        Exit.UNREACHABLE,
        f"no answer from line {first} on, nothing after these lines was sent; give the lines of "
        f"{arguments.file} keys or request_ids, then the whole file may be started again",
    )


@contextmanager
def _opened(name: str) -> Generator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise DocumentError(f"{name}: the file does not exist") from error
    except IsADirectoryError as error:
        raise DocumentError(f"{name}: {error.strerror}") from error


def _lots(file: IO[bytes], arguments: Arguments) -> Iterator[_Lot]:
    lot: _Lot = []
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        place = f"{arguments.file}:{number}"
        if len(line) > LINE_BYTES_MAX:
            raise DocumentError(f"{place}: longer than {LINE_BYTES_MAX} bytes")
        if not line.strip():
            continue
        lot.append((number, _item(line, place, arguments)))
        if len(lot) == LOT:
            yield lot
            lot = []
    if lot:
        yield lot


def _item(line: bytes, place: str, arguments: Arguments) -> StartItem:
    value = _parsed(line, place)
    if arguments.inputs:
        return StartItem(workflow=arguments.workflow or "", input=value)
    try:
        fields = msgspec.convert(value, dict[str, object])
        if arguments.workflow is not None:
            fields.setdefault("workflow", arguments.workflow)
        item = _start_item(fields)
        # Checked here, where the line is known; nothing of this lot was sent yet.
        starts_of([item])
    except (msgspec.ValidationError, ProtocolError, InvalidValueError, TypeError) as error:
        text = str(error).removeprefix("items[0].").removeprefix("items[0]: ")
        raise DocumentError(f"{place}: {text}") from error
    return item


def _parsed(line: bytes, place: str) -> object:
    try:
        return parse_json(line.strip(), place)
    except DocumentError as error:
        # The parser counts lines from this one.
        raise DocumentError(str(error).replace(f"{place}:1:", f"{place}:")) from error


def _start_item(fields: dict[str, object]) -> StartItem:
    unknown = [name for name in fields if name not in StartItem.__struct_fields__]
    if unknown:
        known = ", ".join(StartItem.__struct_fields__)
        raise TypeError(f"a start has no field {', '.join(unknown)}; it has {known}")
    if "workflow" not in fields:
        raise TypeError("no workflow: name it in the line, or with --workflow")
    return msgspec.convert(fields, StartItem)
