"""Workers that know nothing but PROTOCOL.md (section 2), in processes of their own."""

import sys
from pathlib import Path
from typing import Any

from tests.support.eventually import eventually
from tests.support.processes import DevProcess, RealProcess
from tests.support.wire_client import WireClient

TEN_LINES = """
import asyncio, json, sys, nats
async def main(url, queue):
    nc = await nats.connect(url); inbox = nc.new_inbox(); arrivals = await nc.subscribe(inbox)
    msg = None
    while msg is None or not msg.data:
        pull = f"$JS.API.CONSUMER.MSG.NEXT.TOWPATH_DISPATCH.{queue}_p2"
        await nc.publish(pull, b"1", reply=inbox); msg = await arrivals.next_msg(timeout=600)
    d = json.loads(msg.data); report = json.dumps({"output": {"sent_to": d["input"]["to"]}})
    await nc.request(f"{d['reply']}.step-completed.{d['queue']}.{d['run_id']}.{d['token']}",
                     report.encode())
    await nc.publish(msg.reply, b"+ACK"); await nc.close()
asyncio.run(main(*sys.argv[1:]))
"""

ONLY_IN_PROGRESS = """
import asyncio, contextlib, sys, nats
async def main(url, queue):
    nc = await nats.connect(url); inbox = nc.new_inbox(); arrivals = await nc.subscribe(inbox)
    await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.TOWPATH_DISPATCH.{queue}_p2", b"1", reply=inbox)
    msg = await arrivals.next_msg(timeout=600)
    while True:
        await nc.publish(msg.reply, b"+WPI")
        with contextlib.suppress(nats.errors.TimeoutError):
            await arrivals.next_msg(timeout=0.1)
asyncio.run(main(*sys.argv[1:]))
"""


def one_step(workflow: str, queue: str, **task: Any) -> dict[str, Any]:
    step = {"name": "send", "task": "mail.send", "queue": queue, **task}
    return {"expressions": "cel/1", "workflow": workflow, "steps": [step]}


def start_worker(folder: Path, code: str, dev: DevProcess, queue: str) -> RealProcess:
    program = folder / "worker.py"
    program.write_text(code)
    # -S -E would lose nats-py; -P keeps our own packages' folder out of the path.
    command = [sys.executable, "-P", str(program), dev.ready["nats_url"], queue]
    return RealProcess(command, working_dir=folder)


async def test_ten_lines_of_plain_nats_complete_a_step(
    dev: DevProcess, wire: WireClient, tmp_path: Path
) -> None:
    await wire.deploy(one_step("letter", "mail"))
    worker = start_worker(tmp_path, TEN_LINES, dev, "mail")
    try:
        run_id = await wire.start("letter", {"to": "Zoë 🦆"})

        result = await wire.result(run_id)

        assert (result["status"], result["output"]) == ("completed", {"sent_to": "Zoë 🦆"})
        assert worker.wait() == 0
    finally:
        worker.close()


async def test_a_worker_that_only_sends_in_progress_acks_is_timed_out(
    dev: DevProcess, wire: WireClient, tmp_path: Path
) -> None:
    stalled = one_step("stalled_letter", "stalled", timeouts={"attempt": "1s"})
    await wire.deploy(stalled)
    worker = start_worker(tmp_path, ONLY_IN_PROGRESS, dev, "stalled")
    try:
        run_id = await wire.start("stalled_letter", {"to": "nobody"})

        result = await wire.result(run_id)

        assert (result["status"], result["error"]["type"]) == ("failed", "Timeout")
        assert worker.running()
    finally:
        worker.kill()
        worker.close()


async def test_what_they_did_is_in_the_history(
    dev: DevProcess, wire: WireClient, tmp_path: Path
) -> None:
    await wire.deploy(one_step("told_letter", "told"))
    worker = start_worker(tmp_path, TEN_LINES, dev, "told")
    try:
        run_id = await wire.start("told_letter", {"to": "x"})
        await wire.result(run_id)

        async def history() -> list[dict[str, Any]]:
            return (await wire.api("run.history", run_id=run_id))["transitions"]

        transitions = await eventually(history)
        assert [one["seq"] for one in transitions] == list(range(1, len(transitions) + 1))
        assert transitions[-1]["what"] == "run-completed"
    finally:
        worker.close()
