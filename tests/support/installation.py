"""An installation made as docs/operations.md says, to be broken on purpose."""

import asyncio
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
from nats.aio.client import Client

from tests.support.eventually import eventually_sync
from tests.support.jetstream import free_port, server_binary
from tests.support.pages import Block, Reader, read_blocks, under
from towpath_engine.dev.embedded_postgres import EmbeddedPostgres

PAGE = "docs/operations.md"
FIRST_START = "First start"
SHOP = """
import asyncio
import os
from pathlib import Path

from towpath_worker import Worker

worker = Worker("shop", slots=1)


@worker.task("shop.pack")
async def pack(order: dict) -> str:
    sku = order["sku"]
    while sku == "slow" and Path("busy").exists():
        await asyncio.sleep(0.1)
    if sku == "hang" and not Path("hung").exists():
        Path("hung").touch()
        await asyncio.sleep(3600)
    if sku == "killer":
        os._exit(9)
    return f"parcel for {sku}"


@worker.task("shop.unpack")
def unpack(parcel: str) -> None:
    if not Path("unlocked").exists():
        raise ConnectionError("the store is locked")
"""
ORDER = """
workflow: order
steps:
  - name: approval
    when: has(input.total) && input.total > 1000
    wait: {signal: approved}
  - name: pack
    task: shop.pack
    queue: shop
    retry: {max_attempts: 3}
"""
SALE = """
workflow: sale
steps:
  - {name: pack, task: shop.pack, queue: shop, compensate: {task: shop.unpack}}
  - {name: paid, wait: {signal: paid, timeout: 100ms}}
"""
PARCEL = "workflow: parcel\nsteps: [{name: done, pass: true}]\n"
# What a test does not want to wait for: a worker is missed for fifteen seconds otherwise.
_IMPATIENT = {"TOWPATH_WORKER_LIVE_SECONDS": "4"}


class Installation:
    """NATS, two engines and a worker in the terminals of a reader, and a Postgres beside them.

    Ports of the page are replaced by free ones. Use as a context manager; what was started is gone
    afterwards.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blocks = read_blocks(PAGE)
        self.runner = asyncio.Runner()
        self.nats_port = free_port()
        self.postgres = EmbeddedPostgres(folder / "postgres", free_port(), options={"fsync": "off"})
        changes = {
            "4222": str(self.nats_port),
            "5432": str(self.postgres.port),
            "8081": str(free_port()),
            "8082": str(free_port()),
        }
        self.reader = Reader(folder, _IMPATIENT, changes=changes, sql=self.sql)
        self.reader.program("nats-server", server_binary())
        for name, text in {"shop.py": SHOP, "order.yaml": ORDER, "parcel.yaml": PARCEL}.items():
            (folder / name).write_text(text, encoding="utf-8")

    def __enter__(self) -> "Installation":
        try:
            self.runner.run(self.postgres.start())
            for name in ("pg_dump", "pg_restore"):
                self.reader.program(name, _postgres_program(name))
            self.reader.follow(under(self.blocks, FIRST_START))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all of it."""
        self.reader.close()
        self.runner.run(self.postgres.stop())
        self.postgres.delete_data()
        self.runner.close()

    def section(self, heading: str) -> list[Block]:
        """The blocks under a heading of the page."""
        return under(self.blocks, heading)

    def follow(self, heading: str) -> None:
        """Do what the page says under a heading."""
        self.reader.follow(self.section(heading))

    def begin(self, *terminals: str) -> None:
        """Start again what the page started in these terminals at first, where it does not run."""
        for block in self.section(FIRST_START):
            if block.terminal in terminals and not self.reader.terminal(block.terminal).running():
                self.reader.follow([block])

    def end(self, *terminals: str) -> None:
        """Stop what runs in these terminals, in good order."""
        for name in terminals:
            self.reader.terminal(name).terminate()
        for name in terminals:
            self.reader.terminal(name).wait()

    def kill(self, terminal: str) -> None:
        """kill -9 of what runs in a terminal."""
        self.reader.terminal(terminal).kill()

    def type(self, command: str) -> str:
        """Type a command that the page does not have; it must succeed. What it printed."""
        done = self.reader.run(command)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def start(self, key: str, sku: str, *options: str) -> None:
        """Start a run of `order`."""
        self.type(
            f"""towpath start order --key {key} --input '{{"sku": "{sku}"}}' {" ".join(options)}"""
        )

    def ready(self, *engines: str) -> None:
        """Wait until these engines say that they are."""
        for port in ("8081", "8082"):
            if f"engine-{port[-1]}" in engines:
                address = self.reader.changed(f"http://127.0.0.1:{port}/readyz")
                eventually_sync(
                    lambda url=address: not self.reader.run(f"curl -sf {url}").returncode
                )

    def sql(self, statements: str) -> None:
        """Run statements as the superuser, in the server's own database, one after the other."""
        self.runner.run(_execute(self.postgres.url, statements.split(";\n")))

    def sql_inside(self, statement: str) -> None:
        """Run a statement as the superuser in the installation's database."""
        url = self.postgres.url.rpartition("/")[0] + "/towpath"
        self.runner.run(_execute(url, [statement]))

    def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        """Send a message as the client service may."""
        self.runner.run(_publish(self.nats_port, subject, body, headers))


def _postgres_program(name: str) -> Path:
    """A client program of the installed `embedded-postgres`."""
    files = importlib.metadata.distribution("embedded-postgres").files or []
    (found,) = (file for file in files if file.match(f"pginstall/bin/{name}"))
    return Path(str(found.locate())).resolve()


async def _execute(url: str, statements: Sequence[str]) -> None:
    connection: Any = await asyncpg.connect(url)
    try:
        for statement in statements:
            if statement.strip():
                await connection.execute(statement)
    finally:
        await connection.close()


async def _publish(port: int, subject: str, body: bytes, headers: dict[str, str]) -> None:
    client = Client()
    await client.connect(  # pyright: ignore[reportUnknownMemberType] -- nats-py's options have no types
        f"nats://127.0.0.1:{port}",
        user="towpath-client",
        password="client-secret",
        inbox_prefix=b"_INBOX-towpath-client",
    )
    try:
        await client.request(subject, body, headers=headers, timeout=10)
    finally:
        await client.close()
