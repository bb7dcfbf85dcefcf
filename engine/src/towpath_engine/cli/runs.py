"""Verbs about runs: start, signal, cancel, result, output."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.connection import ask, name_server
from towpath_engine.cli.documents import DocumentError, parse_document, parse_json, read_file
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import print_json, print_line, print_notice, print_value
from towpath_engine.cli.replies import plain
from towpath_engine.cli.targets import parse_target
from towpath_protocol import replies
from towpath_protocol.errors import ErrorCode
from towpath_protocol.times import parse_instant
from towpath_worker import ApiError, Client, Json, OnConflict, RunHandle

EXAMPLE: Final = '{"name": "value"}'


def start(arguments: Arguments) -> Exit:
    """`towpath start WORKFLOW`"""
    value = given_input(arguments)
    context = _context(arguments)

    async def question(client: Client) -> tuple[RunHandle, Json]:
        handle = await client.start(
            arguments.workflow or "",
            value,
            key=arguments.key,
            version=arguments.version,
            delay=None if arguments.delay_ms is None else arguments.delay_ms / 1_000,
            at=parse_instant_option(arguments.at),
            priority=arguments.priority,
            tags=arguments.tag or None,
            context=context,
            on_conflict=OnConflict(arguments.on_conflict),
            request_id=arguments.request_id,
            triggered_by=arguments.triggered_by,
        )
        output = await handle.result(timeout=arguments.timeout) if arguments.wait else None
        return handle, output

    name_server(arguments)
    try:
        handle, output = ask(arguments, question)
    except CommandError as error:
        raise _with_hint(error, arguments) from error
    print_started(arguments, handle, output)
    return Exit.OK


def print_started(arguments: Arguments, handle: RunHandle, output: Json) -> None:
    """Print the run that was started, or found, or what became of it where `--wait` asks for it."""
    if arguments.json:
        result = {"output": output} if arguments.wait else {}
        print_json({"run_id": handle.run_id, "deduplicated": handle.deduplicated, **result})
    elif arguments.wait:
        print_value(output)
    else:
        if handle.deduplicated:
            print_notice("a live run has the key, or the request id was used: nothing was started")
        print_line(handle.run_id)


def signal(arguments: Arguments) -> Exit:
    """`towpath signal RUN SIGNAL`"""
    target = parse_target(arguments.run_id)
    payload = parse_json(arguments.payload, "--payload") if arguments.payload else None
    reply = ask(
        arguments,
        lambda client: client.signal(
            target.workflow,
            key=target.key,
            run_id=target.run_id,
            signal=arguments.signal,
            payload=payload,
            message_id=arguments.message_id,
        ),
    )
    print_reply(arguments, reply, f"Run {reply.run_id} {_became_of_signal(reply)}.")
    if not arguments.json and reply.taken_by is None and not reply.awaited_by:
        print_notice(
            f"no step of the workflow waits for {arguments.signal!r}: is the name right? "
            f"`towpath explain {reply.run_id}` says what is awaited"
        )
    return Exit.OK


def _became_of_signal(reply: replies.SignalledRun) -> str:
    """What is said of the signal. An engine of an earlier release does not tell whether a step
    took it."""
    if reply.deduplicated:
        return "had it already"
    if reply.taken_by is not None:
        return "got it"
    steps = "" if reply.awaited_by is UNSET else " or ".join(reply.awaited_by)
    return f"keeps it for {steps}" if steps else "keeps it"


def cancel(arguments: Arguments) -> Exit:
    """`towpath cancel RUN`"""
    target = parse_target(arguments.run_id)
    reply = ask(
        arguments,
        lambda client: client.cancel(
            target.workflow,
            key=target.key,
            run_id=target.run_id,
            compensate=arguments.compensate,
            reason=arguments.reason,
        ),
    )
    print_reply(arguments, reply, f"Run {reply.run_id} is {reply.status}.")
    return Exit.OK


def result(arguments: Arguments) -> Exit:
    """`towpath result RUN`"""
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> tuple[str, Json]:
        handle = await target.handle(client)
        return handle.run_id, await handle.result(timeout=arguments.timeout)

    run_id, output = ask(arguments, question)
    if arguments.json:
        print_json({"run_id": run_id, "output": output})
    else:
        print_value(output)
    return Exit.OK


def output(arguments: Arguments) -> Exit:
    """`towpath output RUN`"""
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> tuple[str, Json]:
        handle = await target.handle(client)
        return handle.run_id, await handle.output(step=arguments.step)

    run_id, value = ask(arguments, question)
    if arguments.json:
        print_json({"run_id": run_id, "step": arguments.step, "output": value})
    else:
        print_value(value)
    return Exit.OK


def given_input(arguments: Arguments, default: object = None) -> object:
    """The value of `--input` or `--input-file`. Raises DocumentError."""
    if arguments.input is not None:
        return _given_json(arguments.input)
    if arguments.input_file is not None:
        return parse_document(read_file(arguments.input_file), arguments.input_file)
    return default


def print_reply(arguments: Arguments, reply: msgspec.Struct, text: str) -> None:
    """The reply as JSON, or the sentence for people."""
    if arguments.json:
        print_json(plain(reply))
    else:
        print_line(text)


def parse_instant_option(text: str | None) -> datetime | None:
    """The instant of an option that the parser has made RFC 3339."""
    return None if text is None else parse_instant(text)


def _given_json(text: str) -> object:
    """The value of `--input`. A file that was meant is named with the option for files."""
    try:
        return parse_json(text, "--input")
    except DocumentError as error:
        name = text.removeprefix("@")
        if name != text or name == "-" or (len(name) < 200 and Path(name).is_file()):
            raise DocumentError(f"--input takes JSON: give --input-file {name}") from error
        raise DocumentError(
            f"{error}; quote it for the shell, as in --input '{EXAMPLE}'"
        ) from error


def _with_hint(error: CommandError, arguments: Arguments) -> CommandError:
    """A refused start, with what to type where the input was forgotten."""
    cause = error.__cause__
    forgotten = arguments.input is None and arguments.input_file is None
    if forgotten and isinstance(cause, ApiError) and cause.code == ErrorCode.SCHEMA_FAILED:
        hint = f"no input was given: add --input '{EXAMPLE}' or --input-file FILE"
        return CommandError(error.status, f"{error}; {hint}", error.details)
    return error


def _context(arguments: Arguments) -> Mapping[str, object] | None:
    if arguments.context is None:
        return None
    try:
        return msgspec.convert(parse_json(arguments.context, "--context"), dict[str, object])
    except msgspec.ValidationError as error:
        raise CommandError(Exit.USAGE, "--context must be a JSON object") from error


COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {
    "start": start,
    "signal": signal,
    "cancel": cancel,
    "result": result,
    "output": output,
}
