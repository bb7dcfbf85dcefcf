"""Every bound of PROTOCOL.md's limits and of a run: over it a clear error that names the field and
the way out, nothing published, nothing lost, and everything else goes on.

The bounds are settings; here they are small. Elsewhere: `max_payload` of the server at start
(bus/test_server), the number of queues (test_queues), the window of a queue (test_absent_pool),
requests at once (test_backpressure), expressions (unit/core/expressions).
"""

import json
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.eventually import eventually
from tests.support.wire_client import RefusedError, WireClient
from tests.support.workflows import chain, one_task, one_wait
from towpath_engine.settings import Settings

Json = Any

PAYLOAD, CONTEXT, METADATA, ERROR, PROGRESS, LOGS, HEADERS = 4_096, 200, 200, 400, 100, 600, 2_048
DEFINITION, DISPATCH, DEPTH, ITEMS, SIGNALS, EVENTS = 3_000, 5_100, 10, 5, 3, 5
TRANSITIONS, A_DECISION, SIGNALS_BYTES = 60, 8, 2_000
NOBODY = "0190a0a0-0000-7000-8000-000000000001"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(
        settings,
        payload_bytes_max=PAYLOAD,
        context_bytes_max=CONTEXT,
        metadata_bytes_max=METADATA,
        error_bytes_max=ERROR,
        progress_bytes_max=PROGRESS,
        logs_bytes_max=LOGS,
        headers_bytes_max=HEADERS,
        definition_bytes_max=DEFINITION,
        dispatch_bytes_max=DISPATCH,
        json_depth_max=DEPTH,
        start_many_count_max=ITEMS,
        signals_kept_max=SIGNALS,
        signals_kept_bytes_max=SIGNALS_BYTES,
        events_per_report_max=EVENTS,
        transitions_per_run_max=TRANSITIONS,
        transitions_per_decision_max=A_DECISION,
    )


def text(size: int) -> str:
    """Text that has `size` bytes as JSON."""
    return "x" * (size - 2)


def nested(depth: int) -> Json:
    return [] if depth == 1 else [nested(depth - 1)]


async def has_nothing(wire: WireClient) -> None:
    """No run was started, nothing was dispatched."""
    assert (await wire.api("run.list"))["runs"] == []
    info = await wire.client.jetstream().stream_info(f"{wire.prefix.upper()}_DISPATCH")
    assert info.state.messages == 0


async def works(wire: WireClient) -> None:
    """Whatever was refused: the engine goes on."""
    await wire.deploy(one_task("after"))
    run_id = await wire.start("after", text(PAYLOAD), context={"c": text(CONTEXT - 7)})
    dispatch = await wire.take()
    assert dispatch["run_id"] == run_id
    await wire.complete(dispatch, text(PAYLOAD), metadata={"m": text(METADATA - 7)})
    assert (await wire.result(run_id))["output"] == text(PAYLOAD), "the bound itself is allowed"


# Requests

START: Json = {"workflow": "one"}
REQUESTS: list[tuple[str, str, Json, str]] = [
    ("input", "run.start", {**START, "input": text(PAYLOAD + 1)}, "input"),
    ("context", "run.start", {**START, "context": {"c": text(CONTEXT)}}, "context"),
    ("items", "run.start-many", {"items": [START] * (ITEMS + 1)}, "items"),
    (
        "payload", "run.signal",
        {"run_id": NOBODY, "signal": "go", "payload": text(PAYLOAD + 1)}, "payload",
    ),
    (
        "payload with a start", "run.signal-with-start",
        {**START, "key": "k", "signal": "go", "payload": text(PAYLOAD + 1)}, "payload",
    ),
    (
        "definition", "workflow.deploy",
        {"definition": one_task("big", input=text(DEFINITION))}, "definition",
    ),
    ("input of a retry", "run.retry", {"run_id": NOBODY, "input": text(PAYLOAD + 1)}, "input"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "body", "field"), [row[1:] for row in REQUESTS], ids=[row[0] for row in REQUESTS]
)
async def test_a_request_over_a_bound_names_the_field_and_the_fix(
    wire: WireClient, verb: str, body: Json, field: str
) -> None:
    await wire.deploy(one_task())
    with pytest.raises(RefusedError) as refused:
        await wire.api(verb, **body)
    assert (refused.value.status, refused.value.code) == (413, "too_large")
    assert refused.value.details["field"] == field
    assert refused.value.details["fix"]
    await has_nothing(wire)
    await works(wire)


