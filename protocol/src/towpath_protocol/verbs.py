"""The table of all verbs of the API: what each takes and answers."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from towpath_protocol import operation_replies, operations, replies, requests


class Verb(Struct, frozen=True, kw_only=True):
    """A verb. Without `request` it is named by the protocol but not built: 422 `not_yet`."""

    request: type[Struct] | None = None
    reply: type[Struct] | None = None

    @property
    def built(self) -> bool:
        """Whether this version answers it."""
        return self.request is not None


_NOT_YET: Final = Verb()

VERBS: Final[Mapping[str, Verb]] = {
    "workflow.deploy": Verb(request=requests.DeployWorkflow, reply=replies.DeployedWorkflow),
    "workflow.list": Verb(request=requests.ListWorkflows, reply=replies.WorkflowList),
    "workflow.get": Verb(request=requests.GetWorkflow, reply=replies.WorkflowView),
    "workflow.pause": Verb(request=operations.PauseWorkflow, reply=operation_replies.PauseChanged),
    "workflow.resume": Verb(
        request=operations.ResumeWorkflow, reply=operation_replies.PauseChanged
    ),
    "workflow.retention": Verb(
        request=operations.SetRetention, reply=operation_replies.RetentionView
    ),
    "run.start": Verb(request=requests.StartRun, reply=replies.StartedRun),
    "run.start-many": Verb(request=requests.StartMany, reply=replies.StartManyResults),
    "run.signal": Verb(request=requests.SignalRun, reply=replies.SignalledRun),
    "run.signal-with-start": Verb(request=requests.SignalWithStart, reply=replies.SignalledStart),
    "run.cancel": Verb(request=requests.CancelRun, reply=replies.CancelledRun),
    "run.get": Verb(request=requests.GetRun, reply=replies.RunView),
    "run.output": Verb(request=requests.GetOutput, reply=replies.OutputPiece),
    "run.result": Verb(request=requests.GetResult, reply=replies.RunResult),
    "run.list": Verb(request=requests.ListRuns, reply=replies.RunList),
    "run.history": Verb(request=requests.GetHistory, reply=replies.RunHistory),
    "run.logs": Verb(request=requests.GetLogs, reply=replies.RunLogs),
    "run.explain": Verb(request=operations.ExplainRun, reply=operation_replies.RunExplanation),
    "run.retry": Verb(request=operations.RetryRun, reply=operation_replies.RetriedRun),
    "run.restart": Verb(request=operations.RestartRun, reply=operation_replies.RestartedRun),
    "run.redrive": Verb(request=operations.RedriveRun, reply=operation_replies.RetriedRun),
    "run.pause": Verb(request=operations.PauseRun, reply=operation_replies.PausedRun),
    "run.resume": Verb(request=operations.ResumeRun, reply=operation_replies.PausedRun),
    "run.purge": Verb(request=operations.PurgeRuns, reply=operation_replies.PurgedRuns),
    "schedule.put": _NOT_YET,
    "schedule.list": _NOT_YET,
    "schedule.pause": _NOT_YET,
    "schedule.resume": _NOT_YET,
    "schedule.trigger": _NOT_YET,
    "schedule.delete": _NOT_YET,
    "queue.list": Verb(request=operations.ListQueues, reply=operation_replies.QueueList),
    "queue.pause": Verb(request=operations.PauseQueue, reply=operation_replies.PauseChanged),
    "queue.resume": Verb(request=operations.ResumeQueue, reply=operation_replies.PauseChanged),
    "task.pause": Verb(request=operations.PauseTask, reply=operation_replies.PauseChanged),
    "task.resume": Verb(request=operations.ResumeTask, reply=operation_replies.PauseChanged),
    "pause.list": Verb(request=operations.ListPauses, reply=operation_replies.PauseList),
    "worker.list": Verb(request=operations.ListWorkers, reply=operation_replies.WorkerList),
    "dead-letter.list": Verb(request=requests.ListDeadLetters, reply=replies.DeadLetterList),
    "dead-letter.get": Verb(request=operations.GetDeadLetter, reply=replies.DeadLetterView),
    "dead-letter.discard": Verb(
        request=operations.DiscardDeadLetters, reply=operation_replies.DiscardedDeadLetters
    ),
    "dead-letter.replay": Verb(
        request=operations.ReplayDeadLetters, reply=operation_replies.ReplayedDeadLetters
    ),
}
"""Verb → what it takes and answers. A verb that is not here is answered 404 `unknown_verb`."""
