"""Messages of P_IN → work: decode, check the subject against the body, settle by acknowledging.

Called by the bus for every message; never raises, never blocks. Whatever can't be decoded or
placed becomes a dead letter, and only after its row is committed is the message acknowledged.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from msgspec.structs import replace

from towpath_engine.bus.interface import InboundMessage
from towpath_engine.core.events import ReportReceived
from towpath_engine.core.model import Cause
from towpath_engine.services.children import CHILD_MESSAGES, ChildMessage, Children
from towpath_engine.services.dead_letters import DeadLetters, as_message, stored_id
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import (
    Outcome,
    OutcomeKind,
    SignalSpec,
    StartSpec,
    Work,
)
from towpath_engine.store.records import DeadLetter
from towpath_protocol import bounds, codec, headers, ids, subjects
from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.failures import Failure
from towpath_protocol.limits import WireLimits
from towpath_protocol.reports import REPORT_TYPES, Report, StepCompleted, StepFailed
from towpath_protocol.shapes import MESSAGE_ID_LENGTH_MAX, TEXT_LENGTH_MAX

log = structlog.get_logger(__name__)

_REFUSED_CONTENT = {ErrorCode.UNSAFE_JSON, ErrorCode.TOO_LARGE}
DEAD_OUTCOMES: Final = {
    OutcomeKind.REFUSED,
    OutcomeKind.UNKNOWN_RUN,
    OutcomeKind.UNKNOWN_WORKFLOW,
    OutcomeKind.INVALID,
    OutcomeKind.MISMATCH,
    OutcomeKind.BROKEN,
}
"""Outcomes of messages that can't be applied: they become dead letters, or stay such."""

Settle = Callable[[Outcome], None]


