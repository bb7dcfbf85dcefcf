"""dead-letter.list, get, discard and replay: what an operator does with messages that failed."""

import asyncio
from typing import Final

import structlog
from msgspec import Raw

from towpath_engine.bus.interface import ApiRequest
from towpath_engine.services.api.errors import ApiFailureError
from towpath_engine.services.api.pages import bad_cursor, fitting_count
from towpath_engine.services.api.router import RequestReader
from towpath_engine.services.inbound import DEAD_OUTCOMES, Inbound
from towpath_engine.services.work import Outcome, OutcomeKind
from towpath_engine.store.errors import CursorError
from towpath_engine.store.interface import Store
from towpath_engine.store.letters import CutLetter
from towpath_engine.store.records import DeadLetter
from towpath_protocol import codec
from towpath_protocol.errors import ErrorCode, ErrorInfo, ProtocolError
from towpath_protocol.operation_replies import (
    DiscardedDeadLetters,
    ReplayedDeadLetter,
    ReplayedDeadLetters,
)
from towpath_protocol.operations import DiscardDeadLetters, GetDeadLetter, ReplayDeadLetters
from towpath_protocol.replies import DeadLetterList, DeadLetterView
from towpath_protocol.requests import ListDeadLetters
from towpath_protocol.times import format_instant

log = structlog.get_logger(__name__)

_BEGINNING_BYTES: Final = 2 * 1024
"""Of a body in the list."""
_WHOLE_BYTES: Final = 448 * 1024
"""Of a body that is asked for: as base64, and with headers of the 64 KiB that a stream takes,
escaped at their worst, it fits into an answer."""
_DONE: Final = {
    OutcomeKind.APPLIED: "applied",
    OutcomeKind.DUPLICATE: "duplicate",
    OutcomeKind.STALE: "stale",
    OutcomeKind.IGNORED: "stale",
}
"""What a message may come to without staying a dead letter. Ignored: what it wanted is so."""


class DeadLetterDesk:
    """Handlers. `inbound` handles messages again."""

    def __init__(self, *, store: Store, inbound: Inbound, reader: RequestReader) -> None:
        self._letters = store.letters
        self._inbound = inbound
        self._reader = reader

    async def page(self, request: ApiRequest) -> DeadLetterList:
        """dead-letter.list"""
        body = self._reader.read(request, ListDeadLetters)
        try:
            rows = await self._letters.page(
                body.cursor, body.limit + 1, body_bytes_max=_BEGINNING_BYTES
            )
        except CursorError as error:
            bad_cursor(error)
        letters = [_view(row, _BEGINNING_BYTES) for row in rows[: body.limit]]
        taken = letters[: fitting_count(len(codec.encode(letter)) for letter in letters)]
        more = len(rows) > len(taken)
        return DeadLetterList(
            dead_letters=tuple(taken), next_cursor=taken[-1].id if more and taken else None
        )

    async def get(self, request: ApiRequest) -> DeadLetterView:
        """dead-letter.get: the whole body, or as much of it as fits into one message"""
        body = self._reader.read(request, GetDeadLetter)
        found = await self._letters.get([body.id])
        letter = found.get(body.id)
        if letter is None:
            raise ApiFailureError(
                ErrorCode.DEAD_LETTER_NOT_FOUND, f"there is no dead letter {body.id}"
            )
        size = len(letter.body)
        return _view(CutLetter(letter=letter, body_bytes=size), _WHOLE_BYTES)

    async def discard(self, request: ApiRequest) -> DiscardedDeadLetters:
        """dead-letter.discard"""
        body = self._reader.read(request, DiscardDeadLetters)
        count = await self._letters.delete(body.ids)
        log.info(
            "dead_letters_discarded", ids=body.ids, count=count, by=body.by, reason=body.reason
        )
        return DiscardedDeadLetters(discarded=count)

    async def replay(self, request: ApiRequest) -> ReplayedDeadLetters:
        """dead-letter.replay

        A letter is deleted after the commit that handled it: a crash between the two leaves it,
        and replaying it once more changes nothing more.
        """
        body = self._reader.read(request, ReplayDeadLetters)
        letters = await self._letters.get(body.ids)
        wanted = dict.fromkeys(body.ids)
        results = await asyncio.gather(*(self._replay(i, letters.get(i)) for i in wanted))
        done = [result.id for result in results if result.outcome in _DONE.values()]
        await self._letters.delete(done)
        for result in results:
            log.info(
                "dead_letter_replayed",
                dead_letter_id=result.id,
                outcome=result.outcome,
                error=None if result.error is None else result.error.code,
                by=body.by,
                reason=body.reason,
            )
        by_id = {result.id: result for result in results}
        return ReplayedDeadLetters(results=tuple(by_id[i] for i in body.ids))

    async def _replay(self, letter_id: str, letter: DeadLetter | None) -> ReplayedDeadLetter:
        if letter is None:
            return ReplayedDeadLetter(id=letter_id, outcome="not_found")
        try:
            outcome = await self._inbound.redo(letter)
        except ProtocolError as error:
            return _failed(letter_id, error.code, str(error))
        if outcome.kind in _DONE:
            done = OutcomeKind.DUPLICATE if outcome.deduplicated else outcome.kind
            return ReplayedDeadLetter(id=letter_id, outcome=_DONE[done], run_id=outcome.run_id)
        assert outcome.kind in DEAD_OUTCOMES, "nothing is parked for an operator"
        return _failed(letter_id, *_why(outcome))


def _why(outcome: Outcome) -> tuple[str, str]:
    return outcome.code or outcome.kind.value, outcome.message


def _failed(letter_id: str, code: str, message: str) -> ReplayedDeadLetter:
    error = ErrorInfo(code=code, message=message, details=Raw(b"{}"))
    return ReplayedDeadLetter(id=letter_id, outcome="failed", error=error)


def _view(row: CutLetter, body_bytes_max: int) -> DeadLetterView:
    letter = row.letter
    return DeadLetterView(
        id=letter.id,
        at=format_instant(letter.at),
        reason=letter.reason,
        message=letter.message,
        subject=letter.subject,
        headers=letter.headers,
        body=letter.body[:body_bytes_max],
        body_bytes=row.body_bytes,
        run_id=letter.run_id,
        step=letter.step,
    )
