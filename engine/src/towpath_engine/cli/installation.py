"""Verbs that show an installation: workflows, queues, workers, dead-letters."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.connection import ask
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.cli.output import (
    print_fields,
    print_json,
    print_line,
    print_notice,
    print_table,
    print_value,
)
from towpath_engine.cli.replies import Row, plain, plain_all, used_columns
from towpath_engine.cli.table import Layout
from towpath_engine.cli.targets import check_letter_ids
from towpath_protocol import replies
from towpath_protocol.operation_replies import ReplayedDeadLetter, WorkerView
from towpath_worker import Client

_QUEUE_COLUMNS = (
    "queue", "ready", "dispatched", "delivered", "workers", "pulls", "paused", "oldest_ready_at",
    "nobody_pulls_since",
)  # fmt: skip
_WORKER_COLUMNS = (
    "worker_id", "queue", "live", "running", "slots", "tasks", "sdk", "last_seen_at",
)  # fmt: skip
_LETTER_COLUMNS = ("id", "at", "reason", "message", "subject", "run_id", "step")
_QUEUE_LAYOUT = Layout(below=("oldest_ready_at", "nobody_pulls_since"))
_WORKER_LAYOUT = Layout(below=("tasks",), spare=("sdk", "slots"))
_LETTER_LAYOUT = Layout(below=("message", "subject", "run_id", "step"))


def workflows(arguments: Arguments) -> Exit:
    """`towpath workflows`, `towpath workflows WORKFLOW`"""
    if arguments.workflow is not None:
        return _show_workflow(arguments, arguments.workflow)
    if arguments.version is not None:
        raise CommandError(Exit.USAGE, "--version of which workflow? name it")
    rows = plain_all(ask(arguments, lambda client: client.workflows()))
    if arguments.json:
        print_json({"workflows": rows})
    else:
        columns = ("workflow", "version", "fingerprint", "created_at")
        print_table(columns, rows, Layout(spare=("fingerprint",)))
    return Exit.OK


def _show_workflow(arguments: Arguments, name: str) -> Exit:
    view = plain(ask(arguments, lambda client: client.workflow(name, version=arguments.version)))
    if arguments.json:
        print_json(view)
        return Exit.OK
    definition = view.pop("definition")
    print_fields(view)
    print_line("")
    print_value(definition)
    return Exit.OK


def queues(arguments: Arguments) -> Exit:
    """`towpath queues`"""
    rows = plain_all(ask(arguments, lambda client: client.queues()))
    if arguments.json:
        print_json({"queues": rows})
        return Exit.OK
    told = [{**row, "paused": None if row["pause"] is None else "paused"} for row in rows]
    print_table(
        [name for name in _QUEUE_COLUMNS if name in ("queue", "ready", "dispatched", "delivered")]
        + used_columns(_QUEUE_COLUMNS[4:], told),
        told,
        _QUEUE_LAYOUT,
    )
    return Exit.OK


def workers(arguments: Arguments) -> Exit:
    """`towpath workers`"""

    async def question(client: Client) -> list[WorkerView]:
        return [worker async for worker in client.workers(arguments.queue)]

    rows = plain_all(ask(arguments, question))
    if arguments.json:
        print_json({"workers": rows})
        return Exit.OK
    shown = [row for row in rows if row["live"] or arguments.all]
    print_table(_WORKER_COLUMNS, [_worker_row(row) for row in shown], _WORKER_LAYOUT)
    if gone := len(rows) - len(shown):
        print_notice(f"{gone} more, of which nothing is heard any longer: give --all to see them")
    return Exit.OK


def _worker_row(row: Row) -> Row:
    return {
        **row,
        "live": ("draining" if row.get("draining") else "live") if row["live"] else "gone",
        "tasks": " ".join(msgspec.convert(row["tasks"], list[str])),
    }


def dead_letters(arguments: Arguments) -> Exit:
    """`towpath dead-letters list|get|discard|replay`"""
    return _LETTER_VERBS[arguments.subcommand](arguments)


def _list_letters(arguments: Arguments) -> Exit:
    async def question(client: Client) -> tuple[list[replies.DeadLetterView], bool]:
        found: list[replies.DeadLetterView] = []
        async for letter in client.dead_letters():
            if not arguments.all and len(found) == arguments.limit:
                return found, True
            found.append(letter)
        return found, False

    letters, more = ask(arguments, question)
    rows = plain_all(letters)
    if arguments.json:
        print_json({"dead_letters": rows, "more": more})
        return Exit.OK
    columns = [*_LETTER_COLUMNS[:5], *used_columns(_LETTER_COLUMNS[5:], rows)]
    print_table(columns, rows, _LETTER_LAYOUT)
    if more:
        print_notice("there are more: give --all or a larger --limit")
    return Exit.OK


def _get_letter(arguments: Arguments) -> Exit:
    check_letter_ids([arguments.letter_id])
    letter = ask(arguments, lambda client: client.dead_letter(arguments.letter_id))
    if arguments.json:
        print_json(plain(letter))
        return Exit.OK
    shown = plain(letter)
    del shown["body"]
    print_fields(shown, whole=("message",))
    print_line("")
    print_line(letter.body.decode(errors="backslashreplace"))
    return Exit.OK


def _discard_letters(arguments: Arguments) -> Exit:
    _check_choice(arguments)

    async def question(client: Client) -> tuple[int, int]:
        ids = await _chosen(client, arguments)
        return await client.discard_dead_letters(ids, reason=arguments.reason), len(set(ids))

    discarded, asked = ask(arguments, question)
    if arguments.json:
        print_json({"discarded": discarded})
    else:
        print_line(f"{discarded} dead letter{'' if discarded == 1 else 's'} discarded.")
    # With --all, another operator may have been faster; nothing that was named is missing then.
    if arguments.letter_ids and discarded < asked:
        raise CommandError(
            Exit.NOT_FOUND,
            f"{asked - discarded} of {asked} are not among the dead letters; "
            "`towpath dead-letters list` shows what is kept",
        )
    return Exit.OK


def _replay_letters(arguments: Arguments) -> Exit:
    _check_choice(arguments)

    async def question(client: Client) -> Sequence[ReplayedDeadLetter]:
        ids = await _chosen(client, arguments)
        return await client.replay_dead_letters(ids, reason=arguments.reason)

    results = ask(arguments, question)
    rows = plain_all(results)
    if arguments.json:
        print_json({"results": rows})
    else:
        told = [
            {**row, "message": None if each.error is None else each.error.message}
            for each, row in zip(results, rows, strict=True)
        ]
        columns = ["id", "outcome", *used_columns(("message",), told)]
        print_table(columns, told, Layout(below=("message",)))
    _check_replayed(results, named=bool(arguments.letter_ids))
    return Exit.OK


def _check_replayed(results: Sequence[ReplayedDeadLetter], *, named: bool) -> None:
    """Raises CommandError when some could not be applied, or named ones are not there."""
    failed = sum(each.outcome == "failed" for each in results)
    missing = sum(each.outcome == "not_found" for each in results) if named else 0
    if failed:
        raise CommandError(
            Exit.REFUSED, f"{failed + missing} of {len(results)} dead letters could not be applied"
        )
    if missing:
        raise CommandError(
            Exit.NOT_FOUND,
            f"{missing} of {len(results)} are not among the dead letters; "
            "`towpath dead-letters list` shows what is kept",
        )


def _check_choice(arguments: Arguments) -> None:
    if bool(arguments.letter_ids) == arguments.all:
        raise CommandError(Exit.USAGE, "which dead letters? give their ids, or --all")
    check_letter_ids(arguments.letter_ids)


async def _chosen(client: Client, arguments: Arguments) -> list[str]:
    if not arguments.all:
        return arguments.letter_ids
    return [letter.id async for letter in client.dead_letters()]


_LETTER_VERBS: Mapping[str, Callable[[Arguments], Exit]] = {
    "list": _list_letters,
    "get": _get_letter,
    "discard": _discard_letters,
    "replay": _replay_letters,
}

COMMANDS: Mapping[str, Callable[[Arguments], Exit]] = {
    "workflows": workflows,
    "queues": queues,
    "workers": workers,
    "dead-letters": dead_letters,
}
