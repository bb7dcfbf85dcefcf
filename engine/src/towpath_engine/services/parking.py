"""Signals that came before their run: kept for a while, then taken or made dead letters."""

from datetime import datetime, timedelta

from towpath_engine.services.clock import Identity
from towpath_engine.services.work import SignalSpec, Work, ignore_outcome
from towpath_engine.store.interface import ParkedSignal


class Parking:
    """Builds and reads parked rows. `seconds` is how long a signal waits for its run."""

    def __init__(self, identity: Identity, *, seconds: float, signals_max: int) -> None:
        self._identity = identity
        self._wait = timedelta(seconds=seconds)
        self.signals_max = signals_max
        self.full = False
        """Set by the sweep: as many signals are parked as may be, a stranger is buried at once."""

    def park(self, work: Work, signal: SignalSpec, now: datetime) -> ParkedSignal:
        """The row for a signal whose run or key does not exist."""
        workflow, key = work.key or (None, None)
        return ParkedSignal(
            id=self._identity.new_id(),
            run_id=work.run_id if work.key is None else None,
            workflow=workflow,
            key=key,
            name=signal.name,
            payload=signal.payload,
            message_id=signal.message_id,
            sent_by=signal.sent_by,
            received_at=signal.received_at,
            expires_at=now + self._wait,
        )

    @staticmethod
    def spec(row: ParkedSignal) -> SignalSpec:
        """The signal of a row, as it was sent."""
        return SignalSpec(
            name=row.name,
            payload=row.payload,
            message_id=row.message_id,
            sent_by=row.sent_by,
            received_at=row.received_at,
            by_message=True,
        )

    @staticmethod
    def unpark(row: ParkedSignal) -> Work:
        """The work of a row that has found its run."""
        key = None
        if row.workflow is not None and row.key is not None:
            key = (row.workflow, row.key)
        return Work(
            settle=ignore_outcome,
            run_id=row.run_id,
            key=key,
            signal=Parking.spec(row),
            parked_id=row.id,
        )
