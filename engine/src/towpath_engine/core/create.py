"""A new run, as a start request makes it. It is pending until `decide` gets its RunBegun."""

from datetime import datetime

from msgspec import Struct

from towpath_engine.core.definition import Definition
from towpath_engine.core.limits import CoreLimits
from towpath_engine.core.model import Run


class Parentage(Struct, frozen=True, kw_only=True):
    """Whose child a run is. `step` is the path of the step that waits for its end, `depth` and
    `deadline_at` are those of the parent; a detached child has none of them."""

    run_id: str
    step: str | None = None
    depth: int = -1
    deadline_at: datetime | None = None


def new_run(  # noqa: PLR0913 - one keyword per fact of a start request
    *,
    run_id: str,
    definition: Definition,
    workflow_version: int,
    limits: CoreLimits,
    now: datetime,
    input: bytes = b"null",  # noqa: A002 - the wire's word for it
    key: str | None = None,
    request_id: str | None = None,
    priority: int | None = None,
    tags: tuple[str, ...] = (),
    context: bytes = b"{}",
    start_at: datetime | None = None,
    triggered_by: str | None = None,
    traceparent: str | None = None,
    restarted_from: str | None = None,
    parent: Parentage | None = None,
) -> Run:
    """The run of a checked start request: `run_id` is a new UUIDv7, `now` the one clock's time.

    `input` and `context` are JSON text. `priority` is a level, 0 to 3; None: the definition's.
    The definition's tags come before those of the start, each once. `start_at` is the instant of
    a delayed start; one in the past begins at once.
    """
    return Run(
        id=run_id,
        workflow=definition.workflow,
        workflow_version=workflow_version,
        definition=definition,
        limits=limits,
        key=key,
        request_id=request_id,
        priority=definition.priority if priority is None else priority,
        tags=tuple(dict.fromkeys((*definition.tags, *tags))),
        input=input,
        context=context,
        triggered_by=triggered_by,
        traceparent=traceparent,
        restarted_from=restarted_from,
        parent_run_id=None if parent is None else parent.run_id,
        parent_step=None if parent is None else parent.step,
        depth=0 if parent is None else parent.depth + 1,
        deadline_at=None if parent is None else parent.deadline_at,
        created_at=now,
        start_at=start_at,
    )
