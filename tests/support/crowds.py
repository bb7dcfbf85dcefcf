"""Workers by the crowd: dispatches taken and completed in bulk, as quickly as one process can."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats.errors

from tests.support.wire_client import WireClient

Json = Any

_TOGETHER = 200
_PULL_SECONDS = 5


class Crowd:
    """Completes every dispatch of a queue, until the context ends. Tells when each was taken."""

    def __init__(self, wire: WireClient, output: Callable[[Json], Json]) -> None:
        self._wire = wire
        self._output = output
        self.taken: list[tuple[float, Json]] = []
        """The monotonic clock, and the dispatch."""
        self.is_over = False
        self.completes: Callable[[Json], bool] = lambda _: True
        """Which dispatches are done; the others are held, as by a worker that is busy."""

    async def work(self, queue: str, level: int) -> None:
        client: Any = self._wire.client
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox, pending_msgs_limit=-1, pending_bytes_limit=-1)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._wire.prefix.upper()}_DISPATCH"
        wanted = {"batch": _TOGETHER, "expires": _PULL_SECONDS * 1_000_000_000}
        room = 0
        while not self.is_over:
            if room <= _TOGETHER // 2:
                await client.publish(
                    f"{subject}.{queue}_p{level}", json.dumps(wanted).encode(), reply=inbox
                )
                room += _TOGETHER
            with contextlib.suppress(nats.errors.TimeoutError):
                message = await subscription.next_msg(timeout=_PULL_SECONDS + 1)
                if not message.headers or "Status" not in message.headers:
                    room -= 1
                    await self._complete(message)
                    continue
            room = 0  # the request has expired

    async def _complete(self, message: Any) -> None:
        dispatch = json.loads(message.data)
        self.taken.append((time.monotonic(), dispatch))
        if not self.completes(dispatch):
            return
        subject = ".".join((
            self._wire.prefix, "in", "step-completed",
            dispatch["queue"], dispatch["run_id"], dispatch["token"],
        ))  # fmt: skip
        body = {"v": 1, "type": "step.completed", "output": self._output(dispatch)}
        await self._wire.client.publish(subject, json.dumps(body).encode())
        await message.ack()


@asynccontextmanager
async def a_crowd(
    wire: WireClient, output: Callable[[Json], Json], *, queue: str = "default", level: int = 2
) -> AsyncGenerator[Crowd]:
    """Workers that complete all there is, with what `output` makes of the dispatch."""
    crowd = Crowd(wire, output)
    task = asyncio.create_task(crowd.work(queue, level))
    try:
        yield crowd
    finally:
        crowd.is_over = True  # a message that comes at this instant may swallow the cancel
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
