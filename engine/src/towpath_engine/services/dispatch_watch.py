"""Watches dispatches on their way: delivered, vanished, given up.

Three duties, each a `run_once` of its own: `observe` (the consumer has delivered past a dispatch:
its attempt clock starts) and, in one engine for all, `check_epoch` (the stream lost its data: all
that is dispatched goes out again) and `audit` (the exact subject of an old dispatch is gone
although no report came).
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog
from msgspec import Struct

from towpath_engine.bus.interface import InboundMessage, StoredMessage
from towpath_engine.core.events import (
    AttemptLost,
    DispatchDelivered,
    DispatchVanished,
    DispatchWithdrawn,
    Event,
)
from towpath_engine.core.model import Cause
from towpath_engine.services.progress import PartitionProgress
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import Outcome, Work, ignore_outcome
from towpath_engine.store.records import OpenDispatch, StreamEpoch
from towpath_protocol import codec, subjects
from towpath_protocol.dispatch import DeliveryAdvisory
from towpath_protocol.errors import ProtocolError

log = structlog.get_logger(__name__)

_HINTS_MAX = 200_000
_OBSERVE_AFTER = timedelta(seconds=1)
_ADVISORY_DELIVERIES_MAX = 3
_LOOKS_AT_ONCE = 32
"""Messages that are looked for in the stream at the same time."""
_LOST_IS_MANY = 20
_AUDIT = "audit"
"""What a dispatch that is gone is counted under, while its stream has lost nothing."""
_LOSING_SECONDS = 1.0
"""Pause of the audit after it has missed so many."""


class _Hint(Struct, frozen=True, kw_only=True):
    """Where the stream keeps a dispatch: good until the stream loses its data."""

    token: str
    run_id: str
    consumer: str
    seq: int
    stored_at: datetime


class _Resend:
    """All that was dispatched before `since` is being sent again, page by page, after `after`.

    `seen` is what was stored of the stream before, `epoch` what will be when all is out.
    """

    def __init__(self, *, seen: StreamEpoch, epoch: StreamEpoch, since: datetime) -> None:
        self.seen = seen
        self.epoch = epoch
        self.since = since
        self.after: tuple[str, str] | None = None
        self.open = 0
        """Of the last page, not yet settled by the pipeline."""
        self.is_out = False
        """There is no further page."""


class DispatchWatch:
    """See the module. `page` bounds every read and every burst.

    `on_more` is called when the next page after a loss may go out: the ticker of `check_epoch`
    must wake.
    """

    def __init__(
        self,
        shell: Shell,
        *,
        leads: Callable[[], bool],
        progress: PartitionProgress,
        purge: Callable[[str], None],
        audit_after_seconds: float,
        page: int,
        audit_page: int,
    ) -> None:
        self._shell = shell
        self._leads = leads
        self._progress = progress
        self._purge = purge
        self._stream = subjects.dispatch_stream(shell.prefix)
        self._audit_after = timedelta(seconds=audit_after_seconds)
        self._page = page
        self._audit_page = audit_page
        self._hints: dict[str, _Hint] = {}
        self._token_of_seq: dict[int, str] = {}
        self._unobserved: dict[str, None] = {}
        self._cursor: tuple[str, str] | None = None
        self._suspects: dict[str, tuple[OpenDispatch, datetime]] = {}
        self._many_lost = False
        self._sending: set[str] = set()
        """Tokens that the pipeline has, to be sent again."""
        self._resend: _Resend | None = None
        self._known: StreamEpoch | None = None
        self.on_more = lambda: None

    # Hints

    def published(self, token: str, subject: str, seq: int) -> None:
        """The stream has confirmed a dispatch of this engine, and has it there."""
        self.stored(token, subjects.parse_dispatch(subject, self._shell.prefix), seq)

    def stored(self, token: str, place: subjects.DispatchSubject, seq: int) -> None:
        """A dispatch was stored with this sequence; remembered until its token is dead."""
        if len(self._hints) >= _HINTS_MAX:
            # The oldest, which another engine may have seen the end of.
            self.forget(next(iter(self._hints)))
        consumer = subjects.queue_consumer(place.queue, place.level)
        self._hints[token] = _Hint(
            token=token,
            run_id=place.run_id,
            consumer=consumer,
            seq=seq,
            stored_at=self._shell.clock.now(),
        )
        self._token_of_seq[seq] = token
        self._unobserved[token] = None

    def forget(self, token: str) -> None:
        """The token is dead: there is nothing to observe any more."""
        hint = self._hints.pop(token, None)
        self._unobserved.pop(token, None)
        if hint is not None:
            self._token_of_seq.pop(hint.seq, None)

    async def observe(self) -> int:
        """Ask once about every consumer with open hints; returns how many clocks were started."""
        # Young ones are left alone: most attempts are over before anybody has to ask.
        before = self._shell.clock.now() - _OBSERVE_AFTER
        old: list[_Hint] = []
        for token in self._unobserved:  # in the order in which they were stored
            hint = self._hints[token]
            if hint.stored_at > before or len(old) >= self._page:
                break
            old.append(hint)
        delivered: dict[str, int] = {}
        for consumer in sorted({hint.consumer for hint in old}):
            state = await self._shell.bus.consumer_state(self._stream, consumer)
            if state is not None:
                delivered[consumer] = state.delivered_seq
        started = 0
        for hint in old:
            self._unobserved.pop(hint.token, None)
            if hint.token not in self._hints:
                continue
            if delivered.get(hint.consumer, 0) < hint.seq:
                self._unobserved[hint.token] = None  # again, behind the others
                continue
            started += 1
            event = DispatchDelivered(
                seed=self._shell.identity.new_seed(),
                cause=Cause(type="delivered", token=hint.token),
                token=hint.token,
            )
            self._send(hint.run_id, event, ignore_outcome)
        return started

    # A stream that lost its data

    async def check_epoch(self) -> int:
        """Compare the stream with what was last seen; after a loss, send a page of what is
        dispatched again. Returns how many dispatches the page had.

        What was seen is only stored when the last page is out, so that a crash begins again.
        """
        # In this order: another engine may store what it sees between our two looks, and a stream
        # that was looked at first would seem to have gone back.
        seen = await self._shell.store.get_epoch(self._stream)
        state = await self._shell.bus.stream_state(self._stream)
        if state is None:
            return 0
        now = StreamEpoch(stream=self._stream, created=state.created, last_seq=state.last_seq)
        if self._known is not None and _has_lost(self._known, now):
            self._forget_all()  # every engine has hints of its own; one sends the dispatches
        self._known = now
        if not self._leads():
            self._resend = None
            return 0
        resend, self._resend = self._resend, None
        if resend is not None and resend.seen == seen and not _has_lost(resend.epoch, now):
            self._resend = resend
            return await self._redispatch_page(resend)
        # Nothing is under way, or another engine was faster, or data was lost once more.
        if seen is not None and _has_lost(seen, now):
            if resend is not None and resend.open:
                # What the pipeline still has of it would be sent twice.
                self._resend = resend
                return 0
            self._forget_all()
            log.warning("stream_lost_data", stream=self._stream)
            self._shell.metrics.streams_reset.labels(stream=self._stream).inc()
            self._resend = _Resend(seen=seen, epoch=now, since=self._shell.clock.now())
            return await self._redispatch_page(self._resend)
        if seen is None or state.last_seq > seen.last_seq:
            await self._shell.store.put_epoch(now)
        return 0

    async def _redispatch_page(self, resend: "_Resend") -> int:
        if resend.open:
            return 0  # the pipeline still has the page before: never more than one in memory
        if resend.is_out:
            await self._shell.store.put_epoch(resend.epoch)
            self._resend = None
            return 0
        page = await self._shell.store.open_dispatches(resend.since, resend.after, self._page)
        # Some were published after the loss and before we knew of it; some by an engine that led
        # before us.
        lost = await self._absent([row for row in page if self._may_be_lost(row)])

        def settle(outcome: Outcome) -> None:
            del outcome
            resend.open -= 1
            if not resend.open:
                self.on_more()

        for row in lost:
            self._redispatch(row, "stream_reset", settle)
            resend.open += 1
        if page:
            resend.after = (page[-1].run_id, page[-1].path)
        resend.is_out = len(page) < self._page
        if not resend.open:
            self.on_more()
        return len(page)

    async def _absent(self, rows: Sequence[OpenDispatch]) -> list[OpenDispatch]:
        """Those that the stream does not have; of the others it is noted where it has them."""
        absent: list[OpenDispatch] = []
        for first in range(0, len(rows), _LOOKS_AT_ONCE):
            chunk = rows[first : first + _LOOKS_AT_ONCE]
            places = [
                subjects.DispatchSubject(
                    queue=row.queue, level=row.level, run_id=row.run_id, token=row.token
                )
                for row in chunk
            ]
            found = await asyncio.gather(*(self._find(place) for place in places))
            for row, place, message in zip(chunk, places, found, strict=True):
                if message is None:
                    absent.append(row)
                elif row.token not in self._hints:
                    self.stored(row.token, place, message.seq)
        return absent

    async def _find(self, place: subjects.DispatchSubject) -> StoredMessage | None:
        subject = subjects.dispatch_subject(self._shell.prefix, place)
        return await self._shell.bus.find_message(self._stream, subject=subject)

    def _redispatch(
        self, row: OpenDispatch, cause: str, settle: Callable[[Outcome], None] = ignore_outcome
    ) -> None:
        """Have it sent again. If its attempt is being cancelled and the stream is whole, say that
        nobody has it; after a loss nobody can tell, and the core waits for its end.

        `settle` is called when that is written, and never at once.
        """

        def sent(outcome: Outcome) -> None:
            self._sending.discard(row.token)
            settle(outcome)

        self._sending.add(row.token)
        self._shell.metrics.dispatches_lost.labels(cause=cause).inc()
        is_nowhere = row.cancelling and cause == _AUDIT
        kind = DispatchWithdrawn if is_nowhere else DispatchVanished
        event = kind(
            seed=self._shell.identity.new_seed(),
            cause=Cause(type="withdrawn" if is_nowhere else "lost", token=row.token),
            token=row.token,
        )
        self._send(row.run_id, event, sent)

    # A single message that vanished

    async def audit(self) -> int:
        """Look for the oldest dispatches in the stream; returns how many are sent again.

        Absent usually means consumed, with the report on its way: only when the partition has
        handled everything stored before our look is the dispatch really lost.
        """
        if not self._leads() or self._resend is not None:
            self._suspects.clear()  # after a loss all are looked for anyway
            self._many_lost = False
            return 0
        again = await self._judge_suspects()
        before = self._shell.clock.now() - self._audit_after
        limit = self._page if self._many_lost else self._audit_page
        page = await self._shell.store.open_dispatches(before, self._cursor, limit)
        more = len(page) == limit
        self._cursor = (page[-1].run_id, page[-1].path) if more else None
        looked_at = self._shell.clock.now()
        unsure = [row for row in page if row.status == "dispatched" and self._may_be_lost(row)]
        absent = await self._absent(unsure)
        self._suspects.update((row.token, (row, looked_at)) for row in absent)
        self._many_lost = len(absent) > _LOST_IS_MANY
        return again

    def audit_pause_seconds(self) -> float:
        """Not long while whole pages are gone: somebody has purged the stream."""
        if self._many_lost:
            return min(_LOSING_SECONDS, self._audit_after.total_seconds())
        return self._audit_after.total_seconds()

    async def _judge_suspects(self) -> int:
        if not self._suspects:
            return 0
        rows = list(self._suspects.values())
        await self._progress.refresh({self._progress.partition_of(row.run_id) for row, _ in rows})
        lost: list[OpenDispatch] = []
        for row, looked_at in rows:
            if self._progress.handled(self._progress.partition_of(row.run_id), looked_at):
                del self._suspects[row.token]
                lost.append(row)
        # It may have been sent again since. In this order: what has left the outbox is stored.
        waiting = await self._shell.store.admission.unpublished([row.token for row in lost])
        lost = await self._absent([row for row in lost if row.token not in waiting])
        if self._resend is not None:
            return 0  # the stream has lost its data meanwhile
        for row in lost:
            self._redispatch(row, _AUDIT)
        return len(lost)

    def _may_be_lost(self, row: OpenDispatch) -> bool:
        """Not while the sweep publishes it anyway, or it is on its way already."""
        known = row.token in self._sending or row.token in self._suspects
        return not row.in_outbox and not known

    # Given up by the broker

    async def advisory(self, message: InboundMessage) -> None:
        """A MAX_DELIVERIES or MSG_TERMINATED advisory: end the attempt, purge the message.

        Acknowledges the advisory when there is nothing (more) to do. Raises BusUnavailable.
        """
        place = await self._place_of(message)
        if place is None:
            # Somebody else may know: a terminated message is gone from the stream, and only the
            # engine that published it remembers its sequence. The audit finds what nobody knows.
            give_up = message.deliveries >= _ADVISORY_DELIVERIES_MAX
            (self._shell.bus.acknowledge if give_up else self._shell.bus.forget)([message])
            return

        def settle(outcome: Outcome) -> None:
            del outcome
            self._shell.bus.acknowledge([message])
            self._purge(subjects.dispatch_subject(self._shell.prefix, place))

        kind = "terminated" if "MSG_TERMINATED" in message.subject else "deliveries exhausted"
        event = AttemptLost(
            seed=self._shell.identity.new_seed(),
            cause=Cause(type="lost", token=place.token, reason=kind),
            token=place.token,
            reason=kind,
        )
        self._send(place.run_id, event, settle)

    async def _place_of(self, message: InboundMessage) -> subjects.DispatchSubject | None:
        """Which dispatch an advisory is about; None when neither stream nor memory knows."""
        try:
            seq = codec.decode(message.body, DeliveryAdvisory).stream_seq
        except ProtocolError:
            return None
        found = await self._shell.bus.find_message(self._stream, seq=seq)
        if found is not None:
            return subjects.parse_dispatch(found.subject, self._shell.prefix)
        hint = self._hints.get(self._token_of_seq.get(seq, ""))
        if hint is None:
            return None
        queue, _, level = hint.consumer.rpartition("_p")
        return subjects.DispatchSubject(
            queue=queue, level=int(level), run_id=hint.run_id, token=hint.token
        )

    def _forget_all(self) -> None:
        self._suspects.clear()
        self._hints.clear()
        self._token_of_seq.clear()
        self._unobserved.clear()

    def _send(self, run_id: str, event: Event, settle: Callable[[Outcome], None]) -> None:
        self._shell.submit(Work(settle=settle, run_id=run_id, event=event))


def _has_lost(seen: StreamEpoch, now: StreamEpoch) -> bool:
    """Another stream of the same name, or the same with its last messages gone."""
    return seen.created != now.created or now.last_seq < seen.last_seq
