"""Replies as JSON's types, and as what the tables show of them."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Struct

from towpath_engine.cli.briefly import brief_cause, brief_error, brief_facts
from towpath_engine.cli.table import Layout
from towpath_protocol import replies
from towpath_worker.step_order import depth_of

Row = dict[str, object]

STEP_COLUMNS: Final = (
    "step", "kind", "status", "attempt", "waits_for", "wake_at", "worker_id", "output", "error",
)  # fmt: skip
STEP_LAYOUT: Final = Layout(below=("worker_id", "wake_at", "error"))
HISTORY_COLUMNS: Final = (
    "seq", "at", "what", "step", "attempt", "from", "to", "cause", "details",
)  # fmt: skip
HISTORY_LAYOUT: Final = Layout(below=("cause", "details"), spare=("from",))


def plain(reply: Struct) -> Row:
    """The reply as JSON's types; user values, which are text inside, too."""
    return msgspec.json.decode(msgspec.json.encode(reply), type=Row)


def plain_all(found: Sequence[Struct]) -> list[Row]:
    """Several replies as JSON's types."""
    return [plain(each) for each in found]


def run_fields(run: replies.RunView) -> Row:
    """What is shown of a run above its steps."""
    shown = plain(run)
    for name in ("steps", "steps_cursor"):
        del shown[name]
    for name in ("tags", "context", "metadata"):
        if not shown[name]:
            del shown[name]
    shown["error"] = brief_error(shown["error"])
    return shown


def step_row(step: replies.StepView, *, indented: bool = False) -> Row:
    """A line of a run's steps: `waits_for` has what it waits for, in one word or two. `indented`:
    below the step that it belongs to, with its last name alone."""
    row = plain(step)
    if indented and (depth := depth_of(step.step)):
        last = step.step.rpartition("/")[2]
        row["step"] = "  " * depth + (last[last.index("[") :] if step.kind == "item" else last)
    words = [row.get("waiting_for"), row.get("signal"), row.get("child_run_id"), row.get("held_by")]
    if step.parts is not UNSET and step.status == "running":
        words = [f"{step.parts.open} of {step.parts.total}"]
    row["waits_for"] = " ".join(str(word) for word in words if word) or None
    row["error"] = brief_error(row.get("error")) or _failed_parts(step)
    if row.get("output_omitted") is not None:
        row["output"] = f"({row['output_omitted']} bytes: towpath output)"
    return row


def _failed_parts(step: replies.StepView) -> str | None:
    if step.parts is UNSET or not step.parts.failed:
        return None
    return f"{step.parts.failed} of {step.parts.total} failed"


def transition_row(transition: replies.TransitionView) -> Row:
    """A line of a history. Who and why stand in the cause, and not again among the facts."""
    row = plain(transition)
    cause = msgspec.convert(row["cause"], Row)
    facts = msgspec.convert(row["data"] or {}, Row)
    told = {
        name: fact
        for name, fact in facts.items()
        if name not in ("by", "reason") or cause.get(name) != fact
    }
    return {**row, "cause": brief_cause(cause), "details": brief_facts(told or None)}


def used_columns(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The columns in which some row has something: a table shows no empty ones."""
    return [name for name in columns if any(row.get(name) not in (None, "") for row in rows)]
