"""Keeps messages that could not be decoded, placed or applied; acknowledges them afterwards."""

from collections.abc import Mapping
from typing import Final

import structlog
from msgspec.structs import replace

from towpath_engine.bus.interface import InboundMessage
from towpath_engine.services.shell import Shell
from towpath_engine.services.signal_letters import letter_of_parked
from towpath_engine.store.interface import BatchWrite, ParkedSignal
from towpath_engine.store.records import DeadLetter
from towpath_protocol import headers, subjects
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.reports import REPORT_TYPES

log = structlog.get_logger(__name__)

_KINDS_OF_RUNS: Final = {*REPORT_TYPES, "signal", *subjects.CHILD_KINDS}
"""Kinds of messages whose subject names the run; in others the place is only a spreading token."""
_KINDS_WITH_ID: Final = {"signal", "signal-key", "start"}


class DeadLetters:
    """Collects dead letters and writes them in batches. `on_added` wakes the ticker of `flush`."""

    def __init__(
        self,
        shell: Shell,
        *,
        batch_max: int,
    ) -> None:
        self._shell = shell
        self._batch_max = batch_max
        self._waiting: list[tuple[DeadLetter, InboundMessage]] = []
        self.on_added = lambda: None

    def add(
        self,
        message: InboundMessage,
        *,
        reason: str,
        text: str,
        place: subjects.InSubject | None = None,
        run_id: str | None = None,
    ) -> None:
        """Keep this message; it is acknowledged once the row is committed.

        `place` is its subject, if that could be read; `run_id` who it was for, if it names only a
        key.
        """
        names_run = place is not None and place.kind in _KINDS_OF_RUNS
        letter = DeadLetter(
            id=self._shell.identity.new_id(),
            at=self._shell.clock.now(),
            reason=reason,
            message=text[:2_000],
            subject=message.subject,
            headers=_with_id(message, place),
            body=message.body,
            run_id=place.run_id if place is not None and names_run else run_id,
        )
        self._waiting.append((letter, message))
        self._shell.metrics.dead_letters.labels(reason=reason).inc()
        self.on_added()

    async def flush(self) -> int:
        """Write what was collected; returns how many.

        Raises StoreUnavailable; what was collected then stays for the next tick.
        """
        done = 0
        while self._waiting:
            part = self._waiting[: self._batch_max]
            part = await self._with_steps(part)
            async with self._shell.store.transaction() as tx:
                await tx.save(BatchWrite(dead_letters=[letter for letter, _ in part]))
                refused = tx.refused_letter_count
            self._count_refused(refused)
            self._shell.bus.acknowledge([message for _, message in part])
            del self._waiting[: len(part)]
            done += len(part)
            for letter, _ in part:
                log.warning(
                    "dead_letter_kept",
                    reason=letter.reason,
                    subject=letter.subject[:200],
                    run_id=letter.run_id,
                    message=letter.message[:200],
                )
        return done

    async def _with_steps(
        self, part: list[tuple[DeadLetter, InboundMessage]]
    ) -> list[tuple[DeadLetter, InboundMessage]]:
        """With the steps whose live attempts these are reports of: what a step waits for in vain
        is part of its explanation."""
        tokens = {letter.id: _attempt_of(letter, self._shell.prefix) for letter, _ in part}
        asked = [attempt for attempt in tokens.values() if attempt is not None]
        if not asked:
            return part
        steps = await self._shell.store.letters.steps_of(asked)
        found: list[tuple[DeadLetter, InboundMessage]] = []
        for letter, message in part:
            attempt = tokens[letter.id]
            step = None if attempt is None else steps.get(attempt)
            found.append((replace(letter, step=step), message))
        return found

    async def expire(self, parked: list[ParkedSignal]) -> None:
        """Turn parked signals whose time is over into dead letters, in one transaction."""
        letters = [self._of_parked(row) for row in parked]
        async with self._shell.store.transaction() as tx:
            await tx.save(
                BatchWrite(dead_letters=letters, unparked=[row.id for row in parked]),
            )
            refused = tx.refused_letter_count
        self._count_refused(refused)
        for letter in letters:
            self._shell.metrics.dead_letters.labels(reason=letter.reason).inc()

    def _count_refused(self, refused: int) -> None:
        if refused:
            self._shell.metrics.dead_letters_dropped.inc(refused)
            log.error("dead_letters_full", dropped=refused)

    def _of_parked(self, row: ParkedSignal) -> DeadLetter:
        if row.run_id is not None:
            reason = ErrorCode.UNKNOWN_RUN
            text = f"no run {row.run_id} came while the signal was parked"
        else:
            reason = ErrorCode.UNKNOWN_KEY
            text = f"no live run of {row.workflow!r} with key {row.key!r} came while it was parked"
        return letter_of_parked(
            row,
            prefix=self._shell.prefix,
            at=self._shell.clock.now(),
            reason=reason,
            text=text,
        )


def stored_id(message: InboundMessage) -> str:
    """What the stream says of a message whose sender gave it no id; a redelivery repeats it."""
    return f"stored:{message.stored_at.isoformat()}:{message.stream_seq}"


def as_message(letter: DeadLetter) -> InboundMessage:
    """The message of a dead letter, to be handled once more. It is in no stream any more."""
    given: Mapping[str, str] = letter.headers
    if _given_id(given) is None:
        # Whoever replays the letter twice must mean the same message.
        given = {**given, headers.MESSAGE_ID: headers.encode_text(f"dead-letter:{letter.id}")}
    return InboundMessage(
        subject=letter.subject,
        headers=given,
        body=letter.body,
        partition=0,
        stream_seq=0,
        stored_at=letter.at,
        pending=0,
        deliveries=1,
        ack_subject="",
    )


def _given_id(given: Mapping[str, str]) -> str | None:
    return headers.get(given, headers.MESSAGE_ID) or headers.get(given, headers.NATS_MSG_ID)


def _with_id(message: InboundMessage, place: subjects.InSubject | None) -> dict[str, str]:
    """The headers, with the id that the message had when it came: without it a replay could not
    tell it from another one, and two letters of one message would be two."""
    given = dict(message.headers)
    if place is not None and place.kind in _KINDS_WITH_ID and _given_id(given) is None:
        given[headers.MESSAGE_ID] = headers.encode_text(stored_id(message))
    return given


def _attempt_of(letter: DeadLetter, prefix: str) -> tuple[str, str] | None:
    """(run id, token) of the attempt that the letter is a report of."""
    try:
        place = subjects.parse_in(letter.subject, prefix)
    except ProtocolError:
        return None
    return (place.run_id, place.name) if place.kind in REPORT_TYPES else None
