"""Pause and resume through a real engine: what is held, what goes on, who may say so."""

from datetime import datetime
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from tests.support.engines import running
from tests.support.eventually import eventually, until_async
from tests.support.pools import start_many
from tests.support.wire_client import RefusedError, WireClient, connected
from tests.support.workflows import chain, one_task, one_wait
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings
from towpath_protocol.times import parse_instant

Json = Any

WHO: Json = {"by": "ops", "reason": "the carrier is down"}


async def pause(wire: WireClient, scope: str, name: str, *, verb: str = "pause") -> Json:
    """Pause (or resume) by scope and name, as pause.list names them."""
    workflow, _, version = name.partition("@")
    body: Json = {
        "run": {"run_id": name},
        "workflow": {"workflow": name},
        "version": {"workflow": workflow, "version": int(version or 0)},
        "queue": {"queue": name},
        "task": {"task": name},
    }[scope]
    group = "workflow" if scope == "version" else scope
    return await wire.api(f"{group}.{verb}", **body, **WHO)


async def held(wire: WireClient, run_id: str, step: str, by: str) -> Json:
    """Wait until the step is held by this."""
    found = await wire.step_in(run_id, step, "ready")
    assert found["held_by"] == by
    return found


async def nothing_is_dispatched(wire: WireClient) -> None:
    info = await wire.client.jetstream().stream_info(f"{wire.prefix.upper()}_DISPATCH")
    assert info.state.messages == 0


SCOPES = [("workflow", "chain"), ("version", "chain@1"), ("queue", "default"), ("task", "t1")]


@pytest.mark.parametrize(("scope", "name"), [*SCOPES, ("run", "")])
async def test_a_pause_holds_the_next_dispatch_and_a_resume_lets_it_go(
    wire: WireClient, scope: str, name: str
) -> None:
    await wire.deploy(chain(length=2))
    run_id = await wire.start("chain")
    running_attempt = await wire.take()
    name = name or run_id
    answer = await pause(wire, scope, name)
    assert answer["paused"] is answer["changed"] is True
    await wire.complete(running_attempt, {"n": 0})  # what runs, finishes
    await held(wire, run_id, "s1", scope)
    assert (await wire.run(run_id))["status"] == "running"
    await nothing_is_dispatched(wire)
    answer = await pause(wire, scope, name, verb="resume")
    assert (answer["paused"], answer["changed"]) == (False, True)
    following = await wire.take()
    assert (following["step"], following["input"], following["attempt"]) == ("s1", None, 1)
    await wire.complete(following, "done")
    assert (await wire.result(run_id))["output"] == "done"


@pytest.mark.parametrize(("scope", "name"), [*SCOPES, ("run", "")])
async def test_pause_and_resume_may_be_repeated(wire: WireClient, scope: str, name: str) -> None:
    await wire.deploy(chain(length=2))
    name = name or await wire.start("chain")
    assert (await pause(wire, scope, name, verb="resume"))["changed"] is False
    assert [(await pause(wire, scope, name))["changed"] for _ in range(2)] == [True, False]
    again = [(await pause(wire, scope, name, verb="resume"))["changed"] for _ in range(2)]
    assert again == [True, False]


async def test_the_list_of_pauses_says_who_why_and_since_when(wire: WireClient) -> None:
    await wire.deploy(chain(length=1, queue="mail"))
    for scope, name in [("workflow", "chain"), ("version", "chain@1"), ("queue", "mail")]:
        await pause(wire, scope, name)
    await wire.api("task.pause", task="card.charge")
    pauses = (await wire.api("pause.list"))["pauses"]
    found = [(one["scope"], one["name"], one.get("by"), one.get("reason")) for one in pauses]
    assert found == [
        ("queue", "mail", "ops", "the carrier is down"),
        ("task", "card.charge", None, None),
        ("version", "chain@1", "ops", "the carrier is down"),
        ("workflow", "chain", "ops", "the carrier is down"),
    ]
    assert all(isinstance(parse_instant(one["at"]), datetime) for one in pauses)


