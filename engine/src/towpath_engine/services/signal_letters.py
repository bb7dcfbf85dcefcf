"""Signals that nobody takes, as dead letters: each is the message that it was, or would have been.

A replay of such a letter sends the signal once more.
"""

from datetime import datetime

from towpath_engine.core.effects import RefuseSignal
from towpath_engine.store.interface import ParkedSignal
from towpath_engine.store.records import DeadLetter
from towpath_protocol import headers, subjects
from towpath_protocol.errors import ErrorCode


def letter_of_parked(
    row: ParkedSignal, *, prefix: str, at: datetime, reason: str, text: str
) -> DeadLetter:
    """The letter of a signal that was parked, with its id; `text` says why nobody takes it."""
    extra = {headers.MESSAGE_ID: headers.encode_text(row.message_id)}
    if row.run_id is not None:
        subject = subjects.signal_subject(prefix, row.run_id, row.name)
    else:
        key = row.key or ""
        subject = subjects.signal_key_subject(prefix, row.workflow or "-", key, row.name)
        extra[headers.KEY] = headers.encode_text(key)
    if row.sent_by is not None:
        extra[headers.SENT_BY] = headers.encode_text(row.sent_by)
    return DeadLetter(
        id=row.id,
        at=at,
        reason=reason,
        message=text[:2_000],
        subject=subject,
        headers=extra,
        body=row.payload,
        run_id=row.run_id,
    )


def letter_of_refused(
    run_id: str, effect: RefuseSignal, *, prefix: str, letter_id: str, at: datetime
) -> DeadLetter:
    """The letter of a signal that the run had kept and that its wait does not want.

    It has no message id: the run knows the signal's own, so that a replay would be a repeat.
    """
    signal = effect.signal
    extra: dict[str, str] = {}
    if signal.sent_by is not None:
        extra[headers.SENT_BY] = headers.encode_text(signal.sent_by)
    return DeadLetter(
        id=letter_id,
        at=at,
        reason=ErrorCode.SCHEMA_FAILED,
        message=effect.reason[:2_000],
        subject=subjects.signal_subject(prefix, run_id, signal.name),
        headers=extra,
        body=signal.payload,
        run_id=run_id,
        step=effect.path,
    )