async def test_headers_over_their_bound_are_refused(wire: WireClient) -> None:
    await wire.deploy(one_task())
    with pytest.raises(RefusedError) as refused:
        await wire.api_raw("run.start", json.dumps(START).encode(), {"X-Much": "x" * HEADERS})
    assert (refused.value.status, refused.value.code) == (413, "too_large")
    await has_nothing(wire)
    await works(wire)


async def test_a_value_nested_too_deep_is_refused(wire: WireClient) -> None:
    await wire.deploy(one_task())
    with pytest.raises(RefusedError) as refused:
        await wire.start("one", nested(DEPTH + 1))
    assert (refused.value.status, refused.value.code) == (400, "unsafe_json")
    assert refused.value.details["field"] == "input"
    await has_nothing(wire)
    await works(wire)


async def test_one_item_over_a_bound_does_not_keep_the_others_from_starting(
    wire: WireClient,
) -> None:
    await wire.deploy(one_task())
    items = [{**START, "input": text(PAYLOAD + 1)}, {**START, "input": 1}]
    bad, good = (await wire.api("run.start-many", items=items))["results"]
    assert (bad["error"]["code"], bad["error"]["details"]["field"]) == (
        "too_large",
        "items[0].input",
    )
    assert (await wire.take())["run_id"] == good["run_id"]


# Messages

MESSAGES: list[tuple[str, str, bytes, dict[str, str]]] = [
    ("input", "in.start.one.s.-", json.dumps(text(PAYLOAD + 1)).encode(), {}),
    ("headers", "in.start.one.s.-", b"1", {"X-Much": "x" * HEADERS}),
    ("context", "in.start.one.s.-", b"1", {"Towpath-Context": json.dumps({"c": text(CONTEXT)})}),
    ("payload", f"in.signal.-.{NOBODY}.go", json.dumps(text(PAYLOAD + 1)).encode(), {}),
]


@pytest.mark.parametrize(
    ("subject", "body", "headers"), [row[1:] for row in MESSAGES], ids=[row[0] for row in MESSAGES]
)
async def test_a_message_over_a_bound_is_a_dead_letter_that_says_so(
    wire: WireClient, subject: str, body: bytes, headers: dict[str, str]
) -> None:
    await wire.deploy(one_task())
    await wire.put(subject, body, headers)

    async def kept() -> Json:
        return await wire.dead_letters()

    (letter,) = await eventually(kept)
    assert letter["reason"] == "too_large"
    assert "the limit is" in letter["message"]
    await has_nothing(wire)
    await works(wire)


# Reports

