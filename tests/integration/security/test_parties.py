"""Each party does all of its work with exactly the rights that are printed for it."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.support.eventually import until, until_async
from tests.support.processes import RealProcess
from tests.support.secured import Secured, one_step, serving
from tests.support.wire_client import WireClient
from towpath_engine.services.engine import Engine
from towpath_worker import Client, Context, Worker

PAGE = Path(__file__).parents[3] / "protocol" / "PROTOCOL.md"


async def settled(client: WireClient, workflow: str, value: Any = None) -> Any:
    """Start a run and wait for its result."""
    return await client.result(await client.start(workflow, value, request_id=workflow))


async def test_a_python_worker_does_everything_with_the_rights_of_its_pool(
    secured: Secured, operator: WireClient, client: WireClient
) -> None:
    worker = Worker("mail", connection=secured.options("pool-mail"))
    running: list[str] = []
    done: list[str] = []

    @worker.task("letter.send")
    async def send(text: str, ctx: Context) -> str:
        ctx.progress({"half": True})
        return text.upper()

    @worker.task("letter.hold")
    async def hold(ctx: Context) -> None:
        running.append(ctx.run_id)
        try:
            await asyncio.Event().wait()
        finally:
            done.append(ctx.run_id)

    await operator.deploy(one_step("sent", "mail", "letter.send", timeouts={"heartbeat": "10s"}))
    await operator.deploy(one_step("held", "mail", "letter.hold"))
    async with serving(worker):
        result = await settled(client, "sent", "hello")
        assert (result["status"], result["output"]) == ("completed", "HELLO")

        # The push reaches it, on the subject of its queue alone.
        run_id = await client.start("held")
        await until(lambda: run_id in running, "the task runs")
        await client.api("run.cancel", run_id=run_id)
        await until(lambda: run_id in done, "the task is cancelled")
        assert (await client.result(run_id))["status"] == "cancelled"

        # What runs when it is stopped is given back.
        given_back = await client.start("held")
        await until(lambda: given_back in running, "the task runs")
        worker.stop()
        worker.stop()
        await client.step_in(given_back, "only", "waiting", "ready", "dispatched")
    whats = [row["what"] for row in await client.history(given_back)]
    assert "step-released" in whats
    assert secured.violations == []


async def test_plain_nats_does_everything_with_the_rights_of_its_pool(
    secured: Secured, operator: WireClient, client: WireClient
) -> None:
    await operator.deploy(one_step("sent", "mail", "x", timeouts={"heartbeat": "30s"}))
    async with secured.wire("pool-mail") as pool:
        pushes = await pool.client.subscribe(f"{secured.prefix}.control.mail")
        run_id = await client.start("sent")
        dispatch, message = await pool.pull("mail")
        await pool.client.publish(message.reply, b"+WPI")
        await pool.report(dispatch, "step-started", worker_id="w")
        await pool.report(dispatch, "step-heartbeat", worker_id="w", n=1, progress=1)
        body = json.dumps({"worker_id": "w", "tokens": [dispatch["token"], "old"]}).encode()
        answer = await pool.client.request(f"{secured.prefix}.heartbeat.mail", body, timeout=20)
        assert json.loads(answer.data) == {"cancel": [], "stale": ["old"]}
        assert (await pool.complete(dispatch, {"ok": True}))["stream"].endswith("_IN")
        await message.ack_sync(timeout=20)
        assert (await client.result(run_id))["output"] == {"ok": True}

        failed = await client.start("sent")
        dispatch, message = await pool.pull("mail")
        await pool.report(dispatch, "step-released", worker_id="w", reason="drain")
        await message.ack_sync(timeout=20)
        dispatch, message = await pool.pull("mail")
        await pool.fail(dispatch, retryable=False)
        await message.ack_sync(timeout=20)
        assert (await client.result(failed))["status"] == "failed"

        cancelled = await client.start("sent")
        dispatch, message = await pool.pull("mail")
        await client.api("run.cancel", run_id=cancelled)
        push = await pushes.next_msg(timeout=20)
        assert json.loads(push.data)["token"] == dispatch["token"]
        await message.ack_sync(timeout=20)
    assert secured.violations == []


async def test_the_smallest_worker_of_the_page_needs_no_more(
    secured: Secured, operator: WireClient, client: WireClient, tmp_path: Path
) -> None:
    section = PAGE.read_text().split("## 2.")[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    url = f'"{secured.url("pool-mail")}", inbox_prefix=b"{secured.inbox("pool-mail")}"'
    source = re.sub(r'nats\.connect\("[^"]*"', f"nats.connect({url}", found[1])
    program = tmp_path / "worker.py"
    program.write_text(source.replace("TOWPATH_DISPATCH", f"{secured.prefix.upper()}_DISPATCH"))
    await operator.deploy(one_step("letter", "mail", "mail.send"))
    worker = RealProcess([sys.executable, "-P", str(program)], working_dir=tmp_path)
    try:
        result = await settled(client, "letter", {"to": "anna@example.org"})
        assert (result["status"], result["output"]) == (
            "completed",
            {"sent_to": "anna@example.org"},
        )
    finally:
        worker.kill()
        worker.close()
    assert secured.violations == []


async def test_a_client_starts_and_signals_by_message_and_by_request_and_sees_events(
    secured: Secured, operator: WireClient, client: WireClient
) -> None:
    wait = {"name": "only", "wait": {"signal": "go"}}
    await operator.deploy({"expressions": "cel/1", "workflow": "waits", "steps": [wait]})
    events = await client.client.subscribe(f"{secured.prefix}.events.>")
    me = {"Towpath-Sent-By": "shop", "Towpath-Key": "k-1"}
    await client.put("in.start.waits.k1.-", b"1", me)
    event = await events.next_msg(timeout=60)
    run_id = json.loads(event.data)["run_id"]
    await client.put(f"in.signal.-.{run_id}.go", b"2", {"Towpath-Sent-By": "shop"})
    assert (await client.result(run_id))["status"] == "completed"

    async with Client(connection=secured.options("client")) as sdk:
        handle = await sdk.start("waits", None)
        await handle.signal("go", 3)
        assert (await client.result(handle.run_id))["output"]["payload"] == 3
        assert [event.type async for event in handle.events()][-1] == "run-completed"
    assert secured.violations == []


async def test_an_operator_deploys_and_asks_the_engines_who_they_are(
    secured: Secured, operator: WireClient
) -> None:
    assert (await operator.deploy(one_step("deployed", "mail", "x")))["created"]
    for question in ("PING", "INFO", "STATS"):
        answer = await operator.client.request(f"$SRV.{question}.towpath", b"", timeout=20)
        assert json.loads(answer.data)["name"] == "towpath"
    assert secured.violations == []


async def test_an_engine_mends_what_was_deleted_with_its_own_rights(
    secured: Secured, engine: Engine, operator: WireClient, client: WireClient
) -> None:
    """The engine alone creates streams and consumers: also again, after a wiped store."""
    await operator.deploy(one_step("sent", "mail", "x"))
    run_id = await client.start("sent")
    await asyncio.to_thread(secured.server.wipe)
    async with secured.wire("pool-mail") as pool:

        async def completed() -> bool:
            dispatch = await pool.take("mail")
            await pool.complete(dispatch, 1)
            return True

        await until_async(completed, "the dispatch came again")
    async with secured.wire("client") as again:
        assert (await again.result(run_id))["status"] == "completed"
    assert secured.violations == []
