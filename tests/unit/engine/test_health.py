import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from towpath_engine.cli.exits import Exit
from towpath_engine.cli.failures import explain
from towpath_engine.health import HealthServer, PortUnavailable
from towpath_engine.metrics import Metrics

HOST = "127.0.0.1"


class Checks:
    """Readiness checks whose answers a test sets."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.hang = False

    async def nats(self) -> str | None:
        return None

    async def postgres(self) -> str | None:
        if self.hang:
            await asyncio.Event().wait()
        return self.problem


@pytest.fixture
def checks() -> Checks:
    return Checks()


@pytest.fixture
async def port(checks: Checks) -> AsyncIterator[int]:
    metrics = Metrics()
    metrics.reports_stale.labels(kind="step-completed").inc(3)
    server = HealthServer(metrics, {"nats": checks.nats, "postgres": checks.postgres})
    yield await server.start(HOST, 0)
    await server.stop()


async def ask(port: int, request: bytes) -> tuple[bytes, bytes]:
    """Status line and body, both empty when the connection is cut without an answer."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0], body


async def get(port: int, path: str) -> tuple[bytes, bytes]:
    return await ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_it_lives_while_it_answers(port: int) -> None:
    assert await get(port, "/livez") == (b"HTTP/1.1 200 OK", b"ok\n")


async def test_it_is_ready_when_every_check_passes(port: int) -> None:
    status, body = await get(port, "/readyz?verbose")
    assert status == b"HTTP/1.1 200 OK"
    assert json.loads(body)["ready"] is True


async def test_it_is_not_ready_and_names_the_check_that_fails(port: int, checks: Checks) -> None:
    checks.problem = "Postgres does not answer"
    status, body = await get(port, "/readyz")
    assert status == b"HTTP/1.1 503 Service Unavailable"
    assert json.loads(body)["failed"] == {"postgres": "Postgres does not answer"}
    assert (await get(port, "/livez"))[0] == b"HTTP/1.1 200 OK"


async def test_a_check_that_hangs_counts_as_failed(port: int, checks: Checks) -> None:
    checks.hang = True
    status, body = await get(port, "/readyz")
    assert status == b"HTTP/1.1 503 Service Unavailable"
    assert "no answer" in json.loads(body)["failed"]["postgres"]


async def test_metrics_are_prometheus_text(port: int) -> None:
    status, body = await get(port, "/metrics")
    assert status == b"HTTP/1.1 200 OK"
    assert b'towpath_report_stale_total{kind="step-completed"} 3.0' in body


async def test_head_has_no_body(port: int) -> None:
    status, body = await ask(port, b"HEAD /livez HTTP/1.1\r\n\r\n")
    assert (status, body) == (b"HTTP/1.1 200 OK", b"")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /livez HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"\xff\xff \x00 HTTP/2\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET " + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b""),
    ],
)
async def test_anything_else_is_refused_and_the_next_is_served(
    port: int, request_bytes: bytes, status: bytes
) -> None:
    assert (await ask(port, request_bytes))[0] == status
    assert (await get(port, "/livez"))[0] == b"HTTP/1.1 200 OK"


async def test_connections_that_say_nothing_take_no_more_than_their_number(port: int) -> None:
    silent = [await asyncio.open_connection(HOST, port) for _ in range(64)]
    assert await get(port, "/livez") == (b"", b"")
    for _, writer in silent:
        writer.close()
        await writer.wait_closed()
    assert (await get(port, "/livez"))[0] == b"HTTP/1.1 200 OK"


async def test_a_port_that_another_engine_has_is_named_with_the_setting() -> None:
    first, second = HealthServer(Metrics(), {}), HealthServer(Metrics(), {})
    port = await first.start("127.0.0.1", 0)
    try:
        with pytest.raises(PortUnavailable, match=f"127.0.0.1:{port}.*TOWPATH_HTTP_PORT") as found:
            await second.start("127.0.0.1", port)
    finally:
        await second.stop()
        await first.stop()
    told = explain(found.value)
    assert told is not None
    assert told.status is Exit.REFUSED
