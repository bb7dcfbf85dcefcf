"""What workers report. The fence is the token: a report with any other changes nothing."""

from typing import assert_never

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from towpath_engine.core import failures, outcomes
from towpath_engine.core.attempts import fail_attempt, release, repeat, start_clock
from towpath_engine.core.changes import Changes
from towpath_engine.core.dispatching import task_spec
from towpath_engine.core.effects import AppendLogs, Verdict
from towpath_engine.core.events import ReportReceived
from towpath_engine.core.expressions.interface import ExpressionFailed
from towpath_engine.core.instants import plus_ms
from towpath_engine.core.metadata import MetadataRefused, merged
from towpath_engine.core.model import Failure, Step
from towpath_engine.core.payloads import remember_report
from towpath_engine.core.retry import release_wait_ms
from towpath_engine.core.scope import Scope
from towpath_engine.core.states import StepStatus
from towpath_protocol.reports import (
    CustomEvent,
    LogLine,
    ReleaseReason,
    StepCompleted,
    StepFailed,
    StepHeartbeat,
    StepReleased,
    StepStarted,
)


def apply_report(changes: Changes, event: ReportReceived) -> Verdict:
    """Apply the report to the step whose live attempt it names; STALE when there is none."""
    step = changes.step_of_token(event.token)
    if step is None or step.queue != event.queue:
        return Verdict.STALE
    report = event.report
    remember_report(changes, report)
    match report:
        case StepStarted():
            start_clock(changes, step, report.worker_id)
            return Verdict.APPLIED
        case StepHeartbeat():
            _renew(changes, step, report)
            return Verdict.APPLIED
        case StepCompleted():
            _complete(changes, step, report)
            return Verdict.APPLIED
        case StepFailed():
            _keep_logs(changes, step, report.logs)
            if _announce_events(changes, step, report.events):
                fail_attempt(
                    changes,
                    replace(step, worker_id=report.worker_id or step.worker_id),
                    failures.from_wire(report.error),
                    retry_after_ms=report.error.retry_after_ms,
                )
            return Verdict.APPLIED
        case StepReleased():
            return _give_back(changes, step, report)
        case _:
            assert_never(report)


def _renew(changes: Changes, step: Step, report: StepHeartbeat) -> None:
    """A heartbeat is also the sign that the attempt runs; it alone renews the heartbeat timeout."""
    running = start_clock(changes, step, report.worker_id)
    heartbeat_ms = task_spec(changes.run, step).timeouts.heartbeat_ms
    renewed = running
    if heartbeat_ms is not None:
        until = plus_ms(changes.now, heartbeat_ms)
        renewed = replace(renewed, heartbeat_deadline_at=until)
    renewed = _with_progress(changes, renewed, report.progress)
    if renewed is not running:
        changes.put(renewed)


def _with_progress(changes: Changes, step: Step, progress: Raw | None) -> Step:
    """Keep the progress for the next attempt; one over the limit is left out, since it must not
    cost the attempt that still runs."""
    if progress is None or len(bytes(progress)) > changes.run.limits.progress_bytes_max:
        return step
    return replace(step, progress=bytes(progress))


def _complete(changes: Changes, step: Step, report: StepCompleted) -> None:
    _keep_logs(changes, step, report.logs)
    if not _announce_events(changes, step, report.events):
        return
    output = bytes(report.output)
    size_max = changes.run.limits.payload_bytes_max
    if len(output) > size_max:
        fail_attempt(changes, step, failures.too_large("the output", len(output), size_max))
        return
    if report.metadata is not None:
        try:
            metadata = merged(
                changes.run.metadata,
                bytes(report.metadata),
                bytes_max=changes.run.limits.metadata_bytes_max,
            )
        except MetadataRefused as refused:
            fail_attempt(changes, step, refused.failure)
            return
        changes.run = replace(changes.run, metadata=metadata)
    changes.revoke(step, reason=None)
    if report.again is not None:
        repeat(changes, step, output, report.again.after_ms)
        return
    named = replace(step, worker_id=report.worker_id or step.worker_id)
    try:
        wants_another = _wants_another(changes, named, output)
    except ExpressionFailed as failed:
        changes.remember(output=report.output)
        outcomes.fail(changes, named, failures.from_expression(failed))
        return
    if wants_another:
        changes.remember(output=report.output)
        repeat(changes, step, output, None)
    else:
        outcomes.complete(changes, named, output)


def _wants_another(changes: Changes, step: Step, output: bytes) -> bool:
    """Whether `while` of the step's repeat asks for another iteration. Raises ExpressionFailed."""
    rule = task_spec(changes.run, step).repeat
    if rule is None or rule.again_while is None:
        return False
    return rule.again_while.evaluate(Scope(changes, step, output=output))


def _give_back(changes: Changes, step: Step, report: StepReleased) -> Verdict:
    """Dispatch the attempt again, unless another worker runs it by now."""
    if (
        step.stage is StepStatus.RUNNING
        and step.worker_id is not None
        and report.worker_id != step.worker_id
    ):
        return Verdict.IGNORED
    _keep_logs(changes, step, report.logs)
    kept = _with_progress(changes, step, report.progress)
    count = step.release_count + 1
    if count >= changes.run.limits.releases_in_a_row_max:
        failure = Failure(
            type=failures.NOT_RUN,
            message=f"workers gave the attempt back {count} times in a row",
        )
        fail_attempt(changes, kept, failure)
        return Verdict.APPLIED
    changes.revoke(step, reason=None)
    wait_ms = release_wait_ms(
        count,
        after_ms=report.after_ms,
        unknown_task=report.reason is ReleaseReason.UNKNOWN_TASK,
    )
    release(changes, kept, wait_ms, report.reason.value)
    return Verdict.APPLIED


def _announce_events(changes: Changes, step: Step, events: tuple[CustomEvent, ...]) -> bool:
    """Announce the worker's own events; false when there were too many and the attempt failed."""
    count_max = changes.run.limits.events_per_report_max
    if len(events) > count_max:
        failure = Failure(
            type=failures.INVALID_OUTPUT,
            message=f"the report has {len(events)} events, the limit is {count_max}",
            retryable=False,
        )
        fail_attempt(changes, step, failure)
        return False
    for custom in events:
        changes.announce_custom(step, custom.name, custom.data)
    return True


def _keep_logs(changes: Changes, step: Step, logs: tuple[LogLine, ...]) -> None:
    if logs and step.token is not None:
        changes.emit(
            AppendLogs(
                path=step.path,
                attempt=step.attempt,
                token=step.token,
                lines=msgspec.json.encode(logs),
            )
        )
