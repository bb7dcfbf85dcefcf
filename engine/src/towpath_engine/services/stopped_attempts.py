"""Attempts that are being cancelled before anybody was seen with them: taken back, or on their way.

Their dispatch is purged from the stream. If the queue's consumer has not come to it by then, nobody
has it nor will: the attempt is over. Otherwise a worker may have it, and its clock starts. What is
not known (a dispatch that is neither in the stream nor remembered) is left to the audit of
dispatches, and at last to the attempt's deadline.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from towpath_engine.bus.errors import BusUnavailable
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
    at what a crash has left.

    `seq_of` says where the stream has, or had, a dispatch; None if this engine does not know.
    """

    def __init__(
        self,
        shell: Shell,
        *,
        leads: Callable[[], bool],
        seq_of: Callable[[str], int | None],
        page: int,
    ) -> None:
        self._shell = shell
        self._leads = leads
        self._seq_of = seq_of
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
        seq = self._seq_of(place.token)
        if seq is None:
            message = await self._shell.bus.find_message(self._stream, subject=subject)
            if message is None:
                return False  # not published yet, or acknowledged: its report is on its way
            seq = message.seq
        # In this order: what is gone from the stream is not delivered after we have looked.
        await self._shell.bus.purge_subject(self._stream, subject)
        consumer = subjects.queue_consumer(place.queue, place.level)
        state = await self._shell.bus.consumer_state(self._stream, consumer)
        if state is not None and state.delivered_seq >= seq:
            event = DispatchDelivered(
                seed=self._shell.identity.new_seed(),
                cause=Cause(type="delivered", token=place.token),
                token=place.token,
            )
        else:
            event = DispatchWithdrawn(
                seed=self._shell.identity.new_seed(),
                cause=Cause(type="withdrawn", token=place.token),
                token=place.token,
            )
        self._shell.submit(Work(settle=ignore_outcome, run_id=place.run_id, event=event))
        return True
