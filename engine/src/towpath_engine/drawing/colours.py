"""The colours of the states: fill and line, dark text is readable on every fill."""

from collections.abc import Mapping
from typing import Final

PLAIN: Final = ("#ffffff", "#57606a")
_BY_STATE: Final[Mapping[str, tuple[str, str]]] = {
    "completed": ("#dafbe1", "#1a7f37"),
    "failed": ("#ffebe9", "#cf222e"),
    "timed_out": ("#ffebe9", "#cf222e"),
    "compensation_failed": ("#ffebe9", "#cf222e"),
    "compensating": ("#fbefff", "#8250df"),
    "compensated": ("#fbefff", "#8250df"),
    "cancelled": ("#fff1e5", "#bc4c00"),
    "cancelling": ("#fff1e5", "#bc4c00"),
    "running": ("#ddf4ff", "#0969da"),
    "dispatched": ("#ddf4ff", "#0969da"),
    "ready": ("#ddf4ff", "#0969da"),
    "waiting": ("#fff8c5", "#9a6700"),
    "skipped": ("#f6f8fa", "#8c959f"),
    "pending": ("#f6f8fa", "#8c959f"),
}


def colours_of(state: str | None) -> tuple[str, str]:
    """Fill and line of a state; those of a definition for none, or one that is not known."""
    return PLAIN if state is None else _BY_STATE.get(state, PLAIN)