REPORTS: list[tuple[str, str, Json, str]] = [
    ("output", "step-completed", {"output": text(PAYLOAD + 1)}, "TooLarge"),
    ("metadata", "step-completed", {"output": 1, "metadata": {"m": text(METADATA)}}, "TooLarge"),
    (
        "error", "step-failed",
        {"error": {"type": "E", "message": "m", "details": text(ERROR)}}, "TooLarge",
    ),
    (
        "logs", "step-completed",
        {"output": 1, "logs": [{"level": "info", "message": text(LOGS)}]}, "TooLarge",
    ),
    ("depth", "step-completed", {"output": nested(DEPTH + 1)}, "InvalidOutput"),
    (
        "events", "step-completed",
        {"output": 1, "events": [{"name": "e", "data": 1}] * (EVENTS + 1)}, "InvalidOutput",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "body", "error"), [row[1:] for row in REPORTS], ids=[row[0] for row in REPORTS]
)
async def test_a_report_over_a_bound_fails_its_attempt_with_a_documented_type(
    wire: WireClient, kind: str, body: Json, error: str
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.report(await wire.take(), kind, **body)
    result = await wire.result(run_id)
    assert (result["status"], result["error"]["type"]) == ("failed", error)
    assert await wire.dead_letters() == []
    await works(wire)


@pytest.mark.parametrize("kind", ["step-heartbeat", "step-released"])
async def test_progress_over_its_bound_does_not_cost_the_attempt_that_runs(
    wire: WireClient, kind: str
) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    dispatch = await wire.take()
    more: Json = {"n": 1} if kind == "step-heartbeat" else {"reason": "drain"}
    await wire.report(dispatch, kind, progress=text(PROGRESS + 1), worker_id="w", **more)

    async def kept() -> Json:
        return await wire.dead_letters()

    (letter,) = await eventually(kept)
    assert letter["reason"] == "too_large"
    assert "progress" in letter["message"]
    await wire.complete(dispatch, "done")
    assert (await wire.result(run_id))["output"] == "done"


# What a run makes itself

MAKES: list[tuple[str, Json]] = [
    ("input of a step", one_task("made", input={"a": "${ input }", "b": "${ input }"})),
    ("dispatch", one_task("made")),
    ("output of a pass", {"workflow": "made", "steps": [{"name": "p", "pass": ["${ input }"]}]}),
    (
        "output of the run",
        {"workflow": "made", "output": ["${ input }"], "steps": [{"name": "p", "pass": 1}]},
    ),
]


@pytest.mark.parametrize("definition", [row[1] for row in MAKES], ids=[row[0] for row in MAKES])
async def test_what_a_run_makes_over_a_bound_fails_it_before_anything_is_published(
    wire: WireClient, definition: Json
) -> None:
    await wire.deploy(definition)
    run_id = await wire.start("made", text(PAYLOAD), key="🎉" * 256)
    result = await wire.result(run_id)
    assert (result["status"], result["error"]["type"]) == ("failed", "TooLarge")
    info = await wire.client.jetstream().stream_info(f"{wire.prefix.upper()}_DISPATCH")
    assert info.state.messages == 0
    await works(wire)


async def test_metadata_is_bounded_as_a_whole_and_not_by_each_patch(wire: WireClient) -> None:
    await wire.deploy(chain(length=2))
    run_id = await wire.start("chain")
    half = METADATA // 2
    await wire.complete(await wire.take(), metadata={"a": text(half)})
    await wire.complete(await wire.take(), metadata={"b": text(half)})
    result = await wire.result(run_id)
    assert (result["status"], result["error"]["type"]) == ("failed", "TooLarge")
    assert (await wire.run(run_id))["metadata"] == {"a": text(half)}


async def test_unconsumed_signals_are_bounded_and_taken_ones_make_room(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    run_id = await wire.start("waiting")
    for number in range(SIGNALS):
        await wire.api("run.signal", run_id=run_id, signal="other", payload=number)
    with pytest.raises(RefusedError) as refused:
        await wire.api("run.signal", run_id=run_id, signal="other")
    assert (refused.value.status, refused.value.code) == (409, "signals_full")
    # One that a wait takes at once is not kept, so it does not count.
    await wire.api("run.signal", run_id=run_id, signal="go", payload="now")
    assert (await wire.result(run_id))["output"]["payload"] == "now"


async def test_bytes_of_unconsumed_signals_are_bounded(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    run_id = await wire.start("waiting")
    half = text(SIGNALS_BYTES // 2)
    await wire.api("run.signal", run_id=run_id, signal="other", payload=half)
    await wire.api("run.signal", run_id=run_id, signal="other", payload=half)
    with pytest.raises(RefusedError, match="bytes of signals") as refused:
        await wire.api("run.signal", run_id=run_id, signal="other", payload=1)
    assert (refused.value.status, refused.value.code) == (409, "signals_full")


async def test_a_long_decision_is_split_and_goes_on_at_once(wire: WireClient) -> None:
    steps = [{"name": f"p{number}", "pass": number} for number in range(3 * A_DECISION)]
    await wire.deploy({"workflow": "long", "steps": steps})
    run_id = await wire.start("long")
    result = await wire.result(run_id)
    assert (result["status"], result["output"]) == ("completed", 3 * A_DECISION - 1)
    decision = 0
    sizes: Counter[int] = Counter()
    for row in await wire.history(run_id):
        decision += "seed" in row["cause"]
        sizes[decision] += 1
    assert max(sizes.values()) <= A_DECISION + 2
    assert len(sizes) >= 3


async def test_a_run_that_loops_for_ever_fails_as_too_big(wire: WireClient) -> None:
    choice = [{"when": "input == 0", "next": "never"}]
    steps = [
        {"name": "again", "pass": 1},
        {"name": "more", "choice": choice, "default": "nap"},
        {"name": "nap", "sleep": "1ms", "next": "again"},
        {"name": "never", "pass": 1},
    ]
    await wire.deploy({"workflow": "loop", "steps": steps})
    run_id = await wire.start("loop", 1)
    result = await wire.result(run_id)
    assert (result["status"], result["error"]["type"]) == ("failed", "RunTooBig")
    assert str(TRANSITIONS) in result["error"]["message"]
    await works(wire)
