"""Verbs that operate runs: restart, purge, and pause and resume of anything."""

from collections.abc import Awaitable, Callable, Mapping

from towpath_engine.cli import repairs
from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.connection import ask, name_server
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.known import task_is_known
from towpath_engine.cli.output import print_json, print_notice, print_table
from towpath_engine.cli.replies import plain_all
from towpath_engine.cli.runs import parse_instant_option, print_reply, print_started
from towpath_engine.cli.table import Layout
from towpath_engine.cli.targets import parse_target
from towpath_protocol.operation_replies import PauseChanged, PausedRun, PurgedRuns
from towpath_worker import Client, Json, RunHandle


def restart(arguments: Arguments) -> Exit:
    """`towpath restart RUN`"""
    target = parse_target(arguments.run_id)

    async def question(client: Client) -> tuple[RunHandle, Json]:
        handle = await target.handle(client)
        new = await handle.restart(
            version=arguments.version, request_id=arguments.request_id, reason=arguments.reason
        )
        output = await new.result(timeout=arguments.timeout) if arguments.wait else None
        return new, output

    print_started(arguments, *ask(arguments, question))
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

    name_server(arguments)
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

    async def question(client: Client) -> tuple[PausedRun | PauseChanged, bool]:
        reply = await change(client, arguments)
        asked = arguments.subcommand == "task" and reply.paused and not arguments.json
        return reply, not asked or await task_is_known(client, arguments.name)

    reply, known = ask(arguments, question)
    name = reply.run_id if isinstance(reply, PausedRun) else reply.name
    is_so = _IN_WORDS[reply.paused, reply.changed]
    print_reply(arguments, reply, f"{arguments.subcommand.capitalize()} {name} {is_so}.")
    if not known:
        print_notice(
            f"no workflow and no worker names a task {name!r}: the pause holds if one ever does; "
            f"if the name is wrong, `towpath resume task {name}` lifts it"
        )
    return Exit.OK


_IN_WORDS: Mapping[tuple[bool, bool], str] = {
    (True, True): "is paused",
    (True, False): "was paused already",
    (False, True): "is no longer paused",
    (False, False): "was not paused",
}
"""What is said, by whether it is paused, and whether that has changed."""


def pauses(arguments: Arguments) -> Exit:
    """`towpath pauses`"""
    rows = plain_all(ask(arguments, lambda client: client.pauses()))
    if arguments.json:
        print_json({"pauses": rows})
    else:
        print_table(("scope", "name", "at", "by", "reason"), rows, Layout(below=("reason",)))
    return Exit.OK


COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {
    **repairs.COMMANDS,
    "restart": restart,
    "purge": purge,
    "pause": change_pause,
    "resume": change_pause,
    "pauses": pauses,
}