async def test_no_more_may_be_paused_than_the_setting_says(settings: Settings) -> None:
    few = replace(settings, pause_count_max=2)
    async with running(few), connected(settings.nats_url, settings.prefix) as wire:
        for task in ("a", "b"):
            await wire.api("task.pause", task=task)
        with pytest.raises(RefusedError) as refused:
            await wire.api("task.pause", task="c")
        assert (refused.value.status, refused.value.code) == (409, "pauses_full")
        assert (await wire.api("task.pause", task="a"))["changed"] is False, "it stands"
        await wire.api("task.resume", task="a")
        assert (await wire.api("task.pause", task="c"))["changed"] is True


async def test_the_list_of_pauses_comes_in_pages_when_it_is_long(wire: WireClient) -> None:
    reason = "\x01" * 512  # six bytes each, as JSON
    names = sorted(f"task.{number}" for number in range(300))
    for name in names:
        await wire.api("task.pause", task=name, by=reason, reason=reason)
    found: list[str] = []
    pages = 0
    cursor: str | None = None
    while pages == 0 or cursor is not None:
        page = await wire.api("pause.list", **({} if cursor is None else {"cursor": cursor}))
        found += [one["name"] for one in page["pauses"]]
        pages += 1
        cursor = page.get("next_cursor")
    assert found == names
    assert pages > 1
    with pytest.raises(RefusedError) as refused:
        await wire.api("pause.list", cursor="nonsense")
    assert refused.value.code == "malformed"


async def test_a_run_shows_its_pause_and_its_history_who_and_why(wire: WireClient) -> None:
    await wire.deploy(one_wait())
    run_id = await wire.start("waiting")
    await wire.api("run.pause", run_id=run_id, **WHO)
    run = await wire.run(run_id)
    assert (run["pause"]["by"], run["pause"]["reason"]) == ("ops", "the carrier is down")
    listed = (await wire.api("run.list"))["runs"]
    assert [(one["run_id"], one["paused"]) for one in listed] == [(run_id, True)]
    await wire.api("run.resume", run_id=run_id, by="me")
    assert "pause" not in await wire.run(run_id)
    causes = {row["what"]: row["cause"] for row in await wire.history(run_id)}
    assert causes["run-paused"]["by"] == "ops"
    assert causes["run-paused"]["reason"] == "the carrier is down"
    assert causes["run-resumed"]["by"] == "me"


@pytest.mark.parametrize(
    ("scope", "name", "code"),
    [
        ("run", "0190a0a0-0000-7000-8000-000000000001", "run_not_found"),
        ("workflow", "nobody", "workflow_not_found"),
        ("version", "nobody@1", "workflow_not_found"),
        ("version", "chain@9", "version_not_found"),
        ("queue", "nobody", "queue_not_found"),
    ],
)
@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_what_is_not_there_can_not_be_paused(
    wire: WireClient, verb: str, scope: str, name: str, code: str
) -> None:
    await wire.deploy(chain())
    with pytest.raises(RefusedError) as refused:
        await pause(wire, scope, name, verb=verb)
    assert (refused.value.status, refused.value.code) == (404, code)


@pytest.mark.parametrize("verb", ["pause", "resume"])
async def test_a_settled_run_can_not_be_paused_and_says_so(wire: WireClient, verb: str) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one")
    await wire.complete(await wire.take())
    await wire.result(run_id)
    with pytest.raises(RefusedError) as refused:
        await pause(wire, "run", run_id, verb=verb)
    assert (refused.value.status, refused.value.code) == (409, "run_settled")
    assert "completed" in refused.value.message


@pytest.mark.parametrize(("scope", "name"), [("workflow", "one"), ("version", "one@1")])
async def test_a_start_on_a_paused_workflow_is_accepted_and_begins_with_the_resume(
    wire: WireClient, scope: str, name: str
) -> None:
    await wire.deploy(one_task())
    await pause(wire, scope, name)
    run_id = await wire.start("one", key="k")
    assert (await wire.run(run_id))["status"] == "pending"
    assert await wire.start("one", key="k") == run_id, "it holds its key"
    await pause(wire, scope, name, verb="resume")
    await wire.complete(await wire.take(), "done")
    assert (await wire.result(run_id))["output"] == "done"
    whats = [row["what"] for row in await wire.history(run_id)]
    assert whats[:2] == ["run-held", "run-started"]


