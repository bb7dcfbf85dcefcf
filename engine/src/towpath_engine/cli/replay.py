"""`towpath replay FILE`: decides an exported history again, offline, and shows what differs.

The exit status is 0 when everything comes out the same, else 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Struct

from towpath_engine.cli.arguments import Arguments
from towpath_engine.cli.connection import ask
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.history_file import (
    HistoryFile,
    history_of,
    read_file,
    read_history,
    started_run,
    write_file,
)
from towpath_engine.cli.output import print_fields, print_json, print_line, print_notice
from towpath_engine.cli.targets import parse_target
from towpath_engine.core.model import Run, Step, Transition
from towpath_engine.core.replay import Difference, Turn, replay
from towpath_engine.services.api import views
from towpath_protocol.replies import RunView, StepView
from towpath_worker import Client

Row = dict[str, object]

_RUN_FIELDS: Final = (
    "status", "output", "error", "metadata", "started_at", "settled_at", "deadline_at",
)  # fmt: skip
_STEP_FIELDS: Final = (
    "kind", "status", "attempt", "iteration", "output", "error", "started_at", "settled_at",
    "wake_at",
)  # fmt: skip
_ROOM: Final = 1 << 62
"""For the values of a step: all of them are compared."""


class _Ending(Struct, frozen=True, kw_only=True):
    """A fact of the run or of a step that came out otherwise in the end."""

    what: str
    recorded: object
    replayed: object


def export(arguments: Arguments) -> Exit:
    """`towpath history RUN --export FILE`"""
    target = parse_target(arguments.run_id)
    name = arguments.export or "-"

    async def question(client: Client) -> HistoryFile:
        return await read_history(client, await target.handle(client))

    file = ask(arguments, question)
    write_file(name, file)
    if name != "-":
        count = len(file.transitions)
        print_notice(f"{count} transitions of run {file.run.run_id} are in {name}")
    return Exit.OK


def replay_file(arguments: Arguments) -> Exit:
    """`towpath replay FILE`"""
    file = read_file(arguments.file)
    run = started_run(arguments.file, file)
    steps: dict[str, Step] = {}
    turns = transitions = 0
    difference: Difference | None = None
    for turn in replay(run, history_of(arguments.file, file)):
        if arguments.trace and not arguments.json:
            _print_turn(turn)
        run, difference = turn.after, turn.difference
        steps.update((step.path, step) for step in turn.changed)
        turns += 1
        transitions += len(turn.recorded)
    endings = [] if difference is not None else list(_endings(file, run, steps))
    _print_result(arguments, turns, transitions, difference=difference, endings=endings)
    return Exit.OK if difference is None and not endings else Exit.DIFFERENT


def _print_turn(turn: Turn) -> None:
    event = "?" if turn.event is None else type(turn.event).__name__
    print_line(f"{turn.number}  {turn.recorded[0].at.isoformat()}  {event}")
    for row in turn.recorded:
        place = "" if row.step is None else f" {row.step}"
        print_line(f"   {row.seq:>5}  {row.what}{place}  {row.before} -> {row.after}")


def _print_result(
    arguments: Arguments,
    turns: int,
    transitions: int,
    *,
    difference: Difference | None,
    endings: Sequence[_Ending],
) -> None:
    same = difference is None and not endings
    if arguments.json:
        print_json(
            {
                "same": same,
                "decisions": turns,
                "transitions": transitions,
                "difference": None if difference is None else _difference_row(difference),
                "endings": [msgspec.to_builtins(ending) for ending in endings],
            }
        )
        return
    count = f"replayed {turns} decisions, {transitions} transitions"
    if same:
        print_line(f"{count}: the same")
        return
    if difference is not None:
        print_line(f"{count}: different at seq {difference.seq}")
        _print_difference(difference)
    for ending in endings:
        print_line(f"{count}: {ending.what} came out otherwise")
        print_fields({"recorded": _shown(ending.recorded), "replayed": _shown(ending.replayed)})


def _print_difference(difference: Difference) -> None:
    if difference.reason:
        print_line(difference.reason)
    if difference.fields:
        print_line(f"what differs: {', '.join(difference.fields)}")
    recorded, replayed = _row(difference.recorded), _row(difference.replayed)
    for title, row in (("recorded", recorded), ("replayed", replayed)):
        print_line(f"{title}:")
        print_fields(row or {"": "no such transition"})


def _difference_row(difference: Difference) -> Row:
    return {
        "seq": difference.seq,
        "fields": list(difference.fields),
        "reason": difference.reason,
        "recorded": _row(difference.recorded),
        "replayed": _row(difference.replayed),
    }


def _row(transition: Transition | None) -> Row | None:
    if transition is None:
        return None
    row = _plain(views.transition_view(transition))
    row.pop("payload", None)
    return row


def _shown(value: object) -> object:
    return "nothing" if value is None else value


# The end


def _endings(file: HistoryFile, run: Run, steps: Mapping[str, Step]) -> Iterator[_Ending]:
    """What of the run and of its steps is not as it was in the end. Signs of life (worker and
    progress) are no part of it: they change without a decision."""
    recorded, replayed = _run_facts(file.run), _run_facts(views.run_view(run, (), None))
    for name in _RUN_FIELDS:
        if recorded[name] != replayed[name]:
            yield _Ending(
                what=f"{name} of the run", recorded=recorded[name], replayed=replayed[name]
            )
    for view in file.steps:
        step = steps.get(view.step)
        if step is not None:
            again, _ = views.step_view(step, _ROOM)
        elif view.step in run.definition.steps:
            again = views.unreached_view(run.definition.steps[view.step], run)
        else:
            yield _Ending(what=f"step {view.step}", recorded=view.status, replayed=None)
            continue
        yield from _step_endings(view, again)


def _run_facts(view: RunView) -> Row:
    facts = _plain(view)
    if view.output_omitted is not UNSET:
        facts["output"] = f"{view.output_omitted} bytes"
    return facts


def _step_endings(recorded: StepView, replayed: StepView) -> Iterator[_Ending]:
    was, now = _plain(recorded), _plain(replayed)
    if recorded.output_omitted is not UNSET:
        size = replayed.output_omitted
        if size is UNSET:
            size = len(replayed.output or b"")
        was["output"], now["output"] = f"{recorded.output_omitted} bytes", f"{size} bytes"
    if recorded.error is not None and replayed.error is not None:
        # A page of steps has its errors in short where they are many.
        length = len(recorded.error.message)
        was["error"] = (recorded.error.type, recorded.error.message)
        now["error"] = (replayed.error.type, replayed.error.message[:length])
    for name in _STEP_FIELDS:
        if was.get(name) != now.get(name):
            yield _Ending(
                what=f"{name} of step {recorded.step}",
                recorded=was.get(name),
                replayed=now.get(name),
            )


def _plain(view: Struct) -> Row:
    return msgspec.json.decode(msgspec.json.encode(view), type=Row)
