"""One run as its starter sees it: a handle with its id, its result, its state, its history."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, overload

import msgspec
from msgspec import UNSET

from towpath_protocol import replies, requests
from towpath_protocol.shapes import PAGE_MAX, WAIT_MS_MAX
from towpath_worker.calls import ANSWER_SECONDS, ApiCaller, ApiError
from towpath_worker.clock import now_ms
from towpath_worker.values import Json, from_json

T = TypeVar("T")

WAIT_MAX_MS: Final = WAIT_MS_MAX


class RunFailed(Exception):  # noqa: N818 -- says what happened, as the run's status does
    """The run has settled, and not as completed.

    `status` is its final status (`failed`, `cancelled`, `timed_out`, …), `error` what made it fail,
    if anything did.
    """

    def __init__(self, run_id: str, status: str, error: replies.ErrorView | None) -> None:
        why = "" if error is None else f": {error.type}: {error.message}"
        super().__init__(f"run {run_id} is {status}{why}")
        self.run_id = run_id
        self.status = status
        self.error = error


class RunReader:
    """The requests that read one run."""

    def __init__(self, caller: ApiCaller, *, timeout_seconds: float) -> None:
        self._caller = caller
        self._timeout_seconds = timeout_seconds

    async def get(self, run_id: str, *, steps_cursor: str | None = None) -> replies.RunView:
        """run.get"""
        return await self._caller.call(
            "run.get",
            requests.GetRun(run_id=run_id, steps_cursor=steps_cursor),
            replies.RunView,
            timeout_seconds=self._timeout_seconds,
        )

    async def history(self, run_id: str, *, after_seq: int, limit: int) -> replies.RunHistory:
        """run.history"""
        return await self._caller.call(
            "run.history",
            requests.GetHistory(run_id=run_id, after_seq=after_seq, limit=limit),
            replies.RunHistory,
            timeout_seconds=self._timeout_seconds,
        )

    async def settled(self, run_id: str, timeout_seconds: float | None) -> replies.RunResult:
        """Wait until the run has settled. Raises TimeoutError when it has not in time."""
        ends_ms = None if timeout_seconds is None else now_ms() + round(timeout_seconds * 1000)
        while True:
            left_ms = WAIT_MAX_MS if ends_ms is None else ends_ms - now_ms()
            wait_ms = max(0, min(WAIT_MAX_MS, left_ms))
            result = await self._caller.call(
                "run.result",
                requests.GetResult(run_id=run_id, wait_ms=wait_ms),
                replies.RunResult,
                timeout_seconds=max(self._timeout_seconds, wait_ms / 1000 + ANSWER_SECONDS),
                answer_seconds=wait_ms / 1000 + ANSWER_SECONDS,
            )
            if result.settled:
                return result
            if left_ms <= 0:
                raise TimeoutError(f"run {run_id} is still {result.status}")

    async def output(self, run_id: str, *, step: str | None = None) -> bytes | None:
        """The whole output of a run or a step, however large; None when there is none."""
        pieces: list[str] = []
        offset: int | None = 0
        while offset is not None:
            piece = await self._caller.call(
                "run.output",
                requests.GetOutput(run_id=run_id, step=step, offset=offset),
                replies.OutputPiece,
                timeout_seconds=self._timeout_seconds,
            )
            if piece.text is None:
                return None
            pieces.append(piece.text)
            offset = piece.next_offset
        return "".join(pieces).encode()


class RunHandle:
    """A run. `deduplicated`: a start found it instead of creating it."""

    def __init__(self, reader: RunReader, run_id: str, *, deduplicated: bool = False) -> None:
        self._reader = reader
        self.run_id = run_id
        self.deduplicated = deduplicated

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r}, deduplicated={self.deduplicated})"

    @overload
    async def result(self, *, timeout: float | None = None) -> Json: ...

    @overload
    async def result(self, *, timeout: float | None = None, output_type: type[T]) -> T: ...

    async def result(
        self, *, timeout: float | None = None, output_type: type[T] | None = None
    ) -> Json | T:
        """Wait until the run has settled; its output, as plain JSON or as `output_type`.

        `timeout` is in seconds, None waits for ever. Raises RunFailed when the run ended in any
        way but completed, TimeoutError when it has not settled in time (it goes on),
        msgspec.ValidationError when the output is no `output_type`, and what every call raises.
        """
        result = await self._reader.settled(self.run_id, timeout)
        if result.status != "completed":
            raise RunFailed(self.run_id, result.status, result.error)
        text: bytes | None = None if result.output is None else bytes(result.output)
        if result.output_omitted is not UNSET:
            text = await self._reader.output(self.run_id)
        value: Json = from_json(b"null" if text is None else text)
        return value if output_type is None else msgspec.convert(value, type=output_type)

    async def get(self) -> replies.RunView:
        """The run with the first page of its steps. Raises what every call raises."""
        return await self._reader.get(self.run_id)

    async def output(self, *, step: str | None = None) -> Json:
        """The output of the run, or of a step, however large; None, too, when there is none."""
        text = await self._reader.output(self.run_id, step=step)
        return None if text is None else from_json(text)

    async def history(self) -> Sequence[replies.TransitionView]:
        """All transitions of the run, in order. Raises what every call raises."""
        transitions: list[replies.TransitionView] = []
        after: int | None = 0
        while after is not None:
            page = await self._reader.history(self.run_id, after_seq=after, limit=PAGE_MAX)
            transitions.extend(page.transitions)
            after = page.next_after_seq
        return transitions


class StartManyError(ApiError):
    """Some starts were refused. `results` has a handle or an ApiError for each item, in order;
    `code` and `message` are those of the first refusal."""

    def __init__(self, results: Sequence[RunHandle | ApiError], first: ApiError) -> None:
        super().__init__(first.code, first.message, first.details, status=first.status)
        self.results = results

    @staticmethod
    def unless_all_started(
        results: Sequence[replies.StartResult], handle: Callable[..., RunHandle]
    ) -> Sequence[RunHandle]:
        """The handles of all items; raises StartManyError when one has none."""
        seen: list[RunHandle | ApiError] = []
        handles: list[RunHandle] = []
        first: ApiError | None = None
        for result in results:
            if result.run_id is not None:
                started = handle(result.run_id, deduplicated=bool(result.deduplicated))
                handles.append(started)
                seen.append(started)
                continue
            info = result.error
            refused = (
                ApiError("unreadable", "the engine answered neither run nor error")
                if info is None
                else ApiError(info.code, info.message, from_json(bytes(info.details)))
            )
            first = first or refused
            seen.append(refused)
        if first is not None:
            raise StartManyError(seen, first)
        return handles
