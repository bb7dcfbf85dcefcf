"""Following a run: its events and its log lines, live, without a gap, until it has settled.

Laws: run.history is the truth and gives the order; a message on `P.events.…` only says that there
is something to read, and brings what the history leaves out (the data of a worker's own events).
So nothing is missed by a lost message, a reconnection or a wiped stream, nothing comes twice, and
no right on JetStream is needed.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec import Raw, Struct

from towpath_protocol import replies
from towpath_protocol.events import EventName, RunEvent
from towpath_worker.clock import now_ms
from towpath_worker.run_reader import SETTLED, RunReader
from towpath_worker.transport import Received, Subscription, TransportError
from towpath_worker.values import Json, from_json

LOOK_SECONDS: Final = 2.0
"""Without any message, the history is looked at so often: a lost message costs this much."""
BODY_SECONDS: Final = 2.0
"""How long the data of a worker's own event is waited for, once the history has the event."""
BODIES_MAX: Final = 1_000
SUBSCRIBE_PAUSE_SECONDS: Final = 0.2

_ANNOUNCED: Final = frozenset(name.value for name in EventName)
_OPERATED: Final = frozenset({"run-retried", "run-redriven", "run-paused", "run-resumed"})
"""What an operator did. No message tells of it, but who follows a run would not see why it goes on
after its end, or why nothing happens."""
_CUSTOM_TRANSITION: Final = "step-announced"


class Event(Struct, frozen=True, kw_only=True):
    """One thing that happened to a run.

    `type` is as in PROTOCOL.md, "Events" (`run-started`, `step-completed`, `custom`, …; more may
    come), or `run-retried`, `run-redriven`, `run-paused`, `run-resumed`. `seq` is the number of the
    transition, `at` RFC 3339 in UTC. `data` are its facts; of a `custom` event `{"name", "data"}`,
    without `data` where only the history told of it.
    """

    seq: int
    type: str
    at: str
    run_id: str
    workflow: str
    version: int
    key: str | None
    step: str | None = None
    attempt: int | None = None
    data: Json = None


class LogLine(Struct, frozen=True, kw_only=True):
    """One line that a task logged. `batch` numbers the reports of the run that had lines.

    `cut`: older lines of the attempt, just before this one, were not kept.
    """

    batch: int
    step: str
    attempt: int
    at: str
    level: str
    message: str
    fields: Json = None
    cut: bool = False


class _Line(Struct, frozen=True):
    at: str | None = None
    level: str = "info"
    message: str = ""
    fields: Raw = Raw(b"null")


def lines_of(batch: replies.LogBatch) -> list[LogLine]:
    """The lines of one report. A line that is none is shown as it is."""
    found: list[LogLine] = []
    for raw in msgspec.json.decode(batch.lines, type=list[Raw]):
        try:
            line = msgspec.json.decode(raw, type=_Line)
        except msgspec.ValidationError:
            line = _Line(message=bytes(raw).decode())
        found.append(
            LogLine(
                batch=batch.number,
                step=batch.step,
                attempt=batch.attempt,
                at=line.at or batch.at,
                level=line.level,
                message=line.message,
                fields=from_json(bytes(line.fields)),
                cut=batch.cut is True and not found,
            )
        )
    return found


