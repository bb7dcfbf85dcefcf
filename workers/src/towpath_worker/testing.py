"""Run one task as the engine would, without NATS: for the tests of the people who write tasks.

outcome = await run_task(worker, "inventory.reserve", {"sku": "A-1"}, attempt=2)
assert outcome.output == {"reserved": True}
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence

from msgspec import Raw, Struct
from msgspec.structs import replace

from towpath_protocol.dispatch import CompensationOf, StepDispatch
from towpath_protocol.failures import Failure
from towpath_worker import capture
from towpath_worker.clock import wall_text
from towpath_worker.context import Compensation, Context, ContextNotes
from towpath_worker.execution import Execution
from towpath_worker.options import WorkerOptions
from towpath_worker.outcomes import Again, Completed, Failed, Outcome
from towpath_worker.processes import TaskProcesses, check_importable
from towpath_worker.signatures import RunIn, Task
from towpath_worker.threads import TaskThreads
from towpath_worker.values import Json, from_json, to_json
from towpath_worker.worker import Worker


class TaskOutcome(Struct, frozen=True, kw_only=True):
    """What the engine would have been told.

    `completed`: `output` and perhaps `again`; else the failure's `error_type`, `message`,
    `retryable`, `retry_after_ms`, `details`. `metadata` is the patch, `heartbeats` counts them,
    `progress` is the last one, `logs` are the messages, `events` the (name, data) that it emitted.
    """

    completed: bool = False
    output: Json = None
    again: Again | None = None
    error_type: str | None = None
    message: str | None = None
    retryable: bool | None = None
    retry_after_ms: int | None = None
    details: Json = None
    metadata: Json = None
    heartbeats: int = 0
    progress: Json = None
    logs: Sequence[str] = ()
    events: Sequence[tuple[str, Json]] = ()


async def run_task(  # noqa: PLR0913 -- the facts of a dispatch, by keyword
    worker: Worker,
    name: str,
    input: object = None,  # noqa: A002 -- the word of the wire
    *,
    attempt: int = 1,
    max_attempts: int = 3,
    iteration: int = 0,
    key: str | None = None,
    context: Mapping[str, object] | None = None,
    metadata: Mapping[str, object] | None = None,
    last_error: Failure | None = None,
    last_progress: object = None,
    compensation: Compensation | None = None,
    state: object = None,
    still_mine: bool = True,
) -> TaskOutcome:
    """Run the task `name` of `worker` once.

    `state` is what `context.state` gives (no lifespan is opened), `still_mine` what the engine
    would answer; with `compensation` the task is run to undo what that says. Raises LookupError
    when the worker has no such task, InvalidValueError when a value is no JSON, TaskTypeError for a
    process task that a process would not find.
    """
    task = worker.registry.get(name)
    if task is None:
        raise LookupError(f"the worker has no task {name!r}; it has {worker.registry.names}")
    run_id = str(uuid.uuid4())
    dispatch = StepDispatch(
        run_id=run_id,
        workflow="test",
        version=1,
        step="step",
        queue=worker.queue,
        token="test-token",  # noqa: S106 -- a fencing token
        idempotency_key=f"{run_id}/step/{iteration}",
        dispatched_at=wall_text(),
        attempt_timeout_ms=300_000,
        reply="test.in",
        task=name,
        attempt=attempt,
        max_attempts=max_attempts,
        iteration=iteration,
        key=key,
        input=_raw(input),
        context=_raw(context or {}),
        metadata=_raw(metadata or {}),
        last_error=last_error,
        last_progress=_raw(last_progress),
        compensation=_undone(compensation),
    )
    heartbeats: list[None] = []

    async def answer(_timeout_seconds: float) -> bool:
        return still_mine

    ctx = Context[object](
        dispatch,
        options=worker.options,
        loop=asyncio.get_running_loop(),
        on_heartbeat=lambda: heartbeats.append(None),
        state=state,
        still_mine=answer,
    )
    outcome = await _attempt(task, ctx, worker.options)
    await asyncio.sleep(0)  # a heartbeat of a thread arrives through the loop
    return _outcome(outcome, ctx.taken(), heartbeat_count=len(heartbeats))


async def _attempt(task: Task, ctx: Context[object], options: WorkerOptions) -> Outcome:
    if task.run_in is RunIn.PROCESS:
        check_importable(task)
    threads = TaskThreads()
    processes = TaskProcesses(threads, options)
    capture.install(echoes=False)
    try:
        execution = Execution(threads, options, processes)
        return await execution.run(task, ctx, bytes(ctx.dispatch.input))
    finally:
        capture.uninstall()
        processes.close()
        threads.close()


def _outcome(outcome: Outcome, notes: ContextNotes, *, heartbeat_count: int) -> TaskOutcome:
    common = TaskOutcome(
        completed=isinstance(outcome, Completed),
        metadata=_value(notes.metadata),
        heartbeats=heartbeat_count,
        progress=_value(notes.progress),
        events=tuple((event.name, _value(bytes(event.data))) for event in notes.events),
        logs=tuple(line.message for line in notes.log.lines()),
    )
    match outcome:
        case Completed():
            return replace(common, output=_value(outcome.output), again=outcome.again)
        case Failed():
            return replace(
                common,
                error_type=outcome.type,
                message=outcome.message,
                retryable=outcome.retryable,
                retry_after_ms=outcome.retry_after_ms,
                details=_value(outcome.details),
            )
        case _:
            return common


def _undone(compensation: Compensation | None) -> CompensationOf | None:
    if compensation is None:
        return None
    error = compensation.error
    return CompensationOf(
        step=compensation.step,
        output=_raw(compensation.output),
        error=None if error is None else _raw(dict(error)),
    )


def _raw(value: object) -> Raw:
    return Raw(to_json(value, bytes_max=1 << 20, field="value"))


def _value(text: bytes | None) -> Json:
    return None if text is None else from_json(text)
