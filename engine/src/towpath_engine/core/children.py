"""Child runs: started, awaited, and what becomes of their step."""

from towpath_engine.core import failures
from towpath_engine.core.changes import Changes
from towpath_engine.core.definition import RunSpec
from towpath_engine.core.effects import Verdict
from towpath_engine.core.events import ChildSettled
from towpath_engine.core.model import Failure, Step
from towpath_engine.core.settling import fail_step


def begin(changes: Changes, step: Step, spec: RunSpec) -> None:
    """Ask for the child run, and wait for its end unless it is detached."""
    failure = Failure(type=failures.NOT_RUN, message=f"no run of {spec.workflow} can be started")
    fail_step(changes, step, failure)


def settled(changes: Changes, event: ChildSettled) -> Verdict:  # noqa: ARG001
    """The child run has settled: so does the step that waits for it."""
    return Verdict.STALE
