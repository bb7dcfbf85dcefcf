"""The requests that read one run; what a handle and the followers of a run stand on."""

from collections.abc import AsyncIterator
from typing import Final

from towpath_protocol import operation_replies, operations, replies, requests
from towpath_protocol.shapes import PAGE_MAX, WAIT_MS_MAX
from towpath_worker.calls import ANSWER_SECONDS, ApiCaller
from towpath_worker.clock import now_ms

SETTLED: Final = frozenset({
    "completed", "failed", "cancelled", "timed_out", "compensated", "compensation_failed",
})  # fmt: skip
"""The statuses of a run that has settled. Only an operator's retry or redrive ends one."""


class RunReader:
    """Reads runs through one caller. Every method raises what every call raises."""

    def __init__(self, caller: ApiCaller) -> None:
        self.caller = caller

    async def get(
        self,
        run_id: str,
        *,
        steps: bool = True,
        inner: bool = True,
        under: str | None = None,
        steps_cursor: str | None = None,
    ) -> replies.RunView:
        """run.get"""
        request = requests.GetRun(
            run_id=run_id, steps=steps, inner=inner, under=under, steps_cursor=steps_cursor
        )
        return await self.caller.call("run.get", request, replies.RunView)

    async def history(
        self, run_id: str, *, after_seq: int, limit: int = PAGE_MAX, payloads: bool = False
    ) -> replies.RunHistory:
        """run.history"""
        request = requests.GetHistory(
            run_id=run_id, after_seq=after_seq, limit=limit, payloads=payloads
        )
        return await self.caller.call("run.history", request, replies.RunHistory)

    async def transitions(
        self, run_id: str, *, after_seq: int = 0, payloads: bool = False
    ) -> AsyncIterator[replies.TransitionView]:
        """All transitions after `after_seq` that there are now, in order."""
        after: int | None = after_seq
        while after is not None:
            page = await self.history(run_id, after_seq=after, payloads=payloads)
            for transition in page.transitions:
                yield transition
            after = page.next_after_seq

    async def logs(
        self, run_id: str, *, step: str | None, after: int, limit: int = 100
    ) -> replies.RunLogs:
        """run.logs"""
        request = requests.GetLogs(run_id=run_id, step=step, after=after, limit=limit)
        return await self.caller.call("run.logs", request, replies.RunLogs)

    async def explain(self, run_id: str) -> operation_replies.RunExplanation:
        """run.explain"""
        request = operations.ExplainRun(run_id=run_id)
        return await self.caller.call("run.explain", request, operation_replies.RunExplanation)

    async def settled(self, run_id: str, timeout_seconds: float | None) -> replies.RunResult:
        """Wait until the run has settled. Raises TimeoutError when it has not in time."""
        ends_ms = None if timeout_seconds is None else now_ms() + round(timeout_seconds * 1000)
        while True:
            left_ms = WAIT_MS_MAX if ends_ms is None else ends_ms - now_ms()
            wait_ms = max(0, min(WAIT_MS_MAX, left_ms))
            answer_seconds = wait_ms / 1000 + ANSWER_SECONDS
            result = await self.caller.call(
                "run.result",
                requests.GetResult(run_id=run_id, wait_ms=wait_ms),
                replies.RunResult,
                timeout_seconds=max(self.caller.timeout_seconds, answer_seconds),
                answer_seconds=answer_seconds,
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
            piece = await self.caller.call(
                "run.output",
                requests.GetOutput(run_id=run_id, step=step, offset=offset),
                replies.OutputPiece,
            )
            if piece.text is None:
                return None
            pieces.append(piece.text)
            offset = piece.next_offset
        return "".join(pieces).encode()
