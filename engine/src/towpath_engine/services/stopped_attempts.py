"""Attempts that are being cancelled before anybody was seen with them: taken back, or on their way.

A dispatch to which the queue's consumer has not come is purged from the stream, while the consumer
stands still: nobody has it nor will, so the attempt is over. Otherwise, or if it may not be the
first copy, as the outbox was swept, a worker may have it, and its clock starts; its dispatch stays,
so that another worker gets it if that one is lost. What is not in the stream is left to the audit
of dispatches, and at last to the attempt's deadline.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from towpath_engine.bus.errors import BusUnavailable
from towpath_engine.core.events import DispatchDelivered, DispatchWithdrawn
from towpath_engine.core.model import Cause
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import Work, ignore_outcome
from towpath_protocol import headers, subjects

_WAITING_MAX: Final = 10_000
"""What does not fit is left to the sweep."""
_AT_ONCE: Final = 32
_STANDSTILL: Final = timedelta(seconds=2)
"""A consumer that was paused by an engine that died goes on after this."""


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
        queues: dict[str, list[subjects.DispatchSubject]] = {}
        for place in places:
            queues.setdefault(subjects.queue_consumer(place.queue, place.level), []).append(place)
        count = 0
        try:
            for consumer, its_places in queues.items():
                for first in range(0, len(its_places), _AT_ONCE):
                    count += await self._judge(consumer, its_places[first : first + _AT_ONCE])
        except BusUnavailable:
            for place in places:
                self._waiting.setdefault(place.token, place)
        return count

    async def _judge(self, consumer: str, places: Sequence[subjects.DispatchSubject]) -> int:
        """Take dispatches of one consumer back, or say that they are on their way; how many. Those
        that are not in the stream are not published yet, or acknowledged."""
        bus, stream = self._shell.bus, self._stream
        names = [subjects.dispatch_subject(self._shell.prefix, place) for place in places]
        found = await asyncio.gather(*(bus.find_message(stream, subject=name) for name in names))
        if not any(found):
            return 0
        # A purge moves the position of a consumer, so that it says nothing afterwards; only while
        # the consumer stands still is it certain what nobody has.
        await bus.pause_consumer(stream, consumer, self._shell.clock.now() + _STANDSTILL)
        try:
            state = await bus.consumer_state(stream, consumer)
            if state is None or not state.paused:
                return 0
            free = [
                name
                for name, message in zip(names, found, strict=True)
                if message is not None
                and state.delivered_seq < message.seq
                and headers.RESENT not in message.headers
            ]
            await asyncio.gather(*(bus.purge_subject(stream, name) for name in free))
            state = await bus.consumer_state(stream, consumer)
            is_certain = state is not None and state.paused
        finally:
            await bus.pause_consumer(stream, consumer, None)
        for place, name, message in zip(places, names, found, strict=True):
            if message is not None:
                self._tell(place, is_free=is_certain and name in free)
        return sum(message is not None for message in found)

    def _tell(self, place: subjects.DispatchSubject, *, is_free: bool) -> None:
        kind = DispatchWithdrawn if is_free else DispatchDelivered
        event = kind(
            seed=self._shell.identity.new_seed(),
            cause=Cause(type="withdrawn" if is_free else "delivered", token=place.token),
            token=place.token,
        )
        self._shell.submit(Work(settle=ignore_outcome, run_id=place.run_id, event=event))
