"""Events and log lines of a run, followed live against a real engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from tests.integration.client.conftest import caller_of
from tests.support.engines import engine_settings, running
from tests.support.eventually import DEADLINE_SECONDS, until, until_async
from tests.support.jetstream import JetStreamServer, unique_prefix
from tests.support.postgres import fresh_schema
from tests.support.wire_client import WireClient, connected
from tests.support.workflows import chain, one_task, one_wait
from towpath_engine.store.migrate import migrate
from towpath_worker import Client, ConnectionOptions, Event, NotFoundError, RunHandle

UNKNOWN = "01890000-0000-7000-8000-000000000000"


class Seen:
    """The events of a run, collected while it goes on."""

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self.events: list[Event] = []
        self._task = asyncio.create_task(self._collect(events))

    async def _collect(self, events: AsyncIterator[Event]) -> None:
        async for event in events:
            self.events.append(event)

    async def of(self, kind: str) -> None:
        """Wait until one of that type has come."""
        await until(lambda: kind in self.kinds(), kind)

    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    async def end(self) -> list[Event]:
        """All of them, once the iterator has ended by itself."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            await self._task
        return self.events


async def announced(handle: RunHandle) -> list[int]:
    """The `seq` of every transition that is told to the world."""
    told = ("run-started", "run-completed", "step-completed", "step-retrying", "step-announced")
    return [each.seq for each in await handle.history() if each.what in told]


async def test_events_come_in_order_and_end_with_the_run(client: Client, wire: WireClient) -> None:
    await wire.deploy(chain(length=2))
    handle = await client.start("chain", {"n": 1}, key="c-1")
    seen = Seen(handle.events())
    for _ in range(2):
        await wire.complete(await wire.take(), "done")
    events = await seen.end()
    assert [event.type for event in events] == [
        "run-started", "step-completed", "step-completed", "run-completed",
    ]  # fmt: skip
    assert [event.seq for event in events] == await announced(handle)
    assert {(event.run_id, event.workflow, event.key) for event in events} == {
        (handle.run_id, "chain", "c-1")
    }
    assert events[1].step == "s0"
    assert events[1].attempt == 1


async def test_events_of_the_past_can_be_left_out(client: Client, wire: WireClient) -> None:
    await wire.deploy(chain(length=2))
    handle = await client.start("chain")
    for _ in range(2):
        await wire.complete(await wire.take(), None)
    await handle.result(timeout=DEADLINE_SECONDS)
    all_of_them = [event async for event in handle.events()]
    later = [event async for event in handle.events(after_seq=all_of_them[1].seq)]
    assert later == all_of_them[2:]
    assert [event async for event in handle.events(after_seq=later[-1].seq)] == []


async def test_an_event_of_a_worker_brings_its_data_when_it_is_followed_live(
    client: Client, wire: WireClient
) -> None:
    await wire.deploy(chain(length=2))
    handle = await client.start("chain")
    seen = Seen(handle.events())
    await seen.of("run-started")
    packed = {"name": "packed", "data": {"boxes": 2**60}}
    await wire.complete(await wire.take(), None, events=[packed])
    await seen.of("custom")
    await wire.complete(await wire.take(), None)
    live = next(event for event in await seen.end() if event.type == "custom")
    assert live.data == packed
    from_history = [event async for event in handle.events() if event.type == "custom"]
    assert [event.data for event in from_history] == [{"name": "packed"}]


async def test_a_failed_run_tells_of_its_retries_and_its_end(
    client: Client, wire: WireClient
) -> None:
    await wire.deploy(one_task(retry={"max_attempts": 2, "backoff": {"initial": "10ms"}}))
    handle = await client.start("one")
    seen = Seen(handle.events())
    for _ in range(2):
        await wire.fail(await wire.take(), message="no luck")
    events = await seen.end()
    assert [event.type for event in events] == [
        "run-started", "step-retrying", "step-failed", "run-failed",
    ]  # fmt: skip


async def test_steps_that_were_never_reached_are_no_events(
    client: Client, wire: WireClient
) -> None:
    await wire.deploy(chain(length=50))
    handle = await client.start("chain")
    await handle.cancel(by="ann", reason="not wanted")
    assert [event.type async for event in handle.events()][-1] == "run-cancelled"
    assert "step-skipped" not in [event.type async for event in handle.events()]


async def complete_one(url: str, prefix: str) -> None:
    """Complete the next dispatch, by a connection of its own that no lost server holds up."""
    async with connected(url, prefix) as wire:
        await wire.complete(await wire.take(), None)


