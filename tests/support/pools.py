"""A worker pool that does a lot at once, for tests of many steps, spoken in plain NATS messages."""

import asyncio
import json
from typing import Any

from nats.aio.msg import Msg

from tests.support.wire_client import WireClient

Json = Any
LEVELS = range(4)
_BATCH = 256


async def undone(wire: WireClient, queue: str) -> int:
    """Dispatches of the queue that the stream has, delivered or not."""
    return sum([await pending(wire, queue, level) for level in LEVELS])


async def pending(wire: WireClient, queue: str, level: int) -> int:
    """The same for one level."""
    stream = f"{wire.prefix.upper()}_DISPATCH"
    info = await wire.client.jetstream().consumer_info(stream, f"{queue}_p{level}")
    return info.num_pending + info.num_ack_pending


async def take_all(wire: WireClient, queue: str, level: int = 2) -> list[Json]:
    """What the stream has for the queue and level now, up to a batch, in order; acknowledged."""
    count = min(_BATCH, await pending(wire, queue, level))
    if not count:
        return []
    found: list[Msg] = []
    complete = asyncio.Event()

    async def receive(message: Msg) -> None:
        if message.data:
            found.append(message)
        if not message.data or len(found) == count:
            complete.set()

    inbox = wire.client.new_inbox()
    subscription = await wire.client.subscribe(inbox, cb=receive)
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{wire.prefix.upper()}_DISPATCH.{queue}_p{level}"
    body = {"batch": count, "expires": 5_000_000_000}
    await wire.client.publish(subject, json.dumps(body).encode(), reply=inbox)
    await complete.wait()
    await subscription.unsubscribe()
    for message in found:
        await message.ack()
    return [json.loads(message.data) for message in found]


async def complete_all(wire: WireClient, dispatches: list[Json], output: Json = None) -> None:
    """Report all of them as done, and wait until the stream has the reports."""
    for dispatch in dispatches:
        body = {"v": 1, "type": "step.completed", "output": output, "worker_id": "pool"}
        subject = f"{wire.prefix}.{_report_of(dispatch)}"
        await wire.client.publish(subject, json.dumps(body).encode())
    await wire.client.flush()


def _report_of(dispatch: Json) -> str:
    return f"in.step-completed.{dispatch['queue']}.{dispatch['run_id']}.{dispatch['token']}"


async def start_many(wire: WireClient, workflow: str, count: int, **more: Json) -> list[str]:
    """Start runs, a thousand a request; their ids."""
    run_ids: list[str] = []
    for first in range(0, count, 1_000):
        items = [
            {"workflow": workflow, "input": number, **more}
            for number in range(first, min(count, first + 1_000))
        ]
        body = json.dumps({"items": items}).encode()
        answer = await wire.api_raw("run.start-many", body, timeout=120)
        run_ids += [result["run_id"] for result in answer["results"]]
    return run_ids
