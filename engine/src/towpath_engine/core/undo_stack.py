"""What would have to be undone, the last first: see Run.undo_top and Step.undo_below."""

from towpath_engine.core.changes import Changes
from towpath_engine.core.model import Step


def completed(changes: Changes, step: Step) -> Step:  # noqa: ARG001
    """The step as it is completed: with its place on the undo stack, if it can be undone."""
    return step


def archive(changes: Changes, row: Step) -> None:
    """Keep a completed row that may have to be undone, before another visit takes its place."""


def will_undo(changes: Changes) -> bool:  # noqa: ARG001
    """Whether the run that is ending is going to be undone."""
    return False


def cancel_slowly(changes: Changes, step: Step, reason: str) -> bool:  # noqa: ARG001
    """Let the attempt of a dropped step end by itself, if its effect would have to be undone;
    whether that is so."""
    return False
