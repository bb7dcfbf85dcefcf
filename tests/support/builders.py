"""Definitions, runs and events with defaults, and named overrides for what a test is about."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from towpath_engine.core.create import new_run
from towpath_engine.core.definition import Definition
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Cause, KeptSignal, Run
from towpath_engine.core.parse import parse_definition
from towpath_protocol.reports import REPORT_KINDS, Report

Json = Mapping[str, object]
"""An object of a definition."""

RUN_ID: Final = "0190a0a0-0000-7000-8000-000000000001"
BEGIN: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""When the runs of tests are created."""


def json_of(value: object) -> bytes:
    """JSON text of a value."""
    return msgspec.json.encode(value)


def raw(value: object) -> msgspec.Raw:
    """A value as it lies undecoded in a message."""
    return msgspec.Raw(json_of(value))


def a_task(name: str, **fields: object) -> Json:
    """A step of kind task; its task has the step's name."""
    return {"name": name, "task": name, **fields}


def a_pass(name: str, value: object = None, **fields: object) -> Json:
    """A step of kind pass."""
    return {"name": name, "pass": value, **fields}


def a_wait(name: str, signal: str = "go", *, timeout: str | None = None, **fields: object) -> Json:
    """A step of kind wait; `next_on_timeout` names where it goes when no signal comes."""
    wait: dict[str, object] = {"signal": signal}
    if timeout is not None:
        wait["timeout"] = timeout
    if "next_on_timeout" in fields:
        wait["on_timeout"] = {"next": fields.pop("next_on_timeout")}
    return {"name": name, "wait": wait, **fields}


def a_sleep(name: str, duration: str = "1h", **fields: object) -> Json:
    """A step of kind sleep."""
    return {"name": name, "sleep": duration, **fields}


def a_choice(name: str, *rows: tuple[str, str], **fields: object) -> Json:
    """A step of kind choice with rows of (condition, next)."""
    return {"name": name, "choice": [{"when": when, "next": to} for when, to in rows], **fields}


def a_document(*steps: Json, **fields: object) -> dict[str, object]:
    """A definition document of these steps."""
    return {"workflow": "order", "steps": list(steps), **fields}


def a_definition(*steps: Json, **fields: object) -> Definition:
    """The same, parsed."""
    return parse_definition(a_document(*steps, **fields))


def a_run(
    definition: Definition,
    *,
    run_input: object = None,
    key: str | None = None,
    start_at: datetime | None = None,
    limits: CoreLimits | None = None,
) -> Run:
    """A run that was just created at BEGIN and has not begun."""
    return new_run(
        run_id=RUN_ID,
        definition=definition,
        workflow_version=1,
        limits=limits or CoreLimits(),
        now=BEGIN,
        input=json_of(run_input),
        key=key,
        start_at=start_at,
    )


def a_cause(
    kind: str = "engine",
    *,
    report: Report | None = None,
    token: str | None = None,
    reason: str | None = None,
) -> Cause:
    """A cause of this type, as the engine records it for this report or about this token."""
    if report is None:
        return Cause(type=kind, token=token, reason=reason)
    return Cause(
        type=kind, kind=REPORT_KINDS[type(report)], token=token, worker_id=report.worker_id
    )


def a_signal(
    name: str = "go", payload: object = None, *, message_id: str = "m", at: datetime = BEGIN
) -> KeptSignal:
    """A signal that has not been numbered yet."""
    return KeptSignal(
        number=0,
        name=name,
        payload=json_of(payload),
        message_id=message_id,
        sent_by="tester",
        received_at=at,
    )
