"""What is left to do in a run: a stack of short texts, `verb path`, the next one last.

Coming to a step, the end of a list, a failure on its way up: each is one entry, and working one off
may push others. So nothing recurses however deep the lists are, a decision can stop after any entry
(the rest is stored in `Run.cursor`, one entry a line), and parts that begin and end at once cost no
stack. Entries of what has been closed meanwhile are skipped by whoever works them off.

When a run ends, what was left is kept `later`, for a retry to go on with.
"""

from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from towpath_engine.core.changes import Changes
from towpath_engine.core.effects import ContinueLater
from towpath_engine.core.paths import place_of, within


class Verb(StrEnum):
    """What is to be done about a path."""

    ENTER = "enter"
    """A visit of this step begins."""
    END = "end"
    """The list of this owner (empty: of the run) has come to its end."""
    FAIL = "fail"
    """This step has failed: somebody catches it, or its list fails, too."""
    START = "start"
    """Start the next part of this whole, or join them all."""
    FOLLOW = "follow"
    """In a DAG: this step is settled, which others may have waited for."""
    DROP = "drop"
    """Cancel what is open below this row."""
    SETTLE = "settle"
    """The run is ending: cancel what is open, then undo, then settle."""
    UNDO = "undo"
    """The run is being undone: the next step of its undo stack."""
    RESUME = "resume"
    """A pause of the run was lifted: what it has held is dispatched."""
    REVIVE = "revive"
    """This step, branch or item, at which the run had ended, goes on: an operator retries it."""
    LATER = "later"
    """The rest of the line is an entry that only a retry may go on with."""


_LATER: Final = f"{Verb.LATER} "
_VERBS: Final = frozenset(verb.value for verb in Verb)


def parse(cursor: str | None) -> list[str]:
    """The stack that `Run.cursor` holds. What older engines left is a bare path to enter."""
    if cursor is None:
        return []
    lines = cursor.split("\n")
    return [line if _is_entry(line) else f"{Verb.ENTER} {line}" for line in lines]


def _is_entry(line: str) -> bool:
    verb, blank, _ = line.partition(" ")
    return blank != "" and verb in _VERBS


def split(entry: str) -> tuple[Verb, str]:
    """The verb and the path of an entry."""
    verb, _, path = entry.partition(" ")
    return Verb(verb), path


def push(changes: Changes, verb: Verb, path: str) -> None:
    """Have this done next. What is to be done next already is not done twice."""
    entry = f"{verb} {path}"
    if not changes.agenda or changes.agenda[-1] != entry:
        changes.agenda.append(entry)


def begin_list(changes: Changes, owner: str) -> None:
    """Have the list of the owner begun: by its first step, or by all that wait for none."""
    first = changes.run.definition.lists[place_of(owner)].first
    for name in reversed(first):
        push(changes, Verb.ENTER, within(owner, name))


def pop(changes: Changes) -> tuple[Verb, str] | None:
    """What is to be done now; None when nothing is."""
    if not changes.agenda or changes.agenda[-1].startswith(_LATER):
        return None
    return split(changes.agenda.pop())


def leave_below(changes: Changes, path: str) -> None:
    """Take off the top what was to be done below a row that is closed now."""
    below = (f"{path}/", f"{path}[", f"{path}~")
    while changes.agenda:
        verb, target = split(changes.agenda[-1])
        is_of_list = target == path and verb is Verb.END
        if not is_of_list and not target.startswith(below):
            return
        changes.agenda.pop()


def put_off(changes: Changes) -> list[str]:
    """The run is ending: all that was to be done is for a retry. Returns what must be done all the
    same, the next entry last: what lies open below a row that has failed hangs on nothing else."""
    drops = [entry for entry in changes.agenda if split(entry)[0] is Verb.DROP]
    changes.agenda[:] = [
        entry if entry.startswith(_LATER) else _LATER + entry
        for entry in changes.agenda
        if split(entry)[0] not in (Verb.DROP, Verb.SETTLE, Verb.UNDO, Verb.RESUME)
    ]
    return drops


def take_up(changes: Changes) -> None:
    """A retry goes on with what was put off."""
    changes.agenda[:] = [entry.removeprefix(_LATER) for entry in changes.agenda]


def close(changes: Changes) -> None:
    """The run has settled: only what a retry may go on with is kept."""
    changes.agenda[:] = [entry for entry in changes.agenda if entry.startswith(_LATER)]


def forget(changes: Changes) -> None:
    """Nothing of what was to be done is done: a redrive goes on elsewhere, or all is undone."""
    changes.agenda.clear()


def store(changes: Changes) -> None:
    """Leave what is not done yet with the run, and have it gone on with at once."""
    cursor = "\n".join(changes.agenda) or None
    if cursor != changes.run.cursor:
        changes.run = replace(changes.run, cursor=cursor)
    if changes.agenda and not changes.agenda[-1].startswith(_LATER):
        changes.emit(ContinueLater())
