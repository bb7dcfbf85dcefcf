"""The file of an exported history: everything that a replay needs, in one JSON document.

It holds the run as run.get shows it, the definition of its version, the limits of the engine that
answered, and all transitions with their payloads. It has inputs, outputs and signals of the run: it
is as secret as these are.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from towpath_engine.cli.documents import DocumentError
from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import CommandError
from towpath_engine.core.create import Parentage, new_run
from towpath_engine.core.expressions.limits import ExpressionLimits
from towpath_engine.core.faults import DefinitionRefused
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Cause, Run, Transition
from towpath_engine.core.parse import parse_definition
from towpath_engine.core.timers import DEADLINE_FACT
from towpath_engine.core.transitions import RunChange
from towpath_protocol import codec
from towpath_protocol.errors import ProtocolError
from towpath_protocol.replies import RunView, StepView, TransitionView
from towpath_protocol.times import parse_instant
from towpath_worker import Client, RunHandle

FORMAT: Final = "towpath-history/1"
_PAGE: Final = 200
_ROUNDS_MAX: Final = 20
"""A live run goes on while it is read: so often is it looked at again."""


class HistoryFile(Struct, frozen=True, kw_only=True):
    """The document. `run` has no steps of its own; those are in `steps`, in order of path."""

    format: str
    run: RunView
    steps: tuple[StepView, ...]
    definition: Raw
    limits: CoreLimits
    transitions: tuple[TransitionView, ...]


class _StartFacts(Struct, frozen=True, kw_only=True):
    parent_deadline_at: str | None = None


# Exporting


async def read_history(client: Client, handle: RunHandle) -> HistoryFile:
    """Everything about the run, as it was between two decisions.

    Raises CommandError when the run goes on faster than it can be read, or its input is too large
    for a message.
    """
    transitions, limits = await _transitions(client, handle.run_id, 0)
    for _ in range(_ROUNDS_MAX):
        run = await handle.get(steps=False)
        steps = await handle.steps()
        last = transitions[-1].seq if transitions else 0
        newer, limits = await _transitions(client, handle.run_id, last)
        if not newer:
            break
        transitions += newer
    else:
        raise CommandError(
            Exit.REFUSED, f"run {handle.run_id} goes on all the time: export it when it has settled"
        )
    if run.input_omitted is not UNSET:
        raise CommandError(
            Exit.REFUSED, f"the input of the run ({run.input_omitted} bytes) is too large to export"
        )
    version = await client.workflow(run.workflow, version=run.version)
    return HistoryFile(
        format=FORMAT,
        run=run,
        steps=tuple(steps),
        definition=version.definition,
        limits=limits,
        transitions=tuple([await _whole(handle, each) for each in transitions]),
    )


async def _transitions(
    client: Client, run_id: str, after_seq: int
) -> tuple[list[TransitionView], CoreLimits]:
    found: list[TransitionView] = []
    limits = CoreLimits()
    after: int | None = after_seq
    while after is not None:
        page = await client.history(run_id, after_seq=after, limit=_PAGE, payloads=True)
        found += page.transitions
        if page.limits is not UNSET:
            limits = msgspec.json.decode(page.limits, type=CoreLimits)
        after = page.next_after_seq
    return found, limits


async def _whole(handle: RunHandle, view: TransitionView) -> TransitionView:
    """The transition with its output, where that did not fit into the history's answer."""
    if view.payload is UNSET or view.payload is None:
        return view
    values = msgspec.json.decode(view.payload, type=dict[str, Raw])
    if values.pop("output_omitted", None) is None:
        return view
    values["output"] = Raw(codec.dumps(await handle.output(step=view.step)))
    return replace(view, payload=Raw(msgspec.json.encode(values)))


def write_file(name: str, file: HistoryFile) -> None:
    """Write the document; to standard output for `-`. Raises DocumentError."""
    data = msgspec.json.encode(file) + b"\n"
    try:
        if name == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            Path(name).write_bytes(data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DocumentError(f"{name}: {error.strerror}") from error


# Reading


def read_file(name: str) -> HistoryFile:
    """The document of this file. Raises DocumentError."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError as error:
        raise DocumentError(f"{name}: the file does not exist") from error
    except OSError as error:
        raise DocumentError(f"{name}: {error.strerror}") from error
    try:
        file = msgspec.json.decode(data, type=HistoryFile)
    except (msgspec.MsgspecError, ProtocolError, RecursionError) as error:
        raise DocumentError(
            f"{name}: not a history as `towpath history RUN --export FILE` writes it: {error}"
        ) from error
    if file.format != FORMAT:
        raise DocumentError(f"{name}: its format is {file.format[:40]!r}, not {FORMAT!r}")
    return file


def started_run(name: str, file: HistoryFile) -> Run:
    """The run as its start made it. Raises DocumentError."""
    view = file.run
    try:
        definition = parse_definition(bytes(file.definition), ExpressionLimits().for_stored())
        return new_run(
            run_id=view.run_id,
            definition=definition,
            workflow_version=view.version,
            limits=file.limits,
            now=parse_instant(view.created_at, "created_at"),
            input=bytes(view.input),
            key=view.key,
            priority=view.priority.level,
            tags=view.tags,
            context=bytes(view.context),
            triggered_by=view.triggered_by,
            restarted_from=view.restarted_from,
            parent=_parentage(file),
        )
    except (DefinitionRefused, ProtocolError) as error:
        raise DocumentError(f"{name}: {error}") from error


def _parentage(file: HistoryFile) -> Parentage | None:
    """Whose child it is, as far as it makes a difference to what is decided."""
    run_id = file.run.parent_run_id
    if run_id is None:
        return None
    step = None if file.run.parent_step is UNSET else file.run.parent_step
    for row in file.transitions:
        if row.what == RunChange.STARTED and row.data is not None:
            given = msgspec.json.decode(row.data, type=_StartFacts).parent_deadline_at
            deadline = None if given is None else parse_instant(given, DEADLINE_FACT)
            return Parentage(run_id=run_id, step=step, deadline_at=deadline)
    return Parentage(run_id=run_id, step=step)


def history_of(name: str, file: HistoryFile) -> Sequence[Transition]:
    """The transitions. Raises DocumentError."""
    try:
        return [_transition(view) for view in file.transitions]
    except (msgspec.MsgspecError, ProtocolError) as error:
        raise DocumentError(f"{name}: a transition can't be read: {error}") from error


def _transition(view: TransitionView) -> Transition:
    payload = None if view.payload is UNSET or view.payload is None else bytes(view.payload)
    data = None if view.data is None else bytes(view.data)
    return Transition(
        seq=view.seq,
        at=parse_instant(view.at, "at"),
        what=view.what,
        step=view.step,
        before=view.from_,
        after=view.to,
        attempt=view.attempt,
        iteration=view.iteration,
        visit=view.visit,
        token=view.token,
        cause=msgspec.json.decode(view.cause, type=Cause),
        data=None if data in (None, b"null") else msgspec.json.decode(data, type=dict[str, object]),
        payload=payload,
    )