async def step_completed(handle: RunHandle, step: str) -> None:
    async def completed() -> bool:
        return any(
            each.step == step and each.status == "completed" for each in await handle.steps()
        )

    await until_async(completed, f"{step} is completed")


async def test_nothing_is_missed_while_nats_is_away(
    own_jetstream: JetStreamServer, postgres_url: str
) -> None:
    prefix = unique_prefix()
    async with fresh_schema(postgres_url) as schema:
        await migrate(postgres_url, schema)
        settings = engine_settings(own_jetstream.url, postgres_url, prefix, schema)
        options = ConnectionOptions(nats_url=own_jetstream.url, prefix=prefix)
        async with (
            running(settings),
            Client(connection=options, timeout_seconds=DEADLINE_SECONDS) as client,
        ):
            await client.deploy(chain(length=4))
            handle = await client.start("chain")
            seen = Seen(handle.events())
            await seen.of("run-started")
            for number, lose in enumerate((own_jetstream.restart, own_jetstream.wipe)):
                await complete_one(own_jetstream.url, prefix)
                # Its report is in Postgres, its event may be anywhere.
                await step_completed(handle, f"s{number}")
                lose()
            for _ in range(2):
                await complete_one(own_jetstream.url, prefix)
            events = await seen.end()
            assert [event.seq for event in events] == await announced(handle)
            assert events[-1].type == "run-completed"


async def test_without_the_right_to_listen_events_come_all_the_same(
    client: Client, wire: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A subscription that the server refuses is one on which nothing ever arrives.
    connection = caller_of(client).connection
    subscribe = connection.subscribe

    async def elsewhere(subject: str, callback: Any) -> Any:
        return await subscribe(f"{wire.prefix}.nothing", callback)

    monkeypatch.setattr(connection, "subscribe", elsewhere)
    await wire.deploy(chain(length=1))
    handle = await client.start("chain")
    seen = Seen(handle.events())
    await seen.of("run-started")
    await wire.complete(await wire.take(), None)
    assert [event.type for event in await seen.end()][-1] == "run-completed"


async def test_an_iterator_that_is_left_early_leaves_nothing_behind(
    client: Client, wire: WireClient
) -> None:
    await wire.deploy(one_wait())
    handle = await client.start("waiting")
    connection: Any = caller_of(client).connection
    for _ in range(3):
        async with aclosing(handle.events()) as events:
            async for event in events:
                assert event.type == "run-started"
                assert len(connection._subscriptions) == 1
                break
    assert connection._subscriptions == []


async def test_events_of_an_unknown_run_are_an_error(client: Client) -> None:
    with pytest.raises(NotFoundError, match="run_not_found"):
        await anext(client.handle(UNKNOWN).events())


async def test_log_lines_come_with_the_reports_and_end_with_the_run(
    client: Client, wire: WireClient
) -> None:
    await wire.deploy(chain(length=2))
    handle = await client.start("chain")
    at = "2026-01-01T00:00:00.000000Z"

    def line(message: str) -> dict[str, Any]:
        return {"at": at, "level": "info", "message": message, "fields": {"n": 1}}

    lines: list[str] = []

    async def follow() -> None:
        lines.extend([each.message async for each in handle.follow_logs()])

    following = asyncio.create_task(follow())
    await wire.complete(await wire.take(), None, logs=[line("a"), line("b")])
    await wire.complete(await wire.take(), None, logs=[line("c")])
    async with asyncio.timeout(DEADLINE_SECONDS):
        await following
    assert lines == ["a", "b", "c"]
    found = await handle.logs()
    assert [each.message for each in found] == lines
    assert (found[0].step, found[0].attempt, found[0].fields) == ("s0", 1, {"n": 1})
    assert [each.message for each in await handle.logs(step="s1")] == ["c"]


async def test_the_oldest_line_that_was_kept_says_that_older_ones_were_cut(
    client: Client, wire: WireClient
) -> None:
    await wire.deploy(one_task())
    handle = await client.start("one")
    reports = 6  # 360 KB, of which 256 KiB are kept
    for number in range(reports):
        lines = [{"message": f"{number}a"}, {"message": f"{number}b", "fields": "x" * 60_000}]
        dispatch = await wire.take()
        await wire.complete(dispatch, None, logs=lines, again={"after_ms": 0})
    await handle.cancel()
    found = await handle.logs()
    assert [(each.message, each.cut) for each in found][:3] == [
        ("2a", True),
        ("2b", False),
        ("3a", False),
    ]
    assert [each.message for each in found if each.cut] == ["2a"]
    assert [each.message async for each in handle.follow_logs() if each.cut] == ["2a"]
