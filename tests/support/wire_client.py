"""A program that knows nothing of Towpath but the wire: plain NATS messages and requests."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.support.eventually import eventually

Json = Any

# A hang guard: nothing here takes a second on an idle machine.
REQUEST_SECONDS = 20.0
PULL_SECONDS = 5


class RefusedError(Exception):
    """An error answer of the API."""

    def __init__(self, status: int, code: str, message: str, details: Json) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        super().__init__(f"{status} {code}: {message}")


class WireClient:
    """Talks to the engine of one prefix."""

    def __init__(self, client: Any, prefix: str) -> None:
        # nats-py's own annotations are partly unknown to a strict checker.
        self.client = client
        self.prefix = prefix
        self._tasks: list[asyncio.Task[None]] = []

    # The API

    async def api(self, verb: str, **body: Json) -> Json:
        """Ask; raises RefusedError for an error answer."""
        return await self.api_raw(verb, _text(body))

    async def api_raw(
        self,
        verb: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = REQUEST_SECONDS,
    ) -> Json:
        subject = f"{self.prefix}.api.{verb}"
        answer = await self.client.request(
            subject, body, timeout=timeout, headers=dict(headers) if headers else None
        )
        found: dict[str, str] = answer.headers or {}
        status = found.get("Nats-Service-Error-Code")
        content = json.loads(answer.data)
        if status is not None:
            error = content["error"]
            raise RefusedError(int(status), error["code"], error["message"], error["details"])
        return content

    async def deploy(self, definition: Json) -> Json:
        return await self.api("workflow.deploy", definition=definition)

    async def start(self, workflow: str, value: Json = None, **more: Json) -> str:
        answer = await self.api("run.start", workflow=workflow, input=value, **more)
        return answer["run_id"]

    async def result(self, run_id: str) -> Json:
        """Wait until the run has settled."""

        async def settled() -> Json:
            # Asked while servers go down and come back: an answer may be lost on the way.
            body = _text({"run_id": run_id, "wait_ms": 1_000})
            try:
                answer = await self.api_raw("run.result", body, timeout=3)
            except (nats.errors.Error, OSError):
                return None
            return answer if answer["settled"] else None

        return await eventually(settled)

    async def run(self, run_id: str) -> Json:
        return await self.api("run.get", run_id=run_id)

    async def step(self, run_id: str, name: str) -> Json:
        """One that the run has come to."""
        run = await self.run(run_id)
        found = [step for step in run["steps"] if step["step"] == name]
        assert found, f"{name} is not among the steps of {run_id}"
        return found[0]

    async def step_in(self, run_id: str, name: str, *statuses: str) -> Json:
        """Wait until the step has one of these statuses."""

        async def there() -> Json:
            step = await self.step(run_id, name)
            assert step["status"] in statuses, step
            return step

        return await eventually(there)

    async def history(self, run_id: str) -> list[Json]:
        rows: list[Json] = []
        while True:
            after = rows[-1]["seq"] if rows else 0
            page = await self.api("run.history", run_id=run_id, after_seq=after, limit=500)
            rows.extend(page["transitions"])
            if page["next_after_seq"] is None:
                return rows

    async def dead_letters(self) -> list[Json]:
        rows: list[Json] = []
        cursor: str | None = None
        while True:
            page = await self.api("dead-letter.list", cursor=cursor, limit=1_000)
            rows.extend(page["dead_letters"])
            cursor = page["next_cursor"]
            if cursor is None:
                return rows

    # Messages

    async def put(
        self, subject: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Json:
        """Publish to a stream (the prefix is added) and wait for the PubAck."""
        answer = await self.client.request(
            f"{self.prefix}.{subject}",
            body,
            timeout=REQUEST_SECONDS,
            headers=dict(headers) if headers else None,
        )
        return json.loads(answer.data)

    async def report(self, dispatch: Json, kind: str, **body: Json) -> Json:
        subject = f"in.{kind}.{dispatch['queue']}.{dispatch['run_id']}.{dispatch['token']}"
        content = {"v": 1, "type": kind.replace("-", "."), **body}
        return await self.put(subject, _text(content))

    async def complete(self, dispatch: Json, output: Json = None, **more: Json) -> Json:
        return await self.report(dispatch, "step-completed", output=output, **more)

    async def fail(self, dispatch: Json, **error: Json) -> Json:
        error = {"type": "Broken", "message": "it broke", "retryable": True, **error}
        return await self.report(dispatch, "step-failed", error=error)

    # A worker

    async def pull(self, queue: str = "default", level: int = 2) -> tuple[Json, Msg]:
        """The next dispatch of a queue, not acknowledged: (body, message)."""
        stream = f"{self.prefix.upper()}_DISPATCH"
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{queue}_p{level}"
        body = json.dumps({"batch": 1, "expires": PULL_SECONDS * 1_000_000_000}).encode()

        async def next_one() -> Msg | None:
            # A stored message arrives under its own subject, so the client's request can't be
            # used; and while a server comes back there may be no answer at all.
            inbox = self.client.new_inbox()
            subscription = await self.client.subscribe(inbox)
            try:
                await self.client.publish(subject, body, reply=inbox)
                answer = await subscription.next_msg(timeout=2 * PULL_SECONDS)
            except nats.errors.TimeoutError:
                return None
            finally:
                await subscription.unsubscribe()
            return answer if answer.data else None

        message = await eventually(next_one)
        return json.loads(message.data), message

    async def take(self, queue: str = "default", level: int = 2) -> Json:
        """The next dispatch, acknowledged."""
        body, message = await self.pull(queue, level)
        await message.ack()
        return body

    def work(self, queue: str, handle: Callable[[Json], Json], *, slots: int = 16) -> None:
        """Complete every dispatch of the queue with what `handle` makes of it, from now on."""
        for _ in range(slots):
            self._tasks.append(asyncio.create_task(self._work(queue, handle)))

    async def _work(self, queue: str, handle: Callable[[Json], Json]) -> None:
        while True:
            with contextlib.suppress(nats.errors.Error, AssertionError):
                dispatch, message = await self.pull(queue)
                await self.complete(dispatch, handle(dispatch), worker_id="outsider")
                await message.ack()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()


@contextlib.asynccontextmanager
async def connected(url: str, prefix: str) -> AsyncGenerator[WireClient]:
    """A client that is closed in the end."""
    client: Any = Client()
    await client.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
    wire = WireClient(client, prefix)
    try:
        yield wire
    finally:
        await wire.close()


def new_key() -> str:
    """A key that nobody used."""
    return f"k-{uuid.uuid4().hex[:12]}"


def _text(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
