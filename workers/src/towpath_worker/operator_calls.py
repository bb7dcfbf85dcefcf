"""What an operator asks of a whole installation: workflows, queues, tasks, workers, dead letters.

`Client` inherits these; they stand apart because programs that start runs need none of them.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from msgspec import UNSET

from towpath_protocol import operation_replies, operations, replies, requests
from towpath_protocol.operations import LETTERS_MAX
from towpath_protocol.times import format_instant
from towpath_worker.calls import ApiCaller

Changed = operation_replies.PauseChanged


class OperatorCalls:
    """Requests about an installation. All raise what every call raises."""

    def __init__(self, caller: ApiCaller, *, by: str | None) -> None:
        self._caller = caller
        self._by = by

    # Workflows

    async def workflows(self) -> Sequence[replies.WorkflowSummary]:
        """The newest version of every workflow, by name."""
        request = requests.ListWorkflows()
        return (await self._caller.call("workflow.list", request, replies.WorkflowList)).workflows

    async def workflow(self, name: str, *, version: int | None = None) -> replies.WorkflowView:
        """A workflow with its document. NotFoundError: `workflow_not_found`,
        `version_not_found`."""
        request = requests.GetWorkflow(workflow=name, version=version)
        return await self._caller.call("workflow.get", request, replies.WorkflowView)

    async def pause_workflow(
        self,
        name: str,
        *,
        version: int | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Changed:
        """Dispatch nothing new of the workflow's runs, of all versions or of one."""
        request = operations.PauseWorkflow(
            workflow=name, version=version, by=by or self._by, reason=reason
        )
        return await self._caller.call("workflow.pause", request, Changed)

    async def resume_workflow(
        self,
        name: str,
        *,
        version: int | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Changed:
        """Lift exactly the pause that `pause_workflow` made with the same name and version."""
        request = operations.ResumeWorkflow(
            workflow=name, version=version, by=by or self._by, reason=reason
        )
        return await self._caller.call("workflow.resume", request, Changed)

    async def set_retention(
        self,
        name: str,
        keep: timedelta | None,
        *,
        by: str | None = None,
        reason: str | None = None,
    ) -> operation_replies.RetentionView:
        """Keep settled runs of the workflow for so long; None: as the engine's setting says."""
        retention_ms = None if keep is None else round(keep.total_seconds() * 1000)
        request = operations.SetRetention(
            workflow=name, retention_ms=retention_ms, by=by or self._by, reason=reason
        )
        return await self._caller.call(
            "workflow.retention", request, operation_replies.RetentionView
        )

    # Queues, tasks, pauses

    async def queues(self) -> Sequence[operation_replies.QueueView]:
        """All queues by name: what waits, what is with workers, who pulls."""
        request = operations.ListQueues()
        reply = await self._caller.call("queue.list", request, operation_replies.QueueList)
        return reply.queues

    async def pause_queue(
        self, name: str, *, by: str | None = None, reason: str | None = None
    ) -> Changed:
        """Dispatch nothing new to the queue. NotFoundError: `queue_not_found`."""
        request = operations.PauseQueue(queue=name, by=by or self._by, reason=reason)
        return await self._caller.call("queue.pause", request, Changed)

    async def resume_queue(
        self, name: str, *, by: str | None = None, reason: str | None = None
    ) -> Changed:
        """Lift the pause of the queue."""
        request = operations.ResumeQueue(queue=name, by=by or self._by, reason=reason)
        return await self._caller.call("queue.resume", request, Changed)

    async def pause_task(
        self, name: str, *, by: str | None = None, reason: str | None = None
    ) -> Changed:
        """Dispatch no step of this task, whatever its workflow and queue."""
        request = operations.PauseTask(task=name, by=by or self._by, reason=reason)
        return await self._caller.call("task.pause", request, Changed)

    async def resume_task(
        self, name: str, *, by: str | None = None, reason: str | None = None
    ) -> Changed:
        """Lift the pause of the task."""
        request = operations.ResumeTask(task=name, by=by or self._by, reason=reason)
        return await self._caller.call("task.resume", request, Changed)

    async def pauses(self) -> Sequence[operation_replies.PauseView]:
        """The pauses of workflows, versions, queues and tasks. A run's own is in its `get`."""
        found: list[operation_replies.PauseView] = []
        cursor: str | None = None
        while True:
            request = operations.ListPauses(cursor=cursor)
            page = await self._caller.call("pause.list", request, operation_replies.PauseList)
            found += page.pauses
            if page.next_cursor is UNSET:
                return found
            cursor = page.next_cursor

    async def workers(
        self, queue: str | None = None
    ) -> AsyncIterator[operation_replies.WorkerView]:
        """The workers by queue and id, as their heartbeats said; of one queue or of all."""
        cursor: str | None = None
        while True:
            request = operations.ListWorkers(queue=queue, cursor=cursor)
            page = await self._caller.call("worker.list", request, operation_replies.WorkerList)
            for worker in page.workers:
                yield worker
            cursor = page.next_cursor
            if cursor is None:
                return

    # Dead letters

    async def dead_letters(self) -> AsyncIterator[replies.DeadLetterView]:
        """The messages that could not be decoded, placed or applied, newest first."""
        cursor: str | None = None
        while True:
            page = await self.dead_letters_page(cursor=cursor)
            for letter in page.dead_letters:
                yield letter
            cursor = page.next_cursor
            if cursor is None:
                return

    async def dead_letters_page(
        self, *, cursor: str | None = None, limit: int = 100
    ) -> replies.DeadLetterList:
        """A page of the dead letters, newest first."""
        request = requests.ListDeadLetters(cursor=cursor, limit=limit)
        return await self._caller.call("dead-letter.list", request, replies.DeadLetterList)

    async def dead_letter(self, letter_id: str) -> replies.DeadLetterView:
        """One dead letter with its whole body. NotFoundError: `dead_letter_not_found`."""
        request = operations.GetDeadLetter(id=letter_id)
        return await self._caller.call("dead-letter.get", request, replies.DeadLetterView)

    async def discard_dead_letters(
        self, letter_ids: Sequence[str], *, by: str | None = None, reason: str | None = None
    ) -> int:
        """Delete these; how many there were. Any number of ids, in several requests."""
        discarded = 0
        for ids in _lots(letter_ids):
            request = operations.DiscardDeadLetters(ids=ids, by=by or self._by, reason=reason)
            reply = await self._caller.call(
                "dead-letter.discard", request, operation_replies.DiscardedDeadLetters
            )
            discarded += reply.discarded
        return discarded

    async def replay_dead_letters(
        self, letter_ids: Sequence[str], *, by: str | None = None, reason: str | None = None
    ) -> Sequence[operation_replies.ReplayedDeadLetter]:
        """Handle these messages again, as if they came now; what became of each, in order.

        One that is applied is deleted, one that fails again stays. Any number of ids, in several
        requests; when one of these fails, the earlier ones were done.
        """
        results: list[operation_replies.ReplayedDeadLetter] = []
        for ids in _lots(letter_ids):
            request = operations.ReplayDeadLetters(ids=ids, by=by or self._by, reason=reason)
            reply = await self._caller.call(
                "dead-letter.replay", request, operation_replies.ReplayedDeadLetters
            )
            results.extend(reply.results)
        return results

    # Settled runs

    async def purge(
        self,
        workflow: str | None = None,
        *,
        settled_before: datetime | None = None,
        run_id: str | None = None,
        limit: int = 1_000,
        dry_run: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> operation_replies.PurgedRuns:
        """Delete the settled run `run_id`, or at most `limit` of the workflow's runs that settled
        before an instant, the oldest first; `more` says whether to call again. ConflictError:
        `run_not_settled`. ValueError for an instant without a time zone, or no choice of runs."""
        request = operations.PurgeRuns(
            run_id=run_id,
            workflow=workflow,
            settled_before=None if settled_before is None else format_instant(settled_before),
            limit=limit,
            dry_run=dry_run,
            by=by or self._by,
            reason=reason,
        )
        return await self._caller.call("run.purge", request, operation_replies.PurgedRuns)


def _lots(letter_ids: Sequence[str]) -> list[tuple[str, ...]]:
    """As many ids as one request may have, in order."""
    return [
        tuple(letter_ids[start : start + LETTERS_MAX])
        for start in range(0, len(letter_ids), LETTERS_MAX)
    ]
