"""Writes a batch: `batch_save` takes what most batches have, a statement each the rarer kinds.

The order is the lock order: keys of new runs, runs, keys that fall free, then the rows of the runs
that matched, then what belongs to no run; the totals of dead letters last, since every writer of
one waits for them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import SETTLED_RUN
from towpath_engine.store.derive import (
    Derived,
    OpenStep,
    ReadyStep,
    Timer,
    check_saved,
    derive,
)
from towpath_engine.store.errors import StoreRejected
from towpath_engine.store.interface import BatchWrite, SavedRun
from towpath_engine.store.keys import Name, claim_for_new_runs, claim_requests, free_keys
from towpath_engine.store.records import DeadLetter
from towpath_engine.store.rows import (
    RUN_FIELDS,
    RUN_FIELDS_CHANGING,
    STEP_FIELDS_CHANGING,
    STEP_PAYLOADS,
    Columns,
    columns_of,
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
from towpath_engine.store.statements import load_statement

StepPair = tuple[SavedRun, Step]
_NO_STEPS: Mapping[str, Step] = {}
_NOTHING: Final[Mapping[str, Any]] = dict.fromkeys(load_statement("batch_save").parameters, ())
"""What a batch does not have travels as empty arrays."""


async def save_runs(
    connection: Connection,
    batch: BatchWrite,
    *,
    versions: dict[str, int],
    claimed: set[tuple[Name, str]],
) -> list[SavedRun]:
    """Write the runs whose version matches, with what `batch_save` takes; returns these runs.

    `versions` are those of the runs that this transaction has locked, and are counted on; `claimed`
    are names that it has claimed, with the claiming run.
    """
    for item in batch.runs:
        check_saved(item)
    ordered = sorted(batch.runs, key=lambda item: item.run.id)
    known = [item for item in ordered if _is_current(item, versions)]
    fresh = [item for item in ordered if item.expected_version is None]
    runs = [item.run for item in fresh]
    published = batch.published
    first: list[SavedRun] = []
    if any(not _names(item.run) <= claimed for item in fresh):
        # Their keys may be those that settled runs of this batch free, new ones among them.
        await save_together(connection, known, published, pause_epoch=batch.pause_epoch)
        first, known, published = known, [], ()
        await free_keys(connection, [run for run in runs if _is_over(run, claimed)])
    inserted = await _insert_runs(connection, runs, claimed)
    rest = known + [item for item in fresh if item.run.id in inserted]
    if rest or published:
        await save_together(connection, rest, published, pause_epoch=batch.pause_epoch)
    written = first + rest
    versions.update((item.run.id, item.run.version) for item in written)
    return written


def _is_over(run: Run, claimed: set[tuple[Name, str]]) -> bool:
    """Whether a new run that is settled already holds a claimed key."""
    held = run.key is not None and ((run.workflow, run.key), run.id) in claimed
    return held and run.status in SETTLED_RUN


def _is_current(item: SavedRun, versions: Mapping[str, int]) -> bool:
    return item.expected_version is not None and versions.get(item.run.id) == item.expected_version


def derive_alone(batch: BatchWrite) -> Derived | None:
    """What goes with a batch that `save_together` writes whole and without locks; None for others.

    An instant to arm is compared with the stored one, which takes the lock of its run before.
    """
    if batch.keyed_signals or batch.parked or batch.unparked or batch.requests:
        return None
    if batch.dead_letters or any(
        item.expected_version is None or item.signals or item.consumed or item.logs or item.letters
        for item in batch.runs
    ):
        return None
    derived = derive(batch.runs)
    return None if derived.armed else derived


async def save_together(
    connection: Connection,
    items: Sequence[SavedRun],
    published: Sequence[str],
    *,
    pause_epoch: int | None,
    derived: Derived | None = None,
) -> None:
    """Write runs with everything that usually goes with them; new ones have their row already.

    `derived` is what `derive(items)` says, if the caller has it. Raises StoreRejected, with nothing
    written, unless all known runs still have their expected version, and PausesChanged unless
    `pause_epoch` is that of the pauses now.
    """
    known = [item for item in items if item.expected_version is not None]
    steps, new_steps = _split_steps(items)
    values = dict(_NOTHING)
    values["run_count"] = len(known)
    values["step_count"] = len(steps)
    values["pause_epoch"] = pause_epoch
    if known:
        _put(values, "run", _run_columns(known))
    if steps:
        _put(values, "step", _known_step_columns(steps))
    if new_steps:
        columns = step_columns([step for _, step in new_steps])
        columns["run_id"] = [item.run.id for item, _ in new_steps]
        _put(values, "new", columns)
    _put_derived(values, derive(items) if derived is None else derived)
    _put_rest(values, items, published)
    await fetch_row(connection, "batch_save", **values)


def _run_columns(known: Sequence[SavedRun]) -> Columns:
    columns = run_columns([item.run for item in known], ("id", *RUN_FIELDS_CHANGING))
    keep = [item.before is not None and item.before.metadata == item.run.metadata for item in known]
    columns["keep_metadata"] = keep
    columns["metadata"] = _unless(keep, columns["metadata"])
    columns["expected"] = [item.expected_version for item in known]
    return columns


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


def _split_steps(items: Sequence[SavedRun]) -> tuple[list[StepPair], list[StepPair]]:
    """Steps that are known to exist, whose unchanged payloads are not sent, and the others."""
    known: list[StepPair] = []
    unknown: list[StepPair] = []
    for item in items:
        before = _steps_before(item)
        for step in item.steps:
            (known if step.path in before else unknown).append((item, step))
    return known, unknown


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


def _put(values: dict[str, Any], prefix: str, columns: Columns) -> None:
    for name, column in columns.items():
        values[f"{prefix}_{name}"] = column


def _put_derived(values: dict[str, Any], derived: Derived) -> None:
    if derived.opened:
        _put(values, "open", columns_of(derived.opened, OpenStep.__struct_fields__))
    if derived.closed:
        _put(values, "closed", _pairs(derived.closed))
    if derived.armed:
        _put(values, "timer", columns_of(derived.armed, Timer.__struct_fields__))
    if derived.disarmed:
        _put(values, "disarmed", _pairs(derived.disarmed))
    if derived.held:
        _put(values, "ready", columns_of(derived.held, ReadyStep.__struct_fields__))
    if derived.admitted:
        _put(values, "admitted", _pairs(derived.admitted))
    settled = derived.settled_runs
    values["settled_run_ids"] = [run.id for run in settled]
    keyed = [run for run in settled if run.key is not None]
    values["key_workflow"] = [run.workflow for run in keyed]
    values["key_key"] = [run.key for run in keyed]
    values["key_run_id"] = [run.id for run in keyed]


def _put_rest(values: dict[str, Any], items: Sequence[SavedRun], published: Sequence[str]) -> None:
    lines = [(item.run.id, row) for item in items for row in item.transitions]
    if lines:
        _put(values, "line", transition_columns(lines))
    dead = [(item.run.id, token) for item in items for token in item.revoked]
    values["dead_run_id"] = [run_id for run_id, _ in dead]
    values["dead_token"] = [token for _, token in dead]
    values["published"] = sorted(published)
    messages = [row for item in items for row in item.outbox]
    if messages:
        _put(values, "out", outbox_columns(messages))


def _pairs(pairs: Sequence[tuple[str, str]]) -> Columns:
    return {"run_id": [run_id for run_id, _ in pairs], "path": [path for _, path in pairs]}


async def save_signals(connection: Connection, written: Sequence[SavedRun]) -> None:
    """Append signals, and note which of the stored ones were taken."""
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
