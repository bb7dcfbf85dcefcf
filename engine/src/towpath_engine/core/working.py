"""Working off the agenda: which module does what each entry says."""

from collections.abc import Callable, Mapping
from typing import Final

from towpath_engine.core import (
    admission,
    agenda,
    entering,
    lists,
    revivals,
    settling,
    undoing,
    wholes,
)
from towpath_engine.core.agenda import Verb
from towpath_engine.core.changes import Changes

_HANDLERS: Final[Mapping[Verb, Callable[[Changes, str], None]]] = {
    Verb.ENTER: entering.enter,
    Verb.END: lists.end_list,
    Verb.FAIL: lists.fail,
    Verb.START: wholes.start_next,
    Verb.FOLLOW: lists.follow,
    Verb.DROP: wholes.drop,
    Verb.SETTLE: lambda changes, _: settling.settle(changes),
    Verb.RESUME: lambda changes, _: admission.let_go(changes),
    Verb.REVIVE: revivals.revive_row,
    Verb.UNDO: lambda changes, _: undoing.begin(changes),
}


def work_off(changes: Changes, *, below: int) -> None:
    """Do what is on the agenda, but for the `below` entries at its bottom, until the decision is
    full."""
    while len(changes.agenda) > below and not changes.full and not changes.settled:
        entry = agenda.pop(changes)
        if entry is None:
            return
        verb, path = entry
        _HANDLERS[verb](changes, path)
