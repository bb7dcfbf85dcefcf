"""Verbs about runs: start, signal, cancel, get, list, history, result, output, explain."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.connection import ask
from towpath_engine.cli.documents import parse_document, parse_json, read_file
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import (
    current_terminal,
    print_fields,
    print_json,
    print_line,
    print_notice,
    print_table,
    print_value,
)
from towpath_engine.cli.replies import (
    HISTORY_COLUMNS,
    STEP_COLUMNS,
    Row,
    plain,
    plain_all,
    run_fields,
    step_row,
    transition_row,
    used_columns,
)
from towpath_engine.cli.targets import parse_target
from towpath_protocol import replies
from towpath_protocol.times import parse_instant
from towpath_worker import Client, Json, OnConflict, RunHandle

PAGE_MAX: Final = 1_000


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

    handle, output = ask(arguments, question)
    if arguments.json:
        result = {"output": output} if arguments.wait else {}
        print_json({"run_id": handle.run_id, "deduplicated": handle.deduplicated, **result})
    elif arguments.wait:
        print_value(output)
    else:
        if handle.deduplicated:
            print_notice("a live run has the key, or the request id was used: nothing was started")
        print_line(handle.run_id)
    return Exit.OK


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
    seen = " had it already" if reply.deduplicated else " got it"
    print_reply(arguments, reply, f"Run {reply.run_id}{seen}.")
    return Exit.OK


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


def get(arguments: Arguments) -> Exit:
    """`towpath get RUN`"""
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> replies.RunView:
        handle = await target.handle(client)
        run = await handle.get()
        steps = list(run.steps)
        while run.steps_cursor is not None:
            run = await client.get(run.run_id, steps_cursor=run.steps_cursor)
            steps.extend(run.steps)
        return msgspec.structs.replace(run, steps=tuple(steps), steps_cursor=None)

    run = ask(arguments, question)
    if arguments.json:
        print_json(plain(run))
        return Exit.OK
    print_fields(run_fields(run))
    if run.steps:
        print_line("")
        rows = [step_row(step) for step in run.steps]
        print_table(used_columns(STEP_COLUMNS, rows), rows)
    return Exit.OK


def list_runs(arguments: Arguments) -> Exit:
    """`towpath list`"""

    async def question(client: Client) -> tuple[list[replies.RunSummary], str | None]:
        found: list[replies.RunSummary] = []
        cursor = arguments.cursor
        while True:
            left = PAGE_MAX if arguments.all else arguments.limit - len(found)
            page = await client.list_page(
                arguments.workflow,
                status=arguments.status,
                key=arguments.key,
                tag=arguments.with_tag,
                created_from=arguments.created_from,
                created_to=arguments.created_to,
                cursor=cursor,
                limit=min(PAGE_MAX, left),
            )
            found.extend(page.runs)
            cursor = page.next_cursor
            if cursor is None or (not arguments.all and len(found) >= arguments.limit):
                return found, cursor

    runs, cursor = ask(arguments, question)
    rows = plain_all(runs)
    if arguments.json:
        print_json({"runs": rows, "next_cursor": cursor})
        return Exit.OK
    for row in rows:
        row["status"] = f"{row['status']}, paused" if row.get("paused") else row["status"]
        row["age"] = age_of(str(row["created_at"]))
    if current_terminal().interactive:
        # Five short columns fit beside an id; the rest is in `get`.
        rows = [{**row, "workflow": f"{row['workflow']}@{row['version']}"} for row in rows]
        print_table(("run_id", "workflow", "key", "status", "age"), rows)
    else:
        print_table(("run_id", "workflow", "version", "key", "status", "created_at"), rows)
    if cursor is not None:
        print_notice(f"there are more: give --all, or --cursor {cursor}")
    return Exit.OK


def history(arguments: Arguments) -> Exit:
    """`towpath history RUN`"""
    if arguments.export is not None:
        from towpath_engine.cli.replay import export

        return export(arguments)
    if arguments.payloads and not arguments.json:
        raise CommandError(Exit.USAGE, "--payloads is for programs: give --json, too")
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> list[Row]:
        handle = await target.handle(client)
        found = await handle.history(after_seq=arguments.after_seq, payloads=arguments.payloads)
        return [plain(each) if arguments.json else transition_row(each) for each in found]

    rows = ask(arguments, question)
    if arguments.json:
        print_json({"transitions": rows})
    else:
        print_table(HISTORY_COLUMNS, rows)
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


def explain(arguments: Arguments) -> Exit:
    """`towpath explain RUN`"""
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> Row:
        return plain(await (await target.handle(client)).explain())

    told = ask(arguments, question)
    if arguments.json:
        print_json(told)
        return Exit.OK
    print_line(f"{told['run_id']} ({told['workflow']}, {told['status']}): {told['summary']}")
    reasons = msgspec.convert(told["reasons"], list[Row])
    if len(reasons) > 1:
        print_line("")
        print_table(used_columns(("step", "kind", "text", "wake_at"), reasons), reasons)
    if told.get("reasons_omitted"):
        print_notice(f"{told['reasons_omitted']} more reasons are left out")
    return Exit.OK


def given_input(arguments: Arguments, default: object = None) -> object:
    """The value of `--input` or `--input-file`. Raises DocumentError."""
    if arguments.input is not None:
        return parse_json(arguments.input, "--input")
    if arguments.input_file is not None:
        return parse_document(read_file(arguments.input_file), arguments.input_file)
    return default


def print_reply(arguments: Arguments, reply: msgspec.Struct, text: str) -> None:
    """The reply as JSON, or the sentence for people."""
    if arguments.json:
        print_json(plain(reply))
    else:
        print_line(text)


def age_of(instant: str) -> str:
    """How long ago an instant was, in its largest unit: `5s`, `3m`, `7h`, `12d`."""
    seconds = max(0, round((datetime.now(UTC) - parse_instant(instant)).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def parse_instant_option(text: str | None) -> datetime | None:
    """The instant of an option that the parser has made RFC 3339."""
    return None if text is None else parse_instant(text)


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
    "get": get,
    "list": list_runs,
    "history": history,
    "result": result,
    "output": output,
    "explain": explain,
}
