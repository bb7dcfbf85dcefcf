"""Verbs that follow a run: logs, watch."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.briefly import brief_error, brief_facts
from towpath_engine.cli.connection import ask
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.output import current_terminal, print_json, print_line
from towpath_engine.cli.replies import plain
from towpath_engine.cli.targets import parse_target
from towpath_engine.cli.terminal import (
    BOLD,
    CYAN,
    DIM,
    GREEN,
    RED,
    YELLOW,
    Terminal,
    harmless,
    painted,
)
from towpath_worker import Client, Event, LogLine, RunFailed

_BY_LEVEL: Final[Mapping[str, str]] = {
    "debug": DIM, "warning": YELLOW, "warn": YELLOW, "error": RED, "critical": RED, "fatal": RED,
}  # fmt: skip
_BY_EVENT: Final[Mapping[str, str]] = {
    "completed": GREEN, "failed": RED, "timed-out": RED, "cancelled": YELLOW, "retrying": YELLOW,
    "started": CYAN,
}  # fmt: skip


def logs(arguments: Arguments) -> Exit:
    """`towpath logs RUN`, `towpath logs -f RUN`"""
    target = parse_target(arguments.run_id)
    on = current_terminal()

    async def question(client: Client) -> list[LogLine]:
        handle = await target.handle(client)
        if not arguments.follow:
            return list(await handle.logs(step=arguments.step))
        async for line in handle.follow_logs(step=arguments.step):
            if arguments.json:
                print_json(plain(line))
            else:
                print_line(log_text(line, on))
        return []

    found = ask(arguments, question)
    if arguments.follow:
        return Exit.OK
    if arguments.json:
        print_json({"lines": [plain(line) for line in found]})
    for line in [] if arguments.json else found:
        print_line(log_text(line, on))
    return Exit.OK


def watch(arguments: Arguments) -> Exit:
    """`towpath watch RUN`"""
    target = parse_target(arguments.run_id)
    on = current_terminal()

    async def question(client: Client) -> None:
        handle = await target.handle(client)
        async for event in handle.events(after_seq=arguments.after_seq):
            if arguments.json:
                print_json(plain(event))
            else:
                print_line(event_text(event, on))
        run = await handle.get(steps=False)
        if run.status != "completed":
            raise RunFailed(run.run_id, run.status, run.error)

    ask(arguments, question)
    return Exit.OK


def log_text(line: LogLine, on: Terminal) -> str:
    """A log line for people: when, how bad, where, what; fields at the end. Before it, if older
    lines are missing, a line that says so."""
    level = painted(f"{line.level:<7}", _BY_LEVEL.get(line.level.lower()) if on.colours else None)
    at = painted(_time(line.at), DIM if on.colours else None)
    step = painted(f"{line.step}#{line.attempt}", CYAN if on.colours else None)
    fields = "" if not line.fields else " " + (brief_facts(line.fields) or "")
    mark = ""
    if line.cut:
        mark = painted("[earlier lines were cut]", DIM if on.colours else None)
        mark = f"{at} {'':<7} {step} {mark}\n"
    return f"{mark}{at} {level} {step} {harmless(line.message, lines=True)}{harmless(fields)}"


def event_text(event: Event, on: Terminal) -> str:
    """An event for people: when, what, of which step, and its facts."""
    colour = _BY_EVENT.get(event.type.partition("-")[2]) if on.colours else None
    what = painted(f"{event.type:<13}", colour)
    at = painted(_time(event.at), DIM if on.colours else None)
    attempt = "" if event.attempt in (None, 1) else f" attempt {event.attempt}"
    step = "" if event.step is None else " " + painted(event.step, BOLD if on.colours else None)
    return f"{at} {what}{step}{attempt} {harmless(_facts(event))}".rstrip()


def _facts(event: Event) -> str:
    try:
        data = msgspec.convert(event.data, dict[str, object])
    except msgspec.ValidationError:
        return ""
    try:
        error = brief_error(data.pop("error", None))
    except msgspec.ValidationError:
        error = None
    return " ".join(text for text in (error, brief_facts(data)) if text)


def _time(instant: str) -> str:
    """The time of day; the date is the run's."""
    return instant[11:19] if len(instant) > 19 else instant


COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {"logs": logs, "watch": watch}
