"""From an outcome to a stored report: build it, publish it until the stream has it, then ack.

The order matters: the dispatch is acknowledged only after the PubAck of its report, so that a crash
between the two brings the dispatch back instead of losing the outcome.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, assert_never

from msgspec import Raw

from towpath_protocol import reports
from towpath_protocol.codec import encode
from towpath_protocol.dispatch import StepDispatch
from towpath_protocol.failures import Failure
from towpath_protocol.reports import (
    REPORT_KINDS,
    Report,
    StepCompleted,
    StepFailed,
    StepReleased,
)
from towpath_protocol.subjects import report_msg_id, report_subject
from towpath_worker.clock import now_ms, wall_text
from towpath_worker.context import ContextNotes
from towpath_worker.outcomes import Completed, Dropped, Failed, Outcome, Released
from towpath_worker.publishing import PubAck, Publisher
from towpath_worker.transport import Connection, TransportError

_log = logging.getLogger("towpath.worker.report")

ACK: Final = b"+ACK"
RETRY_MIN_SECONDS: Final = 0.1
RETRY_MAX_SECONDS: Final = 2.0


class Reporter:
    """Publishes reports of this worker, each until it is stored or its time is over."""

    def __init__(
        self,
        connection: Connection,
        *,
        worker_id: str,
        ack_timeout_seconds: float,
        on_unconfirmed: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_unconfirmed = on_unconfirmed
        self._connection = connection
        self._publisher = Publisher(connection)
        self.worker_id = worker_id
        self._ack_timeout_seconds = ack_timeout_seconds

    async def send(
        self,
        dispatch: StepDispatch,
        report: Report,
        *,
        until_ms: int,
        traceparent: str | None,
        body: bytes | None = None,
    ) -> bool:
        """True when the stream has the report; False when `until_ms` came first. `body` is the
        report's text, where the caller has it."""
        subject = subject_of(dispatch, report)
        headers = headers_of(dispatch, report, traceparent)
        body = encode(report) if body is None else body
        wait_seconds = RETRY_MIN_SECONDS
        importance = logging.INFO
        while True:
            left_seconds = (until_ms - now_ms()) / 1000
            try:
                answer = await self._publisher.publish(
                    subject,
                    body,
                    headers,
                    timeout_seconds=max(0.5, min(self._ack_timeout_seconds, left_seconds)),
                )
            except TransportError as error:
                self._on_unconfirmed()
                _log.log(importance, "report_unconfirmed token=%s error=%s", dispatch.token, error)
                importance = logging.DEBUG  # once: an outage may hold up a thousand of them
            else:
                if isinstance(answer, PubAck):
                    return True
                _log.warning(
                    "report_refused token=%s code=%d %s",
                    dispatch.token,
                    answer.err_code,
                    answer.description,
                )
            left_seconds = (until_ms - now_ms()) / 1000
            if left_seconds <= 0:
                _log.warning("report_given_up token=%s subject=%s", dispatch.token, subject)
                return False
            await asyncio.sleep(min(wait_seconds, left_seconds))
            wait_seconds = min(RETRY_MAX_SECONDS, wait_seconds * 2)

    async def acknowledge(self, ack_subject: str) -> None:
        """Ack a dispatch. A lost ack is harmless: its token is remembered, or it is stale."""
        with contextlib.suppress(TransportError):
            await self._connection.publish(ack_subject, ACK)

    async def terminate(self, ack_subject: str, reason: str) -> None:
        """Tell the broker that this message can never be handled; the engine hears of it."""
        with contextlib.suppress(TransportError):
            await self._connection.publish(ack_subject, b"+TERM " + reason.encode()[:200])

    def build(
        self, dispatch: StepDispatch, outcome: Outcome, notes: ContextNotes, *, started_at: str
    ) -> Report | None:
        """The report of an outcome; None when there is nothing to say."""
        match outcome:
            case Completed():
                again = outcome.again
                return StepCompleted(
                    run_id=dispatch.run_id,
                    step=dispatch.step,
                    token=dispatch.token,
                    worker_id=self.worker_id,
                    output=Raw(outcome.output),
                    metadata=_raw(notes.metadata),
                    again=None if again is None else reports.Again(after_ms=again.after_ms),
                    events=notes.events,
                    started_at=started_at,
                    finished_at=wall_text(),
                    logs=notes.log.lines(),
                )
            case Failed():
                return StepFailed(
                    run_id=dispatch.run_id,
                    step=dispatch.step,
                    token=dispatch.token,
                    worker_id=self.worker_id,
                    error=_failure(outcome),
                    events=notes.events,
                    started_at=started_at,
                    finished_at=wall_text(),
                    logs=notes.log.lines(),
                )
            case Released():
                return self.released(dispatch, outcome, progress=notes.progress)
            case Dropped():
                return None
            case _:
                assert_never(outcome)

    def released(
        self, dispatch: StepDispatch, outcome: Released, *, progress: bytes | None
    ) -> StepReleased:
        """The report that gives an attempt back."""
        return StepReleased(
            run_id=dispatch.run_id,
            step=dispatch.step,
            token=dispatch.token,
            worker_id=self.worker_id,
            reason=outcome.reason,
            after_ms=outcome.after_ms,
            progress=_raw(progress),
        )


def subject_of(dispatch: StepDispatch, report: Report) -> str:
    """Where a report of this dispatch goes."""
    return report_subject(
        dispatch.reply,
        REPORT_KINDS[type(report)],
        dispatch.queue,
        dispatch.run_id,
        token=dispatch.token,
    )


def headers_of(dispatch: StepDispatch, report: Report, traceparent: str | None) -> dict[str, str]:
    """The headers of a report: its message id, and the trace that the dispatch belongs to."""
    headers = {"Nats-Msg-Id": report_msg_id(report, dispatch.token)}
    if traceparent is not None:
        headers["traceparent"] = traceparent
    return headers


def _failure(failed: Failed) -> Failure:
    return Failure(
        type=failed.type,
        message=failed.message,
        retryable=failed.retryable,
        details=_raw(failed.details),
        stack=failed.stack,
        retry_after_ms=failed.retry_after_ms,
    )


def _raw(text: bytes | None) -> Raw | None:
    return None if text is None else Raw(text)