class Follower:
    """Wakes who follows a run, and keeps the bodies of its custom events for a while."""

    def __init__(self, run: replies.RunView) -> None:
        self.run = run
        self._woken = asyncio.Event()
        self._body_came = asyncio.Event()
        self._bodies: dict[int, Json] = {}

    async def woken(self) -> None:
        """Return when there may be something new; at the latest after `LOOK_SECONDS`."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            return
        finally:
            self._woken.clear()

    async def body(self, seq: int, *, wait_seconds: float) -> Json:
        """The data of the custom event `seq`, or None when no message brings it in time."""
        ends_ms = now_ms() + round(wait_seconds * 1000)
        while seq not in self._bodies:
            left_seconds = (ends_ms - now_ms()) / 1000
            if left_seconds <= 0:
                return None
            try:
                async with asyncio.timeout(left_seconds):
                    await self._body_came.wait()
            except TimeoutError:
                return None
            self._body_came.clear()
        return self._bodies.pop(seq)

    def on_message(self, received: Received) -> None:
        """Take a message of `P.events.…`; whatever it is, it wakes."""
        self._woken.set()
        try:
            event = msgspec.json.decode(received.body, type=RunEvent)
        except msgspec.MsgspecError:
            return
        if event.type is EventName.CUSTOM:
            self._bodies[event.seq] = from_json(bytes(event.data))
            self._body_came.set()
            if len(self._bodies) > BODIES_MAX:
                del self._bodies[next(iter(self._bodies))]


@asynccontextmanager
async def following(reader: RunReader, run_id: str) -> AsyncGenerator[Follower]:
    """Follow a run inside `async with`. Raises what every call raises."""
    run = await reader.get(run_id, steps=False)
    follower = Follower(run)
    connection = reader.caller.connection
    subject = f"{reader.caller.prefix}.events.{run.workflow}.{run.run_id}.*"
    ends_ms = now_ms() + round(reader.caller.timeout_seconds * 1000)
    subscription: Subscription | None = None
    while subscription is None:
        try:
            subscription = await connection.subscribe(subject, follower.on_message)
        except TransportError:
            if now_ms() >= ends_ms:
                raise
            await asyncio.sleep(SUBSCRIBE_PAUSE_SECONDS)
    try:
        yield follower
    finally:
        await connection.unsubscribe(subscription)


async def events_of(reader: RunReader, run_id: str, *, after_seq: int = 0) -> AsyncGenerator[Event]:
    """What happened and happens to the run after `after_seq`, in order, until it has settled."""
    async with following(reader, run_id) as follower:
        status = follower.run.status
        seen = after_seq
        caught_up = False
        while True:
            async for transition in reader.transitions(run_id, after_seq=seen):
                seen = transition.seq
                if transition.step is None and transition.to is not None:
                    status = transition.to
                event = await _event_of(transition, follower, live=caught_up)
                if event is not None:
                    yield event
            if status in SETTLED:
                return
            caught_up = True
            await follower.woken()


async def log_lines_of(
    reader: RunReader, run_id: str, *, step: str | None = None
) -> AsyncGenerator[LogLine]:
    """The log lines of the run, of one step or of all, as reports bring them, until it has
    settled."""
    async with following(reader, run_id) as follower:
        after = 0
        status = follower.run.status
        while True:
            page_after: int | None = after
            while page_after is not None:
                page = await reader.logs(run_id, step=step, after=page_after)
                for batch in page.logs:
                    after = batch.number
                    for line in lines_of(batch):
                        yield line
                page_after = page.next_after
            if status in SETTLED:
                return
            await follower.woken()
            # Asked before the lines are read: the report that settles a run may have some.
            status = (await reader.get(run_id, steps=False)).status


class _Facts(Struct, frozen=True):
    reason: str | None = None
    name: str | None = None


async def _event_of(
    transition: replies.TransitionView, follower: Follower, *, live: bool
) -> Event | None:
    """The event that a transition is to those who follow; None for one of the engine's own."""
    data: Json = None if transition.data is None else from_json(bytes(transition.data))
    kind = transition.what
    if kind == _CUSTOM_TRANSITION:
        kind = EventName.CUSTOM.value
        body = await follower.body(transition.seq, wait_seconds=BODY_SECONDS if live else 0)
        data = {"name": _facts(data).name} if body is None else body
    elif kind in _ANNOUNCED and _facts(data).reason == "not reached":
        # Steps that a settling run never reached are in the history; nobody is told of each.
        return None
    elif kind not in _ANNOUNCED and kind not in _OPERATED:
        return None
    run = follower.run
    return Event(
        seq=transition.seq,
        type=kind,
        at=transition.at,
        run_id=run.run_id,
        workflow=run.workflow,
        version=run.version,
        key=run.key,
        step=transition.step,
        attempt=transition.attempt,
        data=data,
    )


def _facts(data: Json) -> _Facts:
    try:
        return msgspec.convert(data, _Facts)
    except msgspec.ValidationError:
        return _Facts()
