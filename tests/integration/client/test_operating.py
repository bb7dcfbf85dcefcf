"""What an operator's program does: operations of a run, pauses, lists, dead letters, purge."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from tests.integration.client.conftest import ApiSide
from tests.support.engine_side import new_run_id
from tests.support.eventually import DEADLINE_SECONDS, eventually
from tests.support.wire_client import WireClient
from tests.support.workflows import one_task, one_wait
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings
from towpath_worker import Client, ConflictError, NotFoundError, RunFailed

Json = Any

FRAGILE = [{"name": "a", "pass": 1}, {"name": "b", "pass": "${ 1 / input.by }"}]


async def test_the_operations_of_a_run_say_who_and_why(
    engine: Engine, settings: Settings, wire: WireClient
) -> None:
    await wire.deploy({"workflow": "fragile", "steps": FRAGILE})
    async with Client(nats_url=settings.nats_url, prefix=settings.prefix, by="ann") as client:
        handle = await client.start("fragile", {"by": 0}, key="broken")
        with pytest.raises(RunFailed, match="divide by zero"):
            await handle.result(timeout=DEADLINE_SECONDS)
        planned = await handle.redrive("a", dry_run=True)
        assert (planned.steps, planned.dry_run) == (("a", "b"), True)
        assert (await handle.retry(step="b", reason="typo")).steps == ("b",)
        await handle.redrive("a", by="bob")
        new = await handle.restart(version=1)
        assert new.run_id != handle.run_id
        causes = [msgspec.json.decode(each.cause) for each in await handle.history()]
    told = {(cause["type"], cause.get("by"), cause.get("reason")) for cause in causes}
    assert {("retry", "ann", "typo"), ("redrive", "bob", None)} <= told


async def test_a_run_is_paused_and_resumed_and_its_followers_are_told(
    client: Client, wire: WireClient
) -> None:
    await wire.deploy(one_wait())
    handle = await client.start("waiting")
    paused = await handle.pause(by="ann", reason="look")
    assert (paused.paused, paused.changed) == (True, True)
    assert not (await handle.pause()).changed
    view = await handle.get()
    assert view.pause is not UNSET
    assert (view.pause.by, view.pause.reason) == ("ann", "look")
    assert not (await handle.resume()).paused
    await handle.cancel()
    told = [event.type async for event in handle.events()]
    assert told == ["run-started", "run-paused", "run-resumed", "run-cancelled"]


async def test_pauses_name_what_they_hold(client: Client, wire: WireClient) -> None:
    await wire.deploy(one_task())
    task = {"workflow": "order", "steps": [{"name": "a", "task": "stock.take", "queue": "stock"}]}
    version = (await client.deploy(task)).version
    pauses = [
        await client.pause_workflow("order", version=version, reason="broken"),
        await client.pause_workflow("order"),
        await client.pause_queue("stock", by="ann"),
        await client.pause_task("stock.take"),
    ]
    assert all(each.paused and each.changed for each in pauses)
    found = {(each.scope, each.name): (each.by, each.reason) for each in await client.pauses()}
    assert found == {
        ("version", f"order@{version}"): (None, "broken"),
        ("workflow", "order"): (None, None),
        ("queue", "stock"): ("ann", None),
        ("task", "stock.take"): (None, None),
    }
    assert await (await client.start("order")).status() == "pending"
    await client.resume_workflow("order", version=version)
    await client.resume_workflow("order")
    await client.resume_queue("stock")
    lifted = await client.resume_task("stock.take")
    assert (lifted.paused, lifted.changed) == (False, True)
    assert not await client.pauses()
    with pytest.raises(NotFoundError, match="queue_not_found"):
        await client.pause_queue("nosuch")


async def test_more_dead_letters_than_a_request_takes_go_in_several(
    api: ApiSide, asking: Client
) -> None:
    ids = [new_run_id() for _ in range(250)]
    api.answers["dead-letter.discard"] = lambda body: {"discarded": len(body["ids"])}
    api.answers["dead-letter.replay"] = lambda body: {
        "results": [{"id": each, "outcome": "applied"} for each in body["ids"]]
    }
    assert await asking.discard_dead_letters(ids) == 250
    assert [each.id for each in await asking.replay_dead_letters(ids)] == ids
    sizes = [len(body["ids"]) for _, body in api.requests]
    assert sizes == [100, 100, 50] * 2
    assert await asking.discard_dead_letters([]) == 0


async def test_a_list_asks_for_pages_as_they_are_needed(api: ApiSide, asking: Client) -> None:
    def page(body: Json) -> Json:
        number = int(body.get("cursor") or 0)
        worker = {
            "worker_id": f"w{number}", "queue": "q", "tasks": ["t"], "slots": 1, "running": 0,
            "sdk": "x", "first_seen_at": "", "last_seen_at": "", "live": True,
        }  # fmt: skip
        return {"workers": [worker], "next_cursor": str(number + 1) if number < 2 else None}

    api.answers["worker.list"] = page
    async for worker in asking.workers("q"):
        assert worker.worker_id == "w0"
        break
    assert len(api.requests) == 1
    assert [worker.worker_id async for worker in asking.workers()] == ["w0", "w1", "w2"]
    assert api.bodies("worker.list")[0] == {"queue": "q"}


async def test_runs_are_found_by_filters_over_pages_and_by_key(
    client: Client, wire: WireClient
) -> None:
    await wire.deploy(one_wait())
    before = datetime.now(UTC) - timedelta(minutes=5)
    many = await client.start_many(
        [{"workflow": "waiting", "key": f"k{n}", "tags": ["many"]} for n in range(130)]
    )
    newest_first = [handle.run_id for handle in reversed(many)]
    found = [run.run_id async for run in client.list("waiting", tag="many", created_from=before)]
    assert sorted(found) == sorted(newest_first)
    assert [run async for run in client.list("waiting", created_to=before)] == []
    assert (await client.find("waiting", "k7")).run_id == many[7].run_id
    await many[7].cancel()
    again = await client.start("waiting", key="k7")
    assert (await client.find("waiting", "k7")).run_id == again.run_id
    with pytest.raises(LookupError, match="no run of workflow 'waiting' has or had the key 'no'"):
        await client.find("waiting", "no")


async def test_an_old_run_that_goes_on_is_found_by_its_key_whatever_ended_after_it(
    client: Client,
) -> None:
    steps = [{"name": "w", "wait": {"signal": "go"}}, {"name": "b", "pass": "${ 1 / 0 * input }"}]
    await client.deploy({"workflow": "hopeless", "steps": steps})
    old = await client.start("hopeless", 1, key="k")
    await old.signal("go")
    with pytest.raises(RunFailed):
        await old.result(timeout=DEADLINE_SECONDS)
    newer = await client.start("hopeless", 1, key="k")
    await newer.cancel()
    assert (await client.find("hopeless", "k")).run_id == newer.run_id
    await old.redrive("w")
    assert (await client.find("hopeless", "k")).run_id == old.run_id


async def test_a_run_tells_its_status_its_steps_and_why_it_lives(
    client: Client, wire: WireClient
) -> None:
    steps = [{"name": f"s{n:03d}", "pass": n} for n in reversed(range(230))]
    await client.deploy({"workflow": "long", "steps": [*steps, {"name": "w", "sleep": "1h"}]})
    handle = await client.start("long")

    async def asleep() -> bool:
        return await handle.status() == "waiting"

    await eventually(asleep)
    assert not await handle.settled()
    names = [step.step for step in await handle.steps()]
    assert names == [*(step["name"] for step in steps), "w"], "in the order of the list"
    assert await handle.output(step="s007") == 7
    explanation = await handle.explain()
    assert [reason.step for reason in explanation.reasons] == ["w"]
    assert explanation.wake_at is not None
    await handle.cancel(reason="enough")
    assert await handle.settled()
    with pytest.raises(ConflictError, match="run_settled"):
        await handle.signal("go")


async def test_dead_letters_are_read_replayed_and_discarded(
    client: Client, wire: WireClient
) -> None:
    await wire.put("in.nonsense.a.b.c", b"what")

    async def kept() -> list[str]:
        return [letter.id async for letter in client.dead_letters()]

    (letter_id,) = await eventually(kept)
    letter = await client.dead_letter(letter_id)
    assert (letter.reason, letter.body) == ("bad_subject", b"what")
    (replayed,) = await client.replay_dead_letters([letter_id])
    assert replayed.outcome == "failed"
    assert await client.discard_dead_letters([letter_id]) == 1
    assert await kept() == []
    with pytest.raises(NotFoundError, match="`towpath dead-letters list`"):
        await client.dead_letter(letter_id)


async def test_settled_runs_are_purged_and_workflows_keep_them_as_told(
    client: Client, wire: WireClient
) -> None:
    await wire.deploy(one_task())
    handle = await client.start("one")
    with pytest.raises(ConflictError, match="wait for it, or cancel it first"):
        await client.purge(run_id=handle.run_id)
    await wire.complete(await wire.take(), None)
    await handle.result(timeout=DEADLINE_SECONDS)
    soon = datetime.now(UTC) + timedelta(minutes=5)
    counted = await client.purge("one", settled_before=soon, dry_run=True)
    assert (counted.purged, counted.dry_run) == (1, True)
    assert (await client.purge("one", settled_before=soon)).purged == 1
    with pytest.raises(NotFoundError):
        await handle.get()
    kept = await client.set_retention("one", timedelta(days=7))
    assert kept.retention_ms == 7 * 86_400_000
    assert (await client.set_retention("one", None)).retention_ms is None
    with pytest.raises(ValueError, match="says not which runs"):
        await client.purge()
