"""Writes a batch: one set-based statement per kind of row, none for kinds that are absent.

The order is the lock order: run updates, keys that fall free, new runs, then the rows of the runs
that matched, then what belongs to no run; the totals of dead letters last, since every writer of
one waits for them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.store.derive import Derived, check_saved, derive
from towpath_engine.store.errors import StoreRejected
from towpath_engine.store.interface import BatchWrite, DeadLetter, SavedRun
from towpath_engine.store.keys import Name, claim_for_new_runs, claim_requests, free_keys
from towpath_engine.store.rows import (
    RUN_FIELDS,
    RUN_FIELDS_CHANGING,
    STEP_FIELDS_CHANGING,
    STEP_PAYLOADS,
    Columns,
    letter_bytes,
    letter_columns,
    log_columns,
    outbox_columns,
    parked_columns,
    printable_letter,
    run_columns,
    signal_columns,
    step_columns,
    transition_columns,
)
from towpath_engine.store.session import Connection, execute, fetch, fetch_row

StepPair = tuple[SavedRun, Step]
_NO_STEPS: Mapping[str, Step] = {}


async def save_runs(
    connection: Connection, runs: Sequence[SavedRun], claimed: set[tuple[Name, str]]
) -> list[SavedRun]:
    """Write the run rows and the keys; those whose version matched, in order of id.

    `claimed` are names that this transaction has claimed, with the claiming run.
    """
    for item in runs:
        check_saved(item)
    ordered = sorted(runs, key=lambda item: item.run.id)
    known = [item for item in ordered if item.expected_version is not None]
    fresh = [item for item in ordered if item.expected_version is None]
    written = await _update_runs(connection, known) if known else set[str]()
    await free_keys(connection, _settled(i.run for i in known if i.run.id in written))
    if fresh:
        written |= await _insert_runs(connection, [item.run for item in fresh], claimed)
        await free_keys(connection, _settled(i.run for i in fresh if i.run.id in written))
    return [item for item in ordered if item.run.id in written]


def _settled(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run.status in SETTLED_RUN]


async def _update_runs(connection: Connection, known: Sequence[SavedRun]) -> set[str]:
    columns = run_columns([item.run for item in known], ("id", *RUN_FIELDS_CHANGING))
    keep = [item.before is not None and item.before.metadata == item.run.metadata for item in known]
    columns["keep_metadata"] = keep
    columns["metadata"] = _unless(keep, columns["metadata"])
    columns["expected"] = [item.expected_version for item in known]
    return {row[0] for row in await fetch(connection, "run_update", **columns)}


async def _insert_runs(
    connection: Connection, runs: Sequence[Run], claimed: set[tuple[Name, str]]
) -> set[str]:
    loose = [run for run in runs if not _names(run) <= claimed]
    if loose:
        holding = await claim_for_new_runs(connection, loose)
        lost = {run.id for run in loose} - holding
        runs = [run for run in runs if run.id not in lost]
        if not runs:
            return set()
    rows = await fetch(connection, "run_insert", **run_columns(runs, RUN_FIELDS))
    written = {row[0] for row in rows}
    tags = [(run, tag) for run in runs if run.id in written for tag in run.tags]
    if tags:
        await execute(
            connection,
            "run_tag_insert",
            run_id=[run.id for run, _ in tags],
            tag=[tag for _, tag in tags],
            created_at=[run.created_at for run, _ in tags],
        )
    return written


def _names(run: Run) -> set[tuple[Name, str]]:
    names = [(run.workflow, name) for name in (run.key, run.request_id) if name is not None]
    return {(name, run.id) for name in names}


def _unless(keep: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    return [None if kept else value for kept, value in zip(keep, values, strict=True)]


async def save_steps(connection: Connection, written: Sequence[SavedRun]) -> None:
    """Write the steps of runs that matched: those known to exist without unchanged payloads."""
    known: list[StepPair] = []
    unknown: list[StepPair] = []
    for item in written:
        before = _steps_before(item)
        for step in item.steps:
            (known if step.path in before else unknown).append((item, step))
    if unknown:
        columns = step_columns([step for _, step in unknown])
        columns["run_id"] = [item.run.id for item, _ in unknown]
        await execute(connection, "step_upsert", **columns)
    if known:
        columns = _known_step_columns(known)
        if await execute(connection, "step_update", **columns) != len(known):
            message = "a step that the caller had loaded does not exist"
            raise StoreRejected(message, constraint="step_exists")


def _steps_before(item: SavedRun) -> Mapping[str, Step]:
    return _NO_STEPS if item.before is None else item.before.steps


def _known_step_columns(known: Sequence[StepPair]) -> Columns:
    columns = step_columns([step for _, step in known], STEP_FIELDS_CHANGING)
    columns["run_id"] = [item.run.id for item, _ in known]
    for field in STEP_PAYLOADS:
        keep = [
            getattr(_steps_before(item)[step.path], field) == getattr(step, field)
            for item, step in known
        ]
        columns[f"keep_{field}"] = keep
        columns[field] = _unless(keep, columns[field])
    return columns


async def save_derived(connection: Connection, derived: Derived) -> None:
    """Write open_step and timer."""
    if derived.opened:
        fields = ("run_id", "path", "status", "token", "queue", "level", "dispatched_at",
                  "reported", "signal")  # fmt: skip
        columns = {field: [getattr(row, field) for row in derived.opened] for field in fields}
        await execute(connection, "open_step_upsert", **columns)
    if derived.closed:
        await execute(connection, "open_step_delete", **_pairs(derived.closed))
    if derived.armed:
        fields = ("run_id", "path", "due_at", "preemptible", "last_at")
        columns = {field: [getattr(row, field) for row in derived.armed] for field in fields}
        await execute(connection, "timer_save", **columns)
    if derived.disarmed:
        await execute(connection, "timer_delete", **_pairs(derived.disarmed))
    if derived.settled_runs:
        ids = [run.id for run in derived.settled_runs]
        await execute(connection, "timer_delete_of_runs", run_ids=ids)


def _pairs(pairs: Sequence[tuple[str, str]]) -> Columns:
    return {"run_id": [run_id for run_id, _ in pairs], "path": [path for _, path in pairs]}


async def save_histories(connection: Connection, written: Sequence[SavedRun]) -> None:
    """Append transitions, signals and logs."""
    transitions = [(item.run.id, row) for item in written for row in item.transitions]
    if transitions:
        await execute(connection, "transition_insert", **transition_columns(transitions))
    signals = [row for item in written for row in item.signals]
    if signals:
        await execute(connection, "signal_insert", **signal_columns(signals))
    consumed = [row for item in written for row in item.consumed]
    if consumed:
        count = await execute(
            connection,
            "signal_consume",
            run_id=[row.run_id for row in consumed],
            number=[row.number for row in consumed],
            consumed_by=[row.consumed_by for row in consumed],
        )
        if count != len(consumed):
            message = "a signal is unknown or was consumed before"
            raise StoreRejected(message, constraint="signal_consumed_once")


async def save_logs(connection: Connection, written: Sequence[SavedRun], bytes_max: int) -> None:
    """Append log lines, and drop the oldest of attempts that have more than `bytes_max`."""
    logs = [row for item in written for row in item.logs]
    if logs:
        columns = log_columns(logs)
        await execute(connection, "log_insert", **columns)
        attempts = {name: columns[name] for name in ("run_id", "path", "attempt")}
        await execute(connection, "log_trim", **attempts, bytes_max=bytes_max)


async def save_outbox(
    connection: Connection, written: Sequence[SavedRun], published: Sequence[str]
) -> None:
    """Delete what is dead or confirmed, append what is new."""
    dead = [(item.run.id, token) for item in written for token in item.revoked]
    if dead:
        await execute(
            connection,
            "outbox_delete_tokens",
            run_id=[run_id for run_id, _ in dead],
            token=[token for _, token in dead],
        )
    if published:
        await execute(connection, "outbox_delete", ids=sorted(published))
    rows = [row for item in written for row in item.outbox]
    if rows:
        await execute(connection, "outbox_insert", **outbox_columns(rows))


async def save_letters(
    connection: Connection, letters: Sequence[DeadLetter], *, rows_max: int, bytes_max: int
) -> int:
    """Keep dead letters up to the cap, in order; how many did not fit."""
    if not letters:
        return 0
    totals = await fetch_row(connection, "dead_letter_total_lock")
    assert totals is not None, "a migration inserts the one row"
    kept, refused = cap_letters(
        letters, rows_left=rows_max - totals[0], bytes_left=bytes_max - totals[1]
    )
    if kept:
        await execute(connection, "dead_letter_insert", **letter_columns(kept))
    return refused


def cap_letters(
    letters: Sequence[DeadLetter], *, rows_left: int, bytes_left: int
) -> tuple[list[DeadLetter], int]:
    """Those that fit, as they are stored, and the number of the others. Pure, for both stores."""
    kept: dict[str, DeadLetter] = {}
    for letter in map(printable_letter, letters):
        size = letter_bytes(letter)
        if letter.id not in kept and len(kept) < rows_left and size <= bytes_left:
            kept[letter.id] = letter
            bytes_left -= size
    return list(kept.values()), len({letter.id for letter in letters}) - len(kept)


async def save_apart(connection: Connection, batch: BatchWrite) -> None:
    """Write what belongs to no run of the batch: identities, parked signals, request ids."""
    if batch.requests:
        names = {(workflow, request): run_id for workflow, request, run_id in batch.requests}
        await claim_requests(connection, names)
    if batch.keyed_signals:
        rows = dict(batch.keyed_signals)
        await execute(
            connection,
            "keyed_signal_save",
            workflow=[identity.workflow for identity in rows],
            key=[identity.key for identity in rows],
            name=[identity.name for identity in rows],
            message_id=[identity.message_id for identity in rows],
            run_id=list(rows.values()),
        )
    if batch.unparked:
        await execute(connection, "parked_signal_delete", ids=sorted(batch.unparked))
    if batch.parked:
        await execute(connection, "parked_signal_insert", **parked_columns(batch.parked))


async def save_batch_rows(
    connection: Connection, written: Sequence[SavedRun], *, log_bytes_max: int
) -> None:
    """Everything that goes with the run rows."""
    await save_steps(connection, written)
    await save_derived(connection, derive(written))
    await save_histories(connection, written)
    await save_logs(connection, written, log_bytes_max)