async def test_a_paused_run_that_is_cancelled_settles_at_once(wire: WireClient) -> None:
    await wire.deploy(one_task())
    await pause(wire, "workflow", "one")
    pending = await wire.start("one")
    await pause(wire, "workflow", "one", verb="resume")
    await pause(wire, "task", "do.it")
    ready = await wire.start("one")
    await held(wire, ready, "work", "task")
    for run_id in (pending, ready):
        await wire.api("run.cancel", run_id=run_id)
        assert (await wire.result(run_id))["status"] == "cancelled"
    assert (await wire.step(ready, "work"))["status"] == "cancelled"


async def test_the_deadline_of_a_run_does_not_stop_in_a_pause(wire: WireClient) -> None:
    await wire.deploy({**one_task(), "timeout": "300ms"})
    await pause(wire, "task", "do.it")
    run_id = await wire.start("one")
    await wire.api("run.pause", run_id=run_id)
    assert (await wire.result(run_id))["status"] == "timed_out"


async def test_a_delayed_start_waits_for_the_resume_of_its_run(wire: WireClient) -> None:
    await wire.deploy(one_task())
    run_id = await wire.start("one", delay_ms=400)
    await wire.api("run.pause", run_id=run_id)

    async def its_time_has_come() -> bool:
        return any(row["what"] == "run-held" for row in await wire.history(run_id))

    await eventually(its_time_has_come)
    assert (await wire.run(run_id))["status"] == "pending"
    await wire.api("run.resume", run_id=run_id)
    assert (await wire.take())["run_id"] == run_id


async def test_a_retry_waits_behind_a_pause_with_its_own_attempt(wire: WireClient) -> None:
    retry = {"max_attempts": 3, "backoff": {"initial": "10ms", "jitter": 0}}
    await wire.deploy(one_task(retry=retry))
    run_id = await wire.start("one")
    first = await wire.take()
    await pause(wire, "queue", "default")
    await wire.fail(first)
    assert (await held(wire, run_id, "work", "queue"))["attempt"] == 2
    await pause(wire, "queue", "default", verb="resume")
    second = await wire.take()
    assert (second["attempt"], second["last_error"]["type"]) == (2, "Broken")


async def test_what_two_things_hold_goes_when_the_second_one_lets_go(wire: WireClient) -> None:
    await wire.deploy(one_task())
    await pause(wire, "task", "do.it")
    await pause(wire, "queue", "default")
    run_id = await wire.start("one")
    await held(wire, run_id, "work", "task")
    await pause(wire, "task", "do.it", verb="resume")

    async def held_by_the_queue() -> bool:
        return (await wire.step(run_id, "work")).get("held_by") == "queue"

    await eventually(held_by_the_queue)
    await nothing_is_dispatched(wire)
    await pause(wire, "queue", "default", verb="resume")
    assert (await wire.take())["run_id"] == run_id


async def test_a_pause_survives_the_engine(settings: Settings) -> None:
    async with running(settings), connected(settings.nats_url, settings.prefix) as wire:
        await wire.deploy(one_task())
        await pause(wire, "queue", "default")
        run_id = await wire.start("one")
        await held(wire, run_id, "work", "queue")
    async with running(settings), connected(settings.nats_url, settings.prefix) as wire:
        later = await wire.start("one")
        await held(wire, later, "work", "queue")
        await pause(wire, "queue", "default", verb="resume")
        assert {(await wire.take())["run_id"] for _ in range(2)} == {run_id, later}


