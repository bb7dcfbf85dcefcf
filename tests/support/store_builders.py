"""Runs, steps and their rows for tests of the store: defaults, and what the test is about."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from towpath_engine.core.definition import Definition, ListDef
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Cause, KeptSignal, Run, Step, Transition
from towpath_engine.core.paths import ROOT
from towpath_engine.core.states import RunStatus, StepKind, StepStatus
from towpath_engine.store.interface import (
    BatchWrite,
    LoadRequest,
    OutboxRow,
    SavedRun,
    Store,
    StoredSignal,
)
from towpath_engine.store.records import DeadLetter

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
LIMITS = CoreLimits()


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def an_id(number: int) -> str:
    """UUIDs in the order of their numbers."""
    return f"0195f000-0000-7000-8000-{number:012x}"


def a_document(workflow: str = "order") -> bytes:
    return msgspec.json.encode({"workflow": workflow})


@cache
def parse(document: bytes) -> Definition:
    """The parser that the stores of these tests get: it knows names alone."""
    name: str = msgspec.json.decode(document)["workflow"]
    return Definition(
        workflow=name,
        document=document,
        fingerprint=f"f-{name}",
        steps={},
        lists={ROOT: ListDef(place=ROOT, steps=("charge",), first=("charge",))},
    )


DEFINITION = parse(a_document())


def a_run(number: int = 1, **overrides: Any) -> Run:
    """A running run of workflow `order`, as its first decision left it."""
    values: dict[str, Any] = {
        "id": an_id(number),
        "workflow": "order",
        "workflow_version": 1,
        "definition": DEFINITION,
        "limits": LIMITS,
        "status": RunStatus.RUNNING,
        "version": 1,
        "created_at": NOW,
        "started_at": NOW,
        "last_at": NOW,
    }
    return Run(**{**values, **overrides})


def a_step(path: str = "charge", **overrides: Any) -> Step:
    """A dispatched task step."""
    values: dict[str, Any] = {
        "path": path,
        "kind": StepKind.TASK,
        "status": StepStatus.DISPATCHED,
        "attempt": 1,
        "token": f"token-{path}",
        "dispatch_no": 1,
        "queue": "default",
        "task": "card.charge",
        "input": b"{}",
        "ready_at": NOW,
        "dispatched_at": NOW,
    }
    return Step(**{**values, **overrides})


def completed(step: Step, **overrides: Any) -> Step:
    values: dict[str, Any] = {
        "status": StepStatus.COMPLETED,
        "token": None,
        "waiting_for": None,
        "wake_at": None,
        "settled_at": later(1),
        "output": b"null",
    }
    return replace(step, **{**values, **overrides})


def a_transition(seq: int, **overrides: Any) -> Transition:
    values: dict[str, Any] = {
        "seq": seq,
        "at": NOW,
        "what": "run-started",
        "cause": Cause(type="start"),
    }
    return Transition(**{**values, **overrides})


def an_outbox_row(number: int, run: Run, **overrides: Any) -> OutboxRow:
    values: dict[str, Any] = {
        "id": an_id(number),
        "run_id": run.id,
        "subject": f"towpath.events.order.{run.id}.custom",
        "msg_id": f"m-{number}",
        "headers": {"Nats-Msg-Id": f"m-{number}"},
        "body": b'{"v":1}',
        "publish_after": later(5),
    }
    return OutboxRow(**{**values, **overrides})


def a_signal(number: int, run: Run, **overrides: Any) -> StoredSignal:
    consumed_by = overrides.pop("consumed_by", None)
    values: dict[str, Any] = {
        "number": number,
        "name": "approved",
        "payload": b"true",
        "message_id": f"s-{number}",
        "sent_by": None,
        "received_at": NOW,
    }
    signal = KeptSignal(**{**values, **overrides})
    return StoredSignal(run_id=run.id, signal=signal, consumed_by=consumed_by)


def a_letter(number: int, **overrides: Any) -> DeadLetter:
    values: dict[str, Any] = {
        "id": an_id(number), "at": NOW, "reason": "malformed", "message": "not JSON",
        "subject": "towpath.in.start", "headers": {}, "body": b"x" * 8,
    }  # fmt: skip
    return DeadLetter(**{**values, **overrides})


def a_start(run: Run, *steps: Step, **rows: Any) -> SavedRun:
    """The first write of a run: its history has as many transitions as its seq says."""
    transitions = [a_transition(seq) for seq in range(1, run.seq + 1)]
    return SavedRun(run=run, expected_version=None, steps=steps, transitions=transitions, **rows)


def a_change(before: Run, *steps: Step, known: bool = True, **changes: Any) -> SavedRun:
    """The next write of a run. `known`: the caller passes the run as it was, too."""
    rows = {name: changes.pop(name) for name in _ROWS if name in changes}
    run = replace(
        before,
        version=before.version + 1,
        steps={**before.steps, **{step.path: step for step in steps}},
        **changes,
    )
    return SavedRun(
        run=run,
        expected_version=before.version,
        before=before if known else None,
        steps=steps,
        transitions=[a_transition(seq) for seq in range(before.seq + 1, run.seq + 1)],
        **rows,
    )


_ROWS = ("signals", "consumed", "outbox", "revoked", "logs", "letters")


async def save(store: Store, *runs: SavedRun, **batch: Any) -> set[str]:
    """One batch, committed."""
    async with store.transaction() as tx:
        return await tx.save(BatchWrite(runs=runs, **batch))


async def load(store: Store, run_id: str, paths: Sequence[str] = ()) -> Run | None:
    """The run as a batch would load it."""
    async with store.transaction() as tx:
        request = LoadRequest(run_id=run_id, definition=DEFINITION, paths=frozenset(paths))
        return (await tx.load_runs([request])).get(run_id)


async def started(store: Store, run: Run, *steps: Step, **rows: Any) -> Run:
    """Save a new run; the run as it is loaded afterwards."""
    assert await save(store, a_start(run, *steps, **rows)) == {run.id}
    loaded = await load(store, run.id, [step.path for step in steps])
    assert loaded is not None
    return loaded
