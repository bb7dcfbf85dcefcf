"""The hot path: lanes of work, batches, transactions in flight, and what follows a commit.

Work for one run (or one key) shares a lane: it is applied in order and never by two transactions
at once. Batches are taken as they come, never waited for: while one commits, the next fills.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

import structlog

from towpath_engine.metrics import Metrics
from towpath_engine.services.apply import Applier
from towpath_engine.services.backoff import backoff_seconds
from towpath_engine.services.batch import BatchResult, WorkPoisonedError
from towpath_engine.services.work import Outcome, OutcomeKind, Work
from towpath_engine.store.errors import StatementTimedOut, StoreRejected, StoreUnavailable
from towpath_protocol.errors import ErrorCode

log = structlog.get_logger(__name__)

_RETRY_SECONDS = 0.1
_RETRY_SECONDS_MAX = 5.0


class Pipeline:
    """Takes work, applies it in batches and reports each outcome after its commit.

    `on_commit(result)` runs after each commit, before the outcomes are told: it publishes.
    `confirmed()` lends the ids of confirmed outbox rows to a transaction, which deletes them.
    """

    def __init__(
        self,
        *,
        applier: Applier,
        on_commit: Callable[[BatchResult], None],
        confirmed: Callable[[], AbstractContextManager[list[str]]],
        metrics: Metrics,
        batch_max: int,
        lane_max: int,
        transactions_max: int,
    ) -> None:
        self._applier = applier
        self._on_commit = on_commit
        self._confirmed = confirmed
        self._metrics = metrics
        self._batch_max = batch_max
        self._lane_max = lane_max
        self._transactions_max = transactions_max
        self._lanes: dict[str, deque[Work]] = {}
        self._ready: deque[str] = deque()
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._waiting = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def backlog(self) -> int:
        """Pieces of work that no transaction has taken yet."""
        return self._waiting

    def submit(self, work: Work) -> None:
        """Queue a piece of work; its `settle` is called exactly once, after its commit.

        Callers bound what they submit: the bus by its credit, the API by its concurrency, timers
        by their heap.
        """
        lane = self._lanes.get(work.lane)
        if lane is None:
            lane = self._lanes[work.lane] = deque()
            if work.lane not in self._busy:
                self._ready.append(work.lane)
        lane.append(work)
        self._waiting += 1
        self._idle.clear()
        self._schedule()

    async def drain(self) -> None:
        """Wait until everything submitted so far has been settled."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Cancel what is in flight: nothing is lost, messages come again, callers get no answer."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Taking batches

    def _schedule(self) -> None:
        if not self._scheduled and self._ready and len(self._tasks) < self._transactions_max:
            self._scheduled = True
            # After this turn of the event loop: what arrives together goes into one batch.
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        self._scheduled = False
        works: list[Work] = []
        lanes: list[str] = []
        while self._ready and len(works) < self._batch_max:
            name = self._ready.popleft()
            lane = self._lanes[name]
            room = min(self._batch_max - len(works), self._lane_max)
            works.extend(lane.popleft() for _ in range(min(room, len(lane))))
            lanes.append(name)
            self._busy.add(name)
            if not lane:
                del self._lanes[name]
        if not works:
            return
        self._waiting -= len(works)
        task = asyncio.get_running_loop().create_task(self._run(works, lanes))
        self._tasks.add(task)
        self._schedule()

    async def _run(self, works: list[Work], lanes: list[str]) -> None:
        try:
            await self._apply_all(works)
        finally:
            for name in lanes:
                self._busy.discard(name)
                if name in self._lanes:
                    self._ready.append(name)
            current = asyncio.current_task()
            if current is not None:
                self._tasks.discard(current)
            if not self._lanes and not self._tasks:
                self._idle.set()
            self._schedule()

    # Applying them

    async def _apply_all(self, works: list[Work]) -> None:
        """Apply until everything is settled: bisect what is rejected, or too much for a statement;
        retry what is unavailable."""
        stack: list[list[Work]] = [works]
        while stack:
            batch = stack.pop()
            try:
                again = await self._apply_with_retry(batch)
            except WorkPoisonedError as poisoned:
                self._settle(poisoned.work, poisoned.outcome)
                again = [work for work in batch if work is not poisoned.work]
            except Exception as error:
                too_large = isinstance(error, StatementTimedOut)
                # Whatever else goes wrong goes wrong again: find the culprit, let the others pass.
                if too_large:
                    log.warning("batch_too_large", works=len(batch), error=str(error))
                elif not isinstance(error, StoreRejected):
                    log.exception("batch_failed", works=len(batch))
                reason = "too_large" if too_large else "rejected"
                self._metrics.batches_retried.labels(reason=reason).inc()
                if len(batch) == 1:
                    self._settle_broken(batch[0], error)
                    continue
                middle = len(batch) // 2
                stack.append(batch[middle:])
                stack.append(batch[:middle])
                continue
            if again:
                stack.append(again)

    async def _apply_with_retry(self, works: list[Work]) -> list[Work]:
        failures = 0
        while True:
            for work in works:
                work.reset()
            try:
                with self._confirmed() as published, self._metrics.batch_seconds.time():
                    result = await self._applier.apply(works, published)
            except StoreUnavailable as error:
                failures += 1
                if isinstance(error, StatementTimedOut) and len(works) > 1:
                    raise
                if failures == 1:
                    log.warning("batch_postponed", works=len(works), error=str(error))
                self._metrics.batches_retried.labels(reason="unavailable").inc()
                await asyncio.sleep(
                    backoff_seconds(failures, initial=_RETRY_SECONDS, longest=_RETRY_SECONDS_MAX)
                )
                continue
            self._metrics.batch_events.observe(len(works))
            self._finish(result)
            return result.again

    def _finish(self, result: BatchResult) -> None:
        self._on_commit(result)
        for work, outcome in result.outcomes:
            self._settle(work, outcome)

    def _settle_broken(self, work: Work, error: Exception) -> None:
        log.error("work_rejected", run_id=work.run_id, error=str(error))
        self._settle(
            work,
            Outcome(
                kind=OutcomeKind.BROKEN,
                run_id=work.run_id,
                code=ErrorCode.POISON,
                message=str(error),
            ),
        )

    @staticmethod
    def _settle(work: Work, outcome: Outcome) -> None:
        work.settle(outcome)
