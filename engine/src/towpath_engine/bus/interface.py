"""The seam to NATS: what the services ask of the bus. One module (`bus.nats_bus`) implements it.

Nothing outside this package imports nats. Callbacks given to the bus never block and never raise.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct


class InboundMessage(Struct, frozen=True, kw_only=True):
    """A message of P_IN or P_ADV, not acknowledged yet.

    `subject` is the original one (`P.in.…`, not the transformed one). `stored_at` and
    `stream_seq` come from the delivery's metadata; `pending` is how many messages were still
    waiting in the consumer when this one was delivered.
    """

    subject: str
    headers: Mapping[str, str]
    body: bytes
    partition: int
    stream_seq: int
    stored_at: datetime
    pending: int
    deliveries: int
    ack_subject: str


class OutboundMessage(Struct, frozen=True, kw_only=True):
    """A message to publish to a stream. `id` comes back in the confirmation."""

    id: str
    subject: str
    headers: Mapping[str, str]
    body: bytes


class Confirmation(Struct, frozen=True, kw_only=True):
    """What became of a published message. `ok` False: not known to be stored; publish again."""

    id: str
    ok: bool
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: str = ""
    """`full` (discard: new), `timeout`, `no_stream`, `down`, or the server's words."""


class StreamState(Struct, frozen=True, kw_only=True):
    """STREAM.INFO in short. `created` is the server's RFC 3339 text, compared as text."""

    name: str
    created: str
    first_seq: int
    last_seq: int
    messages: int


class ConsumerState(Struct, frozen=True, kw_only=True):
    """CONSUMER.INFO in short. Sequences are stream sequences."""

    stream: str
    name: str
    created: str
    delivered_seq: int
    """The last one delivered. A purge of the head of the stream moves it on, too."""
    paused: bool
    """It delivers nothing now."""
    ack_floor_seq: int
    ack_pending: int
    pending: int
    waiting: int


class StoredMessage(Struct, frozen=True, kw_only=True):
    """A message as the stream keeps it."""

    subject: str
    seq: int
    stored_at: datetime
    headers: Mapping[str, str]
    body: bytes


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request to `P.api.<group>.<verb>` or `P.heartbeat.<queue>`."""

    subject: str
    verb: str
    """`run.start` and so on, or `heartbeat`."""
    headers: Mapping[str, str]
    body: bytes
    reply: str


class ApiReply(Struct, frozen=True, kw_only=True):
    """An answer: `code` 0 is success; else the NATS service error headers are set from it."""

    body: bytes
    code: int = 0
    description: str = ""
    content_type: str | None = None


ApiHandler = Callable[[ApiRequest], Awaitable[ApiReply]]


class Bus(Protocol):
    """NATS and JetStream as the engine uses them."""

    async def start(self) -> None:
        """Connect, check the server, create or migrate streams and partition consumers.

        Raises BusRefused, with one sentence, when the server is too old or has no JetStream.
        """
        ...

    async def close(self) -> None:
        """Stop pulling, flush, disconnect."""
        ...

    @property
    def connected(self) -> bool:
        """True while there is a live connection."""
        ...

    async def ensure_queues(self, queues: Sequence[str]) -> None:
        """Create the four consumers of each queue (idempotent); kept over a wiped store."""
        ...

    def publish(self, messages: Sequence[OutboundMessage]) -> None:
        """Hand over messages for publication within the ack window. Never blocks: what does not
        fit waits in a bounded queue, what overflows is confirmed at once as not ok (`full`)."""
        ...

    def on_confirmation(self, callback: Callable[[Confirmation], None]) -> None:
        """Where the outcomes of `publish` go."""
        ...

    def acknowledge(self, messages: Sequence[InboundMessage]) -> None:
        """Ack each message explicitly (fire and forget)."""
        ...

    def on_message(self, callback: Callable[[InboundMessage], None]) -> None:
        """Where inbound messages of P_IN go (P_ADV: `partition` is -1)."""
        ...

    def set_credit(self, credit: int) -> None:
        """Pull only while fewer than `credit` messages are delivered and not yet acknowledged (or
        dropped by `forget`); 0 stops the pull."""
        ...

    def set_partitions(self, partitions: Collection[int]) -> None:
        """Pull from these partitions of P_IN only, without a call from all. What others still
        deliver is not taken; `let_go` before loses none of it."""
        ...

    def guard_partitions(self, valid: Callable[[], bool]) -> None:
        """Ask partitions for messages, and take them, only while this says so: it is asked before
        each, so that an engine that wakes from a pause does not act on what it owned before."""
        ...

    async def let_go(self, partitions: Collection[int], *, timeout_s: float) -> None:
        """Pull from these no more, wait until all that came of them is settled, and leave nothing
        that is on the way to us: whoever pulls next gets the rest at once. What is not settled
        within `timeout_s` is given back. Raises BusUnavailable: then the next one must reset."""
        ...

    async def reset_partition(self, partition: int) -> None:
        """Have everything of the partition that is not acknowledged delivered again, at once, to
        whoever pulls. Raises BusUnavailable."""
        ...

    def forget(self, messages: Sequence[InboundMessage]) -> None:
        """These will not be acknowledged (the server redelivers them): give their credit back."""
        ...

    def on_reset(self, callback: Callable[[], None]) -> None:
        """Called after every (re)connection and after streams or consumers were re-created."""
        ...

    def send_core(self, subject: str, body: bytes) -> None:
        """Publish a core message (control pushes, wakes); best effort."""
        ...

    def subscribe_core(self, subject: str, callback: Callable[[str, bytes], None]) -> None:
        """Subscribe to core messages, kept over reconnections; one callback a subject."""
        ...

    def unsubscribe_core(self, subject: str) -> None:
        """Undo `subscribe_core`."""
        ...

    def serve_api(self, handler: ApiHandler, *, concurrency_max: int, polls_max: int) -> None:
        """Answer `P.api.>` as the micro service `towpath` and `P.heartbeat.*`, in a queue group.

        `polls_max` is the limit of long polls (run.result), which only wait, `concurrency_max`
        that of all other requests, and of heartbeats. Over its limit the answer is 429
        `overloaded`. Replies go only to subjects that begin with `_INBOX` or `_R_`. An exception
        of the handler is logged and answered 500 `internal`.
        """
        ...

    async def stream_state(self, stream: str) -> StreamState | None:
        """None when the stream does not exist. Raises BusUnavailable without a connection."""
        ...

    async def consumer_state(self, stream: str, consumer: str) -> ConsumerState | None:
        """None when it does not exist. Raises BusUnavailable without a connection."""
        ...

    async def find_message(
        self, stream: str, *, subject: str | None = None, seq: int | None = None
    ) -> StoredMessage | None:
        """The last message on an exact subject, or the one with a sequence; None if absent."""
        ...

    async def pause_consumer(self, stream: str, consumer: str, until: datetime | None) -> None:
        """Have it deliver nothing until then; None: have it go on. `ConsumerState.paused` says
        whether that holds. Raises BusUnavailable."""
        ...

    async def purge_subject(self, stream: str, subject: str) -> int:
        """Remove the messages of an exact subject; returns how many."""
        ...
