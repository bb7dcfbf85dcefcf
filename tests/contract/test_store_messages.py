"""The contract of a store, for both of them: signals, outbox, timers, logs, dead letters."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.census import count_runs_without_reason
from tests.support.store_builders import (
    NOW,
    a_change,
    a_run,
    a_signal,
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
from towpath_engine.core.states import RunStatus, StepKind, StepStatus, WaitReason
from towpath_engine.store.errors import StoreRejected
from towpath_engine.store.interface import (
    ConsumedSignal,
    KeyedSignalId,
    ParkedSignal,
    SignalId,
    Store,
)
from towpath_engine.store.leases import PARTITIONS
from towpath_engine.store.records import DueTimer, OpenDispatch
from towpath_protocol.subjects import partition_of

FAR = timedelta(days=365 * 1000)

# Signals


async def test_kept_signals_come_back_in_order_and_taken_ones_do_not(store: Store) -> None:
    run = a_run(signal_count=3)
    rows = [
        a_signal(2, run, payload=b"1.0", sent_by="ann \U0001f6b2"),
        a_signal(1, run, name="other"),
        a_signal(3, run, consumed_by="hold"),
    ]
    before = await started(store, run, signals=rows)
    assert before.kept == (rows[1].signal, rows[0].signal)
    taken = [ConsumedSignal(run_id=run.id, number=2, consumed_by="hold")]
    await save(store, a_change(before, consumed=taken))
    loaded = await load(store, run.id)
    assert loaded is not None
    assert loaded.kept == (rows[1].signal,)


async def test_a_signal_is_known_for_the_life_of_the_run_taken_or_not(store: Store) -> None:
    run = a_run()
    rows = [a_signal(1, run), a_signal(2, run, consumed_by="hold")]
    await started(store, run, signals=rows)

    def identity(name: str, message_id: str, run_id: str = run.id) -> SignalId:
        return SignalId(run_id=run_id, name=name, message_id=message_id)

    known = {identity("approved", "s-1"), identity("approved", "s-2")}
    unknown = {
        identity("other", "s-1"),
        identity("approved", "s-3"),
        identity("approved", "s-1", an_id(2)),
    }
    async with store.transaction() as tx:
        assert await tx.known_signals([*known, *unknown]) == known


async def test_a_signal_of_the_same_identity_is_refused(store: Store) -> None:
    run = a_run()
    before = await started(store, run, signals=[a_signal(1, run, message_id="same")])
    with pytest.raises(StoreRejected) as caught:
        await save(store, a_change(before, signals=[a_signal(2, run, message_id="same")]))
    assert caught.value.constraint == "signal_message_id_once"


async def test_a_signal_is_consumed_once(store: Store) -> None:
    run = a_run()
    before = await started(store, run, signals=[a_signal(1, run, consumed_by="hold")])
    again = [ConsumedSignal(run_id=run.id, number=1, consumed_by="hold2")]
    with pytest.raises(StoreRejected) as caught:
        await save(store, a_change(before, consumed=again))
    assert caught.value.constraint == "signal_consumed_once"


async def test_signals_of_a_run_that_did_not_match_are_not_kept(store: Store) -> None:
    before = await started(store, a_run())
    await save(store, a_change(before))
    await save(store, a_change(before, signals=[a_signal(1, before)]))
    loaded = await load(store, before.id)
    assert loaded is not None
    assert loaded.kept == ()


async def test_signals_by_key_are_remembered(store: Store) -> None:
    identity = KeyedSignalId(workflow="order", key="k", name="approved", message_id="m")
    await save(store, keyed_signals=[(identity, an_id(1)), (identity, an_id(1))])
    await save(store, keyed_signals=[(identity, an_id(2))])
    others = [replace(identity, key="k2"), replace(identity, message_id="m2")]
    async with store.transaction() as tx:
        assert await tx.known_keyed_signals([identity, *others]) == {identity}
    assert await store.prune_signal_ids(10) == 0


def a_parked(number: int, **overrides: Any) -> ParkedSignal:
    values: dict[str, Any] = {
        "id": an_id(number),
        "run_id": an_id(900 + number),
        "name": "approved",
        "payload": b"9007199254740993",
        "message_id": f"m{number}",
        "received_at": later(-number),
        "expires_at": NOW + FAR,
    }
    return ParkedSignal(**{**values, **overrides})


async def test_parked_signals_are_taken_once_by_run_or_key_in_order_of_arrival(
    store: Store,
) -> None:
    by_run = [a_parked(1, run_id=an_id(50)), a_parked(2, run_id=an_id(50))]
    by_key = a_parked(3, run_id=None, workflow="order", key="k")
    other = a_parked(4)
    await save(store, parked=[*by_run, by_key, other])
    assert await store.count_parked(3) == 3
    async with store.transaction() as tx:
        taken = await tx.take_parked([an_id(50), an_id(51)], [("order", "k"), ("order", "j")])
    assert taken == [by_key, by_run[1], by_run[0]]
    async with store.transaction() as tx:
        assert await tx.take_parked([an_id(50)], [("order", "k")]) == []
    assert await store.count_parked(3) == 1
    await save(store, unparked=[other.id, an_id(404)])
    assert await store.count_parked(3) == 0


async def test_parked_signals_are_due_when_their_run_exists_or_their_time_is_over(
    store: Store,
) -> None:
    await started(store, a_run(1, key="k"))
    for_run = a_parked(11, run_id=an_id(1))
    for_key = a_parked(12, run_id=None, workflow="order", key="k")
    expired = a_parked(13, expires_at=NOW - FAR)
    waits = [a_parked(14), a_parked(15, run_id=None, workflow="order", key="none")]
    await save(store, parked=[for_run, for_key, expired, *waits])
    assert await store.due_parked(10) == [expired, for_key, for_run]
    assert await store.due_parked(1) == [expired]


# Outbox and dispatches


async def test_the_sweep_returns_due_rows_once_and_leaves_the_writer_its_time(
    store: Store,
) -> None:
    run = a_run()
    rows = [an_outbox_row(n, run, headers={"H": "\U0001f6b2"}, body=b"\x00\xff") for n in (1, 2)]
    await started(store, run, outbox=[*rows, an_outbox_row(3, run, publish_after=later(60))])
    assert await store.due_outbox(later(4), 10) == []
    due = await store.due_outbox(later(5), 1)
    assert len(due) == 1
    due += await store.due_outbox(later(5), 10)
    assert sorted(due, key=lambda row: row.id) == [
        replace(row, publish_after=later(10)) for row in rows
    ]
    assert await store.due_outbox(later(9), 10) == []


async def test_only_dispatches_of_live_tokens_are_published_again(store: Store) -> None:
    run = a_run()
    steps = [
        a_step("dispatched"),
        a_step("running", status=StepStatus.RUNNING),
        completed(a_step("settled")),
    ]
    tokens = ["token-dispatched", "token-running", "token-settled", "token-of-nobody"]
    rows = [an_outbox_row(n, run, token=token) for n, token in enumerate(tokens)]
    await started(store, run, *steps, outbox=rows)
    assert [row.token for row in await store.due_outbox(later(5), 10)] == ["token-dispatched"]
    assert [row.token for row in await store.due_outbox(later(99), 10)] == ["token-dispatched"]


async def test_revoked_and_confirmed_rows_are_deleted_with_the_batch(store: Store) -> None:
    run, other = a_run(1), a_run(2)
    rows = [
        an_outbox_row(1, run, token="dead"),
        an_outbox_row(2, run, token="dead"),
        an_outbox_row(3, run, token="live"),
        an_outbox_row(4, run),
        an_outbox_row(5, run),
        an_outbox_row(6, run),
    ]
    steps = [a_step("a", token="live"), a_step("b", token="dead")]
    before = await started(store, run, *steps, outbox=rows)
    await started(store, other, a_step("b", token="dead"),
                  outbox=[an_outbox_row(7, other, token="dead")])  # fmt: skip
    fresh = a_step("b", attempt=2, token="fresh")
    change = a_change(before, fresh, revoked=["dead"], outbox=[an_outbox_row(8, run)])
    await save(store, change, published=[an_id(4), an_id(404)])
    await store.delete_outbox([an_id(5)])
    due = await store.due_outbox(later(99), 20)
    assert [row.id for row in due] == [an_id(n) for n in (3, 6, 7, 8)]


async def test_a_loser_deletes_no_outbox_rows(store: Store) -> None:
    before = await started(
        store, a_run(), a_step(), outbox=[an_outbox_row(1, a_run(), token="token-charge")]
    )
    await save(store, a_change(before))
    assert await save(store, a_change(before, revoked=["token-charge"])) == set()
    assert [row.id for row in await store.due_outbox(later(99), 20)] == [an_id(1)]


async def test_open_dispatches_come_in_pages_without_those_a_worker_has(store: Store) -> None:
    for number in (2, 1):
        run = a_run(number, priority=number)
        steps = [
            a_step("a"),
            a_step("b", status=StepStatus.RUNNING),
            a_step("c", status=StepStatus.RUNNING, worker_id="w"),
            a_step("d", dispatched_at=later(60)),
            a_step("e", status=StepStatus.READY, token=None, held_by="window"),
            completed(a_step("f")),
        ]
        await started(store, run, *steps,
                      outbox=[an_outbox_row(number, run, token="token-b")])  # fmt: skip

    def expected(number: int, path: str, status: str) -> OpenDispatch:
        return OpenDispatch(
            run_id=an_id(number), path=path, token=f"token-{path}", queue="default",
            level=number, dispatched_at=NOW, status=status, in_outbox=path == "b",
        )  # fmt: skip

    first = await store.open_dispatches(later(60), None, 3)
    assert first == [
        expected(1, "a", "dispatched"), expected(1, "b", "running"), expected(2, "a", "dispatched"),
    ]  # fmt: skip
    rest = await store.open_dispatches(later(60), (an_id(2), "a"), 3)
    assert rest == [expected(2, "b", "running")]
    assert await store.find_token(an_id(1), "token-b") == expected(1, "b", "running")
    assert await store.find_token(an_id(1), "token-f") is None
    asked = [(an_id(1), "token-c"), (an_id(1), "token-f"), (an_id(3), "token-a")]
    assert await store.current_tokens(asked) == {"token-c": False}


@pytest.mark.parametrize("known", [True, False])
async def test_a_step_that_settles_has_no_token_any_more(store: Store, known: bool) -> None:
    before = await started(store, a_run(), a_step(), a_step("other"))
    await save(store, a_change(before, completed(before.steps["charge"]), known=known))
    assert await store.find_token(before.id, "token-charge") is None
    dispatches = await store.open_dispatches(later(60), None, 10)
    assert [row.path for row in dispatches] == ["other"]


# Timers


async def due(store: Store, seconds: float = 1e6) -> list[tuple[str | None, float, bool]]:
    """(path, due in seconds from NOW, preemptible) of run 1."""
    rows = await store.due_timers(later(seconds), 100)
    assert {row.run_id for row in rows} <= {an_id(1)}
    return [(r.path, (r.due_at - NOW).total_seconds(), r.preemptible) for r in rows]


async def test_every_stored_instant_has_a_timer_and_pure_waits_can_not_be_preempted(
    store: Store,
) -> None:
    waiting: dict[str, Any] = {"status": StepStatus.WAITING, "token": None, "wake_at": later(50)}
    for_signal: dict[str, Any] = {"waiting_for": WaitReason.SIGNAL, "signal": "s"}
    steps = [
        a_step("a-none"),
        a_step("b-attempt", attempt_deadline_at=later(10), step_deadline_at=later(20)),
        a_step("c-sleep", **waiting, waiting_for=WaitReason.SLEEP),
        a_step("d-backoff", **waiting, waiting_for=WaitReason.BACKOFF, step_deadline_at=later(40)),
        a_step("e-signal", **waiting, **for_signal, kind=StepKind.WAIT),
        a_step("f-forever", **{**waiting, **for_signal, "wake_at": None}),
        completed(a_step("g-settled"), step_deadline_at=later(5)),
    ]  # fmt: skip
    await started(store, a_run(deadline_at=later(100)), *steps)
    assert await due(store) == [
        ("b-attempt", 10, True),
        ("d-backoff", 40, True),
        ("c-sleep", 50, False),
        ("e-signal", 50, True),
        (None, 100, True),
    ]
    assert await due(store, 40) == [("b-attempt", 10, True), ("d-backoff", 40, True)]
    assert await store.due_timers(later(40), 1) == [
        DueTimer(run_id=an_id(1), path="b-attempt", due_at=later(10), preemptible=True)
    ]
    pages: list[DueTimer] = []
    while page := await store.due_timers(later(50), 1, after=pages[-1] if pages else None):
        pages += page
    assert pages == await store.due_timers(later(50), 10)


async def test_timers_are_swept_by_partition(store: Store) -> None:
    runs = [await started(store, a_run(number, deadline_at=later(number))) for number in range(40)]
    by_partition: dict[int, list[str]] = {number: [] for number in PARTITIONS}
    for run in runs:
        by_partition[partition_of(run.id)].append(run.id)
    assert sum(1 for ids in by_partition.values() if ids) > 1
    for partition, ids in by_partition.items():
        assert [
            r.run_id for r in await store.due_timers(later(99), 99, partitions=[partition])
        ] == ids
    evens = range(0, 16, 2)
    wanted = [run.id for run in runs if partition_of(run.id) in evens]
    pages: list[DueTimer] = []
    while page := await store.due_timers(
        later(99), 3, after=pages[-1] if pages else None, partitions=evens
    ):
        pages += page
    assert [row.run_id for row in pages] == wanted
    assert await store.due_timers(later(99), 99, partitions=[]) == []


async def test_a_timer_that_is_armed_anew_keeps_its_partition(store: Store) -> None:
    run = await started(store, a_run(deadline_at=later(5)))
    async with store.transaction() as tx:
        await tx.lock_runs([run.id])
        await tx.rearm_timers([(run.id, None, later(5))])
    (row,) = await store.due_timers(later(9), 9, partitions=[partition_of(run.id)])
    assert (row.run_id, row.due_at) == (run.id, later(5))


@pytest.mark.parametrize("known", [True, False])
async def test_a_timer_moves_to_an_earlier_instant_but_not_to_a_later_one(
    store: Store, known: bool
) -> None:
    beating = a_step(status=StepStatus.RUNNING, heartbeat_deadline_at=later(30))
    run = await started(store, a_run(), beating)
    renewed = replace(beating, heartbeat_deadline_at=later(60))
    later_run = a_change(run, renewed, known=known, last_at=later(10))
    await save(store, later_run)
    assert await due(store) == [("charge", 30, True)], "renewing costs no write"
    sooner = replace(beating, heartbeat_deadline_at=later(15))
    await save(store, a_change(later_run.run, sooner, known=known))
    assert await due(store) == [("charge", 15, True)]


@pytest.mark.parametrize("known", [True, False])
async def test_a_timer_that_has_passed_is_replaced(store: Store, known: bool) -> None:
    step = a_step(dispatch_deadline_at=later(30))
    run = await started(store, a_run(), step)
    again = replace(step, dispatch_deadline_at=later(90))
    await save(store, a_change(run, again, known=known, last_at=later(30)))
    assert await due(store) == [("charge", 90, True)]


@pytest.mark.parametrize("known", [True, False])
async def test_a_step_without_an_instant_has_no_timer(store: Store, known: bool) -> None:
    run = await started(store, a_run(deadline_at=later(9)), a_step(dispatch_deadline_at=later(5)))
    await save(store, a_change(run, a_step(), known=known, deadline_at=None))
    assert await due(store) == []


@pytest.mark.parametrize("known", [True, False])
async def test_a_settled_run_has_no_timers_at_all(store: Store, known: bool) -> None:
    steps = [a_step("a", dispatch_deadline_at=later(5)), a_step("b", dispatch_deadline_at=later(6))]
    run = await started(store, a_run(deadline_at=later(9)), *steps)
    done = a_change(
        run, completed(steps[0]), known=known, status=RunStatus.FAILED, settled_at=later(1)
    )
    await save(store, done)
    assert await due(store) == []


async def test_a_delayed_start_and_a_split_decision_have_timers_of_their_own(
    store: Store,
) -> None:
    delayed = a_run(status=RunStatus.PENDING, started_at=None, start_at=later(7))
    run = await started(store, delayed)
    assert await due(store) == [(None, 7, False)]
    split: dict[str, Any] = {
        "status": RunStatus.RUNNING, "started_at": later(7), "start_at": None,
        "cursor": "charge", "last_at": later(7), "deadline_at": later(90),
    }  # fmt: skip
    change = a_change(run, **split)
    await save(store, change)
    assert await due(store) == [(None, 7, False)], "at once"
    await save(store, a_change(change.run, cursor=None, last_at=later(8)))
    assert await due(store) == [(None, 90, True)]


async def test_rearming_sets_what_is_really_stored_but_never_later_than_the_rows_say(
    store: Store,
) -> None:
    asleep: dict[str, Any] = {"status": StepStatus.WAITING, "token": None}
    steps = [
        a_step("a", dispatch_deadline_at=later(5)),
        a_step("b", **asleep, waiting_for=WaitReason.SLEEP, wake_at=later(6)),
        a_step("c", dispatch_deadline_at=later(7)),
    ]
    run = await started(store, a_run(deadline_at=later(8)), *steps)
    moved = [replace(steps[0], dispatch_deadline_at=later(50)), a_step("c")]
    await save(store, a_change(run, moved[0]))
    async with store.transaction() as tx:
        await tx.lock_runs([run.id])
        await tx.rearm_timers([
            (run.id, "a", later(50)),
            (run.id, "b", later(600)),
            (run.id, None, later(80)),
            (an_id(404), None, later(1)),
        ])  # fmt: skip
    assert await due(store) == [("b", 6, False), ("c", 7, True), (None, 8, True), ("a", 50, True)]
    async with store.transaction() as tx:
        await tx.lock_runs([run.id])
        await tx.rearm_timers([(run.id, "nobody", None), (run.id, "a", None)])
    assert ("a", 50, True) in await due(store), "the row still has an instant"


async def test_runs_without_any_reason_to_go_on_are_counted(store: Store) -> None:
    asleep: dict[str, Any] = {"status": StepStatus.WAITING, "token": None}
    signal = a_step("s", **asleep, waiting_for=WaitReason.SIGNAL, signal="approved")
    sleep = a_step("t", **asleep, waiting_for=WaitReason.SLEEP, wake_at=later(1))
    reasons = [
        a_start(a_run(1), a_step()),
        a_start(a_run(2), signal),
        a_start(a_run(3), sleep),
        a_start(a_run(4, deadline_at=later(9))),
        a_start(a_run(5, status=RunStatus.CANCELLED, settled_at=NOW)),
    ]
    await save(store, *reasons)
    assert await count_runs_without_reason(store) == 0
    await save(store, a_start(a_run(6), completed(a_step())))
    assert await count_runs_without_reason(store) == 1
