"""PROTOCOL.md against a real nats-server: its worker, its rights, the server's partitions."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.bus import BusUnderTest, bus_settings
from tests.support.eventually import until, until_async
from tests.support.jetstream import JetStreamServer
from towpath_engine.bus.interface import OutboundMessage
from towpath_protocol import subjects
from towpath_protocol.codec import decode_report
from towpath_protocol.reports import StepCompleted
from towpath_protocol.subjects import DispatchSubject

PAGE = (Path(__file__).parents[3] / "protocol/PROTOCOL.md").read_text()
RUN = "0199c82c-c000-7000-8203-040506070809"

# The engine and one pool with exactly the rights of the page, in one account.
POOL_CONFIG = """
accounts: { SHOP: {
  jetstream: enabled
  users: [
    { user: engine, password: e }
    { user: pool, password: p, permissions: { publish: %s, subscribe: %s } }
  ]
} }
"""


def worker_source(url: str, options: str = "") -> str:
    """The page's worker, verbatim but for where the server is."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert '"nats://127.0.0.1:4222"' in source
    return source.replace('"nats://127.0.0.1:4222"', f'"{url}"{options}')


@asynccontextmanager
async def running(source: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", source)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def dispatch(number: int) -> OutboundMessage:
    token = f"token-{number}"
    place = DispatchSubject(queue="mail", level=2, run_id=RUN, token=token)
    body = {
        "input": {"to": f"anna{number}@example.org"}, "queue": "mail", "run_id": RUN,
        "token": token, "reply": subjects.reply_prefix("towpath"),
    }  # fmt: skip
    return OutboundMessage(
        id=token,
        subject=subjects.dispatch_subject("towpath", place),
        headers={"Nats-Msg-Id": subjects.dispatch_msg_id(token, 1)},
        body=json.dumps(body).encode(),
    )


async def queue_is_empty(bus: BusUnderTest) -> bool:
    state = await bus.bus.stream_state(subjects.dispatch_stream("towpath"))
    return state is not None and state.messages == 0


async def serve_three_dispatches(bus: BusUnderTest, source: str) -> None:
    await bus.bus.ensure_queues(["mail"])
    bus.bus.set_credit(100)
    async with running(source):
        await bus.publish(*(dispatch(number) for number in range(3)))
        await until(lambda: len(bus.messages) >= 3, "three reports arrive")
        await until_async(lambda: queue_is_empty(bus), "all dispatches are acked")
    outputs: dict[str, object] = {}
    for message in bus.messages:
        place = subjects.parse_in(message.subject, "towpath")
        report = decode_report(message.body, place.kind)
        assert isinstance(report, StepCompleted)
        outputs[place.name] = json.loads(bytes(report.output))
    assert outputs == {
        f"token-{number}": {"sent_to": f"anna{number}@example.org"} for number in range(3)
    }


async def test_the_worker_of_the_page_completes_steps(own_jetstream: JetStreamServer) -> None:
    bus = BusUnderTest(bus_settings(own_jetstream.url, "towpath"))
    await bus.bus.start()
    try:
        await serve_three_dispatches(bus, worker_source(own_jetstream.url))
    finally:
        await bus.bus.close()


async def test_the_rights_of_the_page_are_enough_for_the_worker_of_the_page(
    own_jetstream: JetStreamServer,
) -> None:
    rights = subjects.permissions("towpath", "mail")
    own_jetstream.reconfigure(
        POOL_CONFIG % (json.dumps(list(rights.publish)), json.dumps(list(rights.subscribe)))
    )
    own_jetstream.restart()
    address = own_jetstream.url.removeprefix("nats://")
    bus = BusUnderTest(bus_settings(f"nats://engine:e@{address}", "towpath"))
    await bus.bus.start()
    try:
        source = worker_source(f"nats://pool:p@{address}", ', inbox_prefix=b"_INBOX_mail"')
        await serve_three_dispatches(bus, source)
    finally:
        await bus.bus.close()


async def test_the_server_puts_a_token_where_partition_of_says(
    jetstream_url: str, prefix: str
) -> None:
    bus = BusUnderTest(bus_settings(jetstream_url, prefix))
    await bus.bus.start()
    try:
        bus.bus.set_credit(1_000)
        keys = ["-", "a", RUN, *(subjects.spread(f"o-{number}") for number in range(200))]
        await bus.publish(
            *(
                OutboundMessage(
                    id=key, subject=f"{prefix}.in.start.order.{key}.-", headers={}, body=b"1"
                )
                for key in keys
            )
        )
        await until(lambda: len(bus.messages) >= len(keys), "all messages arrive")
        for message in bus.messages:
            token = subjects.parse_in(message.subject, prefix).run_id
            assert message.partition == subjects.partition_of(token)
    finally:
        await bus.bus.close()
