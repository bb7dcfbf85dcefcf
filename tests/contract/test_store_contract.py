"""The contract of a store, for both of them: runs, steps, history, keys."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.census import count_open_runs
from tests.support.store_builders import (
    DEFINITION,
    NOW,
    a_change,
    a_run,
    a_start,
    a_step,
    a_transition,
    an_id,
    completed,
    later,
    load,
    save,
    started,
)
from towpath_engine.core.model import Cause, Failure, Run, Step
from towpath_engine.core.states import RunStatus, StepKind, StepStatus, WaitReason
from towpath_engine.store.errors import CursorError, StoreRejected
from towpath_engine.store.interface import BatchWrite, KeyClaim, LoadRequest, RunFilter, Store

AWKWARD_VALUES = [
    b"null",
    b"false",
    b"0",
    b'""',
    b"1.0",
    b"9007199254740993",
    b"123456789012345678901234567890",
    b"-0.0",
    b"1E2",
    '{"clé": "\U0001f6b2 e\u0301", "a": [1, 2]}'.encode(),
    b'{ "spaced" : [ ] }',
    b'{"escaped":"\\u0041\\/"}',
]


@pytest.mark.parametrize("value", AWKWARD_VALUES)
async def test_payloads_come_back_byte_for_byte(store: Store, value: bytes) -> None:
    failure = Failure(type="Odd", message="\U0001f6b2", details=value, step="charge", attempt=2)
    run = a_run(input=value, context=value, metadata=value, error=failure)
    step = a_step(
        input=value, output=value, last_output=value, progress=value, error=failure,
        last_error=failure,
    )  # fmt: skip
    loaded = await started(store, run, step)
    assert loaded == replace(run, steps={"charge": step})


async def test_no_value_is_not_the_value_null(store: Store) -> None:
    without = Failure(type="Odd", message="", details=None)
    with_null = Failure(type="Odd", message="", details=b"null")
    steps = [
        a_step("a", input=None, last_output=None, error=without),
        a_step("b", input=b"null", last_output=b"null", error=with_null),
    ]
    loaded = await started(store, a_run(), *steps)
    assert (loaded.steps["a"], loaded.steps["b"]) == (steps[0], steps[1])


async def test_every_field_of_a_run_and_a_step_comes_back(store: Store) -> None:
    run = a_run(
        status=RunStatus.CANCELLED, version=7, seq=1, key="k \U0001f6b2", request_id="r",
        priority=0, tags=("b", "a", "b"), input=b"1", context=b"{}", metadata=b'{"m":1}',
        error=Failure(type="E", message="m", retryable=False, stack="s", attached="x"),
        triggered_by="cron", traceparent="00-1-2-00", restarted_from=an_id(90),
        parent_run_id=an_id(91), cancelled_by="ann", cancel_reason="why", start_at=later(1),
        settled_at=later(3), deadline_at=later(4), last_at=later(5), cursor="charge",
        last_step="reserve", signal_count=3, reached=b"\x05",
    )  # fmt: skip
    step = Step(
        path="hold", kind=StepKind.WAIT, status=StepStatus.WAITING, visit=2, attempt=3,
        iteration=4, release_count=5, dispatch_no=6, queue="q", task="t", worker_id="w",
        waiting_for=WaitReason.SIGNAL, signal="approved", wake_at=later(1), ready_at=later(2),
        dispatched_at=later(3), started_at=later(4), dispatch_deadline_at=later(5),
        attempt_deadline_at=later(6), heartbeat_deadline_at=later(7), step_deadline_at=later(8),
    )  # fmt: skip
    assert await started(store, run, step) == replace(run, steps={"hold": step})


async def test_only_open_and_asked_for_steps_are_loaded_in_order_of_path(store: Store) -> None:
    steps = [
        completed(a_step("a")),
        completed(a_step("b")),
        a_step("z"),
        a_step("c", status=StepStatus.READY, token=None, held_by="window"),
        a_step("d", status=StepStatus.PENDING, token=None),
    ]
    await save(store, a_start(a_run(), *steps))
    loaded = await load(store, an_id(1), ["b", "never"])
    assert loaded is not None
    assert list(loaded.steps) == ["b", "c", "z"]


async def test_loading_an_unknown_run_finds_nothing(store: Store) -> None:
    assert await load(store, an_id(404)) is None


@pytest.mark.parametrize("known", [True, False])
async def test_a_change_is_written_whether_or_not_the_run_as_it_was_is_passed(
    store: Store, known: bool
) -> None:
    step = a_step(input=b"1", progress=b"2", last_output=b"3")
    before = await started(store, a_run(metadata=b'{"a":1}'), step, a_step("other"))
    done = completed(step, output=b"4", progress=None, worker_id="w")
    fresh = a_step("ship")
    change = a_change(
        before, done, fresh, known=known, seq=2, last_step="charge", reached=b"\x03",
        signal_count=1, last_at=later(1),
    )  # fmt: skip
    assert await save(store, change) == {before.id}
    assert await load(store, before.id, ["charge"]) == change.run


@pytest.mark.parametrize("known", [True, False])
async def test_metadata_is_replaced_when_it_changes(store: Store, known: bool) -> None:
    before = await started(store, a_run(metadata=b'{"a":1}'))
    await save(store, a_change(before, known=known, metadata=b'{"a":2}'))
    loaded = await load(store, before.id)
    assert loaded is not None
    assert loaded.metadata == b'{"a":2}'


async def test_a_stale_version_writes_nothing_at_all(store: Store) -> None:
    before = await started(store, a_run(key="k"), a_step())
    await save(store, a_change(before, a_step(attempt=2)))
    as_it_was = await load(store, before.id)
    stale = a_change(
        before,
        completed(a_step()),
        status=RunStatus.COMPLETED,
        settled_at=later(1),
        output=b"1",
        seq=1,
        revoked=["token-charge"],
    )
    other = a_start(a_run(2), a_step())
    assert await save(store, stale, other) == {an_id(2)}
    assert await load(store, before.id) == as_it_was
    assert await store.get_history(before.id, 0, 10) == []
    assert await store.get_key("order", "k") == before.id
    assert await store.current_tokens([(before.id, "token-charge")]) == {"token-charge": False}


async def test_a_run_that_exists_is_not_inserted_again(store: Store) -> None:
    before = await started(store, a_run(input=b"1"), a_step())
    assert await save(store, a_start(a_run(input=b"2"), a_step("other"))) == set()
    assert await load(store, before.id) == before


async def test_an_exception_in_the_transaction_takes_everything_back(store: Store) -> None:
    class DeliberateError(Exception):
        pass

    async def write_and_fail() -> None:
        async with store.transaction() as tx:
            await tx.claim_keys([KeyClaim(run_id=an_id(1), workflow="order", key="k")])
            await tx.save(BatchWrite(runs=[a_start(a_run(key="k"), a_step())]))
            raise DeliberateError

    with pytest.raises(DeliberateError):
        await write_and_fail()
    assert await store.get_run(an_id(1)) is None
    assert await store.get_key("order", "k") is None
    assert await store.get_steps(an_id(1), None, 10) == []


async def test_reads_outside_see_committed_data_only(store: Store) -> None:
    async with store.transaction() as tx:
        await tx.save(BatchWrite(runs=[a_start(a_run(), a_step())]))
        assert await store.get_run(an_id(1)) is None
    assert await store.get_run(an_id(1)) == a_run()


async def test_a_settled_run_can_not_be_changed(store: Store) -> None:
    settled: dict[str, Any] = {"status": RunStatus.COMPLETED, "settled_at": later(1)}
    before = await started(store, a_run(**settled))
    with pytest.raises(StoreRejected) as caught:
        await save(store, a_change(before, metadata=b'{"late":1}'))
    assert caught.value.constraint == "run_settled_is_settled"
    assert await load(store, before.id) == before


@pytest.mark.parametrize("known", [True, False])
async def test_a_settled_step_can_not_be_changed_within_its_visit(
    store: Store, known: bool
) -> None:
    before = await started(store, a_run(), completed(a_step()))
    with pytest.raises(StoreRejected) as caught:
        await save(store, a_change(before, a_step(), known=known))
    assert caught.value.constraint == "step_settled_is_settled"
    again = a_change(before, a_step(visit=2), known=known)
    assert await save(store, again) == {before.id}


ILLEGAL_RUNS: dict[str, dict[str, Any]] = {
    "run_settled_at_with_status": {"status": RunStatus.COMPLETED},
    "run_begun_has_started_at": {"started_at": None},
    "run_pending_has_not_started": {"status": RunStatus.PENDING},
    "run_output_only_completed": {"output": b"1"},
    "run_priority_known": {"priority": 4},
    "run_counters_not_negative": {"signal_count": -1},
}

ILLEGAL_STEPS: dict[str, dict[str, Any]] = {
    "step_settled_at_with_status": {"settled_at": NOW},
    "step_token_with_live_attempt": {"token": None},
    "step_live_attempt_has_queue": {"queue": None},
    "step_waiting_for_with_status": {"waiting_for": WaitReason.BACKOFF, "wake_at": NOW},
    "step_awaited_signal_named": {
        "status": StepStatus.WAITING, "token": None, "waiting_for": WaitReason.SIGNAL,
    },
    "step_wait_has_an_instant": {
        "status": StepStatus.WAITING, "token": None, "waiting_for": WaitReason.SLEEP,
    },
    "step_counters_not_negative": {"visit": 0},
}  # fmt: skip


@pytest.mark.parametrize(("constraint", "overrides"), list(ILLEGAL_RUNS.items()))
async def test_a_run_in_an_impossible_state_is_refused_by_name(
    store: Store, constraint: str, overrides: dict[str, Any]
) -> None:
    with pytest.raises(StoreRejected) as caught:
        await save(store, a_start(a_run(**overrides)))
    assert caught.value.constraint == constraint
    assert await store.get_run(an_id(1)) is None


@pytest.mark.parametrize(("constraint", "overrides"), list(ILLEGAL_STEPS.items()))
async def test_a_step_in_an_impossible_state_is_refused_by_name(
    store: Store, constraint: str, overrides: dict[str, Any]
) -> None:
    with pytest.raises(StoreRejected) as caught:
        await save(store, a_start(a_run(), a_step(**overrides)))
    assert caught.value.constraint == constraint
    assert await store.get_run(an_id(1)) is None


@pytest.mark.parametrize("seqs", [[2], [1, 3], [1, 2], []])
async def test_a_gap_in_the_history_is_refused(store: Store, seqs: list[int]) -> None:
    start = replace(a_start(a_run(seq=3)), transitions=[a_transition(seq) for seq in seqs])
    with pytest.raises(StoreRejected) as caught:
        await save(store, start)
    assert caught.value.constraint == "transition_seq_gapless"


async def test_a_version_that_does_not_grow_is_refused(store: Store) -> None:
    before = await started(store, a_run())
    change = a_change(before)
    with pytest.raises(StoreRejected) as caught:
        await save(store, replace(change, run=replace(change.run, version=before.version)))
    assert caught.value.constraint == "run_version_grows"


async def test_the_history_comes_back_in_pages_and_unchanged(store: Store) -> None:
    rows = [
        a_transition(1, data={"big": 2**53 + 1, "float": 1.0, "text": "\U0001f6b2\x00"}),
        a_transition(
            2, what="step-dispatched", step="charge", before="ready", after="dispatched",
            attempt=1, iteration=0, visit=1, token="t",
            cause=Cause(type="report", kind="step.failed", token="t", worker_id="w", seed="00"),
        ),
        a_transition(3, at=later(1)),
    ]  # fmt: skip
    await save(store, replace(a_start(a_run(seq=3)), transitions=rows))
    assert await store.get_history(an_id(1), 0, 2) == rows[:2]
    assert await store.get_history(an_id(1), 2, 2) == rows[2:]
    assert await store.get_history(an_id(9), 0, 2) == []


async def test_a_locked_run_says_what_judges_a_cached_copy(store: Store) -> None:
    await save(store, a_start(a_run(2, version=5, last_step="charge")), a_start(a_run(1)))
    async with store.transaction() as tx:
        locked = await tx.lock_runs([an_id(2), an_id(404), an_id(1), an_id(2)])
    assert list(locked) == [an_id(1), an_id(2)]
    row = locked[an_id(2)]
    assert (row.version, row.workflow, row.workflow_version, row.last_step) == (
        5, "order", 1, "charge",
    )  # fmt: skip


async def test_steps_come_in_pages_by_path(store: Store) -> None:
    paths = ["Z", "a", "a/b", "lines[10]", "lines[2]", "é"]
    steps = {path: completed(a_step(path, input=b"1"), output=b"2") for path in paths}
    await save(store, a_start(a_run(), *steps.values()))
    first = await store.get_steps(an_id(1), None, 4)
    assert first == [steps[path] for path in paths[:4]]
    assert await store.get_steps(an_id(1), paths[3], 4) == [steps[path] for path in paths[4:]]
    assert await store.get_step(an_id(1), "a/b") == steps["a/b"]
    assert await store.get_step(an_id(1), "none") is None
    async with store.transaction() as tx:
        light = await tx.steps_state([an_id(1)])
    assert light[an_id(1)] == [replace(s, input=None, output=None) for s in steps.values()]


# Reads of runs


async def test_runs_are_listed_newest_first_by_every_filter(store: Store) -> None:
    await store.deploy_workflow("refund", "f-refund", msgspec.json.encode({"workflow": "refund"}))
    runs: dict[int, Run] = {}
    for number in range(1, 13):
        settled = number % 3 == 0
        runs[number] = a_run(
            number,
            created_at=NOW + timedelta(seconds=number // 2),
            workflow="refund" if number % 4 == 0 else "order",
            key=f"k{number % 2}" if settled else None,
            tags=("even",) if number % 2 == 0 else ("odd", "x"),
            status=RunStatus.COMPLETED if settled else RunStatus.RUNNING,
            settled_at=later(60) if settled else None,
        )
    for run in runs.values():
        await save(store, a_start(run))

    async def numbers(where: RunFilter) -> list[int]:
        found: list[int] = []
        cursor: str | None = None
        for _ in range(20):
            page = await store.list_runs(where, cursor, 2)
            found += [int(run.id[-4:], 16) for run in page.runs]
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise AssertionError("the pages do not end")

    assert await numbers(RunFilter()) == list(range(12, 0, -1))
    assert await numbers(RunFilter(workflow="refund")) == [12, 8, 4]
    assert await numbers(RunFilter(status="completed")) == [12, 9, 6, 3]
    assert await numbers(RunFilter(key="k1")) == [9, 3]
    assert await numbers(RunFilter(tag="odd")) == [11, 9, 7, 5, 3, 1]
    assert await numbers(RunFilter(tag="even", status="running", workflow="order")) == [10, 2]
    assert await numbers(RunFilter(key="k0", workflow="order", tag="even")) == [6]
    bounds = RunFilter(created_from=later(2), created_to=later(4))
    assert await numbers(bounds) == [7, 6, 5, 4]
    assert await numbers(RunFilter(tag="none")) == []


async def test_a_page_of_runs_leaves_payloads_behind(store: Store) -> None:
    run = a_run(
        input=b"1", context=b'{"c":1}', metadata=b'{"m":1}', output=b"2",
        status=RunStatus.COMPLETED, settled_at=later(1), tags=("a",),
    )  # fmt: skip
    await save(store, a_start(run))
    page = await store.list_runs(RunFilter(), None, 10)
    light = replace(run, input=b"null", context=b"{}", metadata=b"{}", output=None)
    assert list(page.runs) == [light]
    assert await store.get_run(run.id) == run


@pytest.mark.parametrize("cursor", ["", "x", "1.2", "999999999999999999." + an_id(1), "1"])
async def test_a_malformed_cursor_is_a_value_error(store: Store, cursor: str) -> None:
    with pytest.raises(CursorError, match="malformed cursor"):
        await store.list_runs(RunFilter(), cursor, 10)
    with pytest.raises(CursorError, match="malformed cursor"):
        await store.letters.page(cursor, 10, body_bytes_max=1)


@pytest.mark.parametrize("run_id", ["", "nonsense", "\x00", an_id(1).upper()])
async def test_an_id_that_is_none_finds_nothing(store: Store, run_id: str) -> None:
    await save(store, a_start(a_run(0xA), a_step()))
    assert await store.get_run(run_id) is None
    assert await store.run_statuses([run_id, an_id(0xA)]) == {an_id(0xA): "running"}
    assert await store.get_steps(run_id, None, 10) == []
    assert await store.get_step(run_id, "charge") is None
    assert await store.get_history(run_id, 0, 10) == []
    assert await store.get_logs(run_id, None, 0, 10) == []
    assert await store.find_token(run_id, "t") is None
    assert await store.current_tokens([(run_id, "t")]) == {}


async def test_open_runs_are_counted_by_status(store: Store) -> None:
    done = {"status": RunStatus.COMPLETED, "settled_at": NOW}
    waiting = {"status": RunStatus.WAITING}
    runs = [a_run(1), a_run(2), a_run(3, **waiting), a_run(4, **done)]
    await save(store, *map(a_start, runs))
    assert await count_open_runs(store) == {"running": 2, "waiting": 1}


async def test_workflow_versions_are_numbered_and_deduplicated_by_fingerprint(
    store: Store,
) -> None:
    first, created = await store.deploy_workflow("order", "f-order", b"ignored")
    assert (first.version, created) == (1, False)
    second, created = await store.deploy_workflow("order", "f2", b'{"workflow":"order","x":1.0}')
    assert (second.version, created) == (2, True)
    again, created = await store.deploy_workflow("order", "f-order", b"ignored")
    assert (again, created) == (first, False)
    assert await store.get_workflow("order", None) == second
    assert await store.get_workflow("order", 1) == first
    assert await store.get_workflow("order", 3) is None
    assert await store.get_workflow("none", None) is None
    other, _ = await store.deploy_workflow("aa", "f", b"{}")
    listed = await store.list_workflows()
    assert [(one.workflow, one.version) for one in listed] == [("aa", 1), ("order", 2)]
    assert await store.find_workflow("order", "f-order") == first
    assert await store.find_workflow("aa", "f") == other
    assert await store.find_workflow("aa", "f-order") is None
    async with store.transaction() as tx:
        assert await tx.newest_versions(["order", "none"]) == {"order": 2}


async def test_queues_are_remembered_once(store: Store) -> None:
    assert await store.add_queues(["b", "a", "b"], 5) == ["a", "b"]
    assert await store.add_queues(["a", "B"], 5) == ["B"]
    assert await store.list_queues() == ["B", "a", "b"]


async def test_loading_uses_the_definition_that_the_caller_has(store: Store) -> None:
    await save(store, a_start(a_run()))
    async with store.transaction() as tx:
        request = LoadRequest(run_id=an_id(1), definition=DEFINITION, paths=frozenset())
        loaded = await tx.load_runs([request])
    assert loaded[an_id(1)].definition is DEFINITION
