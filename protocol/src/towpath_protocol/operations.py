"""Requests of operators (PROTOCOL.md, "Operating"): explain, retry, pause, dead letters, purge.

As in `towpath_protocol.requests`, a request checks itself when it is built or decoded and raises
ProtocolError naming the field. Every request that changes something may say who (`by`) and why
(`reason`); both are kept in the history.
"""

from typing import Annotated

from msgspec import Meta, Struct

from towpath_protocol.errors import ErrorCode, ProtocolError
from towpath_protocol.failures import DurationMs
from towpath_protocol.ids import Name, RunIdText, TaskName, VersionNumber
from towpath_protocol.raw import OptionalRaw
from towpath_protocol.shapes import MessageId, PageLimit, StepPath, Text
from towpath_protocol.times import parse_instant

LETTERS_MAX = 100
"""Dead letters that one request may discard or replay."""
PURGE_MAX = 10_000
"""Runs that one run.purge may delete."""

LetterId = Annotated[str, Meta(min_length=36, max_length=36)]
LetterIds = Annotated[tuple[LetterId, ...], Meta(min_length=1, max_length=LETTERS_MAX)]


class ExplainRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.explain: what the run waits for, and when it wakes."""

    run_id: RunIdText


class RetryRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.retry: go on from the failed step(s) with a fresh budget and deadline.

    `input` replaces the input of the failed step; `step` says of which when several failed.
    `dry_run` changes nothing and answers what would be done. A repeat with the same `request_id`
    does nothing.
    """

    run_id: RunIdText
    step: StepPath | None = None
    input: OptionalRaw = None
    dry_run: bool = False
    request_id: MessageId | None = None
    by: Text | None = None
    reason: Text | None = None


class RestartRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.restart: a new run with what the settled one was started with. `version` None: the
    version that it had."""

    run_id: RunIdText
    version: VersionNumber | None = None
    request_id: MessageId | None = None
    by: Text | None = None
    reason: Text | None = None


class RedriveRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.redrive: as run.retry, but from `step`, which is done again with all after it."""

    run_id: RunIdText
    step: StepPath
    input: OptionalRaw = None
    dry_run: bool = False
    request_id: MessageId | None = None
    by: Text | None = None
    reason: Text | None = None


class PauseRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.pause: nothing new of the run is dispatched; running attempts finish, timers go on."""

    run_id: RunIdText
    by: Text | None = None
    reason: Text | None = None


class ResumeRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.resume."""

    run_id: RunIdText
    by: Text | None = None
    reason: Text | None = None


class PauseWorkflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """workflow.pause, of all versions or of one."""

    workflow: Name
    version: VersionNumber | None = None
    by: Text | None = None
    reason: Text | None = None


class ResumeWorkflow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """workflow.resume: lifts exactly the pause that workflow.pause made with the same fields."""

    workflow: Name
    version: VersionNumber | None = None
    by: Text | None = None
    reason: Text | None = None


class PauseQueue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """queue.pause: nothing new is dispatched to the queue."""

    queue: Name
    by: Text | None = None
    reason: Text | None = None


class ResumeQueue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """queue.resume."""

    queue: Name
    by: Text | None = None
    reason: Text | None = None


class PauseTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """task.pause: no step of this task is dispatched, whatever its workflow and queue."""

    task: TaskName
    by: Text | None = None
    reason: Text | None = None


class ResumeTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """task.resume."""

    task: TaskName
    by: Text | None = None
    reason: Text | None = None


class ListPauses(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """pause.list: the pauses of workflows, versions, queues and tasks (run.get has a run's), as
    many as fit into one answer."""

    cursor: Annotated[str, Meta(max_length=1_024)] | None = None


class ListQueues(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """queue.list, by name."""


class ListWorkers(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """worker.list: workers by queue and id, as their heartbeats said; of one queue or of all."""

    queue: Name | None = None
    cursor: Annotated[str, Meta(max_length=1_024)] | None = None
    limit: PageLimit = 100


class GetDeadLetter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """dead-letter.get: one letter with its whole body."""

    id: LetterId


class DiscardDeadLetters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """dead-letter.discard: delete these; ids that are not there are no error."""

    ids: LetterIds
    by: Text | None = None
    reason: Text | None = None


class ReplayDeadLetters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """dead-letter.replay: handle these messages again, as if they came now. One that is applied
    (or turns out to be stale or a repeat) is deleted; one that fails again stays."""

    ids: LetterIds
    by: Text | None = None
    reason: Text | None = None


class SetRetention(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """workflow.retention: keep settled runs of the workflow for `retention_ms`; None: as the
    engine's setting says."""

    workflow: Name
    retention_ms: DurationMs | None = None
    by: Text | None = None
    reason: Text | None = None


class PurgeRuns(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """run.purge: delete settled runs with all that belongs to them, at most `limit` of them.

    Either `run_id`, or `workflow` and `settled_before`: the oldest first.
    """

    run_id: RunIdText | None = None
    workflow: Name | None = None
    settled_before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=PURGE_MAX)] = 1_000
    dry_run: bool = False
    by: Text | None = None
    reason: Text | None = None

    def __post_init__(self) -> None:
        by_age = (self.workflow is not None, self.settled_before is not None)
        if (self.run_id is not None) == any(by_age) or by_age[0] != by_age[1]:
            raise ProtocolError(
                ErrorCode.MALFORMED,
                "says not which runs",
                field="run_id",
                fix="give run_id, or workflow and settled_before",
            )
        if self.settled_before is not None:
            parse_instant(self.settled_before, "settled_before")
