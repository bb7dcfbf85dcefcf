"""NATS away, killed, wiped, refusing: a worker goes on as if nothing had happened."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from tests.integration.worker.conftest import Serving, connect, worker_of
from tests.support.engine_side import EngineSide
from tests.support.eventually import until
from tests.support.jetstream import JetStreamServer
from towpath_protocol.subjects import permissions
from towpath_worker import ConnectionOptions, Context, Worker


@pytest.fixture
async def own_engine(own_jetstream: JetStreamServer, prefix: str) -> AsyncIterator[EngineSide]:
    client = await connect(own_jetstream.url)
    side = EngineSide(client, prefix)
    await side.create_streams()
    await side.create_consumers("inventory")
    await side.listen()
    try:
        yield side
    finally:
        await side.client.close()


async def test_a_worker_starts_before_nats_does(
    own_jetstream: JetStreamServer, prefix: str, serving: Serving
) -> None:
    own_jetstream.stop()
    worker = Worker("inventory", nats_url=own_jetstream.url, prefix=prefix)
    worker.task("quick")(lambda: "quick")
    async with serving(worker):
        own_jetstream.start()
        engine = EngineSide(await connect(own_jetstream.url), prefix)
        engine.creates_consumers = True
        await engine.create_streams()
        await engine.listen()
        report = await engine.end_of(await engine.dispatch("quick"))
        await engine.client.close()
    assert report.kind == "step-completed"


async def test_a_worker_without_nats_says_so_once_and_says_when_it_is_there(
    own_jetstream: JetStreamServer,
    prefix: str,
    serving: Serving,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "towpath.worker")
    own_jetstream.stop()
    worker = Worker("inventory", nats_url=own_jetstream.url, prefix=prefix)
    worker.task("quick")(lambda: "quick")

    def told(text: str) -> list[str]:
        return [each.levelname for each in caplog.records if each.message.startswith(text)]

    tries: list[None] = []

    def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(None)
        writer.close()

    port = urlsplit(own_jetstream.url).port
    nobody = await asyncio.start_server(hang_up, "127.0.0.1", port)
    async with serving(worker):
        await until(lambda: len(tries) >= 12, "it has asked often")
        (line,) = caplog.records
        assert (line.levelname, told("nats_unreachable")) == ("WARNING", ["WARNING"])
        assert f"url={own_jetstream.url}" in line.message
        assert "TOWPATH_NATS_URL" in line.message
        nobody.close()
        await nobody.wait_closed()
        own_jetstream.start()
        await until(lambda: bool(told("nats_connected")), "it says that it is connected")
    assert told("nats_connected") == ["INFO"]


async def test_an_attempt_outlives_a_killed_server(
    own_jetstream: JetStreamServer, own_engine: EngineSide, serving: Serving
) -> None:
    worker = worker_of(own_engine, own_jetstream.url, report_ack_timeout_seconds=1.0)
    go = asyncio.Event()
    calls: list[int] = []

    @worker.task("hold")
    async def hold(number: int) -> int:
        calls.append(number)
        await go.wait()
        return number

    async with serving(worker):
        token = await own_engine.dispatch("hold", 1)
        await until(lambda: calls == [1], "it runs")
        own_jetstream.kill()
        go.set()  # it ends while nobody can hear of it
        await until(lambda: not own_engine.client.is_connected, "the server is gone")
        own_jetstream.start()
        assert (await own_engine.end_of(token)).body["output"] == 1
        await own_engine.end_of(await own_engine.dispatch("hold", 2))
        await own_engine.all_acknowledged()
    assert calls == [1, 2]


async def test_a_worker_goes_on_after_the_store_was_wiped(
    own_jetstream: JetStreamServer, own_engine: EngineSide, serving: Serving
) -> None:
    worker = worker_of(own_engine, own_jetstream.url)
    worker.task("quick")(lambda: "quick")
    async with serving(worker):
        await own_engine.end_of(await own_engine.dispatch("quick"))
        own_jetstream.wipe()
        own_engine.creates_consumers = True
        asked = len(own_engine.presences)
        await until(lambda: len(own_engine.presences) > asked + 1, "consumers are back")
        report = await own_engine.end_of(await own_engine.dispatch("quick"))
    assert report.kind == "step-completed"


async def test_a_client_that_closed_for_good_is_replaced(
    own_jetstream: JetStreamServer, own_engine: EngineSide, serving: Serving
) -> None:
    worker = worker_of(own_engine, own_jetstream.url)
    worker.task("quick")(lambda: "quick")
    async with serving(worker):
        await own_engine.end_of(await own_engine.dispatch("quick"))
        # Nobody may log in any more: the server closes what is open, and clients give up.
        own_jetstream.reconfigure('authorization { user: "nobody", password: "else" }')
        await until(lambda: own_engine.client.is_closed, "plain clients gave up")
        own_jetstream.reconfigure("")
        again = EngineSide(await connect(own_jetstream.url), own_engine.prefix)
        await again.listen()
        report = await again.end_of(await again.dispatch("quick"))
        await again.client.close()
    assert report.kind == "step-completed"


async def test_a_pool_needs_no_more_rights_than_the_protocol_lists(
    own_jetstream: JetStreamServer, own_engine: EngineSide, serving: Serving
) -> None:
    rights = permissions(own_engine.prefix, "inventory")
    allow = {
        side: "[" + ", ".join(f'"{subject}"' for subject in subjects) + "]"
        for side, subjects in (("publish", rights.publish), ("subscribe", rights.subscribe))
    }
    own_jetstream.reconfigure(
        f"""authorization {{ users: [
          {{ user: engine, password: e }},
          {{ user: pool, password: p, permissions: {{
             publish: {{ allow: {allow["publish"]} }}, subscribe: {{ allow: {allow["subscribe"]} }}
          }} }} ] }}"""
    )
    await until(lambda: own_engine.client.is_closed, "anonymous clients are out")
    engine = EngineSide(
        await connect(own_jetstream.url.replace("//", "//engine:e@")), own_engine.prefix
    )
    await engine.listen()
    connection = ConnectionOptions(
        nats_url=own_jetstream.url,
        prefix=engine.prefix,
        user="pool",
        password="p",
        inbox_prefix="_INBOX_inventory",
    )
    worker = Worker("inventory", connection=connection)
    worker.task("quick")(lambda: "quick")
    async with serving(worker):
        report = await engine.end_of(await engine.dispatch("quick"))
        await engine.all_acknowledged()
    await engine.client.close()
    assert report.kind == "step-completed"
    assert "Violation" not in own_jetstream.log.replace("Authorization Violation", "")


async def test_a_worker_that_never_found_nats_stops_when_told(
    own_jetstream: JetStreamServer, prefix: str
) -> None:
    own_jetstream.stop()
    worker = Worker("inventory", nats_url=own_jetstream.url, prefix=prefix)
    worker.task("quick")(lambda: "quick")
    task = asyncio.create_task(worker.serve())
    await until(lambda: worker.serving, "it waits for NATS")
    worker.stop()
    async with asyncio.timeout(60):
        await task
    assert not worker.serving


async def test_a_worker_stops_while_nats_is_away(
    own_jetstream: JetStreamServer, own_engine: EngineSide
) -> None:
    worker = worker_of(own_engine, own_jetstream.url, drain_timeout_seconds=0.1)
    running: list[int] = []

    @worker.task("hang")
    async def hang() -> None:
        running.append(1)
        await asyncio.Event().wait()

    serving = asyncio.create_task(worker.serve())
    await own_engine.dispatch("hang")
    await until(lambda: bool(running), "it runs")
    own_jetstream.kill()
    worker.stop()
    async with asyncio.timeout(120):
        await serving
    assert running == [1]


@pytest.mark.slow
async def test_a_worker_that_loses_its_server_for_a_minute_goes_on(
    own_jetstream: JetStreamServer, own_engine: EngineSide, serving: Serving
) -> None:
    """What ran goes on running, what ended meanwhile is reported, and new work is taken."""
    worker = worker_of(own_engine, own_jetstream.url)
    go, calls = asyncio.Event(), list[str]()

    @worker.task("through")
    async def through(ctx: Context) -> bool:
        calls.append("through")
        await go.wait()
        return ctx.cancelled.is_set()

    @worker.task("blocked")
    def blocked(ctx: Context) -> str:
        calls.append("blocked")
        ctx.cancelled.wait_in_thread(20)  # ends in the middle of the outage
        return "done"

    async with serving(worker):
        tokens = [await own_engine.dispatch("through"), await own_engine.dispatch("blocked")]
        await until(lambda: len(calls) == 2, "both run")
        own_jetstream.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(60):  # the outage itself
                await asyncio.Event().wait()
        own_jetstream.start()
        assert (await own_engine.end_of(tokens[1])).body["output"] == "done"
        go.set()
        assert (await own_engine.end_of(tokens[0])).body["output"] is False
        await own_engine.end_of(await own_engine.dispatch("blocked"))
        await own_engine.all_acknowledged()
    assert calls == ["through", "blocked", "blocked"]
    assert [len(own_engine.ends(token)) for token in tokens] == [1, 1]
