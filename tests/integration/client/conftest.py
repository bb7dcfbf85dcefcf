"""Fixtures of the client tests: a server and a test that answers, or a server and an engine."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from tests.support.engines import engine_settings, running
from tests.support.jetstream import jetstream_url, own_jetstream, prefix
from tests.support.postgres import fresh_schema, postgres_url
from tests.support.wire_client import WireClient, connected
from towpath_engine.services.engine import Engine
from towpath_engine.settings import Settings
from towpath_engine.store.migrate import migrate
from towpath_worker import Client
from towpath_worker.calls import ApiCaller

__all__ = ["jetstream_url", "own_jetstream", "postgres_url", "prefix"]

Answer = dict[str, Any] | None


async def silent(_error: Exception) -> None:
    """Servers come and go in these tests; the client need not tell."""


async def connect(url: str) -> NatsClient:
    client: Any = NatsClient()
    await client.connect(
        url, error_cb=silent, max_reconnect_attempts=-1, reconnect_time_wait=0.1, ping_interval=5
    )
    return client


class ApiSide:
    """Answers each verb with what the test's function returns; None: no answer at all."""

    def __init__(self, client: Any, prefix: str) -> None:
        self.client = client
        self.prefix = prefix
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Answer]] = {}

    async def listen(self) -> None:
        await self.client.subscribe(f"{self.prefix}.api.>", cb=self._on_request)
        await self.client.flush()

    def bodies(self, verb: str) -> list[dict[str, Any]]:
        return [body for seen, body in self.requests if seen == verb]

    async def _on_request(self, msg: Msg) -> None:
        verb = msg.subject.removeprefix(f"{self.prefix}.api.")
        body = json.loads(msg.data)
        self.requests.append((verb, body))
        answer = self.answers[verb](body)
        if answer is None:
            return
        headers = None
        if "refused" in answer:
            headers = {"Nats-Service-Error-Code": str(answer.pop("refused"))}
        await self.client.publish(msg.reply, json.dumps(answer).encode(), headers=headers)


def caller_of(client: Client) -> ApiCaller:
    """What sends the client's requests; its patience may be changed."""
    inside: Any = client
    return inside._caller


def refusal(code: str, status: int, details: object = None) -> dict[str, Any]:
    return {"refused": status, "error": {"code": code, "message": "no", "details": details}}


@pytest.fixture
async def api(jetstream_url: str, prefix: str) -> AsyncIterator[ApiSide]:
    client: Any = await connect(jetstream_url)
    side = ApiSide(client, prefix)
    await side.listen()
    yield side
    await client.close()


@pytest.fixture
async def asking(api: ApiSide, jetstream_url: str) -> AsyncIterator[Client]:
    """A client whose requests the test answers."""
    async with Client(nats_url=jetstream_url, prefix=api.prefix, timeout_seconds=20) as client:
        yield client


@pytest.fixture
async def settings(jetstream_url: str, postgres_url: str, prefix: str) -> AsyncGenerator[Settings]:
    async with fresh_schema(postgres_url) as schema:
        await migrate(postgres_url, schema)
        yield engine_settings(jetstream_url, postgres_url, prefix, schema)


@pytest.fixture
async def engine(settings: Settings) -> AsyncGenerator[Engine]:
    async with running(settings) as engine:
        yield engine


@pytest.fixture
async def client(engine: Engine, settings: Settings) -> AsyncIterator[Client]:
    """A client of a real engine."""
    async with Client(nats_url=settings.nats_url, prefix=settings.prefix) as client:
        yield client


@pytest.fixture
async def wire(engine: Engine, settings: Settings) -> AsyncIterator[WireClient]:
    """Who plays the workers."""
    async with connected(settings.nats_url, settings.prefix) as wire:
        yield wire
