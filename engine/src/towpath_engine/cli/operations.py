"""Verbs that operate runs: retry, redrive, restart, purge, and pause and resume of anything."""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import UNSET

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.connection import ask
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import print_json, print_line, print_table
from towpath_engine.cli.replies import plain_all
from towpath_engine.cli.runs import given_input, parse_instant_option, print_reply
from towpath_engine.cli.targets import parse_target
from towpath_protocol.operation_replies import PauseChanged, PausedRun, PurgedRuns, RetriedRun
from towpath_worker import Client, RunHandle


def retry(arguments: Arguments) -> Exit:
    """`towpath retry RUN`"""
    value = given_input(arguments, UNSET)
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> RetriedRun:
        handle = await target.handle(client)
        return await handle.retry(
            step=arguments.step, input=value, dry_run=arguments.dry_run, reason=arguments.reason
        )

    return _tell_repair(arguments, ask(arguments, question))


def redrive(arguments: Arguments) -> Exit:
    """`towpath redrive RUN STEP`"""
    value = given_input(arguments, UNSET)
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> RetriedRun:
        handle = await target.handle(client)
        return await handle.redrive(
            arguments.step or "",
            input=value,
            dry_run=arguments.dry_run,
            reason=arguments.reason,
        )

    return _tell_repair(arguments, ask(arguments, question))


def _tell_repair(arguments: Arguments, reply: RetriedRun) -> Exit:
    steps = ", ".join(reply.steps)
    would = "would be" if reply.dry_run else "is"
    print_reply(arguments, reply, f"Run {reply.run_id} {would} {reply.status}; again: {steps}.")
    return Exit.OK


def restart(arguments: Arguments) -> Exit:
    """`towpath restart RUN`"""
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> RunHandle:
        handle = await target.handle(client)
        return await handle.restart(
            version=arguments.version, request_id=arguments.request_id, reason=arguments.reason
        )

    handle = ask(arguments, question)
    if arguments.json:
        print_json({"run_id": handle.run_id, "deduplicated": handle.deduplicated})
    else:
        print_line(handle.run_id)
    return Exit.OK


def purge(arguments: Arguments) -> Exit:
    """`towpath purge RUN`, `towpath purge --workflow W --settled-before WHEN`"""
    by_age = arguments.workflow is not None and arguments.settled_before is not None
    if (arguments.run_id is not None) == by_age:
        raise CommandError(Exit.USAGE, "which runs? give RUN, or --workflow and --settled-before")
    target = None if arguments.run_id is None else parse_target(arguments.run_id)

    async def question(client: Client) -> PurgedRuns:
        run_id = None if target is None else (await target.handle(client)).run_id
        purged = 0
        while True:
            reply = await client.purge(
                arguments.workflow,
                settled_before=parse_instant_option(arguments.settled_before),
                run_id=run_id,
                limit=arguments.limit,
                dry_run=arguments.dry_run,
                reason=arguments.reason,
            )
            purged += reply.purged
            # A dry run deletes nothing, so that asking again would count the same runs.
            if not arguments.all or not reply.more or arguments.dry_run or not reply.purged:
                return PurgedRuns(purged=purged, more=reply.more, dry_run=reply.dry_run)

    reply = ask(arguments, question)
    would = "would be" if reply.dry_run else "were" if reply.purged != 1 else "was"
    more = "; there are more" if reply.more else ""
    runs = "run" if reply.purged == 1 else "runs"
    print_reply(arguments, reply, f"{reply.purged} {runs} {would} deleted{more}.")
    return Exit.OK


Change = Callable[[Client, Arguments], Awaitable[PausedRun | PauseChanged]]


async def _pause_run(client: Client, arguments: Arguments) -> PausedRun:
    handle = await parse_target(arguments.run_id).handle(client)
    return await handle.pause(reason=arguments.reason)


async def _resume_run(client: Client, arguments: Arguments) -> PausedRun:
    handle = await parse_target(arguments.run_id).handle(client)
    return await handle.resume(reason=arguments.reason)


_CHANGES: Mapping[tuple[str, str], Change] = {
    ("pause", "run"): _pause_run,
    ("resume", "run"): _resume_run,
    ("pause", "workflow"): lambda client, arguments: client.pause_workflow(
        arguments.name, version=arguments.version, reason=arguments.reason
    ),
    ("resume", "workflow"): lambda client, arguments: client.resume_workflow(
        arguments.name, version=arguments.version, reason=arguments.reason
    ),
    ("pause", "queue"): lambda client, arguments: client.pause_queue(
        arguments.name, reason=arguments.reason
    ),
    ("resume", "queue"): lambda client, arguments: client.resume_queue(
        arguments.name, reason=arguments.reason
    ),
    ("pause", "task"): lambda client, arguments: client.pause_task(
        arguments.name, reason=arguments.reason
    ),
    ("resume", "task"): lambda client, arguments: client.resume_task(
        arguments.name, reason=arguments.reason
    ),
}


def change_pause(arguments: Arguments) -> Exit:
    """`towpath pause run|workflow|queue|task NAME`, and `resume`"""
    change = _CHANGES[arguments.command, arguments.subcommand]
    if arguments.subcommand == "run":
        parse_target(arguments.run_id)
    reply = ask(arguments, lambda client: change(client, arguments))
    name = reply.run_id if isinstance(reply, PausedRun) else reply.name
    state = "paused" if reply.paused else "not paused"
    adverb = "now" if reply.changed else "already"
    text = f"{arguments.subcommand.capitalize()} {name} is {adverb} {state}."
    print_reply(arguments, reply, text)
    return Exit.OK


def pauses(arguments: Arguments) -> Exit:
    """`towpath pauses`"""
    rows = plain_all(ask(arguments, lambda client: client.pauses()))
    if arguments.json:
        print_json({"pauses": rows})
    else:
        print_table(("scope", "name", "at", "by", "reason"), rows)
    return Exit.OK


COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {
    "retry": retry,
    "redrive": redrive,
    "restart": restart,
    "purge": purge,
    "pause": change_pause,
    "resume": change_pause,
    "pauses": pauses,
}
