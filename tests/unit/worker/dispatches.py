"""Dispatches for unit tests: defaults and named overrides."""

from typing import Any

from msgspec import Raw

from towpath_protocol.dispatch import StepDispatch


def a_dispatch(token: str = "t-1", **fields: Any) -> StepDispatch:
    values: dict[str, Any] = {
        "run_id": "01890a5d-ac96-774b-bcce-b302099a8057",
        "workflow": "order",
        "version": 1,
        "step": "reserve",
        "task": "inventory.reserve",
        "queue": "inventory",
        "token": token,
        "input": Raw(b"null"),
        "context": Raw(b"{}"),
        "metadata": Raw(b"{}"),
        "idempotency_key": "k",
        "dispatched_at": "2026-11-29T12:00:00.000000Z",
        "attempt_timeout_ms": 10_000,
        "reply": "towpath.in",
        **fields,
    }
    return StepDispatch(**values)
