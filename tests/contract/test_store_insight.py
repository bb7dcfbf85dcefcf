"""The contract of what `explain` asks, for both stores."""

from datetime import UTC, datetime

from msgspec.structs import replace

from tests.support.store_builders import (
    NOW,
    a_letter,
    a_run,
    a_signal,
    a_step,
    an_id,
    an_outbox_row,
    completed,
    later,
    started,
)
from towpath_engine.core.states import StepKind, StepStatus
from towpath_engine.store.insight import HeldBacklog, HeldPlace, KeptName, QueuePlace
from towpath_engine.store.interface import BatchWrite, Store
from towpath_protocol.ids import UUID_RANDOM_BYTES, new_uuid7


async def test_only_open_steps_are_read_in_order_of_path_without_payloads(store: Store) -> None:
    await started(store, a_run(), a_step("c"), a_step("a"), completed(a_step("b")), a_step("d"))
    found = await store.insight.open_steps(an_id(1), 2)
    assert [step.path for step in found] == ["a", "c"]
    assert {step.input for step in found} == {None}
    assert await store.insight.count_open_steps(an_id(1)) == 3


async def test_what_is_open_only_because_of_what_lies_below_is_not_among_the_open_steps(
    store: Store,
) -> None:
    held = {"status": StepStatus.RUNNING, "attempt": 0, "token": None, "queue": None, "task": None}
    await started(
        store,
        a_run(),
        a_step("lines", kind=StepKind.MAP, **held),
        a_step("lines[0]", kind=StepKind.ITEM, **held),
        a_step("lines[0]/pick"),
    )
    found = await store.insight.open_steps(an_id(1), 2)
    assert [step.path for step in found] == ["lines[0]/pick"]
    assert await store.insight.count_open_steps(an_id(1)) == 1


async def test_more_urgent_and_earlier_dispatches_of_the_queue_go_first(store: Store) -> None:
    for number, (level, at, queue) in enumerate(
        [(2, 0, "mail"), (2, 5, "mail"), (1, 9, "mail"), (3, 0, "mail"), (0, 0, "other")]
    ):
        run = a_run(id=an_id(number + 1), key=None, priority=level)
        step = a_step("s", queue=queue, token=f"t{number}", dispatched_at=later(at))
        await started(store, run, step)
    places = [
        QueuePlace(queue="mail", level=2, dispatched_at=later(5), run_id=an_id(2), path="s"),
        QueuePlace(queue="mail", level=1, dispatched_at=later(9), run_id=an_id(3), path="s"),
        QueuePlace(queue="mail", level=3, dispatched_at=later(0), run_id=an_id(4), path="s"),
    ]
    assert await store.insight.ahead_of(places, 100) == [2, 0, 3]
    assert await store.insight.ahead_of(places, 1) == [1, 0, 1]


async def test_what_a_worker_has_does_not_go_before_anything(store: Store) -> None:
    running = a_step("s", status=StepStatus.RUNNING, worker_id="w", started_at=NOW)
    await started(store, a_run(), running)
    place = QueuePlace(queue="default", level=3, dispatched_at=later(9), run_id=an_id(9), path="s")
    assert await store.insight.ahead_of([place], 100) == [0]


async def test_what_was_dispatched_in_the_same_instant_goes_by_run_and_path(store: Store) -> None:
    for number in (1, 2):
        steps = [a_step(path, queue="mail", token=f"{path}{number}") for path in ("a", "b")]
        await started(store, a_run(number), *steps)
    places = [
        QueuePlace(queue="mail", level=2, dispatched_at=NOW, run_id=an_id(number), path=path)
        for number in (1, 2)
        for path in ("a", "b")
    ]
    assert await store.insight.ahead_of(places, 100) == [0, 1, 2, 3]


async def test_what_was_held_back_in_the_same_instant_goes_by_run_and_path(store: Store) -> None:
    for number in (1, 2):
        steps = [
            a_step(
                path,
                status=StepStatus.READY,
                token=None,
                dispatched_at=None,
                held_by="window:mail",
                ready_at=NOW,
            )
            for path in ("a", "b")
        ]
        await started(store, a_run(number), *steps)
    places = [
        HeldPlace(held_by="window:mail", level=2, ready_at=NOW, run_id=an_id(number), path=path)
        for number in (1, 2)
        for path in ("a", "b")
    ]
    assert await store.insight.held_ahead_of(places, 100) == [0, 1, 2, 3]
    taken = await store.admission.held("window:mail", by_level=3, by_time=0)
    assert {(row.run_id, row.path) for row in taken} == {
        (place.run_id, place.path) for place in places[:3]
    }


