"""The engine's side of the wire, played by a test with plain nats-py.

Streams and consumers as PROTOCOL.md has them, dispatches, and everything that workers say. No code
of Towpath decides anything here.
"""

import json
import os
import time
from typing import Any

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, ConsumerInfo, RetentionPolicy, StreamConfig

from tests.support.eventually import until, until_async
from towpath_protocol.ids import new_uuid7


class ReportSeen:
    """A message that a worker published on P_IN."""

    def __init__(self, msg: Msg) -> None:
        self.subject = msg.subject
        self.kind, self.queue, self.run_id, self.token = msg.subject.split(".")[2:6]
        self.headers: dict[str, str] = dict(msg.headers or {})
        self.body: dict[str, Any] = json.loads(msg.data)
        self.seen_at = time.monotonic()


class EngineSide:
    """One prefix on one server. `listen` once connected; survives what the server does."""

    def __init__(self, client: NatsClient, prefix: str) -> None:
        # nats-py's types are partly unknown to a strict checker.
        self.client: Any = client
        self.prefix = prefix
        self.dispatch_stream = f"{prefix.upper()}_DISPATCH"
        self.reports: list[ReportSeen] = []
        self.acks: list[bytes] = []
        self.presences: list[dict[str, Any]] = []
        self.cancel: list[str] = []
        self.stale: list[str] = []
        self.verdict = ""
        """`cancel` or `stale`: the answer about every token asked for; `silence`: no answer;
        `refusal`: an error."""
        self.creates_consumers = False
        self.ack_wait_s = 30.0

    async def create_streams(self) -> None:
        """P_DISPATCH and P_IN (without its transform, which no worker can tell)."""
        js: Any = self.client.jetstream()
        await js.add_stream(
            StreamConfig(
                name=self.dispatch_stream,
                subjects=[f"{self.prefix}.dispatch.*.*.*.*"],
                retention=RetentionPolicy.WORK_QUEUE,
                duplicate_window=60,
            )
        )
        await js.add_stream(
            StreamConfig(
                name=f"{self.prefix.upper()}_IN",
                subjects=[f"{self.prefix}.in.*.*.*.*"],
                duplicate_window=0.1,
            )
        )

    async def create_consumers(self, queue: str) -> None:
        """The four consumers of a queue."""
        js: Any = self.client.jetstream()
        for level in range(4):
            await js.add_consumer(
                self.dispatch_stream,
                ConsumerConfig(
                    durable_name=f"{queue}_p{level}",
                    filter_subject=f"{self.prefix}.dispatch.{queue}.{level}.*.*",
                    ack_wait=self.ack_wait_s,
                    max_deliver=5,
                    max_ack_pending=10_000,
                    max_waiting=4_096,
                ),
            )

    async def listen(self) -> None:
        """See every report and answer every heartbeat from now on."""
        await self.client.subscribe(f"{self.prefix}.in.>", cb=self._on_report)
        await self.client.subscribe(f"{self.prefix}.heartbeat.*", cb=self._on_presence)
        await self.client.subscribe(f"$JS.ACK.{self.dispatch_stream}.>", cb=self._on_ack)

    async def dispatch(self, task: str, value: Any = None, **fields: Any) -> str:
        """Dispatch an attempt; returns its token. `level`, `queue` and every field of a dispatch
        may be overridden."""
        level = fields.pop("level", 2)
        traceparent = fields.pop("traceparent", None)
        body: dict[str, Any] = {
            "v": 1, "type": "step.dispatch", "run_id": new_run_id(), "workflow": "order",
            "version": 3, "key": None, "step": "reserve", "task": task, "queue": "inventory",
            "priority": "normal", "token": new_token(), "attempt": 1, "max_attempts": 3,
            "iteration": 0, "input": value, "context": {}, "metadata": {},
            "idempotency_key": "k/reserve/0", "dispatched_at": "2026-11-29T12:00:00.000000Z",
            "attempt_timeout_ms": 300_000, "heartbeat_timeout_ms": None,
            "ack_wait_ms": round(self.ack_wait_s * 1000), "deadline": None, "last_error": None,
            "last_progress": None, "compensation": None, "reply": f"{self.prefix}.in",
            **fields,
        }  # fmt: skip
        await self.publish_dispatch(body, level=level, traceparent=traceparent)
        return body["token"]

    async def publish_dispatch(
        self, body: dict[str, Any], *, level: int = 2, traceparent: str | None = None
    ) -> None:
        """Publish a dispatch as it is."""
        headers = {} if traceparent is None else {"traceparent": traceparent}
        await self.client.jetstream().publish(
            f"{self.prefix}.dispatch.{body['queue']}.{level}.{body['run_id']}.{body['token']}",
            json.dumps(body).encode(),
            headers=headers or None,
        )

    async def push_cancel(self, token: str, *, queue: str = "inventory") -> None:
        """The push on P.control.<queue>."""
        body = {"type": "step.cancel", "run_id": new_run_id(), "step": "reserve"}
        await self.client.publish(
            f"{self.prefix}.control.{queue}",
            json.dumps({**body, "token": token, "reason": "the run was cancelled"}).encode(),
        )

    def of(self, token: str, kind: str | None = None) -> list[ReportSeen]:
        """What was reported about a token, of one kind or of all."""
        return [
            report
            for report in list(self.reports)
            if report.token == token and kind in (None, report.kind)
        ]

    def ends(self, token: str) -> list[ReportSeen]:
        """The reports that end an attempt."""
        ending = {"step-completed", "step-failed", "step-released"}
        return [report for report in self.of(token) if report.kind in ending]

    async def end_of(self, token: str) -> ReportSeen:
        """The first report that ends this attempt."""
        await until(lambda: bool(self.ends(token)), f"{token} ends")
        return self.ends(token)[0]

    async def report_of(self, token: str, kind: str) -> ReportSeen:
        """The first report of that kind."""
        await until(lambda: bool(self.of(token, kind)), f"{kind} of {token}")
        return self.of(token, kind)[0]

    async def consumer(self, level: int = 2, queue: str = "inventory") -> ConsumerInfo:
        """What the server knows about a consumer."""
        return await self.client.jetstream().consumer_info(
            self.dispatch_stream, f"{queue}_p{level}"
        )

    async def all_acknowledged(self) -> None:
        """Wait until no dispatch is stored any more."""

        async def empty() -> bool:
            info = await self.client.jetstream().stream_info(self.dispatch_stream)
            return info.state.messages == 0

        await until_async(empty, "every dispatch is acknowledged")

    async def _on_ack(self, msg: Msg) -> None:
        self.acks.append(msg.data)

    async def _on_report(self, msg: Msg) -> None:
        self.reports.append(ReportSeen(msg))

    async def _on_presence(self, msg: Msg) -> None:
        self.presences.append(json.loads(msg.data))
        if self.creates_consumers:
            await self.create_streams()
            await self.create_consumers(msg.subject.rsplit(".", 1)[1])
        reply: dict[str, Any] = {"cancel": self.cancel, "stale": self.stale}
        headers: dict[str, str] | None = None
        match self.verdict:
            case "silence":
                return
            case "refusal":
                headers = {"Nats-Service-Error-Code": "500", "Nats-Service-Error": "no database"}
                reply = {"error": {"code": "internal", "message": "no database", "details": {}}}
            case "cancel" | "stale" as verdict:
                reply = {verdict: self.presences[-1]["tokens"]}
            case _:
                pass
        await self.client.publish(msg.reply, json.dumps(reply).encode(), headers=headers)


def new_run_id() -> str:
    """A run id as an engine makes them."""
    return new_uuid7(time.time_ns() // 1_000_000, os.urandom(10))


def new_token() -> str:
    """A token as an engine makes them."""
    return os.urandom(12).hex()