async def test_a_pause_made_by_one_engine_holds_what_the_other_would_dispatch(
    engine: Engine, settings: Settings, wire: WireClient
) -> None:
    async with running(settings) as other:
        assert other is not engine
        await wire.deploy(one_task())
        for number in range(20):
            # Any of the two answers: whichever paused, nothing is dispatched from then on.
            await pause(wire, "queue", "default")
            run_id = await wire.start("one", number)
            assert (await wire.step(run_id, "work"))["status"] == "ready"
            await pause(wire, "queue", "default", verb="resume")
            await wire.complete(await wire.take(), number)
            assert (await wire.result(run_id))["output"] == number


@pytest.mark.parametrize("scope", ["workflow", "queue", "task"])
async def test_what_was_held_goes_at_once_whichever_engine_is_told_of_the_resume(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    """Nobody looks by himself here: one engine admits, and the other one tells it."""
    monkeypatch.setattr("towpath_engine.services.admission._IDLE_SECONDS", 3_600.0)
    name = {"workflow": "one", "queue": "default", "task": "do.it"}[scope]
    async with (
        running(settings),
        running(settings),
        connected(settings.nats_url, settings.prefix) as wire,
    ):
        await until_async(lambda: engines_share(settings), "both engines own partitions")
        await wire.deploy(one_task())
        for number in range(8):
            await pause(wire, scope, name)
            early = [await wire.start("one", number) for _ in range(3)]
            await pause(wire, scope, name, verb="resume")
            late = [await wire.start("one", number) for _ in range(3)]
            taken: set[str] = set()
            for _ in range(6):
                dispatch = await wire.take()
                await wire.complete(dispatch, number)
                taken.add(dispatch["run_id"])
            assert taken == {*early, *late}


async def engines_share(settings: Settings) -> bool:
    """Whether both engines own partitions."""
    connection: Any = await asyncpg.connect(
        settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
    )
    try:
        owners = "SELECT count(DISTINCT engine_id) FROM partition_lease"
        return await connection.fetchval(owners) == 2
    finally:
        await connection.close()


async def test_no_run_begins_while_its_workflow_is_paused_by_an_engine_that_may_be_the_other(
    engine: Engine, settings: Settings, wire: WireClient
) -> None:
    """Its steps dispatch nothing: that it begins is held back all the same."""
    async with running(settings) as other:
        assert other is not engine
        await wire.deploy({"workflow": "quick", "steps": [{"name": "end", "pass": True}]})
        for _ in range(20):
            await pause(wire, "workflow", "quick")
            run_id = await wire.start("quick")
            assert (await wire.run(run_id))["status"] == "pending"
            await pause(wire, "workflow", "quick", verb="resume")
            assert (await wire.result(run_id))["output"] is True


async def test_nothing_is_committed_once_a_pause_was_answered_by_any_engine(
    settings: Settings, wire: WireClient
) -> None:
    """Two engines are in the middle of it; the one that did not answer may not know yet."""
    await wire.deploy(chain(length=30))
    async with running(settings):
        wire.work("default", lambda dispatch: dispatch["step"])
        run_ids = await start_many(wire, "chain", 40)
        for _ in range(5):
            await pause(wire, "queue", "default")
            dispatched = await dispatches(settings)
            # Everything that was on its way is decided, and none of it dispatched.
            await until_async(lambda: all_taken(wire), "what was dispatched is done")
            assert await dispatches(settings) == dispatched
            await pause(wire, "queue", "default", verb="resume")
        for run_id in run_ids:
            assert (await wire.result(run_id))["output"] == "s29"


async def dispatches(settings: Settings) -> int:
    """How many dispatches are committed."""
    connection: Any = await asyncpg.connect(
        settings.postgres_url, server_settings={"search_path": settings.postgres_schema}
    )
    try:
        return await connection.fetchval(
            "SELECT count(*) FROM transition WHERE what = 'step-dispatched'"
        )
    finally:
        await connection.close()


async def all_taken(wire: WireClient) -> bool:
    """No dispatch is with a worker, and no report on its way."""
    streams = [f"{wire.prefix.upper()}_{name}" for name in ("DISPATCH", "IN")]
    infos = [await wire.client.jetstream().stream_info(name) for name in streams]
    return all(info.state.messages == 0 for info in infos)
