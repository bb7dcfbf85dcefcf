"""Verbs about runs: start, signal, cancel, get, list, history, result."""

import re
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.briefly import brief_cause, brief_error, brief_facts
from towpath_engine.cli.connection import ask
from towpath_engine.cli.documents import parse_document, parse_json, read_file
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import (
    print_fields,
    print_json,
    print_line,
    print_notice,
    print_table,
)
from towpath_protocol import replies
from towpath_worker import Client, Json, RunHandle

_RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Target(Struct, frozen=True, kw_only=True):
    """Which run: by its id, or the live one of (workflow, key)."""

    run_id: str | None = None
    workflow: str | None = None
    key: str | None = None


def start(arguments: Arguments) -> Exit:
    """`towpath start WORKFLOW`"""
    given = _input(arguments)
    context = _context(arguments)

    async def question(client: Client) -> tuple[RunHandle, Json]:
        handle = await client.start(
            arguments.workflow or "",
            given,
            key=arguments.key,
            version=arguments.version,
            delay=None if arguments.delay_ms is None else arguments.delay_ms / 1_000,
            priority=arguments.priority,
            tags=arguments.tag or None,
            context=context,
            request_id=arguments.request_id,
        )
        output = await handle.result(timeout=arguments.timeout) if arguments.wait else None
        return handle, output

    handle, output = ask(arguments, question)
    if arguments.json:
        result = {"output": output} if arguments.wait else {}
        print_json({"run_id": handle.run_id, "deduplicated": handle.deduplicated, **result})
    elif arguments.wait:
        print_json(output)
    else:
        if handle.deduplicated:
            print_notice("a live run has the key, or the request id was used: nothing was started")
        print_line(handle.run_id)
    return Exit.OK


def signal(arguments: Arguments) -> Exit:
    """`towpath signal RUN SIGNAL`"""
    target = _target(arguments.run_id)
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
            sent_by="towpath-cli",
        ),
    )
    seen = " had it already" if reply.deduplicated else " got it"
    _print(arguments, reply, f"Run {reply.run_id}{seen}.")
    return Exit.OK


def cancel(arguments: Arguments) -> Exit:
    """`towpath cancel RUN`"""
    target = _target(arguments.run_id)
    reply = ask(
        arguments,
        lambda client: client.cancel(
            target.workflow,
            key=target.key,
            run_id=target.run_id,
            by="towpath-cli",
            reason=arguments.reason,
        ),
    )
    _print(arguments, reply, f"Run {reply.run_id} is {reply.status}.")
    return Exit.OK


def get(arguments: Arguments) -> Exit:
    """`towpath get RUN_ID`"""

    async def question(client: Client) -> replies.RunView:
        """The run with the steps of all pages."""
        run = await client.get(_run_id(arguments))
        steps = list(run.steps)
        cursor = run.steps_cursor
        while cursor is not None:
            page = await client.get(_run_id(arguments), steps_cursor=cursor)
            steps.extend(page.steps)
            cursor = page.steps_cursor
        return msgspec.structs.replace(run, steps=tuple(steps), steps_cursor=None)

    run = _plain(ask(arguments, question))
    if arguments.json:
        print_json(run)
        return Exit.OK
    steps = run.pop("steps")
    run.pop("steps_cursor")
    print_fields(run)
    if steps:
        print_line("")
        rows = [
            {**step, "error": brief_error(step.get("error"))}
            for step in msgspec.convert(steps, list[dict[str, object]])
        ]
        print_table(("step", "kind", "status", "attempt", "wake_at", "output", "error"), rows)
    return Exit.OK


def list_runs(arguments: Arguments) -> Exit:
    """`towpath list`"""
    page = ask(
        arguments,
        lambda client: client.list_page(
            arguments.workflow,
            status=arguments.status,
            key=arguments.key,
            tag=arguments.tag[0] if arguments.tag else None,
            limit=arguments.limit,
        ),
    )
    if arguments.json:
        print_json(_plain(page))
    else:
        rows = [_plain(run) for run in page.runs]
        print_table(("run_id", "workflow", "version", "key", "status", "created_at"), rows)
    return Exit.OK


def history(arguments: Arguments) -> Exit:
    """`towpath history RUN_ID`"""

    async def question(client: Client) -> list[replies.TransitionView]:
        found: list[replies.TransitionView] = []
        after: int | None = arguments.after_seq
        while after is not None:
            page = await client.history(_run_id(arguments), after_seq=after, limit=1_000)
            found.extend(page.transitions)
            after = page.next_after_seq
        return found

    rows = [_plain(transition) for transition in ask(arguments, question)]
    if arguments.json:
        print_json({"transitions": rows})
    else:
        told = [
            {**row, "cause": brief_cause(row["cause"]), "details": brief_facts(row["data"])}
            for row in rows
        ]
        columns = ("seq", "at", "what", "step", "attempt", "from", "to", "cause", "details")
        print_table(columns, told)
    return Exit.OK


def result(arguments: Arguments) -> Exit:
    """`towpath result RUN_ID`"""
    run_id = _run_id(arguments)
    output = ask(arguments, lambda client: client.handle(run_id).result(timeout=arguments.timeout))
    print_json({"run_id": run_id, "output": output} if arguments.json else output)
    return Exit.OK


def _input(arguments: Arguments) -> object:
    if arguments.input is not None:
        return parse_json(arguments.input, "--input")
    if arguments.input_file is not None:
        return parse_document(read_file(arguments.input_file), arguments.input_file)
    return None


def _context(arguments: Arguments) -> Mapping[str, object] | None:
    if arguments.context is None:
        return None
    try:
        return msgspec.convert(parse_json(arguments.context, "--context"), dict[str, object])
    except msgspec.ValidationError as error:
        raise CommandError(Exit.USAGE, "--context must be a JSON object") from error


def _target(text: str | None) -> _Target:
    """A run id, or `WORKFLOW/KEY`; a key may have slashes, a workflow has none."""
    workflow, slash, key = (text or "").partition("/")
    if slash:
        return _Target(workflow=workflow, key=key)
    if not _RUN_ID.fullmatch(workflow):
        raise CommandError(Exit.USAGE, f"{workflow!r} is not a run id, nor WORKFLOW/KEY")
    return _Target(run_id=workflow)


def _run_id(arguments: Arguments) -> str:
    text = arguments.run_id or ""
    if not _RUN_ID.fullmatch(text):
        raise CommandError(Exit.USAGE, f"{text!r} is not a run id: `towpath list` shows them")
    return text


def _plain(reply: Struct) -> dict[str, object]:
    """The reply as JSON's types; user values, which are text inside, too."""
    return msgspec.json.decode(msgspec.json.encode(reply), type=dict[str, object])


def _print(arguments: Arguments, reply: Struct, text: str) -> None:
    if arguments.json:
        print_json(_plain(reply))
    else:
        print_line(text)


COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {
    "start": start,
    "signal": signal,
    "cancel": cancel,
    "get": get,
    "list": list_runs,
    "history": history,
    "result": result,
}
