"""Publishing to a stream with its acknowledgement: one inbox, many messages in flight.

nats-py's own window never completes what a server crash lost; here every message has a deadline,
and a reconnection ends all waits at once.
"""

import asyncio

import msgspec
from msgspec import Struct

from towpath_worker.denials import Denial, DeniedAction
from towpath_worker.transport import (
    Connection,
    MissingRightError,
    NoAnswerError,
    Received,
    Subscription,
)


class PubAck(Struct, frozen=True):
    """The stream has the message; `duplicate` when it had it before."""

    stream: str
    seq: int
    duplicate: bool = False


class PubError(Struct, frozen=True):
    """Why a stream refused the message."""

    code: int
    err_code: int = 0
    description: str = ""


class _Answer(Struct, frozen=True):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: PubError | None = None


class Publisher:
    """Publishes through one connection. `publish` may be called by many tasks at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox = connection.new_inbox()
        self._subscription: Subscription | None = None
        self._subscribing = asyncio.Lock()
        self._open: dict[str, tuple[str, asyncio.Future[Received]]] = {}
        self._number = 0
        connection.on_reset(self._on_reset)
        connection.on_denied(self._on_denied)

    async def publish(
        self, subject: str, body: bytes, headers: dict[str, str], *, timeout_seconds: float
    ) -> PubAck | PubError:
        """Publish and wait for the stream's word.

        Raises NoAnswerError when there is none in time or no stream takes the subject,
        MissingRightError when NATS lets us not publish there, or not hear its word,
        TransportError when the message cannot be sent; it may have been stored in both cases.
        """
        async with self._subscribing:
            if self._subscription is None:
                self._subscription = await self._connection.subscribe(
                    f"{self._inbox}.*", self._on_answer
                )
        self._number += 1
        reply = f"{self._inbox}.{self._number}"
        future: asyncio.Future[Received] = asyncio.get_running_loop().create_future()
        self._open[reply] = (subject, future)
        try:
            await self._connection.publish(subject, body, reply=reply, headers=headers)
            async with asyncio.timeout(timeout_seconds):
                received = await future
        except TimeoutError as error:
            raise NoAnswerError(f"no PubAck for {subject} within {timeout_seconds:g} s") from error
        finally:
            self._open.pop(reply, None)
        return _parse(subject, received)

    def _on_answer(self, received: Received) -> None:
        _, future = self._open.pop(received.subject, (None, None))
        if future is not None and not future.done():
            future.set_result(received)

    def _on_denied(self, missing: MissingRightError) -> None:
        denial = missing.denial
        deaf = denial.action is DeniedAction.SUBSCRIBE and denial.subject == f"{self._inbox}.*"
        for subject, future in self._open.values():
            if not future.done() and (deaf or denial == Denial(DeniedAction.PUBLISH, subject)):
                future.set_exception(missing)

    def _on_reset(self) -> None:
        for _, future in self._open.values():
            if not future.done():
                future.set_exception(NoAnswerError("the connection was lost before the PubAck"))


def _parse(subject: str, received: Received) -> PubAck | PubError:
    if received.status is not None:
        raise NoAnswerError(f"no stream takes {subject} (status {received.status})")
    try:
        answer = msgspec.json.decode(received.body, type=_Answer)
    except msgspec.MsgspecError as error:
        raise NoAnswerError(f"the PubAck for {subject} cannot be read") from error
    if answer.error is not None:
        return answer.error
    return PubAck(answer.stream, answer.seq, answer.duplicate)
