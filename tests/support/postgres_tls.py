"""TLS in front of a real Postgres, as poolers and cloud proxies have it.

The embedded Postgres is built without TLS. So it ends in a proxy that speaks the start of Postgres'
protocol (the request for TLS and its one-letter answer) and passes on everything after it.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

TLS = Path(__file__).parent / "tls"
# Length 8, then the code that asks for TLS.
SSL_REQUEST = bytes.fromhex("0000000804d2162f")


def server_context(name: str, client_authority: Path | None) -> ssl.SSLContext:
    """With this certificate; with an authority, clients must show a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / f"{name}.pem", TLS / f"{name}-key.pem")
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_authority)
    return context


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


class TlsProxy:
    """What went through: how many sessions were encrypted, what was said in the clear."""

    def __init__(self, backend: str, context: ssl.SSLContext) -> None:
        parts = urlsplit(backend)
        self._backend = (parts.hostname or "", parts.port or 5432)
        self._context = context
        self.sessions = 0
        self.in_the_clear = b""

    async def on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One session."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            opening = await reader.readexactly(8)
            if opening != SSL_REQUEST:
                self.in_the_clear += opening
                writer.close()
                return
            writer.write(b"S")
            await writer.drain()
            await writer.start_tls(self._context)
            self.sessions += 1
            up_reader, up_writer = await asyncio.open_connection(*self._backend)
            await asyncio.gather(_pass_on(reader, up_writer), _pass_on(up_reader, writer))


@asynccontextmanager
async def tls_postgres(
    url: str, *, certificate: str = "server", client_authority: Path | None = None
) -> AsyncGenerator[tuple[str, TlsProxy]]:
    """The address of the same database behind TLS, and the proxy.

    `certificate` is `server`, for 127.0.0.1, or `client`, which is its own authority and for
    nobody's address.
    """
    proxy = TlsProxy(url, server_context(certificate, client_authority))
    server = await asyncio.start_server(proxy.on_client, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    parts = urlsplit(url)
    login, at, _ = parts.netloc.rpartition("@")
    try:
        yield urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{port}")), proxy
    finally:
        server.close()
