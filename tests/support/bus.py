"""A bus on a real server, together with everything it told us."""

import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from tests.support.eventually import until, until_async
from towpath_engine.bus.interface import Bus, Confirmation, InboundMessage, OutboundMessage
from towpath_engine.bus.nats_bus import NatsBus
from towpath_engine.bus.settings import MIB, BusSettings
from towpath_engine.settings import Settings
from towpath_engine.wiring import bus_settings as wired_settings


def bus_settings(url: str, prefix: str, **changes: Any) -> BusSettings:
    """Settings for a test: small streams, short waits."""
    values: dict[str, Any] = {
        "dispatch_bytes_max": 64 * MIB,
        "in_bytes_max": 64 * MIB,
        "events_bytes_max": 16 * MIB,
        "advisories_bytes_max": 4 * MIB,
        "connect_timeout_s": 2.0,
        "request_timeout_s": 2.0,
        **changes,
    }
    return replace(wired_settings(Settings(nats_url=url, prefix=prefix)), **values)


def run_id() -> str:
    """Some id; the bus does not look into it."""
    return str(uuid.uuid4())


class BusUnderTest:
    """A NatsBus and what came out of it. Messages are acknowledged unless `hold` is set."""

    def __init__(self, settings: BusSettings, *, hold: bool = False) -> None:
        self.settings = settings
        self.nats_bus = NatsBus(settings)
        self.bus: Bus = self.nats_bus
        self.hold = hold
        self.messages: list[InboundMessage] = []
        self.confirmations: list[Confirmation] = []
        self.resets = 0
        self.bus.on_message(self._on_message)
        self.bus.on_confirmation(self.confirmations.append)
        self.bus.on_reset(self._on_reset)

    def _on_message(self, message: InboundMessage) -> None:
        self.messages.append(message)
        if not self.hold:
            self.bus.acknowledge([message])

    def _on_reset(self) -> None:
        self.resets += 1

    @property
    def prefix(self) -> str:
        return self.settings.prefix

    @property
    def bodies(self) -> Counter[bytes]:
        """How often each body was delivered."""
        return Counter(message.body for message in self.messages)

    def outcome(self, id_: str) -> Confirmation:
        """The one confirmation of a message."""
        (found,) = [c for c in self.confirmations if c.id == id_]
        return found

    async def publish(self, *messages: OutboundMessage) -> Sequence[Confirmation]:
        """Publish and wait for all outcomes."""
        self.bus.publish(messages)
        ids = {message.id for message in messages}
        await until(lambda: ids <= {c.id for c in self.confirmations}, "all messages are confirmed")
        return [self.outcome(message.id) for message in messages]

    def signal(self, body: bytes, *, run: str | None = None) -> OutboundMessage:
        """A message for P_IN."""
        return OutboundMessage(
            id=uuid.uuid4().hex,
            subject=f"{self.prefix}.in.signal.-.{run or run_id()}.go",
            headers={},
            body=body,
        )

    def dispatch(self, queue: str, body: bytes = b"{}", **headers: str) -> OutboundMessage:
        """A message for P_DISPATCH."""
        token = uuid.uuid4().hex
        return OutboundMessage(
            id=token,
            subject=f"{self.prefix}.dispatch.{queue}.2.{run_id()}.{token}",
            headers={name.replace("_", "-"): value for name, value in headers.items()},
            body=body,
        )


async def stream_is_empty(under_test: BusUnderTest, stream: str) -> None:
    """Wait until every message of a stream has been acknowledged."""

    async def empty() -> bool:
        state = await under_test.bus.stream_state(stream)
        return state is not None and state.messages == 0

    await until_async(empty, f"{stream} is empty")


@asynccontextmanager
async def running_bus(
    url: str, prefix: str, *, credit: int = 1_000, hold: bool = False, **changes: Any
) -> AsyncGenerator[BusUnderTest]:
    """A started bus that pulls, closed at the end."""
    under_test = BusUnderTest(bus_settings(url, prefix, **changes), hold=hold)
    await under_test.bus.start()
    try:
        under_test.bus.set_credit(credit)
        yield under_test
    finally:
        await under_test.bus.close()
