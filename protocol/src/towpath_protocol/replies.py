"""Replies of the API (PROTOCOL.md, "API"): what `P.api.<group>.<verb>` answers.

User values (`input`, `output`, `details`) are `Raw` JSON text. Instants are RFC 3339 texts in UTC
with microseconds. Which reply belongs to which request: `towpath_protocol.verbs.VERBS`.
"""

from msgspec import UNSET, Raw, Struct, UnsetType, field

from towpath_protocol.errors import ErrorInfo
from towpath_protocol.priorities import Priority
from towpath_protocol.raw import OptionalRaw


class DeployedWorkflow(Struct, frozen=True, kw_only=True):
    """Reply: the version that has this content. `created` False: it was there already (or a dry
    run, whose `version` is the one it would get)."""

    workflow: str
    version: int
    fingerprint: str
    created: bool


class WorkflowSummary(Struct, frozen=True, kw_only=True):
    """One version of a workflow."""

    workflow: str
    version: int
    fingerprint: str
    created_at: str


class WorkflowList(Struct, frozen=True, kw_only=True):
    """Reply of workflow.list, by name."""

    workflows: tuple[WorkflowSummary, ...]


class WorkflowView(Struct, frozen=True, kw_only=True):
    """Reply of workflow.get."""

    workflow: str
    version: int
    fingerprint: str
    created_at: str
    definition: Raw


class StartedRun(Struct, frozen=True, kw_only=True):
    """Reply of run.start. `deduplicated`: the run was there before."""

    run_id: str
    deduplicated: bool


class StartResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer of run.start-many: `run_id` and `deduplicated`, or `error`."""

    run_id: str | None = None
    deduplicated: bool | None = None
    error: ErrorInfo | None = None


class StartManyResults(Struct, frozen=True, kw_only=True):
    """Reply of run.start-many, in the order of the items."""

    results: tuple[StartResult, ...]


class SignalledRun(Struct, frozen=True, kw_only=True):
    """Reply of run.signal. `deduplicated`: the message id was seen before, nothing changed; then
    what became of the first one is not said."""

    run_id: str
    deduplicated: bool
    taken_by: str | UnsetType | None = UNSET
    """The step whose wait took the signal; None: it is kept, see `awaited_by`."""
    awaited_by: tuple[str, ...] | UnsetType = UNSET
    """With a kept signal: steps of the workflow (at most 10) that wait for this name at some time.
    None of them: the name may be misspelt."""


class SignalledStart(Struct, frozen=True, kw_only=True):
    """Reply of run.signal-with-start: whether the run, and whether the signal, was there before."""

    run_id: str
    deduplicated: bool
    signal_deduplicated: bool
    taken_by: str | UnsetType | None = UNSET
    awaited_by: tuple[str, ...] | UnsetType = UNSET
    """As in SignalledRun."""


class CancelledRun(Struct, frozen=True, kw_only=True):
    """Reply of run.cancel: where the run stands now."""

    run_id: str
    status: str


class ErrorView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a step or run failed. `attached` is a second failure that must not hide the first."""

    type: str
    message: str
    retryable: bool | UnsetType = UNSET
    details: OptionalRaw = None
    stack: str | None = None
    step: str | None = None
    attempt: int | None = None
    attached: str | None = None


class PartsView(Struct, frozen=True, kw_only=True):
    """How far a `parallel` or `map` step is: of `total` branches or items `started` were started,
    `open` of these have not settled, and `failed` have failed."""

    total: int
    started: int
    open: int
    failed: int


class StepView(Struct, frozen=True, kw_only=True):
    """A step of run.get. An output over 64 KiB is left out: `output_omitted` then says its size
    in bytes, and run.output has it. `error` of an open step is that of its last attempt; a step
    that completed has none.

    A branch (`notify/email`, kind `branch`) or an item (`lines[3]`, kind `item`) is one, too, and
    the steps in it (`lines[3]/reserve`). What has to be undone of an earlier visit is there as
    `reserve#1`; what lies below the second visit of a step as `lines~2[3]/reserve`.
    """

    step: str
    kind: str
    status: str
    attempt: int
    iteration: int
    output: OptionalRaw = None
    error: ErrorView | None = None
    worker_id: str | None = None
    started_at: str | None = None
    settled_at: str | None = None
    wake_at: str | None = None
    task: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    waiting_for: str | UnsetType = UNSET
    """While it waits: `delay`, `sleep`, `signal`, `backoff`, `repeat`, `released` or `child`."""
    signal: str | UnsetType = UNSET
    """The awaited signal, while it is awaited."""
    held_by: str | UnsetType = UNSET
    """While it is `ready`: what holds its dispatch back (see ReasonView of run.explain)."""
    output_omitted: int | UnsetType = UNSET
    visit: int | UnsetType = UNSET
    """Which visit it is, from the second on."""
    child_run_id: str | UnsetType = UNSET
    """Of a `run` step: the run that it started."""
    parts: PartsView | UnsetType = UNSET
    errors: Raw | UnsetType = UNSET
    """Of a settled `parallel` or `map` step: the errors of its parts, by branch or index."""
    errors_omitted: int | UnsetType = UNSET
    """The size of `errors` that do not fit; each is with its part."""


class PauseInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operator's pause of a run: since when, by whom and why."""

    at: str
    by: str | None = None
    reason: str | None = None


class RunView(Struct, frozen=True, kw_only=True):
    """Reply of run.get: the run with a page of at most 200 steps, in order of path.

    `compensation` says what became of the undoing, once it began: `compensating`, `compensated` or
    `compensation_failed`; while it goes on, `ending` says how the run then ends. As for steps, an
    `input` or `output` too large for one message is null here, with its size in bytes in
    `input_omitted` or `output_omitted`.
    """

    run_id: str
    workflow: str
    version: int
    key: str | None
    status: str
    compensation: str | None = None
    input: Raw
    output: OptionalRaw
    error: ErrorView | None
    priority: Priority
    tags: tuple[str, ...]
    context: Raw
    metadata: Raw
    created_at: str
    started_at: str | None
    settled_at: str | None
    deadline_at: str | None
    parent_run_id: str | None = None
    restarted_from: str | None = None
    triggered_by: str | None = None
    cancelled_by: str | UnsetType = UNSET
    cancel_reason: str | UnsetType = UNSET
    ending: str | UnsetType = UNSET
    """While steps are being undone: `failed`, `cancelled` or `timed_out`, for which they are."""
    parent_step: str | UnsetType = UNSET
    """The step of the parent that waits for this run; absent when nobody does."""
    pause: PauseInfo | UnsetType = UNSET
    """Present while an operator's pause of the run holds it."""
    steps: tuple[StepView, ...]
    steps_cursor: str | None
    input_omitted: int | UnsetType = UNSET
    output_omitted: int | UnsetType = UNSET


class OutputPiece(Struct, frozen=True, kw_only=True):
    """Reply of run.output. The `text`s of all pieces, joined, are the JSON text of the output.

    `size` is its length in bytes of UTF-8; `next_offset` is None after the last piece. Without
    an output `text` is None and `size` 0.
    """

    run_id: str
    step: str | None
    offset: int
    size: int
    text: str | None
    next_offset: int | None


class RunResult(Struct, frozen=True, kw_only=True):
    """Reply of run.result. Not `settled`: ask again. `output` only when completed."""

    run_id: str
    status: str
    settled: bool
    output: OptionalRaw = None
    error: ErrorView | None = None
    output_omitted: int | UnsetType = UNSET
    compensation: str | UnsetType = UNSET
    """As in RunView, when the run's steps were undone."""


class RunSummary(Struct, frozen=True, kw_only=True):
    """A line of run.list: a run without its values and steps."""

    run_id: str
    workflow: str
    version: int
    key: str | None
    status: str
    error: ErrorView | None
    priority: Priority
    tags: tuple[str, ...]
    created_at: str
    started_at: str | None
    settled_at: str | None
    paused: bool | UnsetType = UNSET
    compensation: str | UnsetType = UNSET


class RunList(Struct, frozen=True, kw_only=True):
    """Reply of run.list; `next_cursor` is None on the last page."""

    runs: tuple[RunSummary, ...]
    next_cursor: str | None


class TransitionView(Struct, frozen=True, kw_only=True):
    """One transition. `cause` is an object that says what made it happen (`type`, and who,
    which token, which message); `data` holds small facts for a reader."""

    seq: int
    at: str
    what: str
    step: str | None
    from_: str | None = field(name="from")
    to: str | None
    attempt: int | None
    iteration: int | None
    visit: int | None
    token: str | None
    cause: Raw
    data: OptionalRaw = None
    payload: OptionalRaw | UnsetType = UNSET
    """Only with `payloads`: the values of the event that a replay of the history needs, if any."""


class RunHistory(Struct, frozen=True, kw_only=True):
    """Reply of run.history. `next_after_seq` is None when there is no more for now."""

    transitions: tuple[TransitionView, ...]
    next_after_seq: int | None
    limits: Raw | UnsetType = UNSET
    """Only with `payloads`: the limits of a run under which the engine decides."""


class LogBatch(Struct, frozen=True, kw_only=True):
    """The lines of one report; `lines` is an array of `{at, level, message, fields}`."""

    number: int
    step: str
    attempt: int
    token: str
    at: str
    lines: Raw
    cut: bool | UnsetType = UNSET
    """True when older lines of the attempt, just before these, were dropped."""


class RunLogs(Struct, frozen=True, kw_only=True):
    """Reply of run.logs; `next_after` is None when there is no more for now."""

    logs: tuple[LogBatch, ...]
    next_after: int | None


class DeadLetterView(Struct, frozen=True, kw_only=True):
    """A message that could not be decoded, placed or applied.

    `reason` is an error code; `body` is base64 of at most its first 2 KiB, `body_bytes` its whole
    length.
    """

    id: str
    at: str
    reason: str
    message: str
    subject: str
    headers: dict[str, str]
    body: bytes
    body_bytes: int
    run_id: str | None
    step: str | None


class DeadLetterList(Struct, frozen=True, kw_only=True):
    """Reply of dead-letter.list."""

    dead_letters: tuple[DeadLetterView, ...]
    next_cursor: str | None
