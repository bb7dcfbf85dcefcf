"""What an operator's program does: operations of a run, pauses, lists, dead letters, purge."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.client.conftest import ApiSide
from tests.support.engine_side import new_run_id
from tests.support.eventually import DEADLINE_SECONDS, eventually
from tests.support.wire_client import WireClient
from tests.support.workflows import one_task, one_wait
from towpath_worker import Client, ConflictError, NotFoundError

Json = Any


async def test_the_operations_of_a_run_say_who_and_why(api: ApiSide, jetstream_url: str) -> None:
    run_id = new_run_id()
    retried = {"run_id": run_id, "status": "running", "steps": ["a"], "dry_run": False}
    paused = {"run_id": run_id, "status": "running", "paused": True, "changed": True}
    restarted = {"run_id": new_run_id(), "deduplicated": False}
    api.answers.update(
        {
            "run.retry": lambda _: retried,
            "run.redrive": lambda _: retried,
            "run.pause": lambda _: paused,
            "run.resume": lambda _: {**paused, "paused": False},
            "run.restart": lambda _: restarted,
        }
    )
    async with Client(nats_url=jetstream_url, prefix=api.prefix, by="ann") as client:
        handle = client.handle(run_id)
        assert (await handle.retry(step="a", input=None, reason="typo")).steps == ("a",)
        await handle.redrive("a", dry_run=True, by="bob")
        assert (await handle.pause(reason="look")).paused
        assert not (await handle.resume()).paused
        new = await handle.restart(version=2)
        assert new.run_id == restarted["run_id"]
    (retry,), (redrive,) = api.bodies("run.retry"), api.bodies("run.redrive")
    assert retry.pop("request_id")
    assert redrive.pop("request_id")
    # null is an input, and not the same as leaving it.
    assert retry == {"run_id": run_id, "step": "a", "input": None, "by": "ann", "reason": "typo"}
    assert redrive == {"run_id": run_id, "step": "a", "dry_run": True, "by": "bob"}
    assert api.bodies("run.pause") == [{"run_id": run_id, "by": "ann", "reason": "look"}]
    (restart,) = api.bodies("run.restart")
    assert restart.pop("request_id")
    assert restart == {"run_id": run_id, "version": 2, "by": "ann"}


async def test_pauses_name_what_they_hold(api: ApiSide, asking: Client) -> None:
    for verb in ("workflow", "queue", "task"):
        for word in ("pause", "resume"):
            api.answers[f"{verb}.{word}"] = lambda _: {
                "scope": "x", "name": "y", "paused": True, "changed": True,
            }  # fmt: skip
    api.answers["pause.list"] = lambda _: {"pauses": [{"scope": "queue", "name": "q", "at": "t"}]}
    await asking.pause_workflow("order", version=3, reason="broken")
    await asking.resume_workflow("order", version=3)
    await asking.pause_queue("stock", by="ann")
    await asking.resume_queue("stock")
    await asking.pause_task("stock.take")
    await asking.resume_task("stock.take")
    assert [pause.name for pause in await asking.pauses()] == ["q"]
    assert api.requests[:-1] == [
        ("workflow.pause", {"workflow": "order", "version": 3, "reason": "broken"}),
        ("workflow.resume", {"workflow": "order", "version": 3}),
        ("queue.pause", {"queue": "stock", "by": "ann"}),
        ("queue.resume", {"queue": "stock"}),
        ("task.pause", {"task": "stock.take"}),
        ("task.resume", {"task": "stock.take"}),
    ]


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


async def test_a_run_tells_its_status_its_steps_and_why_it_lives(
    client: Client, wire: WireClient
) -> None:
    steps = [{"name": f"s{n:03d}", "pass": n} for n in range(230)]
    await client.deploy({"workflow": "long", "steps": [*steps, {"name": "w", "sleep": "1h"}]})
    handle = await client.start("long")

    async def asleep() -> bool:
        return await handle.status() == "waiting"

    await eventually(asleep)
    assert not await handle.settled()
    names = [step.step for step in await handle.steps()]
    assert len(names) == 231
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
