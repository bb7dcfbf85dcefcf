"""Replies to operators (PROTOCOL.md, "Operating"). Instants are RFC 3339 texts in UTC."""

from msgspec import UNSET, Struct, UnsetType

from towpath_protocol.errors import ErrorInfo


class ReasonView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reason that keeps a run alive.

    `kind`: `start` (delayed start) · `continuation` · `ready` (held back: `held_by` says by what) ·
    `dispatch` (queued) · `attempt` (running) · `instant` (delay, sleep, backoff, repeat, release) ·
    `signal` · `child` (its end) · `pause` (of the run itself). `text` is the sentence for a person;
    the other fields are its parts, absent where they do not apply.
    """

    kind: str
    text: str
    step: str | None = None
    since: str | None = None
    """When this state began."""
    wake_at: str | None = None
    """When the run goes on by itself at the latest; absent: only a message wakes it."""
    waiting_for: str | None = None
    signal: str | None = None
    """Several are joined by commas."""
    child_run_id: str | None = None
    queue: str | None = None
    task: str | None = None
    attempt: int | None = None
    ahead: int | None = None
    """Undone dispatches of the queue that come before this one, or steps held back before it."""
    held_by: str | None = None
    """`run`, `workflow`, `version`, `task`, `queue` (paused), or `window` (the queue is full)."""
    worker_id: str | None = None
    last_heartbeat_at: str | None = None
    nobody_pulls_since: str | None = None
    """Present when no worker pulls from the queue: since when, as far as the engine knows."""
    last_error: str | None = None
    """Type and message of the failure that the step is recovering from."""
    dead_letter_id: str | None = None
    """A report of this step could not be applied and is kept as this dead letter."""
    unknown_task: bool = False
    """Workers take from the queue, and none of them has the task."""
    release_count: int | None = None
    """How often in a row workers gave the attempt back."""


class KeptSignalView(Struct, frozen=True, kw_only=True):
    """Signals of one name that a run keeps: how many, when the newest came, and the steps of the
    workflow (at most 10) that wait for such a signal at some time. None: nobody ever takes them."""

    signal: str
    count: int
    newest_at: str
    awaited_by: tuple[str, ...]


class RunExplanation(Struct, frozen=True, kw_only=True):
    """Reply of run.explain. A settled run has no reasons; `summary` is one line for a person, which
    for one that failed says where, why, and what continues it."""

    run_id: str
    workflow: str
    status: str
    summary: str
    wake_at: str | None
    reasons: tuple[ReasonView, ...]
    reasons_omitted: int | UnsetType = UNSET
    """How many more reasons there are than one message holds."""
    kept_signals: tuple[KeptSignalView, ...] | UnsetType = UNSET
    """The signals (at most 20 names) that came and that no step has taken."""


class RetriedRun(Struct, frozen=True, kw_only=True):
    """Reply of run.retry and run.redrive: the steps that are done again, in order of path.

    With `dry_run` nothing was changed, and `status` is what the run would have. `deduplicated` is
    true of a repeat: it changed nothing, `status` is that of now, and `steps` is empty.
    """

    run_id: str
    status: str
    steps: tuple[str, ...]
    dry_run: bool
    deduplicated: bool | UnsetType = UNSET


class RestartedRun(Struct, frozen=True, kw_only=True):
    """Reply of run.restart: the new run. `deduplicated`: an earlier request started it."""

    run_id: str
    deduplicated: bool


class PauseView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause of a workflow, version (`name@3`), queue or task: who, why, since when."""

    scope: str
    name: str
    at: str
    by: str | None = None
    reason: str | None = None


class PauseList(Struct, frozen=True, kw_only=True):
    """Reply of pause.list, by scope and name. `next_cursor` is only there when more follow."""

    pauses: tuple[PauseView, ...]
    next_cursor: str | UnsetType = UNSET


class PauseChanged(Struct, frozen=True, kw_only=True):
    """Reply of pause and resume of a workflow, queue or task. `changed` False: it was so before."""

    scope: str
    name: str
    paused: bool
    changed: bool


class PausedRun(Struct, frozen=True, kw_only=True):
    """Reply of run.pause and run.resume. `changed` False: it was so before."""

    run_id: str
    status: str
    paused: bool
    changed: bool


class QueueView(Struct, frozen=True, kw_only=True):
    """A queue: `ready` steps are held back in Postgres, `dispatched` wait in the stream for a
    worker, `delivered` are with a worker. `pulls` counts the pull requests that wait."""

    queue: str
    pause: PauseView | None
    ready: int
    dispatched: int
    delivered: int
    pulls: int
    workers: int
    oldest_ready_at: str | None
    nobody_pulls_since: str | None


class QueueList(Struct, frozen=True, kw_only=True):
    """Reply of queue.list, by name."""

    queues: tuple[QueueView, ...]


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker on a queue, as its last heartbeat said. `live`: that was not long ago, and it was no
    goodbye. `draining`: it takes no more."""

    worker_id: str
    queue: str
    tasks: tuple[str, ...]
    slots: int
    running: int
    sdk: str
    first_seen_at: str
    last_seen_at: str
    live: bool
    draining: bool | UnsetType = UNSET


class WorkerList(Struct, frozen=True, kw_only=True):
    """Reply of worker.list, by queue and worker id."""

    workers: tuple[WorkerView, ...]
    next_cursor: str | None


class DiscardedDeadLetters(Struct, frozen=True, kw_only=True):
    """Reply of dead-letter.discard: how many were deleted."""

    discarded: int


class ReplayedDeadLetter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one letter: `applied`, `stale`, `duplicate`, `failed` (it stays) or
    `not_found`. `run_id` is the run that it was applied to, or that was there already: a start that
    is answered with a run that exists is a `duplicate`."""

    id: str
    outcome: str
    run_id: str | None = None
    error: ErrorInfo | None = None


class ReplayedDeadLetters(Struct, frozen=True, kw_only=True):
    """Reply of dead-letter.replay, in the order of the ids."""

    results: tuple[ReplayedDeadLetter, ...]


class RetentionView(Struct, frozen=True, kw_only=True):
    """Reply of workflow.retention. `retention_ms` None: the engine's setting counts."""

    workflow: str
    retention_ms: int | None


class PurgedRuns(Struct, frozen=True, kw_only=True):
    """Reply of run.purge: how many runs were deleted (with `dry_run`: would be), and whether more
    match."""

    purged: int
    more: bool
    dry_run: bool
