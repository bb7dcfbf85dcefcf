"""Undoing the steps of a run, one at a time, in the reverse order of their completion."""

from towpath_engine.core.changes import Changes


def begin(changes: Changes) -> None:
    """Undo what is on top of the undo stack; the run settles when there is nothing left."""
    raise NotImplementedError(changes)
