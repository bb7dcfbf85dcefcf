"""Whatever is thrown at it, the engine answers, buries or counts, and goes on with the rest."""

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.counted import counted
from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient
from tests.support.workflows import one_task
from towpath_engine.services.engine import Engine
from towpath_protocol.errors import ErrorCode
from towpath_protocol.verbs import VERBS

Json = Any
PIECES = 1_000
SEED = 20_260_301  # the same pieces every time: a failure can be seen again
RUN = "01890000-0000-7000-8000-000000000000"
CODES = {code.value for code in ErrorCode}

BODIES = [
    b"",
    b"null",
    b"[]",
    b"{",
    b"\xff\xfe",
    b'{"v":1}',
    b'{"v":99,"type":"step.completed","output":1}',
    b'{"type":"step.failed","error":7}',
    b'{"type":"step.completed","output":NaN}',
    b'{"type":"step.completed","output":1e400}',
    b'{"type":"step.completed","output":"\\ud800"}',
    b'{"type":"step.completed","output":"\\u0000"}',
    b'{"a":1,"a":2}',
    b"[" * 200 + b"]" * 200,
    b"[" * 50_000,
    b'{"output":' + b"9" * 5_000 + b"}",
    b'"' + b"x" * 300_000 + b'"',
]


def _subjects(queue: str, token: str) -> list[str]:
    return [
        f"in.step-completed.{queue}.{RUN}.{token}",
        f"in.step-failed.{queue}.{RUN}.{token}",
        f"in.step-started.{queue}.{RUN}.{token}",
        f"in.step-heartbeat.{queue}.{RUN}.{token}",
        f"in.step-released.{queue}.{RUN}.{token}",
        f"in.signal.-.{RUN}.go",
        "in.signal-key.one.spread.go",
        "in.start.one.spread.-",
        "in.start.nowhere.spread.-",
        f"in.child-settled.-.{RUN}.{RUN}",
        f"in.child-start.-.{RUN}.{RUN}",
        f"in.child-cancel.-.{RUN}.{RUN}",
        "in.nonsense.a.b.c",
        "in.step-completed.9bad.not-a-run.tok",
        "in.signal.-.NOT-A-RUN.go",
    ]


def _garbage(seed: int) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """A thousand messages: every subject with every body first, then random bytes."""
    chance = random.Random(seed)
    subjects = _subjects("default", "tok")
    for number in range(PIECES):
        subject = subjects[number % len(subjects)]
        if number < len(BODIES) * len(subjects):
            body = BODIES[(number // len(subjects)) % len(BODIES)]
        else:
            body = chance.randbytes(chance.randrange(64))
        headers = {}
        if number % 7 == 0:
            headers["Towpath-Key"] = chance.choice(["%ff", "a\tb", "ok", " x", "%00"])
        if number % 11 == 0:
            headers["Content-Type"] = "application/msgpack"
        if number % 13 == 0:
            headers["Towpath-Tags"] = chance.choice(["[1]", "{", "a,b"])
        yield subject, body, headers


async def test_a_thousand_pieces_of_garbage_are_each_accounted_for(
    wire: WireClient, engine: Engine
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one", "good")
    good = await wire.take()
    stored = 0
    for subject, body, headers in _garbage(SEED):
        answer = await wire.put(subject, body, headers)
        stored += "seq" in answer
    assert stored == PIECES

    async def all_handled() -> bool:
        info = await wire.client.jetstream().stream_info(f"{wire.prefix.upper()}_IN")
        return info.state.messages == 0

    await eventually(all_handled)
    outcomes = {
        outcome: counted(engine, "message_outcome_total", outcome=outcome)
        for outcome in ("dead_letter", "stale", "applied", "duplicate", "parked")
    }
    # Each piece has one of these outcomes, and no other.
    assert sum(outcomes.values()) == counted(engine, "message_outcome_total") >= PIECES
    letters = await wire.dead_letters()
    assert {letter["reason"] for letter in letters} <= CODES
    assert len(letters) == outcomes["dead_letter"] > 0
    # Everything else goes on.
    await wire.complete(good, "fine")
    assert (await wire.result(run_id))["output"] == "fine"


@pytest.mark.parametrize("verb", sorted(VERBS))
async def test_every_verb_refuses_garbage_with_a_code(wire: WireClient, verb: str) -> None:
    lenient = verb.endswith(".list")  # they need nothing
    for body in BODIES:
        status, code = await _answer(wire, verb, body)
        if not VERBS[verb].built:
            assert (status, code) == (422, "not_yet")
        elif not lenient or status != 200:
            assert code in CODES, body[:40]
            assert 400 <= status < 500, body[:40]


async def _answer(wire: WireClient, verb: str, body: bytes) -> tuple[int, str]:
    try:
        await wire.api_raw(verb, body)
    except RefusedError as refused:
        return refused.status, refused.code
    return 200, ""


async def test_an_unknown_verb_is_said_to_be_one(wire: WireClient) -> None:
    with pytest.raises(RefusedError) as refused:
        await wire.api("run.dance")
    assert (refused.value.status, refused.value.code) == (404, "unknown_verb")


async def test_the_micro_service_answers_discovery(wire: WireClient) -> None:
    pong = await wire.client.request("$SRV.PING.towpath", b"", timeout=60)
    assert json.loads(pong.data)["name"] == "towpath"
    info = await wire.client.request("$SRV.INFO.towpath", b"", timeout=60)
    assert json.loads(info.data)["type"] == "io.nats.micro.v1.info_response"


async def test_a_reply_subject_that_is_no_inbox_gets_nothing(wire: WireClient) -> None:
    stolen = await wire.client.subscribe(f"{wire.prefix}.stolen")
    await wire.client.publish(
        f"{wire.prefix}.api.workflow.list", b"{}", reply=f"{wire.prefix}.stolen"
    )
    await wire.api("workflow.list")  # answered after the other one
    await wire.client.flush()
    await asyncio.gather(*(wire.api("workflow.list") for _ in range(5)))
    assert stolen.pending_msgs == 0


async def test_bad_names_in_a_definition_are_all_reported_with_their_paths(
    wire: WireClient,
) -> None:
    with pytest.raises(RefusedError) as refused:
        await wire.deploy(_bad_definition())
    assert (refused.value.status, refused.value.code) == (422, "definition_refused")
    faults = {fault["path"]: fault["code"] for fault in refused.value.details["faults"]}
    assert "steps[0].name" in faults
    assert "steps[0].retry.max_attempts" in faults
    assert "steps[1].next" in faults
    assert faults["steps[2].parallel.branches"] == "wrong_type"


def _bad_definition() -> Json:
    return {
        "workflow": "bad",
        "steps": [
            {"name": "A", "task": "do.it", "retry": {"max_attempts": 0}},
            {"name": "b", "task": "do.it", "next": "nowhere"},
            {"name": "c", "parallel": {"branches": "none"}},
        ],
    }
