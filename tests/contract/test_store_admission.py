"""Pauses, and what they and full windows hold back, in both stores."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.support.store_builders import (
    a_change,
    a_run,
    a_start,
    a_step,
    an_outbox_row,
    completed,
    later,
    save,
    started,
)
from towpath_engine.core.gate import Scope
from towpath_engine.core.model import Run, Step
from towpath_engine.core.states import RunStatus, StepStatus
from towpath_engine.store.admission import HeldStep, PauseMade, QueueFacts
from towpath_engine.store.errors import PausesChanged, StoreRejected
from towpath_engine.store.interface import BatchWrite, SavedRun, Store


def a_ready_step(held_by: str = "queue:mail", path: str = "charge", at: float = 0) -> Step:
    return a_step(
        path,
        status=StepStatus.READY,
        token=None,
        dispatched_at=None,
        held_by=held_by,
        queue="mail",
        ready_at=later(at),
    )


async def held(store: Store, held_by: str, *, by_level: int = 100, by_time: int = 0) -> list[str]:
    rows = await store.admission.held(held_by, by_level=by_level, by_time=by_time)
    return sorted(f"{int(row.run_id[-4:], 16)}/{row.path or ''}" for row in rows)


async def holders(store: Store) -> dict[str, int]:
    return {one.held_by: one.level for one in await store.admission.backlogs(100)}


async def pause(
    store: Store, scope: Scope, name: str, *, pauses_max: int = 1_000, **said: str
) -> PauseMade:
    return await store.admission.pause(scope, name, pauses_max=pauses_max, **said)


# Pauses


async def test_a_pause_is_kept_with_who_and_why_and_changes_the_epoch(store: Store) -> None:
    before = await store.admission.pauses()
    assert before.pauses == []
    made = await pause(store, Scope.QUEUE, "mail", by="ops", reason="it is down")
    assert made is PauseMade.MADE
    now = await store.admission.pauses()
    (found,) = now.pauses
    assert (found.scope, found.name, found.by, found.reason) == (
        Scope.QUEUE, "mail", "ops", "it is down",
    )  # fmt: skip
    assert now.epoch == before.epoch + 1


async def test_a_second_pause_changes_nothing_not_even_who_it_was(store: Store) -> None:
    await pause(store, Scope.TASK, "t", by="first")
    before = await store.admission.pauses()
    assert await pause(store, Scope.TASK, "t", by="second") is PauseMade.STANDING
    assert await store.admission.pauses() == before


async def test_there_are_as_many_pauses_as_there_may_be_and_one_that_stands_stays(
    store: Store,
) -> None:
    for name in ("a", "b"):
        assert await pause(store, Scope.TASK, name, pauses_max=2) is PauseMade.MADE
    before = await store.admission.pauses()
    assert await pause(store, Scope.QUEUE, "c", pauses_max=2) is PauseMade.FULL
    assert await pause(store, Scope.TASK, "a", pauses_max=2) is PauseMade.STANDING
    assert await store.admission.pauses() == before
    await store.admission.resume(Scope.TASK, "a")
    assert await pause(store, Scope.QUEUE, "c", pauses_max=2) is PauseMade.MADE


async def test_pauses_that_are_made_at_once_are_counted_one_after_the_other(store: Store) -> None:
    made = await asyncio.gather(
        *(pause(store, Scope.TASK, f"t{number}", pauses_max=3) for number in range(8))
    )
    assert sorted(made) == sorted([PauseMade.MADE] * 3 + [PauseMade.FULL] * 5)
    assert len((await store.admission.pauses()).pauses) == 3


async def test_a_resume_lifts_exactly_the_pause_of_that_name(store: Store) -> None:
    for scope, name in [(Scope.WORKFLOW, "order"), (Scope.VERSION, "order@1")]:
        await pause(store, scope, name)
    before = await store.admission.pauses()
    assert await store.admission.resume(Scope.WORKFLOW, "order")
    assert not await store.admission.resume(Scope.WORKFLOW, "order")
    assert not await store.admission.resume(Scope.QUEUE, "order@1")
    now = await store.admission.pauses()
    assert [pause.name for pause in now.pauses] == ["order@1"]
    assert now.epoch == before.epoch + 1


# The fence


@pytest.mark.parametrize("alone", [True, False])
async def test_a_batch_decided_under_other_pauses_is_not_written(store: Store, alone: bool) -> None:
    run = await started(store, a_run())
    epoch = (await store.admission.pauses()).epoch
    await pause(store, Scope.QUEUE, "mail")
    batch = BatchWrite(runs=[a_change(run, a_step())], pause_epoch=epoch)
    with pytest.raises(PausesChanged):
        async with store.transaction() as tx:
            await (tx.save_alone(batch) if alone else tx.save(batch))
    assert await store.get_steps(run.id, None, 9) == []
    again = replace(batch, pause_epoch=epoch + 1)
    async with store.transaction() as tx:
        assert await (tx.save_alone(again) if alone else tx.save(again))
    assert [step.path for step in await store.get_steps(run.id, None, 9)] == ["charge"]


async def test_a_batch_without_dispatches_does_not_ask_what_is_paused(store: Store) -> None:
    run = await started(store, a_run(), a_step())
    await pause(store, Scope.QUEUE, "mail")
    assert await save(store, a_change(run, completed(run.steps["charge"]))) == {run.id}


async def test_a_pause_waits_for_the_batches_that_were_decided_before_it(store: Store) -> None:
    run = await started(store, a_run())
    epoch = (await store.admission.pauses()).epoch
    order: list[str] = []
    async with store.transaction() as tx:
        await tx.save(BatchWrite(runs=[a_change(run, a_step())], pause_epoch=epoch))
        pausing = asyncio.create_task(pause(store, Scope.QUEUE, "mail"))
        pausing.add_done_callback(lambda _: order.append("paused"))
        await store.now()  # a round trip: time enough for a pause that would not wait
        order.append("committing")
    assert await pausing is PauseMade.MADE
    assert order == ["committing", "paused"]


# What is held


async def test_a_ready_step_is_found_by_what_holds_it(store: Store) -> None:
    await started(store, a_run(1), a_ready_step("queue:mail"))
    await started(store, a_run(2, priority=0), a_ready_step("window:mail"))
    await started(store, a_run(3), a_step())
    assert await holders(store) == {"queue:mail": 2, "window:mail": 0}
    assert await held(store, "queue:mail") == ["1/charge"]
    assert await store.admission.held("window:mail", by_level=1, by_time=1) == [
        HeldStep(run_id=a_run(2).id, path="charge", level=0, ready_at=later(0))
    ]
    assert await held(store, "queue:other") == []


async def test_windows_are_found_before_all_else_that_holds_something(store: Store) -> None:
    names = [
        "queue:a", "task:a", "task:b", "task:c", "version:a@1", "window:a", "window:b",
        "workflow:a", "workflow:b",
    ]  # fmt: skip
    for number, name in enumerate(names):
        await started(store, a_run(number), a_ready_step(name), a_ready_step(name, path="more"))
    found = {
        limit: [one.held_by for one in await store.admission.backlogs(limit)] for limit in (1, 2, 9)
    }
    assert found == {
        1: ["window:a", "workflow:a", "queue:a"],
        2: ["window:a", "window:b", "workflow:a", "workflow:b", "queue:a", "task:a"],
        9: ["window:a", "window:b", "workflow:a", "workflow:b", *names[:5]],
    }


@pytest.mark.parametrize("known", [True, False])
async def test_a_step_is_not_held_any_more_once_it_is_dispatched(store: Store, known: bool) -> None:
    run = await started(store, a_run(), a_ready_step())
    await save(store, a_change(run, a_step(), known=known))
    assert await holders(store) == {}


async def test_a_step_that_something_else_holds_is_found_there(store: Store) -> None:
    run = await started(store, a_run(), a_ready_step())
    await save(store, a_change(run, a_ready_step("window:mail")))
    assert await holders(store) == {"window:mail": 2}


async def test_what_a_settled_run_had_held_is_gone(store: Store) -> None:
    run = await started(store, a_run(), a_ready_step())
    cancelled = completed(
        run.steps["charge"], status=StepStatus.CANCELLED, held_by=None, output=None
    )
    change = a_change(run, cancelled, status=RunStatus.CANCELLED, settled_at=later(1))
    await save(store, change)
    assert await holders(store) == {}


async def test_what_the_pause_of_its_run_holds_is_not_among_them(store: Store) -> None:
    run = await started(store, a_run(paused_at=later(0)), a_ready_step("run"))
    assert await holders(store) == {}
    await save(store, a_change(run, a_ready_step("queue:mail"), paused_at=None))
    assert await holders(store) == {"queue:mail": 2}


def a_pending_run(number: int, held_by: str | None) -> Run:
    return a_run(number, status=RunStatus.PENDING, started_at=None, held_by=held_by)


async def test_a_run_that_may_not_begin_is_held_without_a_path(store: Store) -> None:
    run = a_pending_run(1, "workflow:order")
    await save(store, a_start(run))
    await save(store, a_start(a_pending_run(2, "run")))
    assert await held(store, "workflow:order") == ["1/"]
    assert await holders(store) == {"workflow:order": 2}
    begun = SavedRun(
        run=replace(run, status=RunStatus.RUNNING, started_at=later(1), held_by=None, version=2),
        expected_version=run.version,
        before=run,
    )
    await save(store, begun)
    assert await holders(store) == {}


async def test_only_a_pending_run_may_be_held(store: Store) -> None:
    run = await started(store, a_run())
    with pytest.raises(StoreRejected) as rejected:
        await save(store, a_change(run, held_by="workflow:order"))
    assert rejected.value.constraint == "run_held_by_while_pending"


async def test_a_page_has_the_most_urgent_first_and_the_oldest_besides(store: Store) -> None:
    for number, (level, at) in enumerate([(3, 0), (2, 5), (0, 9), (2, 4), (3, 8)], start=1):
        await started(store, a_run(number, priority=level), a_ready_step(at=at))
    assert await held(store, "queue:mail", by_level=3) == ["2/charge", "3/charge", "4/charge"]
    assert await held(store, "queue:mail", by_level=1, by_time=2) == [
        "1/charge", "3/charge", "4/charge",
    ]  # fmt: skip
    assert await held(store, "queue:mail", by_level=0, by_time=1) == ["1/charge"]
    assert len(await held(store, "queue:mail", by_level=9, by_time=9)) == 5


async def test_undone_are_the_live_attempts_of_a_queue_whatever_became_of_them(
    store: Store,
) -> None:
    await store.add_queues(["mail"], 9)
    await started(store, a_run(1), a_step("a", queue="mail"), a_step("b", queue="other", token="o"))
    running = a_step(
        "a", queue="mail", token="r", status=StepStatus.RUNNING, worker_id="w", started_at=later(0)
    )
    run = await started(store, a_run(2, priority=1), running, a_ready_step("window:mail", "x"))
    await started(store, a_run(3, priority=0), a_ready_step("queue:mail"))
    found = await store.admission.queues(["mail", "void"], 100)
    mail, void = found["mail"], found["void"]
    assert (mail.undone, mail.window_level, mail.pause_level) == (2, 1, 0)
    assert mail.known_since is not None
    assert void == QueueFacts(undone=0, window_level=None, pause_level=None, known_since=None)
    assert (await store.admission.queues(["mail"], 1))["mail"].undone == 1
    await save(store, a_change(run, completed(run.steps["a"])))
    assert (await store.admission.queues(["mail"], 100))["mail"].undone == 1


async def test_unpublished_are_the_tokens_that_the_outbox_still_has(store: Store) -> None:
    run = await started(store, a_run())
    rows = [an_outbox_row(1, run, token="a"), an_outbox_row(2, run, token="b")]
    await save(store, a_change(run, outbox=rows))
    assert await store.admission.unpublished(["a", "c"]) == {"a"}
    assert await store.admission.unpublished([]) == set()
