"""A nats-server that runs with exactly what `towpath nats-permissions` printed, in either form."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from tests.support.engines import engine_settings
from tests.support.jetstream import JetStreamServer
from tests.support.wire_client import WireClient
from towpath_engine.settings import Settings
from towpath_worker import ConnectionOptions, Worker

PASSWORD = "s3cr3t-of-"
QUEUES = ("mail", "billing")


def printed(*arguments: str) -> str:
    """What the command prints on standard output."""
    command = [sys.executable, "-m", "towpath_engine", "nats-permissions", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Secured:
    """One server, whose users are the engine, a client, an operator and two pools."""

    def __init__(self, folder: Path, prefix: str, form: str) -> None:
        self.prefix = prefix
        self.form = form
        config = printed(
            *QUEUES, f"--{form}", "--engine", "--client", "--operator", "--prefix", prefix
        )
        self.users = ("engine", "client", "operator", *(f"pool-{queue}" for queue in QUEUES))
        self.server = JetStreamServer(folder, config=f"{self._passwords()}\n{config}")

    def _passwords(self) -> str:
        """The variables of the configuration; a server takes them from its environment, too."""
        names = ((f"{self.prefix}-{user}".replace("-", "_"), user) for user in self.users)
        return "\n".join(f'{name}_password: "{PASSWORD}{user}"' for name, user in names)

    def inbox(self, user: str) -> str:
        """The inbox prefix of a user."""
        pool = user.removeprefix("pool-")
        return f"_INBOX-{self.prefix}-{user}" if pool == user else f"_INBOX_{pool}"

    def settings(self, postgres_url: str, schema: str, **changes: Any) -> Settings:
        """Settings of an engine that logs in as the printed user."""
        return engine_settings(
            self.server.url,
            postgres_url,
            self.prefix,
            schema,
            nats_user=f"{self.prefix}-engine",
            nats_password=f"{PASSWORD}engine",
            nats_inbox_prefix=self.inbox("engine"),
            **{"require_sender": True, **changes},
        )

    def options(self, user: str) -> ConnectionOptions:
        """How the SDK logs in as a user."""
        return ConnectionOptions(
            nats_url=self.server.url,
            prefix=self.prefix,
            user=f"{self.prefix}-{user}",
            password=PASSWORD + user,
            inbox_prefix=self.inbox(user),
        )

    def url(self, user: str) -> str:
        """The address with user and password in it."""
        login = f"{self.prefix}-{user}:{PASSWORD}{user}@"
        return self.server.url.replace("//", f"//{login}")

    @asynccontextmanager
    async def wire(self, user: str) -> AsyncGenerator[WireClient]:
        """A plain NATS client of a user; what the server refuses is in the server's log."""

        async def silent(_error: Exception) -> None:
            """Refusals are looked for in the log of the server, which has them all."""

        client: Any = Client()
        await client.connect(self.url(user), inbox_prefix=self.inbox(user), error_cb=silent)
        wire = WireClient(client, self.prefix)
        try:
            yield wire
        finally:
            await wire.close()

    @property
    def violations(self) -> Sequence[str]:
        """What users were refused, as the server logged it."""
        return [line for line in self.server.log.splitlines() if "Violation" in line]


@asynccontextmanager
async def serving(worker: Worker) -> AsyncGenerator[Worker]:
    """Serve a worker inside `async with`; it is drained, then stopped, at the end."""
    task = asyncio.create_task(worker.serve())
    try:
        yield worker
    finally:
        while not task.done():
            worker.stop()
            await asyncio.wait([task], timeout=0.2)
        await task


def one_step(workflow: str, queue: str, task: str, **more: Any) -> dict[str, Any]:
    """A definition with one step of a queue."""
    step = {"name": "only", "task": task, "queue": queue, **more}
    return {"expressions": "cel/1", "workflow": workflow, "steps": [step]}
