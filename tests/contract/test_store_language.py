"""Parts, undos and children in both stores: rows that are asked for, and what may change again."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.store_builders import (
    NOW,
    a_change,
    a_run,
    a_start,
    a_step,
    an_id,
    an_outbox_row,
    completed,
    later,
    load,
    save,
    started,
)
from tests.support.stores import KINDS, a_store
from towpath_engine.core.model import Failure, Parts, Step
from towpath_engine.core.states import RunStatus, StepKind, StepStatus, WaitReason
from towpath_engine.store.census import CensusPlace
from towpath_engine.store.errors import StoreRejected
from towpath_engine.store.interface import RowsRequest, Store


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, postgres_url: str) -> AsyncGenerator[Store]:
    async with a_store(request.param, postgres_url) as store:
        yield store


def a_whole(path: str, kind: StepKind, **overrides: Any) -> Step:
    values: dict[str, Any] = {"status": StepStatus.RUNNING, "started_at": NOW}
    return Step(path=path, kind=kind, **{**values, **overrides})


def a_child_wait(path: str, child: str) -> Step:
    return Step(
        path=path,
        kind=StepKind.RUN,
        status=StepStatus.WAITING,
        waiting_for=WaitReason.CHILD,
        child_run_id=child,
    )


def undoing(step: Step, **overrides: Any) -> Step:
    values: dict[str, Any] = {
        "status": StepStatus.COMPENSATING,
        "settled_at": None,
        "token": "undo",
        "queue": "default",
        "dispatched_at": NOW,
    }
    return replace(step, **{**values, **overrides})


async def asked(store: Store, **wanted: Any) -> list[str]:
    async with store.transaction() as tx:
        found = await tx.load_rows([RowsRequest(run_id=an_id(1), **wanted)])
    return sorted(found[an_id(1)])


async def test_what_a_whole_a_part_an_undo_and_a_child_have_comes_back(store: Store) -> None:
    run = a_run(
        parent_run_id=an_id(9), parent_step="a/b[3]/c", depth=7, ending=RunStatus.FAILED,
        status=RunStatus.COMPENSATING, compensation=RunStatus.COMPENSATING, undo_top="a#2",
        error=Failure(type="E", message="m"),
    )  # fmt: skip
    whole = a_whole(
        "lines", StepKind.MAP, input=b"[1,2]", errors=b'{"0":{}}',
        parts=Parts(total=9, started=5, open=2, failed=1),
    )  # fmt: skip
    item = a_whole("lines[0]", StepKind.ITEM, last_step="lines[0]/a", reached=b"\x05")
    done = completed(a_step("lines[0]/a"), undo_below="")
    child = a_child_wait("invoice", an_id(77))
    steps = [whole, item, child, undoing(a_step("first")), done]
    loaded = await started(store, run, *steps)
    assert loaded == replace(run, steps={step.path: step for step in sorted(steps, key=_path)})
    after = a_change(
        loaded, replace(whole, parts=Parts(total=9, started=6, open=3, failed=1)),
        undo_top=None, compensation=RunStatus.COMPENSATED,
    )  # fmt: skip
    assert await save(store, after) == {run.id}
    assert await load(store, run.id, ["lines[0]/a"]) == after.run


def _path(step: Step) -> str:
    return step.path


async def test_rows_are_found_by_path_by_whole_and_by_status(store: Store) -> None:
    failed: dict[str, Any] = {"status": StepStatus.FAILED, "output": None}
    steps = [
        a_whole("lines", StepKind.MAP),
        a_whole("lines[0]", StepKind.ITEM),
        completed(a_step("lines[0]/deep"), kind=StepKind.MAP),
        a_whole("lines[0]/deep[4]", StepKind.ITEM),
        a_whole("lines[10]", StepKind.ITEM),
        completed(a_step("lines[10]/a"), **failed),
        a_whole("lines_too[0]", StepKind.ITEM),
        a_whole("notify", StepKind.PARALLEL),
        a_whole("notify/email", StepKind.BRANCH),
        completed(a_step("notify/email/send")),
        a_whole("notify/email/both/one", StepKind.BRANCH),
        completed(a_step("notify/email/send#1")),
    ]
    await save(
        store, a_start(a_run(), *steps), a_start(a_run(2), a_whole("lines[1]", StepKind.ITEM))
    )
    assert await asked(store, parts_of=frozenset({"lines"})) == ["lines[0]", "lines[10]"]
    assert await asked(store, parts_of=frozenset({"lines[0]/deep"})) == ["lines[0]/deep[4]"]
    assert await asked(store, parts_of=frozenset({"notify"})) == ["notify/email"]
    assert await asked(store, paths=frozenset({"notify/email/send#1", "never"})) == [
        "notify/email/send#1"
    ]
    assert await asked(
        store, statuses=frozenset({StepStatus.FAILED}), paths=frozenset({"lines"})
    ) == ["lines", "lines[10]/a"]


async def test_a_completed_step_may_be_undone_and_a_failed_undo_tried_again(store: Store) -> None:
    step = completed(a_step())
    run = await started(store, a_run(), step)
    run = a_change(run, undoing(step), status=RunStatus.COMPENSATING)
    await save(store, run)
    bad = undoing(step, status=StepStatus.COMPENSATION_FAILED, token=None, settled_at=later(2))
    over = a_change(run.run, bad, status=RunStatus.COMPENSATION_FAILED, settled_at=later(2))
    await save(store, over)
    again = a_change(over.run, undoing(step), status=RunStatus.COMPENSATING, settled_at=None)
    assert await save(store, again) == {an_id(1)}
    done = undoing(step, status=StepStatus.COMPENSATED, token=None, settled_at=later(3))
    last = a_change(again.run, done, status=RunStatus.COMPENSATED, settled_at=later(3))
    assert await save(store, last) == {an_id(1)}
    with pytest.raises(StoreRejected):
        await save(store, a_change(last.run, undoing(step)))
    with pytest.raises(StoreRejected):
        await save(store, a_change(last.run, status=RunStatus.COMPENSATING, settled_at=None))


async def test_an_undo_may_fail_in_the_decision_that_begins_it(store: Store) -> None:
    run = await started(store, a_run(), completed(a_step()))
    failed = replace(completed(a_step()), status=StepStatus.COMPENSATION_FAILED, output=None)
    over = a_change(run, failed, status=RunStatus.COMPENSATION_FAILED, settled_at=later(2))
    assert await save(store, over) == {an_id(1)}


ILLEGAL: dict[str, Step] = {
    "step_undo_has_a_stage": undoing(a_step(), token=None),
    "step_runs_an_attempt_or_parts": a_step(status=StepStatus.RUNNING, token=None),
    "step_token_with_live_attempt": a_step(status=StepStatus.CANCELLING, token=None),
    "step_awaited_child_named": replace(a_child_wait("a", an_id(2)), child_run_id=None),
}


@pytest.mark.parametrize(("constraint", "step"), list(ILLEGAL.items()))
async def test_a_step_of_which_nothing_comes_is_refused_by_name(
    store: Store, constraint: str, step: Step
) -> None:
    with pytest.raises(StoreRejected) as caught:
        await save(store, a_start(a_run(), step))
    assert caught.value.constraint == constraint


async def test_what_is_being_cancelled_is_found_and_its_dispatch_not_sent_again(
    store: Store,
) -> None:
    held = a_step("b", status=StepStatus.CANCELLING)
    seen = a_step("c", status=StepStatus.CANCELLING, started_at=NOW)
    run = a_run()
    rows = [an_outbox_row(5, run, token=held.token), an_outbox_row(6, run, token="token-a")]
    await save(store, a_start(run, a_step("a"), held, seen, outbox=rows))
    found = await store.unfinished.cancelling(None, 10)
    assert [(row.path, row.cancelling, row.in_outbox) for row in found] == [("b", True, True)]
    assert await store.unfinished.cancelling((run.id, "b"), 10) == []
    asked = [(run.id, token) for token in ("token-a", "token-b", "token-c")]
    live = {"token-a": False, "token-b": True, "token-c": True}
    assert await store.current_tokens(asked) == live
    assert [row.token for row in await store.due_outbox(later(60), 10)] == ["token-a"]
    assert [row.in_outbox for row in await store.unfinished.cancelling(None, 10)] == [False]


async def test_who_waits_for_a_child_is_found_and_no_orphan(store: Store) -> None:
    waiting = a_run(status=RunStatus.WAITING)
    await save(store, a_start(waiting, a_child_wait("b", an_id(2)), a_child_wait("c", an_id(3))))
    over: dict[str, Any] = {"status": RunStatus.FAILED, "settled_at": NOW}
    await save(store, a_start(a_run(2, parent_run_id=waiting.id, parent_step="b", **over)))
    found = await store.unfinished.awaited_children(None, 10)
    assert [(row.path, row.child_run_id, row.exists, row.settled) for row in found] == [
        ("b", an_id(2), True, True), ("c", an_id(3), False, False),
    ]  # fmt: skip
    await save(store, a_start(a_run(3, parent_run_id=waiting.id)))
    found = await store.unfinished.awaited_children((waiting.id, "b"), 10)
    assert [(row.path, row.exists, row.settled, row.detached) for row in found] == [
        ("c", True, False, True)
    ]
    page = await store.unfinished.awaited_children((waiting.id, "b"), 1)
    assert [row.path for row in page] == ["c"]
    census = await store.census.page(CensusPlace(status="waiting"), 10)
    assert (census.runs, census.orphans) == (1, 0)


async def test_a_live_child_that_nobody_waits_for_is_found(store: Store) -> None:
    parent = a_run(status=RunStatus.WAITING)
    await save(store, a_start(parent, a_child_wait("b", an_id(2)), a_child_wait("c", an_id(9))))
    kin: dict[str, Any] = {"parent_run_id": parent.id, "parent_step": "c"}
    await save(
        store,
        a_start(a_run(2, parent_run_id=parent.id, parent_step="b")),
        a_start(a_run(3, **kin)),
        a_start(a_run(4, parent_run_id=parent.id)),
        a_start(a_run(5, **kin, ending=RunStatus.CANCELLED, status=RunStatus.COMPENSATING)),
        a_start(a_run(6, **kin, revival_count=1)),
        a_start(a_run(7, **kin, status=RunStatus.CANCELLED, settled_at=NOW)),
        a_start(a_run(8, **kin)),
    )
    found = await store.unfinished.orphaned_children(None, 10)
    assert [(row.run_id, row.parent_run_id, row.parent_step) for row in found] == [
        (an_id(3), parent.id, "c"), (an_id(8), parent.id, "c"),
    ]  # fmt: skip
    assert [row.run_id for row in await store.unfinished.orphaned_children(None, 1)] == [an_id(3)]
    rest = await store.unfinished.orphaned_children(an_id(3), 10)
    assert [row.run_id for row in rest] == [an_id(8)]


async def test_the_key_that_a_child_is_to_have_is_kept(store: Store) -> None:
    run = a_run(status=RunStatus.WAITING)
    step = replace(a_child_wait("b", an_id(2)), child_key="order-7")
    await save(store, a_start(run, step))
    kept = await store.get_step(run.id, "b")
    assert kept is not None
    assert (kept.child_run_id, kept.child_key) == (an_id(2), "order-7")
