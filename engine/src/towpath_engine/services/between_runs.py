"""Messages from one run to another, as rows of the outbox: written with what makes them true."""

from datetime import datetime
from typing import assert_never

from msgspec import Struct

from towpath_engine.core.effects import CancelChild, StartChild, TellParent
from towpath_engine.core.model import Run
from towpath_engine.store.interface import OutboxRow
from towpath_protocol import codec, headers, subjects
from towpath_protocol.children import REASON_LENGTH_MAX, ChildCancel, ChildSettled, ChildStart


def message_to_run(
    run: Run,
    effect: StartChild | CancelChild | TellParent,
    *,
    prefix: str,
    row_id: str,
    publish_after: datetime,
) -> OutboxRow:
    """The row for what `run` has to say to its child or parent. Its body says where to look; what
    is so the receiver reads from the rows of the runs."""
    body: Struct
    match effect:
        case StartChild(path=path, child_run_id=child):
            subject = subjects.child_start_subject(prefix, run.id, child)
            msg_id, body = f"{child}:start", ChildStart(step=path)
        case CancelChild(path=path, child_run_id=child):
            subject = subjects.child_cancel_subject(prefix, run.id, child)
            msg_id, body = f"{child}:cancel", _cancel(path, effect)
        case TellParent(parent_run_id=parent):
            subject = subjects.child_settled_subject(prefix, parent, run.id)
            # A child that was retried settles once more.
            msg_id, body = f"{run.id}:settled:{run.seq}", ChildSettled()
        case _:
            assert_never(effect)
    extra = {headers.NATS_MSG_ID: msg_id}
    if run.traceparent is not None:
        extra[headers.TRACEPARENT] = run.traceparent
    return OutboxRow(
        id=row_id,
        run_id=run.id,
        subject=subject,
        msg_id=msg_id,
        headers=extra,
        body=codec.encode(body),
        publish_after=publish_after,
    )


def _cancel(path: str, effect: CancelChild) -> ChildCancel:
    return ChildCancel(
        step=path, reason=effect.reason[:REASON_LENGTH_MAX], compensate=effect.compensate
    )
