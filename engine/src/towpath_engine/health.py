"""`/livez`, `/readyz` and `/metrics` over a small HTTP/1.1 server of our own.

Live means that the event loop answers. Ready means that every check passes; the answer names the
checks that do not. A framework would be more code than this file. Everything is bounded:
connections, the size of a request, the time it may take; every connection serves one request.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from towpath_engine.metrics import CONTENT_TYPE, Metrics

ReadinessCheck = Callable[[], Awaitable[str | None]]
"""None when it passes, else one sentence that says what is missing. Must not raise."""

_REQUEST_BYTES_MAX = 8 * 1024
_REQUEST_SECONDS = 5.0
_CHECK_SECONDS = 2.0
_CONNECTIONS_MAX = 64
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class PortUnavailable(Exception):  # noqa: N818 - named for what happened
    """The health pages can't listen where the settings say: most often another engine does."""


class HealthServer:
    """Serves the three pages until `stop()`.

    `checks` maps a name (`nats`, `postgres`) to its check; they run at each `/readyz`, together,
    and one that takes longer than two seconds counts as failed.
    """

    def __init__(self, metrics: Metrics, checks: Mapping[str, ReadinessCheck]) -> None:
        self._metrics = metrics
        self._checks = checks
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (the chosen one when `port` is 0). Raises PortUnavailable."""
        try:
            self._server = await asyncio.start_server(
                self._accept, host, port, limit=_REQUEST_BYTES_MAX
            )
        except OSError as error:
            message = (
                f"can't serve health and metrics at {host}:{port}: {error.strerror or error}; "
                "give each engine of a machine a TOWPATH_HTTP_PORT of its own (0: any free one)"
            )
            raise PortUnavailable(message) from error
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and cut what is still open."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= _CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Whoever asks so slowly, or so much, or has gone, gets no answer.
            writer.transport.abort()

    async def _answer(self, head: bytes) -> bytes:
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return _response(400, b"not an HTTP/1 request\n")
        method, target, _ = parts
        if method not in {"GET", "HEAD"}:
            return _response(405, b"only GET and HEAD\n")
        answer = await self._page(target.partition("?")[0])
        if method == "HEAD":
            return answer[: answer.index(b"\r\n\r\n") + 4]
        return answer

    async def _page(self, path: str) -> bytes:
        match path:
            case "/livez":
                return _response(200, b"ok\n")
            case "/readyz":
                failed = await self._failed_checks()
                # The process id tells whoever starts engines that this is the one it started.
                state = {"ready": not failed, "failed": failed, "pid": os.getpid()}
                body = msgspec.json.encode(state) + b"\n"
                return _response(503 if failed else 200, body, "application/json")
            case "/metrics":
                return _response(200, self._metrics.render(), CONTENT_TYPE)
            case _:
                return _response(404, b"there are /livez, /readyz and /metrics\n")

    async def _failed_checks(self) -> dict[str, str]:
        results = await asyncio.gather(*(_run_check(check) for check in self._checks.values()))
        return {name: why for name, why in zip(self._checks, results, strict=True) if why}


async def _run_check(check: ReadinessCheck) -> str | None:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            return await check()
    except TimeoutError:
        return f"no answer within {_CHECK_SECONDS:g} s"


def _response(status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
