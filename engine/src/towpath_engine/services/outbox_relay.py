"""Publishes what was committed, remembers what is confirmed, and sweeps what is not.

The row was written by the transaction that decided it; this service only moves it. A confirmed
row is deleted by the next batch's transaction, or within a second by its own.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from towpath_engine.bus.interface import Confirmation, OutboundMessage
from towpath_engine.services.shell import Shell
from towpath_engine.store.interface import OutboxRow
from towpath_protocol import headers

_PAGES_MAX = 10
"""Pages of one sweep: what an outage of NATS left goes out as fast as the stream takes it."""


class OutboxRelay:
    """`publish` after a commit, `confirmed` around the next one, `sweep` now and then.

    `on_stored(token, subject, seq)` is told where the stream keeps a dispatch: only a hint, lost
    with the process, never an identity.
    """

    def __init__(
        self,
        shell: Shell,
        *,
        leads: Callable[[], bool],
        sweep_max: int,
        on_stored: Callable[[str, str, int], None],
    ) -> None:
        self._shell = shell
        self._leads = leads
        self._sweep_max = sweep_max
        self._on_stored = on_stored
        self._confirmed: list[str] = []
        self._open: dict[str, tuple[str | None, str]] = {}
        shell.bus.on_confirmation(self._on_confirmation)
        # Looked at when somebody asks, not with every message.
        shell.metrics.outbox_open.set_function(lambda: len(self._open))

    def publish(self, rows: Sequence[OutboxRow]) -> None:
        """Hand committed rows to the bus; what is not confirmed is left to the sweep."""
        for row in rows:
            self._open[row.id] = (row.token, row.subject)
        self._shell.bus.publish(
            [
                OutboundMessage(id=row.id, subject=row.subject, headers=row.headers, body=row.body)
                for row in rows
            ]
        )

    @contextmanager
    def confirmed(self) -> Generator[list[str]]:
        """Ids of confirmed rows, for whoever deletes them within the context; when that fails they
        are kept for the next one."""
        confirmed, self._confirmed = self._confirmed, []
        try:
            yield confirmed
        except BaseException:
            self._confirmed.extend(confirmed)
            raise

    def doubt(self) -> None:
        """Streams may have lost their data: what they had confirmed and is not deleted yet is swept
        like the rest. A stream that has it drops the copy."""
        self._confirmed.clear()

    async def flush(self) -> None:
        """Delete the rows of what is confirmed. Raises StoreUnavailable; nothing is forgotten."""
        with self.confirmed() as confirmed:
            if confirmed:
                await self._shell.store.delete_outbox(confirmed)

    async def sweep(self) -> int:
        """Delete what is confirmed, publish what is overdue; returns how many were published.

        In the engine that leads: it sweeps for all.
        """
        await self.flush()
        if not self._shell.bus.connected or not self._leads():
            return 0
        count = 0
        for _ in range(_PAGES_MAX):
            rows = await self._shell.store.due_outbox(self._shell.clock.now(), self._sweep_max)
            fresh = [row for row in rows if row.id not in self._open]
            if fresh:
                self._shell.metrics.outbox_republished.inc(len(fresh))
                self.publish([_marked(row) for row in fresh])
            count += len(fresh)
            if not rows or not self._shell.bus.connected:
                break
        return count

    def _on_confirmation(self, confirmation: Confirmation) -> None:
        token, subject = self._open.pop(confirmation.id, (None, ""))
        stream = subject.split(".", 2)[1] if subject else "events"
        if not confirmation.ok:
            self._shell.metrics.outbox_published.labels(stream=stream, result="failed").inc()
            return
        self._shell.metrics.outbox_published.labels(stream=stream, result="stored").inc()
        self._confirmed.append(confirmation.id)
        if token is not None:
            self._on_stored(token, subject, confirmation.seq)


def _marked(row: OutboxRow) -> OutboxRow:
    # Who got the first copy may be at work although nobody got this one.
    return replace(row, headers={**row.headers, headers.RESENT: "1"})
