"""NATS lets a client or worker in, and does not let it do what it is there for."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from tests.integration.worker.conftest import Serving
from tests.support.eventually import until
from tests.support.jetstream import JetStreamServer, free_port
from towpath_protocol.subjects import LEVEL_COUNT, permissions
from towpath_worker import (
    Client,
    ConnectionOptions,
    CredentialsRefusedError,
    MissingRightError,
    Worker,
)

PREFIX = "denied"
LONG = 600.0
"""Seconds that a call would go on without an answer."""


def server_that_allows(folder: Path, publish: list[str], subscribe: list[str]) -> JetStreamServer:
    """A server with one user, and nothing but these rights."""
    allow = [
        f"{side}: {{ allow: {json.dumps(subjects)} }}"
        for side, subjects in (("publish", publish), ("subscribe", subscribe))
    ]
    user = f"{{ user: me, password: p, permissions: {{ {', '.join(allow)} }} }}"
    return JetStreamServer(folder, config=f"authorization {{ users: [{user}] }}").start()


def options_of(
    server: JetStreamServer, *, password: str = "p", inbox_prefix: str = "_INBOX"
) -> ConnectionOptions:
    return ConnectionOptions(
        nats_url=server.url,
        prefix=PREFIX,
        user="me",
        password=password,
        inbox_prefix=inbox_prefix,
    )


async def test_a_call_that_may_not_be_sent_names_the_right_and_does_not_wait(
    tmp_path: Path,
) -> None:
    server = server_that_allows(tmp_path, [f"{PREFIX}.api.run.get"], ["_INBOX.>"])
    try:
        async with Client(connection=options_of(server), timeout_seconds=LONG) as client:
            with pytest.raises(MissingRightError, match=r"denied\.api\.run\.start") as caught:
                await client.start("orders")
            assert caught.value.denial.action == "publish"
            assert "towpath nats-permissions" in str(caught.value)
            # The next one is told the same, and others are not concerned.
            with pytest.raises(MissingRightError):
                await client.start("orders")
    finally:
        server.kill()


async def test_a_call_whose_answer_can_not_be_heard_names_the_inbox(tmp_path: Path) -> None:
    server = server_that_allows(tmp_path, [f"{PREFIX}.api.>"], ["_INBOX_Mine.>"])
    try:
        wrong = options_of(server, inbox_prefix="_INBOX_Other")
        async with Client(connection=wrong, timeout_seconds=LONG) as client:
            for _ in range(2):
                with pytest.raises(MissingRightError, match=r"subscribe to _INBOX_Other\.>"):
                    await client.cancel(run_id="00000000-0000-7000-8000-000000000000")
    finally:
        server.kill()


async def test_a_worker_that_may_not_pull_says_which_right_it_lacks(
    tmp_path: Path, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "towpath.worker")
    rights = permissions(PREFIX, "mail")
    publish = [right for right in rights.publish if "MSG.NEXT" not in right]
    server = server_that_allows(tmp_path, publish, list(rights.subscribe))
    worker = Worker("mail", connection=options_of(server, inbox_prefix="_INBOX_mail"))
    worker.task("send")(lambda: None)
    wanted = {
        f"$JS.API.CONSUMER.MSG.NEXT.{PREFIX.upper()}_DISPATCH.mail_p{level}"
        for level in range(LEVEL_COUNT)
    }

    def told() -> list[str]:
        return [one.message for one in caplog.records if one.levelno == logging.ERROR]

    try:
        async with serving(worker):
            await until(lambda: len(told()) >= LEVEL_COUNT, "it tells what it may not do")
            await until(lambda: "worker_started" in caplog.text, "it goes on")
    finally:
        server.kill()
    lines = told()
    assert len(lines) == LEVEL_COUNT, "each right once"
    assert all("right_missing" in line and "towpath nats-permissions" in line for line in lines)
    assert {line.partition("subject=")[2].partition(":")[0] for line in lines} == wanted


async def test_a_wrong_password_is_told_from_a_server_that_is_away(tmp_path: Path) -> None:
    server = server_that_allows(tmp_path, [">"], [">"])
    try:
        refused = Client(connection=options_of(server, password="wrong"))
        with pytest.raises(CredentialsRefusedError, match="Authorization Violation"):
            await refused.open(timeout_seconds=1.0)
    finally:
        server.kill()
    nobody = ConnectionOptions(nats_url=f"nats://127.0.0.1:{free_port()}", user="me", password="p")
    away = Client(connection=nobody)
    with pytest.raises(ConnectionError) as caught:
        await away.open(timeout_seconds=1.0)
    assert not isinstance(caught.value, CredentialsRefusedError)
    await asyncio.gather(refused.close(), away.close())
