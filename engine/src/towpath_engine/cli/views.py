"""Verbs that show runs: list, get, history, explain."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import UNSET

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.connection import ask
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import (
    current_terminal,
    print_fields,
    print_json,
    print_line,
    print_notice,
    print_table,
)
from towpath_engine.cli.replies import (
    HISTORY_COLUMNS,
    HISTORY_LAYOUT,
    STEP_COLUMNS,
    STEP_LAYOUT,
    Row,
    plain,
    plain_all,
    run_fields,
    step_row,
    transition_row,
    used_columns,
)
from towpath_engine.cli.table import Layout
from towpath_engine.cli.targets import parse_target
from towpath_protocol import replies
from towpath_protocol.times import parse_instant
from towpath_worker import Client
from towpath_worker.step_order import in_list_order

PAGE_MAX: Final = 1_000
BELOW_EACH_MAX: Final = 50
"""So many steps are shown below each `parallel` or `map` step, …"""
BELOW_MAX: Final = 500
"""… and about so many in all."""


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


def get(arguments: Arguments) -> Exit:
    """`towpath get RUN`"""
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> tuple[replies.RunView, list[replies.StepView], _More]:
        handle = await target.handle(client)
        inner = arguments.json or arguments.under is not None
        run, steps = await _with_steps(client, handle.run_id, inner=inner, under=arguments.under)
        if arguments.json:
            return run, steps, {}
        below, more = ([], {}) if inner else await _below(client, run.run_id, steps)
        reading = client.workflow(run.workflow, version=run.version)
        return run, await in_list_order(reading, [*steps, *below]), more

    run, steps, more = ask(arguments, question)
    if arguments.json:
        print_json(plain(msgspec.structs.replace(run, steps=tuple(steps), steps_cursor=None)))
        return Exit.OK
    print_fields(run_fields(run), whole=("error",))
    if steps:
        print_line("")
        rows = [step_row(step, indented=current_terminal().interactive) for step in steps]
        print_table(used_columns(STEP_COLUMNS, rows), rows, STEP_LAYOUT)
    for step, count in more.items():
        print_notice(f"{step} has {count}: `towpath get {run.run_id} --under {step}` shows them")
    return Exit.OK


_More = dict[str, str]
"""Steps of which not all is shown, and how much they have."""


async def _with_steps(
    client: Client, run_id: str, *, inner: bool, under: str | None
) -> tuple[replies.RunView, list[replies.StepView]]:
    """The run as it was when the first page of its steps was read, and all pages."""
    run = page = await client.get(run_id, inner=inner, under=under)
    steps = list(page.steps)
    while page.steps_cursor is not None:
        page = await client.get(run_id, inner=inner, under=under, steps_cursor=page.steps_cursor)
        steps.extend(page.steps)
    return run, steps


async def _below(
    client: Client, run_id: str, steps: Sequence[replies.StepView]
) -> tuple[list[replies.StepView], _More]:
    """The first steps below each of these, and of which there are more."""
    found: list[replies.StepView] = []
    more: _More = {}
    for step in steps:
        if step.parts is UNSET or not step.parts.started:
            continue
        if len(found) >= BELOW_MAX:
            more[step.step] = f"{step.parts.started} branches or items"
            continue
        page = await client.get(run_id, under=step.step)
        found += page.steps[:BELOW_EACH_MAX]
        if page.steps_cursor is not None or len(page.steps) > BELOW_EACH_MAX:
            more[step.step] = f"more than these {min(len(page.steps), BELOW_EACH_MAX)} steps"
    return found, more


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
        print_table(HISTORY_COLUMNS, rows, HISTORY_LAYOUT)
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
        columns = used_columns(("step", "kind", "wake_at", "text"), reasons)
        print_table(columns, reasons, Layout(below=("text",)))
    if told.get("reasons_omitted"):
        print_notice(f"{told['reasons_omitted']} more reasons are left out")
    return Exit.OK


def age_of(instant: str) -> str:
    """How long ago an instant was, in its largest unit: `5s`, `3m`, `7h`, `12d`."""
    seconds = max(0, round((datetime.now(UTC) - parse_instant(instant)).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {
    "list": list_runs,
    "get": get,
    "history": history,
    "explain": explain,
}
