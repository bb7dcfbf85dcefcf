"""Verbs that have a settled run go on: retry, redrive; and what became of it."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import UNSET

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.briefly import brief_error
from towpath_engine.cli.connection import ask
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.output import print_json, print_line, print_notice, print_value
from towpath_engine.cli.replies import plain
from towpath_engine.cli.runs import given_input
from towpath_engine.cli.targets import parse_target
from towpath_protocol import replies
from towpath_protocol.operation_replies import RetriedRun
from towpath_worker import Client, Json, RunFailed, RunHandle

LOOK_SECONDS: Final = 0.5
"""What fails again fails mostly at once: so long the command looks before it says how it went."""


def retry(arguments: Arguments) -> Exit:
    """`towpath retry RUN`"""
    value = given_input(arguments, UNSET)
    return _repaired(
        arguments,
        lambda handle: handle.retry(
            step=arguments.step,
            input=value,
            dry_run=arguments.dry_run,
            request_id=arguments.request_id,
            reason=arguments.reason,
        ),
    )


def redrive(arguments: Arguments) -> Exit:
    """`towpath redrive RUN STEP`"""
    value = given_input(arguments, UNSET)
    return _repaired(
        arguments,
        lambda handle: handle.redrive(
            arguments.step or "",
            input=value,
            dry_run=arguments.dry_run,
            request_id=arguments.request_id,
            reason=arguments.reason,
        ),
    )


def _repaired(arguments: Arguments, repair: Callable[[RunHandle], Awaitable[RetriedRun]]) -> Exit:
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> tuple[RetriedRun, Json, replies.RunView | None]:
        handle = await target.handle(client)
        reply = await repair(handle)
        output: Json = None
        if arguments.wait and not arguments.dry_run:
            output = await handle.result(timeout=arguments.timeout)
        elif not arguments.json:
            return reply, None, await _seen(handle, dry_run=arguments.dry_run)
        return reply, output, None

    reply, output, seen = ask(arguments, question)
    waited = arguments.wait and not arguments.dry_run
    if arguments.json:
        print_json({**plain(reply), "output": output} if waited else plain(reply))
    elif waited:
        print_value(output)
    else:
        _tell(reply, seen)
    return Exit.OK


async def _seen(handle: RunHandle, *, dry_run: bool) -> replies.RunView:
    """The run: why it ended, for a dry run; else what it is after a moment."""
    if not dry_run:
        with contextlib.suppress(RunFailed, TimeoutError):
            await handle.result(timeout=LOOK_SECONDS)
    return await handle.get(steps=False)


def _tell(reply: RetriedRun, seen: replies.RunView | None) -> None:
    steps = ", ".join(reply.steps)
    error = None if seen is None else brief_error(plain(seen)["error"])
    if reply.dry_run:
        print_line(f"Run {reply.run_id} would be {reply.status}; again: {steps}.")
        if seen is not None:
            print_line(f"It is {seen.status} now{'.' if error is None else f': {error}'}")
        return
    status = reply.status if seen is None else seen.status
    done = "this was done before" if reply.deduplicated is True else f"again: {steps}"
    print_line(f"Run {reply.run_id} is {status}; {done}.")
    # A run that goes on undoing keeps the error that it is undone for.
    if error is not None and reply.status != "compensating":
        print_notice(f"it has ended once more: {error}")


COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {"retry": retry, "redrive": redrive}