class Inbound:
    """Turns messages into work. `advisory` takes the messages of P_ADV."""

    def __init__(
        self,
        shell: Shell,
        *,
        dead_letters: DeadLetters,
        children: Children,
        advisory: Callable[[InboundMessage], None],
        limits: WireLimits,
        require_sender: bool,
    ) -> None:
        self._shell = shell
        self._dead_letters = dead_letters
        self._children = children
        self._advisory = advisory
        self._limits = limits
        self._require_sender = require_sender

    def receive(self, message: InboundMessage) -> None:
        """Take one message over from the bus."""
        if message.partition < 0:
            self._advisory(message)
            return
        kind = "unknown"
        place: subjects.InSubject | None = None
        try:
            place = subjects.parse_in(message.subject, self._shell.prefix)
            kind = place.kind
            self._count(message, kind)
            settle = self._settle(message, place)
            if place.kind in subjects.CHILD_KINDS:
                self._children.take(place, self._child_message(message, place), settle)
                return
            work = self._work(message, place, settle)
        except ProtocolError as error:
            self._bury(message, place, reason=error.code, text=str(error))
            return
        except Exception as error:
            # A bug of ours, and the same every time: this message must not stop the others.
            log.exception("message_failed", kind=kind)
            self._bury(message, place, reason=ErrorCode.POISON, text=repr(error))
            return
        self._shell.submit(work)

    async def redo(self, letter: DeadLetter) -> Outcome:
        """Handle the message of a dead letter as if it came now; returns once that is committed.

        Only its sender's patience is over: a signal for a run that does not exist is not parked.
        Raises ProtocolError for a message that still can't be decoded or placed, POISON for one
        whose decoding is a fault of ours.
        """
        message = as_message(letter)
        place = subjects.parse_in(message.subject, self._shell.prefix)
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def settle(outcome: Outcome) -> None:
            if not done.done():
                done.set_result(outcome)

        try:
            if place.kind in subjects.CHILD_KINDS:
                self._children.take(place, self._child_message(message, place), settle)
                return await done
            work = self._work(message, place, settle)
        except ProtocolError:
            raise
        except Exception as error:
            log.exception("message_failed", kind=place.kind, dead_letter_id=letter.id)
            raise ProtocolError(ErrorCode.POISON, repr(error)) from error
        if work.signal is not None:
            work.signal = replace(work.signal, by_message=False)
        self._shell.submit(work)
        return await done

    def _work(self, message: InboundMessage, place: subjects.InSubject, settle: Settle) -> Work:
        """What the message asks for. Raises ProtocolError."""
        headers.check_headers(message.headers, self._limits)
        if place.kind in REPORT_TYPES:
            return self._report(message, place, settle)
        match place.kind:
            case subjects.InKind.SIGNAL:
                return self._signal(message, place, settle)
            case subjects.InKind.SIGNAL_KEY:
                return self._keyed_signal(message, place, settle)
            case subjects.InKind.START:
                return self._start(message, place, settle)
            case _:
                raise AssertionError(f"{place.kind} is handled elsewhere")

    def _child_message(self, message: InboundMessage, place: subjects.InSubject) -> ChildMessage:
        """What an engine has said between two runs. Raises ProtocolError."""
        headers.check_headers(message.headers, self._limits)
        content_type = headers.get(message.headers, headers.CONTENT_TYPE)
        shape = CHILD_MESSAGES[place.kind]
        return codec.decode(message.body, shape, content_type=content_type, limits=self._limits)

    def _count(self, message: InboundMessage, kind: str) -> None:
        self._shell.metrics.messages_received.labels(kind=kind).inc()
        if message.deliveries > 1:
            self._shell.metrics.messages_redelivered.labels(kind=kind).inc()

    # Reports

    def _report(self, message: InboundMessage, place: subjects.InSubject, settle: Settle) -> Work:
        report = self._decode_report(message, place)
        _check_agrees("run_id", report.run_id, place.run_id)
        _check_agrees("token", report.token, place.name)
        cause = Cause(
            type="report",
            kind=place.kind,
            token=place.name,
            worker_id=report.worker_id,
            traceparent=headers.decode_traceparent(
                headers.get(message.headers, headers.TRACEPARENT)
            ),
        )
        event = ReportReceived(
            seed=self._shell.identity.new_seed(),
            cause=cause,
            token=place.name,
            queue=place.scope,
            report=report,
        )
        return Work(
            settle=settle,
            run_id=place.run_id,
            event=event,
        )

    def _decode_report(self, message: InboundMessage, place: subjects.InSubject) -> Report:
        cls = REPORT_TYPES[place.kind]
        content_type = headers.get(message.headers, headers.CONTENT_TYPE)
        try:
            report = codec.decode_report(
                message.body, place.kind, content_type=content_type, limits=self._limits
            )
            bounds.check_bounds(report, self._limits)
        except ProtocolError as error:
            if cls not in {StepCompleted, StepFailed} or error.code not in _REFUSED_CONTENT:
                raise
            # JSON, but with content that is refused (NaN, NUL, too deep, too large): the worker
            # did finish, and running the same attempt into its timeout would help nobody.
            too_large = error.code is ErrorCode.TOO_LARGE
            return StepFailed(
                error=Failure(
                    type="TooLarge" if too_large else "InvalidOutput",
                    message=str(error),
                    retryable=False,
                )
            )
        return report

    # Signals and starts

    def _signal(self, message: InboundMessage, place: subjects.InSubject, settle: Settle) -> Work:
        return Work(
            settle=settle,
            run_id=place.run_id,
            signal=self._signal_spec(message, place.name),
        )

    def _keyed_signal(
        self, message: InboundMessage, place: subjects.InSubject, settle: Settle
    ) -> Work:
        key = headers.get_text(message.headers, headers.KEY)
        if key is None:
            raise ProtocolError(
                ErrorCode.BAD_HEADER, "is missing: it says whose signal this is", field=headers.KEY
            )
        key = ids.check_key(key, headers.KEY)
        return Work(
            settle=settle,
            key=(place.scope, key),
            signal=self._signal_spec(message, place.name),
        )

    def _signal_spec(self, message: InboundMessage, name: str) -> SignalSpec:
        body = message.body or b"null"
        codec.check_json(body, bytes_max=self._limits.payload_bytes_max, field="payload")
        return SignalSpec(
            name=name,
            payload=body,
            message_id=_message_id(message),
            sent_by=self._sender(message.headers),
            received_at=self._shell.clock.now(),
            by_message=True,
        )

    def _start(self, message: InboundMessage, place: subjects.InSubject, settle: Settle) -> Work:
        body = message.body or b"null"
        codec.check_json(body, bytes_max=self._limits.payload_bytes_max, field="input")
        sender = self._sender(message.headers)
        key = headers.get_text(message.headers, headers.KEY)
        if key is not None:
            key = ids.check_key(key, headers.KEY)
        priority = headers.get_priority(message.headers)
        context = headers.get_context(message.headers, self._limits.context_bytes_max)
        start = StartSpec(
            run_id=self._shell.identity.new_id(),
            workflow=place.scope,
            input=body,
            key=key,
            request_id=_message_id(message),
            priority=None if priority is None else priority.level,
            tags=headers.get_tags(message.headers) or None,
            context=context or b"{}",
            triggered_by=sender,
            traceparent=headers.decode_traceparent(
                headers.get(message.headers, headers.TRACEPARENT)
            ),
        )
        return Work(
            settle=settle,
            start=start,
            cause=Cause(type="start", kind="message", message_id=start.request_id, by=sender),
        )

    def _sender(self, fields: Mapping[str, str]) -> str | None:
        sender = headers.get_text(fields, headers.SENT_BY)
        if sender is None and self._require_sender:
            raise ProtocolError(
                ErrorCode.MISSING_SENDER,
                "is missing, this engine requires it",
                field=headers.SENT_BY,
            )
        return None if sender is None else _bounded(sender, headers.SENT_BY, TEXT_LENGTH_MAX)

    # Afterwards

    def _settle(self, message: InboundMessage, place: subjects.InSubject) -> Settle:
        kind = place.kind

        def settle(outcome: Outcome) -> None:
            if outcome.kind in DEAD_OUTCOMES:
                reason = outcome.code or outcome.kind.value
                self._bury(
                    message, place, reason=reason, text=outcome.message, run_id=outcome.run_id
                )
                return
            self._shell.metrics.messages_applied.labels(kind=kind, outcome=outcome.kind.value).inc()
            if outcome.kind is OutcomeKind.STALE:
                self._shell.metrics.reports_stale.labels(kind=kind).inc()
            self._shell.bus.acknowledge([message])

        return settle

    def _bury(
        self,
        message: InboundMessage,
        place: subjects.InSubject | None,
        *,
        reason: str,
        text: str,
        run_id: str | None = None,
    ) -> None:
        kind = "unknown" if place is None else place.kind
        self._shell.metrics.messages_applied.labels(kind=kind, outcome="dead_letter").inc()
        self._dead_letters.add(message, reason=reason, text=text, place=place, run_id=run_id)


def _check_agrees(field: str, said: str | None, subject: str) -> None:
    if said is not None and said != subject:
        raise ProtocolError(
            ErrorCode.SUBJECT_MISMATCH,
            f"the body says {said[:80]!r}, the subject says {subject!r}; the subject decides",
            field=field,
        )


def _message_id(message: InboundMessage) -> str:
    """The sender's id of this message; without one, what the stream says of it, which a
    redelivery repeats."""
    for name in (headers.MESSAGE_ID, headers.NATS_MSG_ID):
        given = headers.get_text(message.headers, name)
        if given:
            return _bounded(given, name, MESSAGE_ID_LENGTH_MAX)
    return stored_id(message)


def _bounded(text: str, name: str, length_max: int) -> str:
    if len(text) > length_max or "\x00" in text:
        raise ProtocolError(
            ErrorCode.BAD_HEADER,
            f"has {len(text)} characters (or a NUL)",
            field=name,
            fix=f"use at most {length_max} characters, none of them NUL",
        )
    return text
