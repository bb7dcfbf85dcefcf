"""Keeps messages that could not be decoded, placed or applied; acknowledges them afterwards."""

import structlog

from towpath_engine.bus.interface import InboundMessage
from towpath_engine.services.shell import Shell
from towpath_engine.store.interface import BatchWrite, ParkedSignal
from towpath_engine.store.records import DeadLetter
from towpath_protocol import headers, subjects
from towpath_protocol.errors import ErrorCode

log = structlog.get_logger(__name__)


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

    def add(self, message: InboundMessage, *, reason: str, text: str, run_id: str | None) -> None:
        """Keep this message; it is acknowledged once the row is committed."""
        letter = DeadLetter(
            id=self._shell.identity.new_id(),
            at=self._shell.clock.now(),
            reason=reason,
            message=text[:2_000],
            subject=message.subject,
            headers=dict(message.headers),
            body=message.body,
            run_id=run_id,
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
            subject = subjects.signal_subject(self._shell.prefix, row.run_id, row.name)
            text = f"no run {row.run_id} came while the signal was parked"
        else:
            workflow, key = row.workflow or "-", row.key or ""
            subject = subjects.signal_key_subject(self._shell.prefix, workflow, key, row.name)
            text = f"no live run of {workflow!r} with key {key!r} came while it was parked"
        extra = {headers.MESSAGE_ID: headers.encode_text(row.message_id)}
        if row.key is not None:
            extra[headers.KEY] = headers.encode_text(row.key)
        return DeadLetter(
            id=row.id,
            at=self._shell.clock.now(),
            reason=ErrorCode.UNKNOWN_RUN if row.run_id is not None else ErrorCode.UNKNOWN_KEY,
            message=text,
            subject=subject,
            headers=extra,
            body=row.payload,
            run_id=row.run_id,
        )
