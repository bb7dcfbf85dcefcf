"""Child runs between their parents and themselves: started, cancelled, and their ends told.

Each message says only what is to be looked at; what is so is read from the rows of the two runs,
which are never changed in one transaction. Everything can be done again: a lost message is made up
for by the sweep, which looks at the same rows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, assert_never

import structlog

from towpath_engine.core.create import Parentage
from towpath_engine.core.definition import RunSpec
from towpath_engine.core.events import CancelRequested
from towpath_engine.core.events import ChildSettled as Settled
from towpath_engine.core.failures import CHILD_NOT_STARTED
from towpath_engine.core.model import Cause, Failure, Run, Step
from towpath_engine.core.paths import place_of, told_path
from towpath_engine.core.payloads import CHILD_CAUSE
from towpath_engine.core.states import SETTLED_RUN, RunStatus, StepStatus, WaitReason
from towpath_engine.services.backoff import backoff_seconds
from towpath_engine.services.shell import Shell
from towpath_engine.services.work import Outcome, OutcomeKind, StartSpec, Work
from towpath_engine.store.errors import StoreUnavailable
from towpath_engine.store.unfinished import AwaitedChild, OrphanedChild
from towpath_protocol import codec, subjects
from towpath_protocol.children import ChildCancel, ChildSettled, ChildStart
from towpath_protocol.errors import ErrorCode
from towpath_protocol.requests import OnConflict

log = structlog.get_logger(__name__)

ChildMessage = ChildStart | ChildCancel | ChildSettled
CHILD_MESSAGES: Final[Mapping[str, type[ChildMessage]]] = {
    subjects.InKind.CHILD_START: ChildStart,
    subjects.InKind.CHILD_CANCEL: ChildCancel,
    subjects.InKind.CHILD_SETTLED: ChildSettled,
}
"""Kind of the subject → the body."""
_AT_ONCE: Final = 8
"""Messages that are looked into at the same time: each holds a connection now and then."""
_RETRY_SECONDS: Final = 0.1
_RETRY_SECONDS_MAX: Final = 1.0
_NOT_ASKED_FOR: Final = "no step of its parent waits for it"


class Children:
    """`take` looks into a message and settles it once what follows from it is committed; `sweep`
    (in one engine for all) asks for what did not come."""

    def __init__(self, shell: Shell, *, leads: Callable[[], bool], page: int) -> None:
        self._shell = shell
        self._leads = leads
        self._page = page
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def take(
        self, place: subjects.InSubject, message: ChildMessage, settle: Callable[[Outcome], None]
    ) -> None:
        """Take a decoded message over; never blocks, never raises."""
        task = asyncio.get_running_loop().create_task(self._handle(place, message, settle))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Let go of what has not been settled: these messages come again."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def sweep(self) -> int:
        """Start children that are not there, tell ends that were not taken, and cancel those that
        nobody waits for. Returns how many were seen to. Raises StoreUnavailable."""
        count = 0
        place: tuple[str, str] | None = None
        while self._leads():
            page = await self._shell.store.unfinished.awaited_children(place, self._page)
            late = [row for row in page if not row.exists or row.settled or row.detached]
            count += await self._all([self._see_to(row) for row in late])
            if len(page) < self._page:
                break
            place = (page[-1].run_id, page[-1].path)
        last: str | None = None
        while self._leads():
            orphans = await self._shell.store.unfinished.orphaned_children(last, self._page)
            count += await self._all([self._end_orphan(row) for row in orphans])
            if len(orphans) < self._page:
                break
            last = orphans[-1].run_id
        if count:
            log.info("children_swept", count=count)
        return count

    async def _all(self, coroutines: Sequence[Awaitable[Outcome]]) -> int:
        """How many of them have changed something."""
        outcomes = await asyncio.gather(*(self._in_turn(one) for one in coroutines))
        return sum(one.kind is OutcomeKind.APPLIED for one in outcomes)

    async def _in_turn(self, one: Awaitable[Outcome]) -> Outcome:
        async with self._free:
            return await one

    # Messages

    async def _handle(
        self,
        place: subjects.InSubject,
        message: ChildMessage,
        settle: Callable[[Outcome], None],
    ) -> None:
        failures = 0
        while True:
            try:
                async with self._free:
                    outcome = await self._look_into(place, message)
                break
            except StoreUnavailable:
                failures += 1
                await asyncio.sleep(
                    backoff_seconds(failures, initial=_RETRY_SECONDS, longest=_RETRY_SECONDS_MAX)
                )
            except Exception as error:
                # A bug of ours, and the same every time.
                log.exception("message_failed", kind=place.kind)
                outcome = Outcome(
                    kind=OutcomeKind.BROKEN, code=ErrorCode.POISON, message=repr(error)
                )
                break
        settle(outcome)

    async def _look_into(self, place: subjects.InSubject, message: ChildMessage) -> Outcome:
        match message:
            case ChildStart():
                return await self._start(place.name, message.step, place.run_id)
            case ChildCancel():
                return await self._cancel(place.name, place.run_id, message)
            case ChildSettled():
                return await self._settled(place.run_id, place.name)
            case _:
                assert_never(message)

    async def _start(self, parent_id: str, path: str, child_id: str) -> Outcome:
        """Have the child be there, if the step waits for it."""
        parent = await self._shell.store.get_run(parent_id)
        if parent is None:
            return _unknown(parent_id)
        step = await self._shell.store.get_step(parent_id, path)
        if step is None or not _waits(step, child_id):
            return Outcome(kind=OutcomeKind.IGNORED, run_id=child_id)
        child = await self._shell.store.get_run(child_id)
        if child is None:
            refusal = await self._begin(parent, step, child_id)
            if refusal is not None:
                return await self._tell(parent_id, child_id, RunStatus.PENDING, failure=refusal)
            # It may have been given up meanwhile; whoever said so has found no child to cancel.
            step = await self._shell.store.get_step(parent_id, path)
            if step is None or not _waits(step, child_id):
                return await self._end(parent_id, child_id, _NOT_ASKED_FOR, compensate=None)
        elif child.parent_run_id != parent_id:
            return _strangers(parent_id, child_id)
        return await self._tell_start(parent, step, child)

    async def _tell_start(self, parent: Run, step: Step, child: Run | None) -> Outcome:
        """The child is there: that, or its end, may be what the step waits for. `child` None: it
        has just begun."""
        child_id = step.child_run_id
        assert child_id is not None, "the step has a child"
        if _spec(parent, step).detached:
            return await self._tell(parent.id, child_id, RunStatus.PENDING)
        if child is not None and child.status in SETTLED_RUN:
            return await self._tell_end(child)
        return Outcome(kind=OutcomeKind.APPLIED, run_id=child_id)

    async def _begin(self, parent: Run, step: Step, child_id: str) -> Failure | None:
        """Start the child. Why it can't be started; None: it is there."""
        spec = _spec(parent, step)
        start = StartSpec(
            run_id=child_id,
            workflow=spec.workflow,
            version=spec.version,
            input=parent.input if step.input is None else step.input,
            key=step.child_key,
            # So that two that start it at the same time start it once.
            request_id=f"child:{child_id}",
            priority=parent.priority,
            context=parent.context,
            triggered_by=parent.triggered_by,
            traceparent=parent.traceparent,
            on_conflict=OnConflict.REJECT,
            parent=_parentage(parent, step, spec),
        )
        reason = f"step {told_path(step.path)} of run {parent.id}"
        cause = Cause(type="start", kind="child", by=parent.triggered_by, reason=reason)
        outcome = await self._done(lambda settle: Work(settle=settle, start=start, cause=cause))
        if outcome.kind is OutcomeKind.APPLIED and outcome.run_id == child_id:
            return None
        if await self._shell.store.get_run(child_id) is not None:
            return None
        message = outcome.message or f"run {outcome.run_id} was started for the same request"
        details = {"workflow": spec.workflow, "code": outcome.code, "details": outcome.details}
        return Failure(
            type=CHILD_NOT_STARTED,
            message=f"no run of {spec.workflow} could be started: {message}",
            details=codec.dumps(details),
        )

    async def _cancel(self, parent_id: str, child_id: str, message: ChildCancel) -> Outcome:
        child = await self._shell.store.get_run(child_id)
        if child is None:
            # Then it will not be started either: its step is looked at before.
            known = await self._shell.store.get_run(parent_id) is not None
            kind = OutcomeKind.IGNORED
            return Outcome(kind=kind, run_id=child_id) if known else _unknown(child_id)
        if child.parent_run_id != parent_id:
            return _strangers(parent_id, child_id)
        path = child.parent_step or message.step
        step = await self._shell.store.get_step(parent_id, path)
        if step is not None and _waits(step, child_id):
            return Outcome(kind=OutcomeKind.IGNORED, run_id=child_id)
        if child.parent_step is None and not _gave_up(step, child_id):
            return Outcome(kind=OutcomeKind.IGNORED, run_id=child_id)
        return await self._end(parent_id, child_id, message.reason, compensate=message.compensate)

    async def _settled(self, parent_id: str, child_id: str) -> Outcome:
        child = await self._shell.store.get_run(child_id)
        if child is None:
            return _unknown(child_id)
        if child.parent_run_id != parent_id:
            return _strangers(parent_id, child_id)
        if child.status not in SETTLED_RUN or child.parent_step is None:
            return Outcome(kind=OutcomeKind.IGNORED, run_id=parent_id)
        return await self._tell_end(child)

    # What did not come

    async def _see_to(self, row: AwaitedChild) -> Outcome:
        return await self._start(row.run_id, row.path, row.child_run_id)

    async def _end_orphan(self, row: OrphanedChild) -> Outcome:
        step = await self._shell.store.get_step(row.parent_run_id, row.parent_step)
        if step is not None and _waits(step, row.run_id):
            return Outcome(kind=OutcomeKind.IGNORED, run_id=row.run_id)
        return await self._end(row.parent_run_id, row.run_id, _NOT_ASKED_FOR, compensate=None)

    # Telling the runs

    async def _tell_end(self, child: Run) -> Outcome:
        assert child.parent_run_id is not None, "a child has a parent"
        return await self._tell(
            child.parent_run_id, child.id, child.status, output=child.output, failure=child.error
        )

    async def _tell(
        self,
        parent_id: str,
        child_id: str,
        status: RunStatus,
        *,
        output: bytes | None = None,
        failure: Failure | None = None,
    ) -> Outcome:
        event = Settled(
            seed=self._shell.identity.new_seed(),
            cause=Cause(type=CHILD_CAUSE, kind=status.value),
            child_run_id=child_id,
            status=status,
            output=output,
            failure=failure,
        )
        return await self._done(lambda settle: Work(settle=settle, run_id=parent_id, event=event))

    async def _end(
        self, parent_id: str, child_id: str, reason: str, *, compensate: bool | None
    ) -> Outcome:
        """Cancel the child; one that has ended, or is about to, is left as it is."""
        by = f"run {parent_id}"
        event = CancelRequested(
            seed=self._shell.identity.new_seed(),
            cause=Cause(type="cancel", kind="parent", by=by, reason=reason),
            by=by,
            reason=reason,
            compensate=compensate,
        )
        outcome = await self._done(lambda settle: Work(settle=settle, run_id=child_id, event=event))
        if outcome.kind is OutcomeKind.REFUSED:
            return Outcome(kind=OutcomeKind.IGNORED, run_id=child_id)
        return outcome

    async def _done(self, make: Callable[[Callable[[Outcome], None]], Work]) -> Outcome:
        """What became of the work, once that is committed."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def settle(outcome: Outcome) -> None:
            if not done.done():
                done.set_result(outcome)

        self._shell.submit(make(settle))
        return await done


def _spec(parent: Run, step: Step) -> RunSpec:
    spec = parent.definition.steps[place_of(step.path)].spec
    assert isinstance(spec, RunSpec), "only a run step has a child"
    return spec


def _waits(step: Step, child_id: str) -> bool:
    is_waiting = step.status is StepStatus.WAITING and step.waiting_for is WaitReason.CHILD
    return is_waiting and step.child_run_id == child_id


def _gave_up(step: Step | None, child_id: str) -> bool:
    """Whether the step of a detached child was cancelled before it knew that the child is there."""
    if step is None:
        return False
    return step.status is StepStatus.CANCELLED and step.child_run_id == child_id


def _parentage(parent: Run, step: Step, spec: RunSpec) -> Parentage:
    if spec.detached:
        return Parentage(run_id=parent.id)
    return Parentage(
        run_id=parent.id, step=step.path, depth=parent.depth, deadline_at=parent.deadline_at
    )


def _unknown(run_id: str) -> Outcome:
    return Outcome(
        kind=OutcomeKind.UNKNOWN_RUN,
        code=ErrorCode.RUN_NOT_FOUND,
        message=f"there is no run {run_id}",
    )


def _strangers(parent_id: str, child_id: str) -> Outcome:
    return Outcome(
        kind=OutcomeKind.MISMATCH,
        run_id=child_id,
        code=ErrorCode.SUBJECT_MISMATCH,
        message=f"run {child_id} is no child of run {parent_id}",
    )