async def test_held_steps_are_counted_by_what_holds_them(store: Store) -> None:
    for number in range(3):
        step = a_step(
            "s",
            status=StepStatus.READY,
            token=None,
            held_by="queue:mail" if number else "window:mail",
            ready_at=later(number),
        )
        await started(store, a_run(id=an_id(number + 1), key=None, priority=3 - number), step)
    found = await store.insight.backlogs_of(["queue:mail", "window:mail", "task:x"], 100)
    assert found == {
        "queue:mail": HeldBacklog(count=2, oldest_at=later(1)),
        "window:mail": HeldBacklog(count=1, oldest_at=NOW),
        "task:x": HeldBacklog(count=0, oldest_at=None),
    }
    bounded = await store.insight.backlogs_of(["queue:mail"], 1)
    assert bounded["queue:mail"].count == 1
    places = [
        HeldPlace(held_by="queue:mail", level=2, ready_at=later(1), run_id=an_id(2), path="s"),
        HeldPlace(held_by="queue:mail", level=1, ready_at=later(2), run_id=an_id(3), path="s"),
    ]
    assert await store.insight.held_ahead_of(places, 100) == [1, 0]


async def test_the_newest_dead_letter_of_each_step_of_a_run_is_found(store: Store) -> None:
    letters = [
        replace(a_letter(1), run_id=an_id(1), step="a"),
        replace(a_letter(2), run_id=an_id(1), step="a"),
        replace(a_letter(3), run_id=an_id(1), step=None),
        replace(a_letter(4), run_id=an_id(2), step="a"),
    ]
    async with store.transaction() as tx:
        await tx.save(BatchWrite(dead_letters=letters))
    found = await store.insight.letters_of(an_id(1), 100)
    assert found == {"a": letters[1].id, None: letters[2].id}


async def test_what_the_outbox_still_has_says_since_when(store: Store) -> None:
    run = a_run()
    first = new_uuid7(1_700_000_000_000, bytes(UUID_RANDOM_BYTES))
    second = new_uuid7(1_700_000_005_000, bytes(UUID_RANDOM_BYTES))
    rows = [
        an_outbox_row(1, run, id=second, token="a"),
        an_outbox_row(2, run, id=first, token="a"),
        an_outbox_row(3, run, token=None),
    ]
    await started(store, run, outbox=rows)
    found = await store.insight.written_at(["a", "b"])
    assert found == {"a": datetime.fromtimestamp(1_700_000_000, UTC)}
    assert await store.insight.written_at([]) == {}


async def test_kept_signals_are_counted_by_name_without_those_that_were_taken(store: Store) -> None:
    run = a_run()
    signals = [
        a_signal(1, run, name="go", received_at=later(1)),
        a_signal(2, run, name="goo"),
        a_signal(3, run, name="go", received_at=later(9)),
        a_signal(4, run, name="taken", consumed_by="wait"),
    ]
    await started(store, replace(run, signal_count=4), signals=signals)
    assert await store.insight.kept_names(run.id, 10) == [
        KeptName(name="go", count=2, newest_at=later(9)),
        KeptName(name="goo", count=1, newest_at=NOW),
    ]
    assert [one.name for one in await store.insight.kept_names(run.id, 1)] == ["go"]
    assert await store.insight.kept_names(an_id(9), 10) == []


async def test_kept_signals_are_read_in_order_of_arrival_with_their_payloads(store: Store) -> None:
    run = a_run()
    signals = [a_signal(number, run) for number in (1, 2, 3)]
    taken = a_signal(4, run, consumed_by="wait")
    await started(store, replace(run, signal_count=4), signals=[*signals[::-1], taken])
    assert await store.insight.kept_signals(run.id) == tuple(one.signal for one in signals)
    assert await store.insight.kept_signals(an_id(9)) == ()
