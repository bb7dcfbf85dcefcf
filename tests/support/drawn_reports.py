"""What workers report in a made-up history: drawn, but the same for the same attempt."""

import hashlib

from tests.support.builders import raw
from towpath_engine.core.model import Step
from towpath_engine.core.states import StepStatus
from towpath_protocol.failures import Failure
from towpath_protocol.reports import (
    Again,
    CustomEvent,
    ReleaseReason,
    Report,
    StepCompleted,
    StepFailed,
    StepHeartbeat,
    StepReleased,
    StepStarted,
)


def reports_of(step: Step, choice: int, salt: str, *, harmless: bool) -> list[Report]:
    """What a worker sends for an attempt. Its outcome depends on the attempt alone, the signs of
    life around it on `choice`."""
    worker = f"w{choice % 3}"
    reports: list[Report] = []
    if choice % 2:
        reports.append(StepStarted(worker_id=worker))
    if choice % 3 == 1:
        reports.append(StepHeartbeat(worker_id=worker, n=choice, progress=raw(choice)))
    if choice % 7 >= 5:
        reason = tuple(ReleaseReason)[choice % 3]
        reports.append(StepReleased(worker_id=worker, reason=reason))
    elif choice % 11 != 10 or harmless:
        reports.append(_outcome_of(step, worker, salt))
    return reports


def _outcome_of(step: Step, worker: str, salt: str) -> Report:
    is_undo = step.status is StepStatus.COMPENSATING
    identity = f"{step.path}/{step.visit}/{step.iteration}/{step.attempt}"
    if is_undo:
        identity += "/undo"
    if step.revival_count:
        # An operator who has a step go on has mended what failed, now and then.
        identity += f"/{step.revival_count}"
    digest = hashlib.blake2b((salt + identity).encode(), digest_size=2).digest()
    chance = digest[0] % 16
    events = (CustomEvent(name="seen", data=raw(identity)),) if chance in (0, 3, 6, 7, 8) else ()
    match chance:
        case 1 | 2:
            error = Failure(type="Boom", message="it failed", retryable=chance == 1)
            return StepFailed(worker_id=worker, error=error)
        case 3:
            error = Failure(type="Never", message="it failed", retry_after_ms=0)
            return StepFailed(worker_id=worker, error=error, events=events)
        case 4 | 5:
            again_in = Again(after_ms=(None, 0, 1_500)[digest[1] % 3])
            return StepCompleted(worker_id=worker, output=raw(identity), again=again_in)
        case _:
            patch = raw({"last": step.path, "n": step.visit})
            return StepCompleted(
                worker_id=worker, output=raw(identity), metadata=patch, events=events
            )
