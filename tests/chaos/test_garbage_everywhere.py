"""A thousand pieces of garbage on every subject that the engine listens to.

Each is an API error, a dead letter or a counted stale report; a run that was there before goes on
as if nothing had happened, and nothing grows without a bound.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.support.counted import counted
from tests.support.engines import engine_settings, running
from tests.support.eventually import eventually
from tests.support.garbage import pieces
from tests.support.jetstream import jetstream_url, prefix
from tests.support.postgres import fresh_schema
from tests.support.wire_client import RefusedError, WireClient, connected
from tests.support.workflows import one_task
from towpath_engine.services.engine import Engine
from towpath_engine.store.migrate import migrate
from towpath_protocol.errors import ErrorCode
from towpath_protocol.verbs import VERBS

__all__ = ["jetstream_url", "prefix"]

pytestmark = pytest.mark.slow

Json = Any
PIECES = 1_000
CODES = {code.value for code in ErrorCode}
RUN = "01890000-0000-7000-8000-000000000000"

REPORTS: dict[str, Json] = {
    "step-completed": {"v": 1, "type": "step.completed", "output": 1, "worker_id": "w"},
    "step-failed": {"v": 1, "type": "step.failed", "error": {"type": "E", "message": "m"}},
    "step-started": {"v": 1, "type": "step.started", "worker_id": "w"},
    "step-heartbeat": {"v": 1, "type": "step.heartbeat", "n": 1, "progress": 1},
    "step-released": {"v": 1, "type": "step.released", "reason": "drain"},
}
EXAMPLE: Json = json.loads("""
{"workflow": "one", "input": 1, "key": "k", "run_id": "01890000-0000-7000-8000-000000000000",
 "signal": "go", "payload": 1, "definition": {"workflow": "w", "steps": []}, "items": [{}],
 "limit": 1, "cursor": "c", "version": 1, "status": "running", "wait_ms": 1, "offset": 0,
 "at": "2026-01-01T00:00:00Z"}
""")


@pytest.fixture
async def pair(
    jetstream_url: str, postgres_url: str, prefix: str
) -> AsyncGenerator[tuple[WireClient, Engine]]:
    """An engine that parks for a moment only, and somebody who talks to it."""
    async with fresh_schema(postgres_url) as schema:
        await migrate(postgres_url, schema)
        settings = engine_settings(
            jetstream_url, postgres_url, prefix, schema, park_seconds=0.5, parked_sweep_seconds=0.2
        )
        async with running(settings) as engine, connected(jetstream_url, prefix) as wire:
            yield wire, engine


async def _handled(wire: WireClient) -> bool:
    info = await wire.client.jetstream().stream_info(f"{wire.prefix.upper()}_IN")
    return info.state.messages == 0


async def _publish_all(wire: WireClient, subject: str, example: Json, seed: int) -> int:
    gate = asyncio.Semaphore(64)

    async def publish(body: bytes) -> bool:
        async with gate:
            return "seq" in await wire.put(subject, body)

    return sum(await asyncio.gather(*(publish(body) for body in pieces(example, PIECES, seed))))


async def test_a_thousand_pieces_on_every_subject_of_the_stream(
    pair: tuple[WireClient, Engine],
) -> None:
    wire, engine = pair
    await wire.deploy(one_task())
    run_id = await wire.start("one", "good")
    good = await wire.take()
    subjects: dict[str, Json] = {
        f"in.{kind}.default.{run_id}.{token}": example
        for kind, example in REPORTS.items()
        for token in ("not-the-token",)
    }
    subjects |= {f"in.{kind}.default.{RUN}.tok": example for kind, example in REPORTS.items()}
    subjects |= {
        f"in.signal.-.{RUN}.go": {"a": 1},
        "in.signal-key.one.spread.go": {"a": 1},
        "in.start.nowhere.spread.-": {"a": 1},
        f"in.child-settled.-.{RUN}.{RUN}": {"a": 1},
        f"in.child-start.-.{RUN}.{RUN}": {"step": "a"},
        f"in.child-cancel.-.{RUN}.{RUN}": {"step": "a"},
        "in.what.is.this.thing": {"a": 1},
    }
    sent = 0
    for seed, (subject, example) in enumerate(subjects.items()):
        sent += await _publish_all(wire, subject, example, seed)
    assert sent == PIECES * len(subjects)
    await eventually(lambda: _handled(wire))
    # A redelivery may count a piece twice, nothing may count it less than once.
    assert counted(engine, "message_outcome_total") >= sent
    assert {letter["reason"] for letter in await wire.dead_letters()} <= CODES
    assert counted(engine, "tick_failed_total") == 0

    async def nothing_is_parked() -> bool:
        return counted(engine, "signal_parked_total", outcome="expired") > 0

    await eventually(nothing_is_parked)
    assert (await wire.run(run_id))["status"] == "running"
    await wire.complete(good, "fine")
    assert (await wire.result(run_id))["output"] == "fine"


async def test_garbage_on_a_live_attempt_never_hangs_its_step(
    pair: tuple[WireClient, Engine],
) -> None:
    wire, _ = pair
    await wire.deploy(one_task(retry={"max_attempts": 3, "backoff": {"initial": "1ms"}}))
    runs = [await wire.start("one", number) for number in range(30)]
    for seed, run_id in enumerate(runs):
        dispatch = await wire.take()
        subject = f"in.step-completed.default.{dispatch['run_id']}.{dispatch['token']}"
        for body in pieces(REPORTS["step-completed"], 40, seed):
            await wire.put(subject, body)
        assert run_id
    wire.work("default", lambda dispatch: dispatch["input"])
    for run_id in runs:
        run = await wire.run(run_id)
        if run["status"] in {"running", "waiting"}:
            # Its attempt is still open: no piece was an outcome. It is cancelled, not hung.
            await wire.api("run.cancel", run_id=run_id)
        assert (await wire.result(run_id))["settled"]


@pytest.mark.parametrize("verb", [*sorted(VERBS), "nonsense.verb"])
async def test_a_thousand_pieces_on_every_verb(pair: tuple[WireClient, Engine], verb: str) -> None:
    wire, engine = pair
    gate = asyncio.Semaphore(64)

    async def ask(body: bytes) -> tuple[int, str]:
        async with gate:
            try:
                await wire.api_raw(verb, body)
            except RefusedError as refused:
                return refused.status, refused.code
            return 200, "ok"

    answers = await asyncio.gather(*(ask(body) for body in pieces(EXAMPLE, PIECES, 7)))
    assert {code for _, code in answers} <= CODES | {"ok"}
    assert max(status for status, _ in answers) < 500
    if verb in VERBS and not VERBS[verb].built:
        assert {code for _, code in answers} == {"not_yet"}
    assert counted(engine, "tick_failed_total") == 0


async def test_a_thousand_pieces_as_heartbeats(pair: tuple[WireClient, Engine]) -> None:
    wire, _ = pair
    example: Json = {"worker_id": "w", "tasks": ["t"], "slots": 1, "tokens": ["x"]}
    for body in pieces(example, PIECES, 3):
        answer = await wire.client.request(f"{wire.prefix}.heartbeat.default", body, timeout=60)
        content = json.loads(answer.data)
        assert set(content) in ({"cancel", "stale"}, {"error"})
