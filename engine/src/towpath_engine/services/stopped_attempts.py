"""Attempts that are being cancelled before anybody was seen with them: taken back, or on their way.

A dispatch to which the queue's consumer has not come is purged from the stream. If the consumer has
still not come to it then, nobody has it nor will: the attempt is over. Otherwise a worker may have
it, and its clock starts; its dispatch stays, so that another worker gets it if that one is lost.
What is not in the stream is left to the audit of dispatches, and at last to the attempt's deadline.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.bus.interface import ConsumerState
from towpath_engine.core.events import DispatchDelivered, DispatchWithdrawn
from towpath_engine.core.model import Cause
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import Work, ignore_outcome
from towpath_protocol import subjects

_WAITING_MAX: Final = 10_000
"""What does not fit is left to the sweep."""
_AT_ONCE: Final = 16


class StoppedAttempts:
    """`stop` never blocks; `run_once` looks at what has gathered, `sweep` (in one engine for all)
    at what a crash has left."""

    def __init__(
        self,
        shell: Shell,
        *,
        leads: Callable[[], bool],
        page: int,
    ) -> None:
        self._shell = shell
        self._leads = leads
        self._page = page
        self._stream = subjects.dispatch_stream(shell.prefix)
        self._waiting: dict[str, subjects.DispatchSubject] = {}
        self._cursor: tuple[str, str] | None = None
        self.on_stopped = lambda: None

    def stop(self, place: subjects.DispatchSubject) -> None:
        """Look at this dispatch soon: its attempt is being cancelled."""
        if len(self._waiting) < _WAITING_MAX:
            self._waiting[place.token] = place
            self.on_stopped()

    async def run_once(self) -> int:
        """Look at what has gathered; returns how many attempts are over or on their way."""
        waiting, self._waiting = self._waiting, {}
        return await self._look_at(list(waiting.values()))

    async def sweep(self) -> int:
        """Look at a page of all that are being cancelled; returns as `run_once`."""
        if not self._leads():
            self._cursor = None
            return 0
        page = await self._shell.store.unfinished.cancelling(self._cursor, self._page)
        more = len(page) == self._page
        self._cursor = (page[-1].run_id, page[-1].path) if more else None
        return await self._look_at(
            [
                subjects.DispatchSubject(
                    queue=row.queue, level=row.level, run_id=row.run_id, token=row.token
                )
                for row in page
                if not row.in_outbox
            ]
        )

    async def _look_at(self, places: Sequence[subjects.DispatchSubject]) -> int:
        count = 0
        for first in range(0, len(places), _AT_ONCE):
            chunk = places[first : first + _AT_ONCE]
            try:
                found = await asyncio.gather(*(self._judge(place) for place in chunk))
            except BusUnavailable:
                for place in places[first:]:
                    self._waiting.setdefault(place.token, place)
                return count
            count += sum(found)
        return count

    async def _judge(self, place: subjects.DispatchSubject) -> bool:
        """Take the dispatch back, or say that it is on its way; False when nothing is known."""
        subject = subjects.dispatch_subject(self._shell.prefix, place)
        message = await self._shell.bus.find_message(self._stream, subject=subject)
        if message is None:
            return False  # not published yet, or acknowledged: its report is on its way
        before = await self._delivered(place)
        if before is None:
            return False
        is_free = before.delivered_seq < message.seq
        if is_free:
            await self._shell.bus.purge_subject(self._stream, subject)
            # In this order: what is gone from the stream is not delivered after we have looked.
            after = await self._delivered(place)
            # A purge may move the position of the consumer, but not the count of its deliveries.
            is_free = after is not None and (
                after.delivered_seq < message.seq or after.delivery_count == before.delivery_count
            )
        kind = DispatchWithdrawn if is_free else DispatchDelivered
        event = kind(
            seed=self._shell.identity.new_seed(),
            cause=Cause(type="withdrawn" if is_free else "delivered", token=place.token),
            token=place.token,
        )
        self._shell.submit(Work(settle=ignore_outcome, run_id=place.run_id, event=event))
        return True

    async def _delivered(self, place: subjects.DispatchSubject) -> ConsumerState | None:
        consumer = subjects.queue_consumer(place.queue, place.level)
        return await self._shell.bus.consumer_state(self._stream, consumer)
